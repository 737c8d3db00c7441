"""A TCP proxy on loopback between a client and an engine, which cuts, hangs or swallows."""

import contextlib
import socket
import threading
from typing import Final, Literal, Self

HOST: Final = "127.0.0.1"
CHUNK: Final = 65_536

Mode = Literal["pass", "swallow", "lose", "part"]


class TcpProxy:
    """Passes bytes on as `mode` says.

    `swallow`: what the engine says is dropped, and the client waits. `lose`: at the first word of
    the engine, the connection ends for both. `part`: nothing gets through in either direction, and
    both wait.
    """

    def __init__(self, target: int | str) -> None:
        """Stand before an engine at this port, or at this socket in the file system."""
        self._target = target
        self.mode: Mode = "pass"
        self.lost = 0
        """How often a word was swallowed or lost."""
        self.port = 0
        self._listener: socket.socket | None = None
        self._open: set[socket.socket] = set()
        self.up()

    def up(self) -> None:
        """Listen, at the same port as before."""
        self._listener = socket.create_server((HOST, self.port))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def down(self) -> None:
        """Refuse connections, and cut those that are open."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.cut()

    def cut(self) -> None:
        """End every open connection."""
        for one in list(self._open):
            self._end(one)

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *_exc: object) -> None:
        """End."""
        self.down()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                engine = self._connected()
            except OSError:
                client.close()
                continue
            self._open |= {client, engine}
            for source, sink, speaks in ((client, engine, False), (engine, client, True)):
                arguments = (source, sink, speaks)
                threading.Thread(target=self._pump, args=arguments, daemon=True).start()

    def _connected(self) -> socket.socket:
        if isinstance(self._target, int):
            return socket.create_connection((HOST, self._target))
        engine = socket.socket(socket.AF_UNIX)
        engine.connect(self._target)
        return engine

    def _pump(self, source: socket.socket, sink: socket.socket, engine_speaks: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                if self.mode == "part" or (engine_speaks and self.mode != "pass"):
                    self.lost += 1
                    if self.mode == "lose":
                        break
                    continue
                sink.sendall(data)
        if engine_speaks and self.mode in ("swallow", "part"):
            # That it has closed is a word of the engine's too.
            return
        self._end(source)
        self._end(sink)

    def _end(self, one: socket.socket) -> None:
        self._open.discard(one)
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
