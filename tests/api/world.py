"""A whole Tocsin of memory adapters behind the public application, in virtual time."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec

from commandside.commands.callback_reactor import CallbackView, ReactorPorts
from commandside.definitions.definition import Bounds
from commandside.ports import Unavailable
from domain.tenant import SCOPES, KeyRecord, mint, secret_hash
from infra.faults import NoFaults
from infra.memory.board import MemoryBoard, MemoryFreshness
from infra.memory.calendars import MemoryCalendars
from infra.memory.callbacks import MemoryCallbackDefaults, MemoryCallbackLog
from infra.memory.clock import VirtualClock
from infra.memory.command_log import MemoryCommandLog
from infra.memory.demand import MemoryDemand
from infra.memory.feed import MemoryFeed, MemoryPositions
from infra.memory.history import MemoryHistories, MemoryHistory, MemoryRuns
from infra.memory.keys import MemoryKeys
from infra.memory.log import MemoryLog
from infra.memory.payloads import MemoryPayloadList, MemoryPayloadStore
from infra.memory.secret_store import MemorySecretStore
from infra.memory.vault import MemoryVault
from infra.memory.views import MemoryBoardStore, MemoryParking
from infra.vault import pepper
from infra.web import WebPorts, build_app, collector
from projections.runner import BoardView, HistoryView, Projector
from queryside.queries import Views
from tests.commandside.scene import Telemetry

START = 1_764_460_800_000
"""2025-11-30T00:00:00Z."""
SECRET = bytes(range(32))
JOB: dict[str, Any] = {
    "type": "recurring",
    "schedule": "0 */1 * * *",
    "timezone": "America/New_York",
    "target": {
        "kind": "http",
        "url": "https://hooks.example.com/run",
        "method": "POST",
        "headers": {"Authorization": "Bearer abc"},
    },
    "payload": {"report": "daily"},
    "retry": {"max_attempts": 5, "backoff": "exponential"},
    "idempotency_key_template": "job-{job_id}-run-{scheduled_ts}",
}
"""The form of contract.md §1."""
Body = dict[str, Any] | bytes | str | None


class _Silent:
    def lag(self, view: str, ms: int) -> None: ...

    def parked(self, view: str, streams: int) -> None: ...


class World:
    """`api` is the application; `project` lets the views read on."""

    def __init__(
        self, *, command: bool = True, query: bool = True, bounds: Bounds | None = None
    ) -> None:
        self.clock = VirtualClock(START)
        self.log = MemoryLog(self.clock.now)
        self.commands = MemoryCommandLog(self.log)
        self.keys = MemoryKeys()
        self.vault = MemoryVault()
        self.secrets = MemorySecretStore(self.clock.now)
        self.calendars = MemoryCalendars(self.clock.now)
        self.callbacks = MemoryCallbackDefaults(self.clock.now)
        self.figures = Telemetry()
        self.objects = MemoryPayloadStore()
        self.written = MemoryPayloadList(self.clock.now)
        self.positions = MemoryPositions()
        board = MemoryBoardStore(self.positions)
        self.histories = MemoryHistories()
        self.projector = Projector(
            MemoryFeed(self.log),
            [
                BoardView(board),
                HistoryView(MemoryHistory(self.histories), self.positions),
                CallbackView(
                    ReactorPorts(
                        MemoryCallbackLog(self.log, self.callbacks),
                        self.vault,
                        self.positions,
                        NoFaults(),
                        self.figures,
                        self.clock.now,
                    )
                ),
            ],
            self.positions,
            MemoryParking(),
            _Silent(),
        )
        self.projector.start(self.clock.tick())
        self.project()
        self._numbers = itertools.count(1)
        views = Views(
            MemoryBoard(self.log, board),
            MemoryRuns(self.histories),
            MemoryFreshness(self.positions),
        )
        self.ports = WebPorts(
            self.commands,
            self.keys,
            self.vault,
            self.secrets,
            views,
            MemoryDemand(self.log),
            SECRET,
            self.clock.now,
            self.new_id,
            self.calendars,
            self.callbacks,
            self.objects,
            self.written,
            bounds or Bounds(),
        )
        self._command, self._query = command, query
        self.serve()
        self.key = self.add_key(b"t" * 16)
        self.other_key = self.add_key(b"u" * 16)

    def serve(self, **ports: Any) -> None:
        """Begin anew, with other adapters for these ports."""
        self.ports = msgspec.structs.replace(self.ports, **ports)
        self.app = build_app(self.ports, command=self._command, query=self._query)

    def new_id(self, size: int) -> bytes:
        """Return bytes that differ from all before."""
        return next(self._numbers).to_bytes(size, "big")[::-1]

    def add_key(self, tenant_id: bytes, scopes: tuple[str, ...] = SCOPES, **more: int) -> str:
        """Make a key and store it."""
        kid, secret = self.new_id(8), self.new_id(32)
        stored = secret_hash(pepper(SECRET), secret)
        self.keys.add(KeyRecord(kid.hex(), tenant_id, stored, scopes, **more))
        return mint("test", kid, secret)

    def project(self) -> None:
        """Let the views read everything."""
        while self.projector.run_one_batch(self.clock.tick()) == 0:
            pass

    def collect(self) -> int:
        """Look at the large payloads whose time has come; return how many were deleted."""
        return asyncio.run(collector(self.ports).sweep())

    # ------------------------------------------------------------ requests

    def send(
        self,
        method: str,
        path: str,
        body: Body = None,
        *,
        key: str | None = None,
        **headers: str,
    ) -> httpx.Response:
        """Send one request; header names are given with underscores."""
        content = json.dumps(body).encode() if isinstance(body, dict) else body
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if content is not None:
            named.setdefault("content-type", "application/json")
        if key != "":
            named.setdefault("authorization", f"Bearer {key or self.key}")
        return asyncio.run(self._send(method, path, content, named))

    async def _send(
        self, method: str, path: str, content: bytes | str | None, headers: dict[str, str]
    ) -> httpx.Response:
        transport = httpx.ASGITransport(self.app)  # type: ignore[arg-type]  # two names of one interface
        async with httpx.AsyncClient(transport=transport, base_url="http://tocsin") as client:
            return await client.request(method, path, content=content, headers=headers)

    def define(self, body: Body = None, **more: Any) -> dict[str, Any]:
        """Define a job and return the answer."""
        found = self.send("POST", "/v1/jobs", JOB if body is None else body, **more)
        assert found.status_code in (200, 201), found.text
        answer: dict[str, Any] = found.json()
        return answer

    def batch(self, lines: bytes, **headers: str) -> list[dict[str, Any]]:
        """Send a batch and return the answers."""
        found = self.send(
            "POST", "/v1/jobs:batch", lines, **{"content_type": "application/x-ndjson"} | headers
        )
        assert found.status_code == 200, found.text
        return [json.loads(line) for line in found.content.splitlines()]

    def stored(self) -> int:
        """Return how many events the log holds."""
        return sum(len(stream) for stream in self.log.streams.values())


class Away:
    """A command log whose database cannot be reached."""

    shards = 64

    async def define(self, *asked: Any) -> Any:
        """Fail, whatever is asked."""
        raise Unavailable("away")

    define_all = command = standing = events = latest = define


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    """Return a body in pieces."""
    for part in parts:
        yield part
