"""The operators' listener of a process: /healthz, /readyz and /metrics.

It stands apart from the public one and answers from a thread of its own, so that a role which is
busy, or stuck, can still be asked. What readiness is comes from the process; here it only becomes a
status. Connections are bounded in number and in time.
"""

import errno
import http.server
import socket
import threading
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from infra import telemetry as figures
from infra.versions import program_versions

CONNECTIONS_MAX: Final = 16
"""Scrapers and probes are a handful; more is somebody's mistake, and is hung up on."""
REQUEST_TIMEOUT_S: Final = 5.0
CLOSE_TIMEOUT_S: Final = 2.0
READYZ_TIMEOUT_S: Final = 5.0
READYZ_BYTES_MAX: Final = 1024 * 1024

Readiness = Callable[[], dict[str, object]]
"""Returns what /readyz shows; `ready`: the process can do its work. It must not wait."""
Exposition = Callable[[], bytes]
"""Returns the figures in Prometheus' text format."""


_Request = socket.socket | tuple[bytes, socket.socket]


class OpsError(Exception):
    """The listener cannot be had; the text names the port and the setting."""


def ask_readiness(address: str, timeout_s: float) -> tuple[int, dict[str, Any]]:
    """Return status and content of another process's /readyz; (0, empty) without an answer."""
    parts = urlsplit(address)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        shown = msgspec.json.decode(answer.read(READYZ_BYTES_MAX), type=dict[str, Any])
        return answer.status, shown
    except (OSError, HTTPException, msgspec.DecodeError):
        return 0, {}
    finally:
        connection.close()


class OpsServer:
    """Serves until closed; `port` is the real one, also where 0 was asked for."""

    def __init__(
        self, host: str, port: int, telemetry: figures.Telemetry, readiness: Readiness
    ) -> None:
        """Bind at once, so that a taken port is known before anything else is begun.

        Raises OpsError.
        """

        def shown() -> dict[str, object]:
            lag_ms = telemetry.figures("projection_lag_ms")
            return ({"lag_ms": lag_ms} if lag_ms else {}) | readiness()

        self._server = _Server(host, port, telemetry.exposition, shown)
        self._thread = threading.Thread(target=self._serve, name="ops", daemon=True)

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._server.server_address[1])

    @property
    def address(self) -> str:
        """`http://host:port`."""
        return f"http://{self._server.host}:{self.port}"

    def answer_metrics_with(self, exposition: Exposition) -> None:
        """Show these figures instead of the process's own (for who shows those of others too)."""
        self._server.exposition = exposition

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """Stop listening; requests in progress end by themselves."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(CLOSE_TIMEOUT_S)
        self._server.server_close()

    def _serve(self) -> None:
        self._server.serve_forever(poll_interval=0.1)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = CONNECTIONS_MAX

    def __init__(self, host: str, port: int, exposition: Exposition, readiness: Readiness) -> None:
        self.host = host
        self.exposition = exposition
        self.readiness = readiness
        self._slots = threading.BoundedSemaphore(CONNECTIONS_MAX)
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            what = "is taken" if taken else f"cannot be used: {error.strerror}"
            raise OpsError(
                f"port {port} on {host} {what}: set api.ops_port to another, or 0 for any"
            ) from error

    def server_bind(self) -> None:
        """Bind without asking the resolver for the host's name, as the library would."""
        super(http.server.HTTPServer, self).server_bind()

    def process_request(self, request: _Request, client_address: Any) -> None:
        """Answer in a thread, or hang up where too many are answered already."""
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: _Request, client_address: Any) -> None:
        """Answer, and give the place back."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: _Request, client_address: Any) -> None:
        """A client that hung up is no news."""


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server
    timeout = REQUEST_TIMEOUT_S
    server_version = "tocsin"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer one of the three paths."""
        path = self.path.partition("?")[0]
        if path == "/healthz":
            self._answer(200, "application/json", b'{"alive":true}')
        elif path == "/readyz":
            shown = self._readiness()
            status = 200 if shown.get("ready") is True else 503
            self._answer(status, "application/json", msgspec.json.encode(shown))
        elif path == "/metrics":
            self._answer(200, figures.CONTENT_TYPE, self.server.exposition())
        else:
            self._answer(404, "application/json", b'{"paths":["/healthz","/readyz","/metrics"]}')

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Probes are not logged."""

    def _readiness(self) -> dict[str, object]:
        versions: dict[str, object] = {"versions": program_versions()}
        try:
            return versions | self.server.readiness()
        except Exception as error:  # noqa: BLE001 - a probe that cannot be answered is not ready
            return versions | {"ready": False, "because": f"{type(error).__name__}: {error}"}

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)
