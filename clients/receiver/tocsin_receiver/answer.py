"""An answer to a call: what is sent back, and what of it is kept to be repeated."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

BODY_BYTES_MAX: Final = 65_536
"""Tocsin reads no more of an answer, so no more is sent or kept."""

_REPEATED_HEADERS: Final = frozenset(
    {"content-encoding", "content-language", "content-type", "location", "tocsin-completion"}
)
"""Others (cookies, dates) belong to one exchange."""

REPEATED_MARK: Final = ("tocsin-repeated", "true")
"""Says that the handler did not run for this answer."""

_BODYLESS: Final = frozenset({204, 205, 304})
_FRAMING: Final = frozenset({"connection", "content-length", "keep-alive", "transfer-encoding"})


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, headers (lower-case names) and body."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = field(default=b"", repr=False)

    @property
    def succeeded(self) -> bool:
        """Tell whether Tocsin takes it as success: 2xx only."""
        return 200 <= self.status < 300  # noqa: PLR2004 - the range has this name

    @property
    def asynchronous(self) -> bool:
        """Tell whether the work goes on: such an answer ends the attempt, not the occurrence."""
        return self.status == 202 and (  # noqa: PLR2004 - Accepted
            "tocsin-completion",
            "async",
        ) in {(name, value.strip().lower()) for name, value in self.headers}

    def kept(self) -> "Answer":
        """Return what a store keeps of it."""
        headers = tuple((n, v) for n, v in self.headers if n in _REPEATED_HEADERS)
        return replace(self, headers=headers, body=self.body[:BODY_BYTES_MAX])

    def framed(self) -> list[tuple[str, str]]:
        """Return the headers for sending the body whole."""
        headers = [(n, v) for n, v in self.headers if n not in _FRAMING]
        if self.status not in _BODYLESS:
            headers.append(("content-length", str(len(self.body))))
        return headers


def made(status: int, headers: Iterable[tuple[str, str]], body: bytes) -> Answer:
    """Return an answer as an application gave it, with lower-case names, cut to what is sent."""
    lowered = tuple((name.lower(), value) for name, value in headers)
    return Answer(status, lowered, body[:BODY_BYTES_MAX])


def problem(status: int, reason: str, detail: str, retry_after_s: int = 0) -> Answer:
    """Return an answer that says why the handler did not run, as RFC 9457 has it."""
    said: dict[str, Any] = {"status": status, "title": reason, "detail": detail}
    headers = [("content-type", "application/problem+json")]
    if retry_after_s:
        headers.append(("retry-after", str(retry_after_s)))
    return Answer(status, tuple(headers), json.dumps(said).encode())
