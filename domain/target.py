"""Where a fire goes, and which addresses may be called at all; `queue_target` judges queues.

One parser judges the text of a URL, and its parts, never the text, are what the sender uses: two
parsers that read one URL differently are how a check is passed and another host is called. Text
and literal addresses are judged when a job is defined; names are resolved, and every address of
theirs judged by the same `address_allowed`, at every attempt.

The structs are stored inside events: fields are appended at the end only, with defaults.
"""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, assert_never
from unicodedata import category, normalize

import msgspec

from domain.refusal import Refused, token

URL_LENGTH_MAX: Final = 2048
HEADERS_MAX: Final = 20
HEADER_VALUE_MAX: Final = 1024
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
UNPRIVILEGED_PORT: Final = 1024
HOST_LENGTH_MAX: Final = 253
PLACES_KEPT: Final = 4_096
"""Judged pairs of host and port kept: jobs differ in what they call there."""
OPEN_PORTS: Final = frozenset({80, 443, 8080, 8443})

_PORTS: Final = range(1, 65536)
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?]*)([/?].*)?")
_PRINTABLE = re.compile(r"[\x21-\x7e]+")
_AUTHORITY = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]*)(?::(?P<port>.*))?")
_PORT = re.compile(r"[0-9]{1,5}")
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_QUAD = re.compile(r"(?:(?:0|[1-9][0-9]{0,2})\.){3}(?:0|[1-9][0-9]{0,2})")
_IDNA_KINDS = frozenset({"Ll", "Lm", "Lo", "Mc", "Mn", "Nd"})
_IDNA_OTHERS = frozenset("-\u00b7\u0375\u05f3\u05f4\u200c\u200d\u30fb\u3007")
_HEADER_NAME = re.compile(r"[A-Za-z0-9-]{1,64}")
_HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_SECRET_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,31}")
BASIC: Final = "basic"
"""The scheme of which a secret is `user:password`, sent as base64 (RFC 7617)."""

# Names that frame the message, that proxies set, or that Tocsin itself sends.
_OUR_HEADERS: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "forwarded",
        "host",
        "idempotency-key",
        "keep-alive",
        "te",
        "traceparent",
        "tracestate",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "via",
    }
)
_OUR_HEADER_PREFIXES: Final = ("proxy-", "tocsin-", "webhook-", "x-forwarded-")


class Range(msgspec.Struct, frozen=True, array_like=True):
    """One block of addresses of one family (`version` 4 or 6), both ends included."""

    version: int
    first: int
    last: int


class AddressRules(msgspec.Struct, frozen=True):
    """What the operator changed about the addresses that may be called.

    `allowed` opens ranges (and every port in them) that are closed by default; `extra_ports` opens
    ports from 1024 upwards on public addresses. `closed_ports` are closed on every other address,
    whatever is opened: those of our own engines, which ask nobody on loopback for a password.
    `hosts` are names (or `*.` and what they end in) that may lead into private networks, at every
    port; never to loopback, link-local or metadata addresses, which only a range opens. `denied`
    ranges are closed whatever is opened: public addresses of the installation's own, for instance.
    """

    allowed: tuple[Range, ...] = ()
    extra_ports: tuple[int, ...] = ()
    closed_ports: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    denied: tuple[Range, ...] = ()


class Header(msgspec.Struct, frozen=True, array_like=True):
    """A header of the tenant; `value` is ciphertext inside events and plain at the edges.

    One that names a secret has no value: it is `scheme`, if any, and what the secret is then.
    """

    name: str
    value: bytes
    secret: str = ""
    scheme: str = ""


class HttpTarget(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """An HTTP endpoint in parts, canonical: host in lower case without brackets.

    `path` is the origin form (path and query) exactly as typed, `url_typed` the URL as the tenant
    gave it, for showing only.
    """

    scheme: str
    host: str
    port: int
    path: str
    method: str
    headers: tuple[Header, ...]
    url_typed: str


class KafkaTarget(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A topic of a cluster that the operator has named; an empty key stands for the job's id."""

    connection: str
    topic: str
    key: str
    headers: tuple[Header, ...]


class AmqpTarget(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """An exchange of an AMQP 0-9-1 broker; the empty one routes to the queue of that name."""

    connection: str
    exchange: str
    routing_key: str
    headers: tuple[Header, ...]


class SqsTarget(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """A queue of an account; `group_id` is a FIFO queue's, and empty stands for the job's id."""

    connection: str
    queue: str
    group_id: str
    headers: tuple[Header, ...]


QueueTarget = KafkaTarget | AmqpTarget | SqsTarget
Target = HttpTarget | KafkaTarget | AmqpTarget | SqsTarget

KAFKA, AMQP, SQS = "kafka", "amqp", "sqs"
QUEUE_KINDS: Final[dict[type, str]] = {KafkaTarget: KAFKA, AmqpTarget: AMQP, SqsTarget: SQS}


def origin_of(target: Target) -> tuple[str, int]:
    """Return the service that a target is part of: host and port, or a connection as `kind:name`.

    Neither its neighbours on the host nor those elsewhere are slow when it is.
    """
    if isinstance(target, HttpTarget):
        return target.host, target.port
    return f"{QUEUE_KINDS[type(target)]}:{target.connection}", 0


def url_of(target: Target) -> str:
    """Return a target in one line, as lists show it."""
    match target:
        case HttpTarget():
            return target.url_typed
        case KafkaTarget():
            return f"kafka://{target.connection}/{target.topic}"
        case AmqpTarget():
            return f"amqp://{target.connection}/{target.exchange}/{target.routing_key}"
        case SqsTarget():
            return f"sqs://{target.connection}/{target.queue}"
        case _:
            assert_never(target)


Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def parse_range(text: str) -> Range | Refused:
    """Read a CIDR block such as `10.0.0.0/8`; a single address is a block of one."""
    try:
        network = ipaddress.ip_network(text, strict=True)
    except ValueError as reason:
        return Refused("", f"{text!r} is not a CIDR block: {reason}")
    first = int(network.network_address)
    return Range(network.version, first, first + network.num_addresses - 1)


def address_rules(
    allowed: Iterable[str] = (),
    extra_ports: Iterable[int] = (),
    closed_ports: Iterable[int] = (),
    hosts: Iterable[str] = (),
    denied: Iterable[str] = (),
) -> AddressRules:
    """Make rules of texts that were checked before; a wrong one is a bug of the caller."""
    return AddressRules(
        _blocks(*allowed),
        tuple(extra_ports),
        tuple(closed_ports),
        tuple(hosts),
        _blocks(*denied),
    )


def _blocks(*texts: str) -> tuple[Range, ...]:
    ranges = [parse_range(text) for text in texts]
    wrong = [item.detail for item in ranges if isinstance(item, Refused)]
    assert not wrong, wrong
    return tuple(item for item in ranges if isinstance(item, Range))


_CLOSED_V4: Final = _blocks(
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "168.63.129.16/32",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
)
_OPEN_V6: Final = _blocks("2000::/3")
_CLOSED_V6: Final = _blocks("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
_PRIVATE: Final = _blocks(
    "10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"
)
# Where clouds keep credentials of the machine, among the private ones.
_METADATA: Final = _blocks("100.100.100.200/32", "fd00:ec2::/32", "fd20:ce::/32")


def _within(address: Address, ranges: tuple[Range, ...]) -> bool:
    number, version = int(address), address.version
    return any(r.version == version and r.first <= number <= r.last for r in ranges)


def _public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return not _within(address, _CLOSED_V4)
    return _within(address, _OPEN_V6) and not _within(address, _CLOSED_V6)


def _port_open(port: int, rules: AddressRules) -> bool:
    return port in OPEN_PORTS or (port >= UNPRIVILEGED_PORT and port in rules.extra_ports)


def is_open_host(host: str, rules: AddressRules) -> bool:
    """Say whether a name, in lower case, may lead into private networks."""
    return is_host_of(host, rules.hosts)


def is_host_of(host: str, names: Iterable[str]) -> bool:
    """Say whether a host is one of these names, or ends in one of those that begin with `*.`."""
    return any(
        host == name or (name.startswith("*.") and host.endswith(name[1:])) for name in names
    )


def is_host_rule(text: str) -> bool:
    """Say whether a text can be one of the rules' `hosts`."""
    labels = text.removeprefix("*.").split(".")
    return not labels[-1][:1].isdigit() and all(map(_LABEL.fullmatch, labels))


def address_allowed(
    ip: str | bytes, port: int, rules: AddressRules, *, open_host: bool = False
) -> bool:
    """Say whether an attempt may connect to `ip` (canonical text, or packed bytes) and `port`.

    Anything that is not an address, and any IPv6 scope, is not allowed. `open_host`: by a name
    that may lead into private networks.
    """
    if port not in _PORTS:
        return False
    try:
        address = ipaddress.ip_address(ip)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
        return False
    if port in rules.closed_ports and not _public(address):
        return False
    if _within(address, rules.denied):
        return False
    if _within(address, rules.allowed):
        return True
    if open_host and _within(address, _PRIVATE):
        return not _within(address, _METADATA)
    return _public(address) and _port_open(port, rules)


def _parse_host(text: str, rules: AddressRules) -> str | Address:
    """Return a literal address or a lower-case name; raise ValueError with the reason."""
    if text.startswith("["):
        if "%" in text:
            raise ValueError("an IPv6 scope is not allowed")
        return ipaddress.IPv6Address(text[1:-1])
    name = text.lower()
    labels = name.split(".")
    # Resolvers read 127.1, 0x7f.1 and 2130706433 as addresses; so a numeric end must be a quad.
    if labels[-1][:1].isdigit():
        if not _QUAD.fullmatch(name):
            raise ValueError("a numeric host must be a plain dotted quad such as 93.184.216.34")
        return ipaddress.IPv4Address(name)
    if not labels[-1]:
        raise ValueError("the host is empty or ends in a dot")
    if len(labels) == 1 and not is_open_host(name, rules):
        raise ValueError("a host of a single label is not a public name")
    if len(name) > HOST_LENGTH_MAX or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("the host must be a DNS name of letters, digits, hyphens (IDNA A-labels)")
    if not all(_decodes(label) for label in labels if label.startswith("xn--")):
        raise ValueError("an xn-- label of the host is not one of IDNA 2008")
    return name


def _decodes(a_label: str) -> bool:
    coded = a_label.removeprefix("xn--")
    try:
        decoded = coded.encode().decode("punycode")
        if decoded.isascii() or decoded.encode("punycode").decode() != coded:
            return False
        # IDNA 2008 has letters, marks and digits that are their own normal form, and few others.
        kinds = (char in _IDNA_OTHERS or category(char) in _IDNA_KINDS for char in decoded)
        return normalize("NFKC", decoded) == decoded and all(kinds)
    except (ValueError, OverflowError):
        return False


def _split(url: str) -> tuple[str, str, str]:
    """Return scheme, authority and origin form; raise ValueError with the reason."""
    if not 0 < len(url) <= URL_LENGTH_MAX:
        raise ValueError(f"a URL has 1 to {URL_LENGTH_MAX} characters")
    if not _PRINTABLE.fullmatch(url):
        raise ValueError("printable ASCII without blanks: a name as A-label, a path %-encoded")
    if "\\" in url or "#" in url:
        raise ValueError("a backslash or a fragment (#) is not allowed")
    parts = _URL.fullmatch(url)
    if parts is None or (scheme := parts[1].lower()) not in DEFAULT_PORTS:
        raise ValueError("an absolute URL that begins with http:// or https://")
    rest = parts[3] or "/"
    return scheme, parts[2], rest if rest[0] == "/" else "/" + rest


@lru_cache(PLACES_KEPT)
def _place(scheme: str, authority: str, rules: AddressRules) -> tuple[str, int]:
    """Return host and port, which may be called; raise ValueError with the reason."""
    if "@" in authority:
        raise ValueError(
            'credentials in a URL are not allowed: say {"secret": "name"} in target.credentials'
        )
    parts = _AUTHORITY.fullmatch(authority)
    if parts is None:
        raise ValueError("the host is not readable")
    # RFC 3986 lets the port be empty, which means the default one.
    port_text = parts["port"] or str(DEFAULT_PORTS[scheme])
    if not _PORT.fullmatch(port_text) or int(port_text) not in _PORTS:
        raise ValueError("the port must be a number from 1 to 65535")
    port = int(port_text)
    host = _parse_host(parts["host"], rules)
    _judge(host, port, rules)
    return str(host), port


def _judge(host: str | Address, port: int, rules: AddressRules) -> None:
    if isinstance(host, str):
        # A name may resolve into a range that the operator opened, which lifts the rule on ports.
        lifted = rules.allowed or is_open_host(host, rules)
        if not lifted and not _port_open(port, rules):
            raise ValueError(f"port {port} is not open to targets")
    elif not address_allowed(host.packed, port, rules):
        if _public(host):
            raise ValueError(f"port {port} is not open to targets")
        raise ValueError("this address is not open to targets: ask your operator to allow it")


def parse_headers(headers: Mapping[str, object]) -> tuple[tuple[Header, ...], list[Refused]]:
    """Return the headers that are sendable, and why the others are not."""
    base = "/target/headers"
    if len(headers) > HEADERS_MAX:
        return (), [Refused(base, f"at most {HEADERS_MAX} headers")]
    kept: list[Header] = []
    wrong: list[Refused] = []
    seen: set[str] = set()
    for name, value in headers.items():
        pointer = f"{base}/{token(name)}"
        low = name.lower()
        if not _HEADER_NAME.fullmatch(name):
            wrong.append(Refused(pointer, "a name has 1 to 64 letters, digits and hyphens"))
        elif low in _OUR_HEADERS or low.startswith(_OUR_HEADER_PREFIXES):
            wrong.append(Refused(pointer, "this header is set by the scheduler or by HTTP itself"))
        elif low in seen:
            wrong.append(Refused(pointer, "the header is given twice"))
        elif isinstance(value, dict):
            named = _named(name, value, pointer)
            if isinstance(named, Header):
                kept.append(named)
            else:
                wrong.append(named)
        elif not isinstance(value, str) or not is_header_value(value):
            wrong.append(Refused(pointer, _A_VALUE))
        else:
            kept.append(Header(name, value.encode("ascii")))
        seen.add(low)
    return tuple(kept), wrong


_A_VALUE: Final = (
    f"a value is 1 to {HEADER_VALUE_MAX} printable ASCII characters without blanks at its ends,"
    ' or {"secret": "name"}'
)


def is_header_value(value: str) -> bool:
    """Tell whether a text can be the value of a header as it is."""
    return len(value) <= HEADER_VALUE_MAX and _HEADER_VALUE.fullmatch(value) is not None


def is_secret_name(name: str) -> bool:
    """Tell whether a secret can have this name."""
    return _SECRET_NAME.fullmatch(name) is not None


def _named(name: str, value: Mapping[str, object], pointer: str) -> Header | Refused:
    """Read a header whose value is a secret, by its name."""
    strange = next((field for field in value if field not in ("secret", "scheme")), None)
    if strange is not None:
        return Refused(f"{pointer}/{token(strange[:64])}", "unknown field; secret, scheme")
    secret, scheme = value.get("secret"), value.get("scheme", "")
    if not isinstance(secret, str) or not is_secret_name(secret):
        detail = "the name of a secret: 1 to 64 letters, digits, hyphens, dots and underscores"
        return Refused(f"{pointer}/secret", detail)
    if not isinstance(scheme, str) or ("scheme" in value and not _SCHEME.fullmatch(scheme)):
        return Refused(f"{pointer}/scheme", "the word before the secret, such as Bearer or Basic")
    return Header(name, b"", secret, scheme)


def parse_http_target(
    url: str, method: str, headers: Mapping[str, object], rules: AddressRules
) -> HttpTarget | tuple[Refused, ...]:
    """Judge a target as it was typed: its parts, or every reason why it cannot be called."""
    wrong: list[Refused] = []
    scheme, host, port, path = "", "", 0, ""
    try:
        scheme, authority, path = _split(url)
        host, port = _place(scheme, authority, rules)
    except ValueError as reason:
        wrong.append(Refused("/target/url", str(reason)))
    if method not in METHODS:
        wrong.append(Refused("/target/method", f"one of {', '.join(METHODS)}"))
    kept, wrong_headers = parse_headers(headers)
    wrong += wrong_headers
    return tuple(wrong) or HttpTarget(scheme, host, port, path, method, kept, url)
