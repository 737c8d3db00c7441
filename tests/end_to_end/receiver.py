"""A target that keeps what it was sent, on a real socket."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

WAIT_S = 60.0


class Got(msgspec.Struct, frozen=True):
    """One request, as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    at_ms: int

    @property
    def key(self) -> str:
        return self.headers["idempotency-key"]

    @property
    def run(self) -> str:
        return self.headers["tocsin-run-id"]


Answer = Callable[[Got], int]
"""Returns the status of a request; called in the request's own thread, and may take its time."""


class Receiver:
    """Listens until closed; answers 200, or what `answer` says."""

    def __init__(self) -> None:
        self.answer: Answer = lambda _: 200
        self.headers: dict[str, str] = {}
        """Of every answer."""
        self._got: list[Got] = []
        self._answers: dict[int, tuple[int, int]] = {}
        self._changed = threading.Condition()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def got(self) -> list[Got]:
        """Everything so far, in the order of arrival."""
        with self._changed:
            return list(self._got)

    @property
    def answers(self) -> list[tuple[Got, int, int]]:
        """Everything so far with its status and when that was sent (µs); 0 where it was not."""
        with self._changed:
            return [(got, *self._answers.get(id(got), (0, 0))) for got in self._got]

    def wait(self, enough: Callable[[list[Got]], bool], seconds: float = WAIT_S) -> list[Got]:
        """Wait until what came is enough, and return it."""
        with self._changed:
            found = self._changed.wait_for(lambda: enough(self._got), seconds)
            assert found, f"{len(self._got)} requests in {seconds} s: {self._got[-3:]}"
            return list(self._got)

    def wait_for_keys(self, count: int, seconds: float = WAIT_S) -> list[Got]:
        """Wait until so many different keys came."""
        return self.wait(lambda got: len({g.key for g in got}) >= count, seconds)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", "0")))
                headers = {name.lower(): value for name, value in self.headers.items()}
                at_ms = time.time_ns() // 1_000_000
                got = Got(self.command, self.path, headers, body, at_ms)
                with receiver._changed:
                    receiver._got.append(got)
                    receiver._changed.notify_all()
                status = receiver.answer(got)
                self.send_response(status)
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()
                with receiver._changed:
                    receiver._answers[id(got)] = status, time.time_ns() // 1_000

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024


def keys_of_runs(got: list[Got]) -> dict[str, set[str]]:
    """Return the idempotency keys that came for each run: one, however many attempts."""
    found: dict[str, set[str]] = {}
    for one in got:
        found.setdefault(one.run, set()).add(one.key)
    return found


def attempts(got: list[Got]) -> Counter[tuple[str, str]]:
    """Return how often each attempt of a run came."""
    return Counter((one.run, one.headers["tocsin-attempt"]) for one in got)
