"""From nothing to everything that serves, and back: the order of starting and stopping."""

import os
import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from domain.schedule import zone
from domain.tenant import SCOPES
from infra import clock, zones
from infra.embedded.processes import start_ticks
from infra.lifecycle import DRAIN_US, Stop
from infra.ops import OpsServer
from infra.postgres import migrate
from infra.settings import Settings, replaced
from infra.telemetry import Telemetry
from infra.up import running
from infra.up.engines import BROKER, HISTORY, POSTGRES, START_TIMEOUT_S, STOP_TIMEOUT_S, Engines
from infra.up.exposition import merged
from infra.up.roles import Argv, Roles, program
from infra.up.schema import bring_forward, create_key, knows_key
from infra.versions import program_versions

TENANT: Final = "demo"
KEY_FILE: Final = "demo.key"
READY_TIMEOUT_S: Final = 90.0
DRAIN_TIMEOUT_S: Final = DRAIN_US / 1_000_000 + 5.0
"""A role's own bound for draining, and what it takes to end."""
WATCH_S: Final = 0.2
POLL_S: Final = 0.05
PROBE_US: Final = 1_000_000

Say = Callable[[str], None]


class UpError(Exception):
    """`up` cannot go on; the text says why."""


class Interrupted(Exception):
    """A stop was requested before everything served."""


class Supervisor:
    """Everything that `up` runs. Use it from one thread, the one that lives longest."""

    def __init__(self, settings: Settings, stop: Stop, say: Say, argv: Argv = program) -> None:
        """Take the ports; raises EngineError, OpsError for a taken one. The folder is ours."""
        self._stop, self._say = stop, say
        self._telemetry = Telemetry("up")
        self._shown: dict[str, object] = {"ready": False, "because": "starting"}
        api = settings.api
        self.ops = OpsServer(api.ops_host, api.ops_port, self._telemetry, lambda: self._shown)
        self.engines = Engines(settings, say)
        self.settings = self.engines.settings
        closed = (*settings.targets.closed_ports, self.ops.port, *self.engines.ports())
        self.settings = replaced(self.settings, "targets", closed_ports=closed)
        self.roles = Roles(self.settings, say, argv)
        self.api_key = ""
        self.versions: dict[str, str] = {}
        self._probed_us = 0

    def start(self) -> None:
        """Start engines and roles; return when everything serves.

        Raises Interrupted, UpError and what engines and migrations raise; `finish` is due all the
        same.
        """
        self.ops.answer_metrics_with(self._metrics)
        self.ops.start()
        self.engines.start()
        self._await_engine(POSTGRES)
        for name in bring_forward(self.settings):
            self._say(f"schema: applied {name}")
        if migrate.installed(self.settings.postgres.url).zone_data != zone.VERSION:
            zones.apply(self.settings, self._say)
        self.api_key = self._key()
        # Beside the other engines: roles wait for those, as they do whenever one is away.
        self.roles.start()
        self.versions = program_versions() | self.engines.versions()
        running.write(
            self.settings.data_dir,
            running.Running(
                os.getpid(),
                start_ticks(os.getpid()) or 0,
                self.ops.address,
                self.settings.postgres.url,
                self.settings.kafka.bootstrap,
                self.settings.clickhouse.url,
            ),
        )
        self._await_engine(BROKER)
        self._await_engine(HISTORY)
        self._await_roles()

    def watch(self, on_look: Callable[[], None]) -> None:
        """Look after everything until a stop is requested; `on_look` runs with every look."""
        while not self._stop.requested:
            self.roles.watch()
            now_us = clock.mono_us()
            if now_us - self._probed_us >= PROBE_US:
                self._probed_us = now_us
                self._probe()
            on_look()
            select.select([self._stop.fileno()], (), (), WATCH_S)

    def finish(self, before_engines: Callable[[], None]) -> None:
        """Drain the roles, then stop the engines; a stop requested meanwhile hurries both."""
        self._shown = {"ready": False, "because": "stopping"}
        running.forget(self.settings.data_dir)
        self.roles.ask_to_end()
        self._until(self.roles.ended, DRAIN_TIMEOUT_S)
        for name in self.roles.end():
            self._say(f"{name} was killed before it had drained; nothing is lost, leases lapse")
        before_engines()
        self.engines.stop(hurry=self._hurried)
        if not self._until(self.engines.stopped, STOP_TIMEOUT_S):
            self.engines.stop(hurry=True)
            self._until(self.engines.stopped, STOP_TIMEOUT_S, heed=False)
        self.ops.close()

    def pids(self) -> dict[str, int]:
        """Return process ids by role and engine."""
        return {"up": os.getpid(), **self.roles.pids(), **self.engines.pids()}

    @property
    def _hurried(self) -> bool:
        return self._stop.times > 1

    def _probe(self) -> bool:
        ready = self.roles.probe()
        down = [name for name, keeper in self.engines.keepers.items() if not keeper.up]
        self._shown = {
            "ready": ready and not down,
            "role": "up",
            "versions": self.versions,
            "pids": self.pids(),
            "engines": {name: keeper.up for name, keeper in self.engines.keepers.items()},
            "parts": self.roles.readiness(),
        }
        return ready and not down

    def _await_engine(self, name: str) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self.engines.await_started(name, POLL_S):
            self._heed()
            if time.monotonic() >= deadline:
                raise UpError(f"{name} has not started within {START_TIMEOUT_S:.0f} s")
        self._heed()

    def _await_roles(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not self._probe():
            self._heed()
            self.roles.watch()
            if time.monotonic() >= deadline:
                raise UpError(f"not ready within {READY_TIMEOUT_S:.0f} s: {self._missing()}")
            select.select([self._stop.fileno()], (), (), POLL_S)

    def _missing(self) -> str:
        said = {n: r for n, r in self.roles.readiness().items() if r.get("ready") is not True}
        texts = [f"{name}: {_brief(readiness)}" for name, readiness in said.items()]
        down = [name for name, keeper in self.engines.keepers.items() if not keeper.up]
        return "; ".join([*texts, *(f"{name} is down" for name in down)])

    def _heed(self) -> None:
        if self._stop.requested:
            raise Interrupted

    def _until(self, condition: Callable[[], bool], timeout_s: float, *, heed: bool = True) -> bool:
        """Wait until the condition holds; no longer than that, nor once somebody hurries us."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() >= deadline or (heed and self._hurried):
                return False
            time.sleep(POLL_S)
        return True

    def _key(self) -> str:
        path = self.settings.data_dir / KEY_FILE
        if path.exists():
            key = path.read_text(encoding="ascii").strip()
            if knows_key(self.settings, key):
                return key
        key = create_key(self.settings, TENANT, SCOPES, "made by up")
        running.write_privately(path, f"{key}\n".encode())
        return key

    def _metrics(self) -> bytes:
        own = self._telemetry.exposition()
        return merged([own, *(process.metrics() for process in self.roles.processes)])


def write_ready_file(path: Path, content: dict[str, Any]) -> None:
    """Write it whole or not at all, for the owner only: it holds a key."""
    running.write_privately(path, msgspec.json.encode(content))


def _brief(readiness: dict[str, Any]) -> str:
    text = str(readiness.get("because") or {k: v for k, v in readiness.items() if k != "versions"})
    return text[:300]
