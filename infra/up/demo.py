"""The demo: a receiver, and two jobs defined through the public API, whose fires it shows."""

import http.server
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import msgspec

from domain.instant import SECOND, rfc3339
from infra import clock

HOST: Final = "127.0.0.1"
RANGE: Final = f"{HOST}/32"
"""What an operator must allow for the demo; private addresses are refused otherwise."""
SOON_MS: Final = 5 * SECOND
CALL_TIMEOUT_S: Final = 10.0
REQUEST_TIMEOUT_S: Final = 10.0
BODY_BYTES_MAX: Final = 2 * 1024 * 1024
ONCE, MINUTELY = "demo-once", "demo-minutely"

Say = Callable[[str], None]


class DemoError(Exception):
    """The demo jobs could not be defined; the text says why."""


class Receiver:
    """A target on loopback that answers 204 to everything and shows each fire in a line."""

    def __init__(self, say: Say) -> None:
        """Listen on a free port."""
        self._server = _Server(say)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="demo", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it is called."""
        return f"http://{HOST}:{self._server.server_address[1]}"

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._thread.join(REQUEST_TIMEOUT_S)
        self._server.server_close()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, say: Say) -> None:
        self.say = say
        super().__init__((HOST, 0), _Handler)

    def server_bind(self) -> None:
        """Bind without asking the resolver for the host's name, as the library would."""
        super(http.server.HTTPServer, self).server_bind()


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server
    timeout = REQUEST_TIMEOUT_S
    protocol_version = "HTTP/1.1"
    server_version = "tocsin-demo"
    sys_version = ""

    def do_POST(self) -> None:
        """Take a fire."""
        arrived = clock.wall_ms()
        length = self.headers.get("Content-Length", "0")
        self.rfile.read(min(int(length), BODY_BYTES_MAX) if length.isdecimal() else 0)
        self.send_response(204)
        self.end_headers()
        self.server.say(fire_line(arrived, dict(self.headers), 204))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """The line of the fire is enough."""


def fire_line(arrived: int, headers: dict[str, str], status: int) -> str:
    """Return what is shown of a fire that arrived at `arrived` (ms)."""
    due = headers.get("Tocsin-Scheduled-For", "")
    key = headers.get("Idempotency-Key", "no key")
    attempt = headers.get("Tocsin-Attempt", "1")
    try:
        due_at = round(datetime.fromisoformat(due).timestamp() * SECOND)
    except ValueError:
        return f"fire  (not from Tocsin)  status {status}"
    again = "" if attempt == "1" else f"  attempt {attempt}"
    return f"fire  due {due}  late {arrived - due_at:>4} ms  status {status}{again}  key {key}"


class DemoJobs(msgspec.Struct, frozen=True):
    """Ids of the two jobs."""

    once: str
    minutely: str


def define_jobs(api: str, api_key: str, receiver: str) -> DemoJobs:
    """Define both through the public API, and return their ids; raises DemoError.

    The receiver has another port at every start: the recurring job is revised by its name.
    """
    run_at = rfc3339(clock.wall_ms() + SOON_MS)
    once = {
        "type": "one_time",
        "run_at": run_at,
        "target": {"kind": "http", "url": f"{receiver}/once", "method": "POST"},
        "payload": {"hello": "once"},
        "name": ONCE,
    }
    minutely = {
        "key": MINUTELY,
        "type": "recurring",
        "schedule": "* * * * *",
        "timezone": "UTC",
        "target": {"kind": "http", "url": f"{receiver}/minutely", "method": "POST"},
        "payload": {"hello": "every minute"},
        "jitter_s": 0,
        "name": MINUTELY,
    }
    port = receiver.rpartition(":")[2]
    return DemoJobs(
        _define(api, api_key, once, f"{ONCE}-{run_at}"),
        _define(api, api_key, minutely, f"{MINUTELY}-{port}"),
    )


def curl_lines(api: str, api_key: str, job: str, receiver: str) -> list[str]:
    """Return three commands that work when they are pasted into a shell."""
    key = f"-H 'Authorization: Bearer {api_key}'"
    body = (
        '{"type":"one_time","run_at":"\'$(date -u +%Y-%m-%dT%H:%M:%SZ)\'",'
        f'"target":{{"kind":"http","url":"{receiver}/curl","method":"POST"}},'
        '"payload":{"hello":"curl"}}'
    )
    return [
        f"curl -s {key} {api}/v1/jobs",
        f"curl -s {key} {api}/v1/jobs/{job}/runs",
        f"curl -s {key} -H 'Content-Type: application/json' -d '{body}' {api}/v1/jobs",
    ]


def _define(api: str, api_key: str, job: dict[str, Any], idempotency_key: str) -> str:
    request = urllib.request.Request(  # noqa: S310 - the address is our own, http
        f"{api}/v1/jobs",
        msgspec.json.encode(job),
        {
            "Authorization": f"Bearer {api_key}",
            "Content-Type": "application/json",
            "Idempotency-Key": idempotency_key,
        },
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=CALL_TIMEOUT_S) as answer:
            return str(msgspec.json.decode(answer.read())["job_id"])
    except urllib.error.HTTPError as error:
        with error:
            text = error.read(BODY_BYTES_MAX).decode(errors="replace")
        raise DemoError(f"the API answered {error.code}: {text}") from error
    except (OSError, msgspec.DecodeError, KeyError, TypeError) as error:
        raise DemoError(f"the API did not answer as expected: {error!r}") from error
