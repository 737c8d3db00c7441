"""What targets are known to do, each as a fault of `tests.engines.sink`."""

import gzip
from collections.abc import Callable
from typing import Final

from tests.engines.sink import Fault, Line, Request

Reached = Callable[[], None]

BEAT_S: Final = 0.02
ENDLESS: Final = 10 << 30
"""Bytes that an endless answer promises; nobody may read so many."""
PIECE: Final = bytes(65_536)


def answer(status: int = 200, body: bytes = b"ok", *headers: str) -> bytes:
    """Return a whole answer."""
    lines = [f"HTTP/1.1 {status} As told", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def says(status: int = 200, *headers: str) -> Fault:
    """Answer so: a status, a `Location`, a `Retry-After`."""

    def fault(line: Line, _request: Request, reached: Reached) -> bool:
        reached()
        line.say(answer(status, b"ok", *headers))
        return True

    return fault


def in_turn(*faults: Fault) -> Fault:
    """Do the first at the first request, the next at the next, and the last ever after."""
    left = list(faults)

    def fault(line: Line, request: Request, reached: Reached) -> bool:
        return (left.pop(0) if len(left) > 1 else left[0])(line, request, reached)

    return fault


def late(seconds: float, status: int = 200) -> Fault:
    """Answer whole, but not at once."""

    def fault(line: Line, _request: Request, reached: Reached) -> bool:
        line.rest(seconds)
        reached()
        line.say(answer(status))
        return True

    return fault


def hang(line: Line, _request: Request, reached: Reached) -> bool:
    """Take the request, and never say a word."""
    reached()
    line.hang()
    return False


def drip(begin: bytes, drop: bytes) -> Fault:
    """Say the beginning at once, and the rest drop by drop without end."""

    def fault(line: Line, _request: Request, reached: Reached) -> bool:
        line.say(begin)
        for count in range(1_000_000):
            line.rest(BEAT_S)
            if count == 1:
                reached()
            line.say(drop)
        return False

    return fault


DRIPPED_HEAD: Final = drip(b"HTTP/1.1 200 OK\r\nX-Slow: ", b"a")
DRIPPED_BODY: Final = drip(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"a")


def reset(said: bytes = b"") -> Fault:
    """Say this much, and end the connection without a goodbye."""

    def fault(line: Line, _request: Request, reached: Reached) -> bool:
        line.say(said)
        if said:
            # A reset discards what the caller has not read yet.
            line.rest(0.2)
        reached()
        line.reset()
        return False

    return fault


def cut(said: bytes) -> Fault:
    """Say this much, and close in order."""

    def fault(line: Line, _request: Request, reached: Reached) -> bool:
        reached()
        line.say(said)
        return False

    return fault


def flood(begin: bytes, piece: bytes, whole: int = ENDLESS) -> Fault:
    """Say the beginning, and then the same piece without end; the caller has to go."""

    def fault(line: Line, _request: Request, reached: Reached) -> bool:
        line.say(begin)
        said = 0
        try:
            while said < whole:
                line.say(piece)
                said += len(piece)
        except OSError:
            reached()
            raise
        return False

    return fault


ENDLESS_BODY: Final = flood(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % ENDLESS, PIECE)
BOMB: Final = flood(
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 10485760\r\n\r\n",
    gzip.compress(bytes(10 << 20)),
    10 << 20,
)
"""Ten megabytes that would be ten gigabytes if anybody unpacked them."""
MANY_HEADERS: Final = flood(b"HTTP/1.1 200 OK\r\n", b"X-Many: " + b"y" * 90 + b"\r\n")
LONG_HEADER: Final = flood(b"HTTP/1.1 200 OK\r\nX-Long: ", b"y" * 65_536)
INFORMATIONAL: Final = flood(b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 100)
