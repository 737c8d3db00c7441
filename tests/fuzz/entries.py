"""What is fuzzed: each entry takes any bytes, and fails where something does not hold of them.

`tests/fuzz/run.py` guides them by coverage (`make fuzz`); `test_replay.py` replays their seeds.
"""

import ipaddress
import time
from collections.abc import Callable
from functools import cache
from typing import Final
from urllib.parse import urlsplit

import msgspec

from commandside.deliverer_port import (
    ERRORS,
    KEPT_BODY_BYTES,
    KEPT_HEADERS,
    KEPT_VALUE_CHARS,
    RESPONSE_BYTES_MAX,
    Answer,
    Call,
)
from domain.retry import retry_after_ms
from domain.target import (
    HttpTarget,
    address_allowed,
    address_rules,
    is_header_value,
    parse_headers,
    parse_http_target,
)
from infra.targets.addresses import AddressBook, is_literal
from infra.targets.curl import CurlDeliverer
from infra.targets.exchange import header_block, kept_headers
from infra.targets.resolver import ThreadedResolver
from tests.engines.sink import TargetServer
from tests.security.ssrf.forms import readings

NOW: Final = 1_800_000_000_000
DAY_MS: Final = 86_400_000
PATIENCE_S: Final = 20.0
TIMEOUT_MS: Final = 2_000
LONGEST: Final = 4 * RESPONSE_BYTES_MAX
STRICT: Final = address_rules()
LOOSE: Final = address_rules(("10.0.0.0/8",), (9_000,), (8_080,), ("billing.corp", "*.svc.corp"))


def url(data: bytes) -> None:
    """Whatever URL is accepted has one reading, and that reading is open."""
    try:
        text = data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        text = data.decode("utf-8", "replace")
    for rules in (STRICT, LOOSE):
        found = parse_http_target(text, "POST", {}, rules)
        if not isinstance(found, HttpTarget):
            assert {one.pointer for one in found} == {"/target/url"}
            assert all(one.detail for one in found)
            continue
        host, port = found.host, found.port
        assert found.scheme in ("http", "https")
        assert found.path.startswith("/")
        assert all("\x20" < char < "\x7f" and char not in "#\\" for char in found.path)
        assert host
        assert host == host.lower()
        assert not set(host) & set("@/\\?#[]%_ ")
        if is_literal(host):
            assert str(ipaddress.ip_address(host)) == host
            assert address_allowed(host, port, rules)
        bracketed = f"[{host}]" if ":" in host else host
        again = f"{found.scheme}://{bracketed}:{port}{found.path}"
        if len(again) <= 2048:
            parsed = parse_http_target(again, "POST", {}, rules)
            assert isinstance(parsed, HttpTarget)
            assert (parsed.host, parsed.port, parsed.path) == (host, port, found.path)
            assert urlsplit(again).hostname == host
        assert {_plain(read) for read, _ in readings(text)} == {host}, readings(text)


def _plain(host: str) -> str:
    return str(ipaddress.IPv6Address(host)) if ":" in host else host.lower()


def headers(data: bytes) -> None:
    """Whatever headers are accepted are one line each, and no name is ours."""
    pairs = [line.partition("=") for line in data.decode("utf-8", "replace").split("\x1e")]
    given: dict[str, object] = {name: value for name, _, value in pairs}
    kept, wrong = parse_headers(given)
    if len(given) <= 20:
        assert len(kept) + len(wrong) == len(given)
    for header in kept:
        line = header.name.encode("ascii") + b": " + header.value
        assert not set(line) - set(range(0x20, 0x7F))
        assert header.value == header.value.strip()
        assert is_header_value(header.value.decode())


def answer(data: bytes) -> None:
    """Whatever lines come, what is kept of them can be stored."""
    lines = data.splitlines(keepends=True)
    status, block = header_block(lines)
    assert status == 0 or 200 <= status <= 599
    kept, wish = kept_headers(block)
    _kept(kept, wish)


def wire(data: bytes) -> None:
    """Whatever a target says, there is one answer to its call, and it can be stored."""
    got = _desk().answer(data[:LONGEST])
    assert got.error == "" or got.error in ERRORS
    assert got.sent
    assert got.status or got.error
    assert got.status == 0 or 200 <= got.status <= 599
    assert len(got.body) <= KEPT_BODY_BYTES
    _kept(got.headers, got.retry_after)


def _kept(kept: tuple[tuple[str, str], ...], wish: str) -> None:
    for name, value in kept:
        assert name in KEPT_HEADERS
        assert value.isprintable()
        assert len(value) <= KEPT_VALUE_CHARS
    wait = retry_after_ms(wish, NOW) if wish else 0
    assert wait == 0 or 1_000 <= wait <= DAY_MS
    assert msgspec.json.decode(msgspec.json.encode(kept)) == [list(one) for one in kept]


class _Desk:
    """A deliverer and a target that says the bytes at hand, and closes."""

    def __init__(self) -> None:
        self._sink = TargetServer()
        self._sink.__enter__()
        self._sink.close_after("/")
        resolver = ThreadedResolver(("127.0.0.1",))
        book = AddressBook(address_rules(("127.0.0.0/8",)))
        self._deliverer = CurlDeliverer(book, resolver, concurrency=1)
        self._count = 0

    def answer(self, data: bytes) -> Answer:
        """Return what comes of a call that is answered so."""
        self._count += 1
        self._sink.behave("/", data)
        until_us = time.monotonic_ns() // 1000 + 60_000_000
        place = ("http", "127.0.0.1", self._sink.port, "/", "POST")
        call = Call(self._count, b"t" * 16, *place, [b"A: b"], b"{}", TIMEOUT_MS, until_us)
        self._deliverer.submit([call])
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            self._deliverer.wait(100)
            for got in self._deliverer.poll():
                assert got.token == self._count
                self._forget()
                return got
        raise AssertionError("no answer")

    def _forget(self) -> None:
        """Keep nothing of what has passed: there are many."""
        self._sink.requests.clear()
        self._sink.called.clear()
        self._sink.tidy()

    def close(self) -> None:
        self._deliverer.close()
        self._sink.__exit__(None, None, None)


@cache
def _desk() -> _Desk:
    return _Desk()


def close() -> None:
    """End what `wire` has started, whose threads would keep the process."""
    if _desk.cache_info().currsize:
        _desk().close()
        _desk.cache_clear()


ENTRIES: Final[dict[str, Callable[[bytes], None]]] = {
    "url": url,
    "headers": headers,
    "answer": answer,
    "wire": wire,
}
