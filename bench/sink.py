"""The receiver of the benchmarks: `python -m bench.sink --port N`, a process of its own.

One epoll loop that answers every request at once and notes when it came, so that the sink is
never what is measured. The id and the due instant (milliseconds of the epoch) of a fire are read
from the query (`?id=..&due=..`) or from headers of the same names; without an id, the
`Idempotency-Key` is it. `GET /count`, `GET /report` and `POST /reset` are for the bench.
"""

import argparse
import json
import re
import select
import socket
import sys
import time
from typing import Any

from bench import figures

BACKLOG = 4096
REQUEST_BYTES_MAX = 4 << 20

_QUERY_ID = re.compile(rb"[?&]id=([^& ]*)")
_QUERY_DUE = re.compile(rb"[?&]due=([0-9]+)")
_EXPECT = re.compile(rb"[?&]expect=([0-9]+)")
_HEADER_ID = re.compile(rb"\r\n(?:id|idempotency-key):[ \t]*([^\r]*)", re.IGNORECASE)
_HEADER_DUE = re.compile(rb"\r\ndue:[ \t]*([0-9]+)", re.IGNORECASE)
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:", re.IGNORECASE)

_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
_REFUSED = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def _json_answer(value: dict[str, Any]) -> bytes:
    body = json.dumps(value).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


class Arrivals:
    """What came, and the figures made of it."""

    def __init__(self) -> None:
        self.ids: list[bytes] = []
        self.due_ms: list[int] = []
        self.at_ms: list[float] = []

    def note(self, head: bytes, at_ms: float) -> None:
        """Keep one fire; a fire without a due instant counts, but has no lateness."""
        line = head[: head.find(b"\r\n")]
        identity = _QUERY_ID.search(line) or _HEADER_ID.search(head)
        due = _QUERY_DUE.search(line) or _HEADER_DUE.search(head)
        self.ids.append(identity[1] if identity else b"")
        self.due_ms.append(int(due[1]) if due else 0)
        self.at_ms.append(at_ms)

    def report(self, expected: int | None) -> dict[str, Any]:
        """Return the figures of all arrivals since the last reset."""
        return figures.report(self.ids, self.due_ms, self.at_ms, expected)


class Sink:
    """The loop: one listening socket, keep-alive connections, requests answered in order."""

    def __init__(self, host: str, port: int) -> None:
        self.arrivals = Arrivals()
        self._listener = socket.create_server((host, port), backlog=BACKLOG)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._epoll = select.epoll()
        self._epoll.register(self._listener, select.EPOLLIN)
        self._connections: dict[int, socket.socket] = {}
        self._partial: dict[int, bytes] = {}

    def serve(self) -> None:
        """Answer until the process is told to end."""
        listening = self._listener.fileno()
        while True:
            for fd, events in self._epoll.poll():
                if fd == listening:
                    self._accept()
                elif events & (select.EPOLLERR | select.EPOLLHUP):
                    self._drop(fd)
                else:
                    self._read(fd)

    def _accept(self) -> None:
        for _ in range(BACKLOG):
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connections[connection.fileno()] = connection
            self._epoll.register(connection, select.EPOLLIN)

    def _drop(self, fd: int) -> None:
        self._partial.pop(fd, None)
        self._connections.pop(fd).close()

    def _read(self, fd: int) -> None:
        connection = self._connections[fd]
        try:
            data = connection.recv(1 << 16)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        at_ms = time.time_ns() / 1e6
        if not data:
            self._drop(fd)
            return
        if fd in self._partial:
            data = self._partial.pop(fd) + data
        answers = []
        while data:
            answer, size = self._answer(data, at_ms)
            if not size:
                break
            answers.append(answer)
            data = data[size:]
        try:
            connection.sendall(b"".join(answers))
        except (BlockingIOError, ConnectionError):
            # Nobody reads the answers: this client is broken, or no client of ours.
            self._drop(fd)
            return
        if data:
            self._partial[fd] = data
        if len(data) > REQUEST_BYTES_MAX or _REFUSED in answers:
            self._drop(fd)

    def _answer(self, data: bytes, at_ms: float) -> tuple[bytes, int]:
        """Answer the first request of `data`; a size of 0 means that it is not complete."""
        end = data.find(b"\r\n\r\n")
        if end < 0:
            return b"", 0
        head = data[: end + 2]
        length = _LENGTH.search(head)
        size = end + 4 + (int(length[1]) if length else 0)
        if len(data) < size:
            return b"", 0
        if _CHUNKED.search(head):
            return _REFUSED, len(data)
        if head.startswith(b"GET /report"):
            expected = _EXPECT.search(head)
            return _json_answer(self.arrivals.report(int(expected[1]) if expected else None)), size
        if head.startswith(b"GET /count"):
            distinct = len(set(self.arrivals.ids))
            return _json_answer({"count": len(self.arrivals.ids), "distinct": distinct}), size
        if head.startswith(b"POST /reset"):
            self.arrivals = Arrivals()
            return _OK, size
        self.arrivals.note(head, at_ms)
        return _OK, size


def main(arguments: list[str] | None = None) -> int:
    """Serve; the first line printed is the address, once connections are taken."""
    parser = argparse.ArgumentParser(prog="bench.sink", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args(arguments)
    sink = Sink(options.host, options.port)
    print(f"http://{options.host}:{sink.port}", flush=True)
    try:
        sink.serve()
    except KeyboardInterrupt:
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
