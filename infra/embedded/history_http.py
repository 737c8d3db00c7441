"""A small HTTP/1.1 server for loopback: whole requests in, whole responses out.

One thread per connection, since the engine's calls block; connections, header bytes, body bytes,
waits and idle times are bounded. The protocol itself is h11's.
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

import h11
import msgspec

_RECEIVE_BYTES = 256 * 1024
_BACKLOG = 64


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of one server."""

    # A projector, a few queries and a person with curl; each is a thread.
    connections_max: int = 64
    # 5,000 history rows are about 0.5 MB.
    body_bytes_max: int = 128 * 1024 * 1024
    # Bound parameters travel in the URL; ClickHouse allows 1 MiB.
    header_bytes_max: int = 1024 * 1024
    # Longer than clients pause between batches, so that they keep their connection.
    idle_timeout_s: float = 120.0
    transfer_timeout_s: float = 30.0


class Request(NamedTuple):
    """One request; header names in lower case."""

    method: str
    path: str
    params: dict[str, str]
    headers: dict[str, str]
    body: bytes


class Response(NamedTuple):
    """One response; Content-Length is added."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _TooLargeError(Exception):
    """The body passed its bound."""


class HttpServer:
    """Answers on a listening socket until `close`."""

    def __init__(
        self, listener: socket.socket, answer: Callable[[Request], Response], limits: Limits
    ) -> None:
        """Take over the socket; nothing is accepted before `serve`."""
        self._listener = listener
        self._answer = answer
        self._limits = limits
        self._changed = threading.Condition()
        self._idle: dict[socket.socket, bool] = {}
        self._closing = False

    def serve(self) -> None:
        """Accept connections; returns once `close` was called."""
        self._listener.listen(_BACKLOG)
        while True:
            try:
                client, _address = self._listener.accept()
            except OSError:
                if self._closing:
                    return
                raise
            with self._changed:
                welcome = not self._closing and len(self._idle) < self._limits.connections_max
                if welcome:
                    self._idle[client] = True
            if not welcome:
                client.close()
                continue
            threading.Thread(target=self._converse, args=(client,), daemon=True).start()

    def close(self, timeout_s: float) -> None:
        """Accept nothing more, let requests in progress be answered, hang up."""
        with self._changed:
            self._closing = True
            _hang_up(self._listener)
            self._listener.close()
            for client, idle in self._idle.items():
                if idle:
                    _hang_up(client)
            self._changed.wait_for(lambda: not self._idle, timeout_s)
            for client in self._idle:
                _hang_up(client)

    def _converse(self, client: socket.socket) -> None:
        try:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._exchange_until_closed(client)
        except (OSError, h11.RemoteProtocolError, h11.LocalProtocolError):
            return  # the client went away or does not speak HTTP: nobody is left to tell
        finally:
            client.close()
            with self._changed:
                del self._idle[client]
                self._changed.notify_all()

    def _exchange_until_closed(self, client: socket.socket) -> None:
        wire = h11.Connection(h11.SERVER, max_incomplete_event_size=self._limits.header_bytes_max)
        while True:
            client.settimeout(self._limits.idle_timeout_s)
            try:
                request = self._read(client, wire)
            except _TooLargeError:
                self._write(client, wire, Response(413, {"Connection": "close"}, b"too large\n"))
                return
            if request is None:
                return
            self._write(client, wire, self._answer(request))
            with self._changed:
                self._idle[client] = True
                if self._closing:
                    return
            if wire.our_state is not h11.DONE or wire.their_state is not h11.DONE:
                return
            wire.start_next_cycle()

    def _read(self, client: socket.socket, wire: h11.Connection) -> Request | None:
        head: h11.Request | None = None
        parts: list[bytes] = []
        size = 0
        while True:
            event = wire.next_event()
            if event is h11.NEED_DATA:
                if wire.they_are_waiting_for_100_continue:
                    go_on = h11.InformationalResponse(status_code=100, headers=[])
                    client.sendall(wire.send(go_on) or b"")
                wire.receive_data(client.recv(_RECEIVE_BYTES))
            elif isinstance(event, h11.Request):
                head = event
                with self._changed:
                    self._idle[client] = False
                client.settimeout(self._limits.transfer_timeout_s)
            elif isinstance(event, h11.Data):
                size += len(event.data)
                if size > self._limits.body_bytes_max:
                    raise _TooLargeError
                parts.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                return _request(head, b"".join(parts))
            else:
                return None

    def _write(self, client: socket.socket, wire: h11.Connection, response: Response) -> None:
        headers = [*response.headers.items(), ("Content-Length", str(len(response.body)))]
        head = h11.Response(
            status_code=response.status,
            headers=[(name.encode(), _one_line(value)) for name, value in headers],
        )
        client.sendall(wire.send(head) or b"")
        client.sendall(wire.send(h11.Data(data=response.body)) or b"")
        client.sendall(wire.send(h11.EndOfMessage()) or b"")


def _request(head: h11.Request, body: bytes) -> Request:
    target = urlsplit(head.target.decode("ascii"))
    return Request(
        head.method.decode("ascii"),
        target.path,
        dict(parse_qsl(target.query, keep_blank_values=True)),
        {name.decode("ascii"): value.decode("latin-1") for name, value in head.headers},
        body,
    )


def _one_line(value: str) -> bytes:
    return value.replace("\r", " ").replace("\n", " ").encode("latin-1", errors="replace")


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it may have ended on its own
        connection.shutdown(socket.SHUT_RDWR)
