"""The targets of a chaos run: every request that came is noted, with the clock of this host."""

import sys
import threading
import time
from collections.abc import Callable
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Literal

from domain import ids
from tests.checker.inputs import Hit

SLOW_S: Final = 0.3
Mood = Literal["well", "silent", "failing"]


class Targets:
    """One server for all jobs; the first part of a path says how its job is treated.

    `/steady/…` 200, `/flaky/…` 503 to a first attempt, `/slow/…` 200 after a while. In a `mood`
    other than well, all of them say nothing until it is over, or 503.
    """

    def __init__(self) -> None:
        self.mood: Mood = "well"
        self._healed = threading.Event()
        self._closing = threading.Event()
        self._hits: list[Hit] = []
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def hits(self) -> list[Hit]:
        """Every request so far."""
        with self._lock:
            return list(self._hits)

    def while_in(self, mood: Mood, rest: Callable[[], None]) -> None:
        """Be in a mood until `rest` returns."""
        self._healed.clear()
        self.mood = mood
        try:
            rest()
        finally:
            self.mood = "well"
            self._healed.set()

    def close(self) -> None:
        """End; whoever waits for an answer gets none."""
        self._healed.set()
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def status(self, path: str, attempt: int) -> int:
        """Return the answer to a request, after the time that it takes; 0: there is none."""
        if self.mood == "silent":
            self._healed.wait()
            return 0
        if self.mood == "failing" or (path.startswith("/flaky/") and attempt == 1):
            return 503
        if path.startswith("/slow/"):
            self._closing.wait(SLOW_S)
        return 200

    def note(self, hit: Hit) -> None:
        """Keep a request."""
        with self._lock:
            self._hits.append(hit)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 4096

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of callers that went away: they are killed here."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _handler(targets: Targets) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            at_us = time.time_ns() // 1_000
            body = self.rfile.read(int(self.headers.get("content-length", "0")))
            headers = {name.lower(): value for name, value in self.headers.items()}
            attempt = int(headers["tocsin-attempt"])
            status = targets.status(self.path, attempt)
            answered_us = 0
            if status:
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    answered_us = time.time_ns() // 1_000
                except OSError:
                    self.close_connection = True
            else:
                self.close_connection = True
            run = ids.parse(ids.RUN, headers["tocsin-run-id"])
            assert run is not None, headers
            targets.note(
                Hit(
                    at_us=at_us,
                    run=run,
                    attempt=attempt,
                    fence=int(headers["tocsin-fence"]),
                    key=headers["idempotency-key"],
                    url=f"{targets.url}{self.path}",
                    body_sha256=sha256(body).digest(),
                    status=status,
                    answered_us=answered_us,
                    webhook_id=headers.get("webhook-id", ""),
                    headers=tuple(sorted(headers.items())),
                    possible_duplicate="tocsin-possible-duplicate" in headers,
                )
            )

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    return Handler
