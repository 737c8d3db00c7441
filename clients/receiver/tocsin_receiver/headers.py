"""Finds Tocsin's headers in whatever form a framework gives headers in."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from tocsin_receiver.refused import Refused

Pair = tuple[str | bytes, str | bytes]
Headers = Mapping[str, str] | Iterable[Pair]
"""A mapping, or pairs of text or bytes (as ASGI has them); names in any case."""

KNOWN: Final = frozenset(
    {
        "content-type",
        "idempotency-key",
        "tocsin-attempt",
        "tocsin-completion-token",
        "tocsin-fence",
        "tocsin-job-id",
        "tocsin-possible-duplicate",
        "tocsin-run-id",
        "tocsin-scheduled-for",
        "traceparent",
        "webhook-id",
        "webhook-signature",
        "webhook-timestamp",
    }
)
VALUE_CHARS_MAX: Final = 4_096
"""Ours are shorter than 300; a longer one is not looked at."""


def known_headers(headers: Headers) -> dict[str, str]:
    """Return the headers of `KNOWN` by their lower-case name; raise Refused for a repeated one."""
    pairs: Iterable[Any] = headers.items() if isinstance(headers, Mapping) else headers
    found: dict[str, str] = {}
    for raw_name, raw_value in pairs:
        name = _text(raw_name).lower()
        if name not in KNOWN:
            continue
        if name in found:
            raise Refused("repeated", f"{name} is there more than once: send it once")
        value = _text(raw_value)
        if len(value) > VALUE_CHARS_MAX:
            raise Refused("malformed", f"{name} is longer than {VALUE_CHARS_MAX} characters")
        found[name] = value
    return found


def environ_headers(environ: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the headers of a WSGI environment."""
    for name, value in environ.items():
        if name == "CONTENT_TYPE":
            yield "content-type", value
        elif name.startswith("HTTP_"):
            yield name[5:].replace("_", "-"), value


def _text(raw: object) -> str:
    if isinstance(raw, bytes):
        return raw.decode("latin-1")
    if isinstance(raw, str):
        return raw
    raise Refused("malformed", f"a header is a {type(raw).__name__}, and neither text nor bytes")
