"""A target that speaks HTTP/2 over TLS: frames are the `h2` library's, the misdeeds are ours."""

import contextlib
import socket
import ssl
import threading
from types import TracebackType
from typing import Final, Self

import h2.config
import h2.connection
import h2.errors
import h2.events

from tests.engines.sink import PATIENCE_S

HEADERS_FLOOD: Final = [("x-long", "y" * 4_000)] * 30
"""Past what an answer may have; a caller may refuse it earlier."""


class Http2Server:
    """Serves in threads of its own until it is left; what comes of a request is by its path.

    `/` is answered; `/gather` when so many as `gather` wait on its connection; `/refused` and
    `/cut` have their stream reset, before and after its headers; `/goodbye` has the connection
    ended by GOAWAY that names no stream; `/flood` gets headers without measure; `/silent` nothing.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self.requests: list[tuple[int, str, list[tuple[str, str]]]] = []
        """Connection, from 1, with path and headers of each request."""
        self.bodies: list[bytes] = []
        self.connections = 0
        self.gather = 0
        context.set_alpn_protocols(["h2", "http/1.1"])
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
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
        # A blocked accept or recv ends by shutdown, not by close.
        for opened in [self._listener, *self._open]:
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
            opened.close()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            self.connections += 1
            thread = threading.Thread(target=self._serve, args=(connection, self.connections))
            self._threads.append(thread)
            thread.start()

    def _serve(self, plain: socket.socket, number: int) -> None:
        # Whoever calls may go away at any point: that is the end of this connection only.
        with contextlib.suppress(OSError):
            plain.settimeout(PATIENCE_S)
            connection = self._context.wrap_socket(plain, server_side=True)
            self._open.append(connection)
            assert connection.selected_alpn_protocol() == "h2"
            with connection:
                _Peer(self, connection, number).serve()


class _Peer:
    def __init__(self, server: Http2Server, connection: ssl.SSLSocket, number: int) -> None:
        config = h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        self._server, self._connection, self._number = server, connection, number
        self._state = h2.connection.H2Connection(config)
        self._paths: dict[int, str] = {}
        self._bodies: dict[int, bytes] = {}
        self._gathered: list[int] = []
        self._ended = False

    def serve(self) -> None:
        self._state.initiate_connection()
        self._send()
        while data := self._connection.recv(65_536):
            for event in self._state.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    self._begin(event)
                elif isinstance(event, h2.events.DataReceived):
                    assert event.stream_id is not None
                    self._bodies[event.stream_id] += event.data or b""
                    self._state.acknowledge_received_data(
                        event.flow_controlled_length or 0, event.stream_id
                    )
                elif isinstance(event, h2.events.StreamEnded):
                    assert event.stream_id is not None
                    self._server.bodies.append(self._bodies[event.stream_id])
                    self._answer(event.stream_id)
            self._send()
            if self._ended:
                return

    def _begin(self, event: h2.events.RequestReceived) -> None:
        stream = event.stream_id
        assert stream is not None
        headers = [(str(name), str(value)) for name, value in event.headers or ()]
        self._paths[stream] = dict(headers)[":path"]
        self._bodies[stream] = b""
        self._server.requests.append((self._number, self._paths[stream], headers))

    def _answer(self, stream: int) -> None:
        path = self._paths[stream]
        if path == "/refused":
            self._state.reset_stream(stream, h2.errors.ErrorCodes.REFUSED_STREAM)
        elif path == "/cut":
            self._state.send_headers(stream, [(":status", "200"), ("content-length", "9")])
            self._state.reset_stream(stream, h2.errors.ErrorCodes.INTERNAL_ERROR)
        elif path == "/goodbye":
            self._state.close_connection(last_stream_id=0)
            self._ended = True
        elif path == "/flood":
            self._state.send_headers(stream, [(":status", "200"), *HEADERS_FLOOD], end_stream=True)
        elif path == "/gather":
            self._gathered.append(stream)
            if len(self._gathered) == self._server.gather:
                for waiting in self._gathered:
                    self._well(waiting)
        elif path != "/silent":
            self._well(stream)

    def _well(self, stream: int) -> None:
        self._state.send_headers(stream, [(":status", "200"), ("retry-after", "7")])
        self._state.send_data(stream, b"two", end_stream=True)

    def _send(self) -> None:
        if data := self._state.data_to_send():
            self._connection.sendall(data)
