"""One exchange with a target: what libcurl asks on the way, and what is kept of the answer."""

import re
import socket
from collections.abc import Callable
from typing import Final

import pycurl

from commandside.deliverer_port import (
    CONNECT_TIMEOUT_MS,
    KEPT_BODY_BYTES,
    KEPT_HEADERS,
    KEPT_VALUE_CHARS,
    RESPONSE_BYTES_MAX,
    Call,
)
from infra.targets.addresses import AddressBook
from infra.targets.pool import Pool

_CONNECT_US: Final = CONNECT_TIMEOUT_MS * 1_000
# libcurl reads HTTP/3.7 and a status of 2000 as well.
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})\s")
_STATUS_2 = re.compile(rb"HTTP/2 ([1-5][0-9]{2})\s")
_KEPT: Final = {name.encode(): name for name in KEPT_HEADERS}
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})


class _Lent(socket.socket):
    """A socket that pycurl duplicates and drops: this one ends without a warning."""

    def __del__(self) -> None:
        self.close()


class Exchange:
    """A reused easy handle, what was last set on it, and what came of its present call."""

    __slots__ = (
        *("_book", "_files", "_monotonic_us", "addresses", "body", "call", "connect_to", "curl"),
        *("custom", "head", "is_granted_2", "is_raced", "is_waiting", "kept", "mode", "pool"),
        *("requests", "size", "submitted_us", "timeouts", "tried", "url", "veto"),
    )

    def __init__(self, book: AddressBook, monotonic_us: Callable[[], int], files: int) -> None:
        """Sockets from the descriptor `files` on are refused: others need the rest."""
        self._book = book
        self._files = files
        self._monotonic_us = monotonic_us
        self.curl = pycurl.Curl()
        self.pool: Pool | None = None
        self.call: Call | None = None
        self.url = ""
        self.is_granted_2 = False
        """HTTP/2 may be spoken, if the target offers it."""
        self.is_raced = self.is_waiting = False
        self.mode = ""
        self.custom = ""
        self.connect_to = ""
        self.timeouts = (0, 0)
        self.addresses: tuple[str, ...] = ()
        self.begin(None, 0)

    def begin(self, call: Call | None, submitted_us: int) -> None:
        """Forget the last call, and take this one (None: rest)."""
        self.call = call
        self.submitted_us = submitted_us
        self.requests = 0
        self.veto = ""
        self.tried: tuple[str, ...] = ()
        """The addresses of a name that a connection was begun to."""
        self.size = 0
        self.kept = 0
        self.head: list[bytes] = []
        self.body: list[bytes] = []

    def on_socket(self, _purpose: int, address: tuple[int, int, int, tuple[str, int]]) -> object:
        """Judge the actual peer, and make the socket if it is allowed."""
        family, kind, protocol, peer = address
        # An IPv6 peer has four parts; a scope (the last) is never allowed.
        host = self.call.host if self.call is not None else ""
        if not self._book.allowed(peer[0], peer[1], host) or any(peer[3:]):
            self.veto = "blocked_address"
            return pycurl.SOCKET_BAD
        try:
            made = _Lent(family, kind, protocol)
        except OSError:
            # Out of descriptors, or a family that this machine has not: a failed attempt.
            self.veto = "connect"
            return pycurl.SOCKET_BAD
        if made.fileno() >= self._files:
            made.close()
            self.veto = "connect"
            return pycurl.SOCKET_BAD
        if self.pool is not None:
            self.pool.opened += 1
        if self.addresses:
            self.tried += (peer[0],)
        return made

    def on_request(self, *_connection: object) -> int:
        """Let the one request of the call go out, in time; libcurl's own repetition never."""
        if self.requests:
            self.veto = "reset"
            return pycurl.PREREQFUNC_ABORT
        if self.veto == "blocked_address":
            return pycurl.PREREQFUNC_ABORT
        # Another address of the race was reached.
        self.veto = ""
        call = self.call
        if call is None or self._monotonic_us() > call.not_after_us + _CONNECT_US:
            self.veto = "send_deadline"
            return pycurl.PREREQFUNC_ABORT
        self.requests = 1
        return pycurl.PREREQFUNC_OK

    def on_header(self, line: bytes) -> int | None:
        """Keep a header line; a return of a number ends the exchange."""
        self.size += len(line)
        if self.size > RESPONSE_BYTES_MAX:
            self.veto = "response_too_large"
            return -1
        self.head.append(line)
        return None

    def on_body(self, data: bytes) -> int | None:
        """Keep the beginning of the body; a return of a number ends the exchange."""
        self.size += len(data)
        if self.kept < KEPT_BODY_BYTES:
            self.body.append(data[: KEPT_BODY_BYTES - self.kept])
            self.kept += len(data)
        if self.size > RESPONSE_BYTES_MAX:
            self.veto = "response_too_large"
            return -1
        return None


def set_method(exchange: Exchange, call: Call) -> None:
    """Set the method and the body, and of them only what the last use left otherwise."""
    curl = exchange.curl
    if call.method == "HEAD":
        mode, usual = "head", "HEAD"
    elif call.body or call.method in _WITH_BODY:
        mode, usual = "body", "POST"
    else:
        mode, usual = "plain", "GET"
    if mode != exchange.mode:
        exchange.mode = mode
        option = {"head": pycurl.NOBODY, "body": pycurl.POST, "plain": pycurl.HTTPGET}[mode]
        if mode != "head":
            curl.setopt(pycurl.NOBODY, 0)
        curl.setopt(option, 1)
    if mode == "body":
        curl.setopt(pycurl.POSTFIELDS, call.body)
    custom = "" if call.method == usual else call.method
    if custom != exchange.custom:
        exchange.custom = custom
        if custom:
            curl.setopt(pycurl.CUSTOMREQUEST, custom)
        else:
            curl.unsetopt(pycurl.CUSTOMREQUEST)


def header_block(lines: list[bytes], *, two: bool = False) -> tuple[int, list[bytes]]:
    """Return status and lines of the final header block; 0 if it came not whole, or is broken."""
    first = 0
    for index, line in enumerate(lines):
        if line.startswith(b"HTTP/"):
            first = index
        elif line in (b"\r\n", b"\n"):
            status = (_STATUS_2 if two else _STATUS).match(lines[first])
            if status is None:
                return 0, []
            if status[1] >= b"200":
                # What follows are trailers.
                return int(status[1]), lines[first + 1 : index]
    return 0, []


def kept_headers(lines: list[bytes]) -> tuple[tuple[tuple[str, str], ...], str]:
    """Return the headers that are on the allow-list, cut and printable, and `Retry-After`."""
    kept: list[tuple[str, str]] = []
    retry_after = ""
    for line in lines:
        name, _, value = line.partition(b":")
        low = _KEPT.get(name.lower())
        if low is None:
            continue
        text = value[: KEPT_VALUE_CHARS + 1].decode("latin-1").strip(" \t\r\n")[:KEPT_VALUE_CHARS]
        if not text.isprintable():
            text = "".join(char if char.isprintable() else "?" for char in text)
        kept.append((low, text))
        if low == "retry-after" and not retry_after:
            retry_after = text
    return tuple(kept), retry_after
