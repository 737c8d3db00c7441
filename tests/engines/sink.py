"""A target on a real socket that does what it is told, and notes every byte it is sent."""

import contextlib
import socket
import ssl
import struct
import threading
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

import msgspec

from tests.contracts.deliverer import Behaviour

PATIENCE_S: Final = 20.0
RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER so that a close is a reset."""


class Request(msgspec.Struct, frozen=True):
    """A request as it came; `connection` counts connections from 1."""

    connection: int
    head: bytes
    body: bytes

    @property
    def path(self) -> str:
        return self.head.split(b" ", 2)[1].decode()

    @property
    def lines(self) -> list[bytes]:
        return self.head.split(b"\r\n")[1:]

    def header(self, name: str) -> str:
        """Return the value of a header, empty where it did not come."""
        for line in self.lines:
            found, _, value = line.partition(b":")
            if found.decode().lower() == name.lower():
                return value.strip().decode()
        return ""


class Line:
    """The target's end of one connection: what a fault does, it does here."""

    def __init__(self, connection: socket.socket, closing: threading.Event) -> None:
        self._connection = connection
        self._closing = closing

    def say(self, data: bytes) -> None:
        """Send; raises OSError once the caller has gone."""
        self._connection.sendall(data)

    def rest(self, seconds: float) -> None:
        """Let time pass; raises OSError when the target is closed meanwhile."""
        if self._closing.wait(seconds):
            raise ConnectionAbortedError

    def hang(self) -> None:
        """Say nothing until the caller has gone, or the target is closed."""
        while self._connection.recv(65_536):
            pass
        raise ConnectionAbortedError

    def reset(self) -> None:
        """End the connection without a goodbye."""
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self._connection.close()


Fault = Callable[[Line, Request, Callable[[], None]], bool]
"""Deals with one request, calls its third argument at its point, before a caller can see what it
does there, and returns whether the connection stays. `tests.engines.sink_faults` has those that
targets are known for."""


class TargetServer:
    """Serves in threads of its own until it is left."""

    def __init__(
        self,
        tls: ssl.SSLContext | None = None,
        greeting: bytes = b"",
        *,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.requests: list[Request] = []
        self.connections = 0
        self.called: list[str] = []
        """At which of the machine's addresses each connection was made."""
        self.reached: Counter[str] = Counter()
        """How often the fault of a path came to its point."""
        self.handshakes = 0
        """TLS handshakes that were begun by a caller, whatever came of them."""
        self._behaviours: dict[str, Behaviour | bytes | Fault] = {}
        self._last: set[str] = set()
        self._tls = tls
        self._greeting = greeting
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family)
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._closing = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.set()
        # A blocked accept or recv ends by shutdown, not by close.
        for opened in [self._listener, *self._open]:
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
            opened.close()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()

    def behave(self, path: str, behaviour: Behaviour | bytes | Fault) -> None:
        """Answer this path so; bytes are sent as they are."""
        self._behaviours[path] = behaviour

    def close_after(self, path: str) -> None:
        """Close the connection after answering this path, without saying so."""
        self._last.add(path)

    def tidy(self) -> None:
        """Forget connections that have ended."""
        self._threads = [one for one in self._threads if one.is_alive()]
        self._open = [one for one in self._open if one.fileno() >= 0]

    def at(self, path: str) -> list[Request]:
        """Return the requests for a path."""
        return [request for request in self.requests if request.path == path]

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self.called.append(connection.getsockname()[0])
            connection.settimeout(PATIENCE_S)
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection, self.connections))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        # Whoever calls may go away at any point: that is the end of this connection only.
        with contextlib.suppress(OSError):
            if self._tls is not None:
                if connection.recv(1, socket.MSG_PEEK):
                    self.handshakes += 1
                connection = self._tls.wrap_socket(connection, server_side=True)
                self._open.append(connection)
            connection.sendall(self._greeting)
            with connection, connection.makefile("rb") as stream:
                while True:
                    head = b""
                    while not head.endswith(b"\r\n\r\n"):
                        line = stream.readline(65_537)
                        if not line:
                            return
                        head += line
                    length = [
                        int(line[15:])
                        for line in head.split(b"\r\n")
                        if line.lower().startswith(b"content-length:")
                    ]
                    body = stream.read(length[0] if length else 0)
                    request = Request(number, head[:-4], body)
                    self.requests.append(request)
                    if not self._answer(connection, request):
                        return

    def _answer(self, connection: socket.socket, request: Request) -> bool:
        """Answer, and say whether the connection stays."""
        behaviour = self._behaviours.get(request.path, Behaviour())
        if isinstance(behaviour, bytes):
            connection.sendall(behaviour)
            return request.path not in self._last
        if not isinstance(behaviour, Behaviour):

            def reached() -> None:
                self.reached[request.path] += 1

            return behaviour(Line(connection, self._closing), request, reached)
        if behaviour.end == "cut":
            return False
        if behaviour.end == "garbage":
            connection.sendall(b"220 mail.example.com ready\r\n")
            return False
        if behaviour.end == "silent":
            return True
        length = len(behaviour.body) + (100 if behaviour.end == "stalled" else 0)
        head = f"HTTP/1.1 {behaviour.status} As told\r\n"
        if behaviour.status not in (204, 304):
            head += f"Content-Length: {length}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in behaviour.headers)
        connection.sendall(head.encode() + b"\r\n" + behaviour.body)
        return request.path not in self._last
