"""Everything of one chaos run: engines of its own, all roles, targets and a client."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from infra.embedded.broker import BrokerOptions, EmbeddedBroker
from infra.embedded.history import EmbeddedHistory, HistoryOptions
from infra.embedded.postgres import EmbeddedPostgres, PostgresOptions
from infra.embedded.processes import wait_until
from infra.kafka.options import EMBEDDED_SESSION_TIMEOUT_MS, SESSION_TIMEOUT_MS
from infra.listening import LOOPBACK, free_port
from tests.chaos.client import Client
from tests.chaos.scenario import Scenario
from tests.chaos.target import Targets
from tests.checker.inputs import Fault
from tests.end_to_end.cell import Cell, Engines, RoleRun, opened
from tests.engines import apache_kafka
from tests.engines.databases import Databases

ROLES: Final = ("api", "scheduler", "dispatcher", "projector")
FOUND_S: Final = 60.0


class Rig:
    """What a fault may lay hands on."""

    def __init__(self, cell: Cell, stack: ExitStack, client: Client) -> None:
        self.cell, self.client = cell, client
        self.postgres: EmbeddedPostgres
        self.broker: EmbeddedBroker | apache_kafka.ApacheKafka
        self.history: EmbeddedHistory
        self.targets: Targets
        self.faults: list[Fault] = []
        self.closing = threading.Event()
        self.runs: dict[str, RoleRun] = {}
        self._stack = stack

    def start(self, role: str, point: str = "") -> RoleRun:
        """Start a role, armed to die at a point; the one that ran before it has ended."""
        run = self.runs[role] = self.cell.start(role, point)
        return run

    def rest(self, seconds: float) -> None:
        """Let time pass; ends at once where the run is over."""
        self.closing.wait(seconds)

    @contextlib.contextmanager
    def fault(self, kind: str, name: str, detail: str = "") -> Iterator[None]:
        """Put on record that something is away, from now until the block ends."""
        start = _now_ms()
        try:
            yield
        finally:
            self.faults.append(Fault(kind, name, start, _now_ms(), detail=detail))

    def stop_process(self, pid: int, seconds: float) -> None:
        """SIGSTOP, and after a while SIGCONT, whatever happens."""
        os.kill(pid, signal.SIGSTOP)
        try:
            self.rest(seconds)
        finally:
            os.kill(pid, signal.SIGCONT)

    def all_up(self) -> bool:
        """Say whether every role runs and says that it is ready."""
        return all(run.running and run.ready() for run in self.runs.values())


@contextlib.contextmanager
def built(scenario: Scenario, folder: Path) -> Iterator[Rig]:
    """Start engines and roles, and end all of them whatever happens."""
    with ExitStack() as stack:
        postgres = stack.enter_context(
            EmbeddedPostgres(PostgresOptions(data_dir=folder / "pg", shared_buffers_mb=64))
        )
        # It comes back where it was, as a server does.
        port = free_port(LOOPBACK, 0, "history port")
        history = stack.enter_context(
            EmbeddedHistory(HistoryOptions(data_dir=folder / "history", port=port))
        )
        broker, address, session_ms = _broker(scenario, folder, stack)
        targets = Targets()
        stack.callback(targets.close)
        engines = Engines(
            Databases(postgres).fresh(),
            address,
            f"http://{history.address}",
            "chaos",
            session_ms,
        )
        cell = stack.enter_context(opened(engines, folder))
        cell.schedules(min_interval_s=1)
        client = Client(cell.client, cell.tenant_id, targets.url)
        rig = Rig(cell, stack, client)
        rig.postgres, rig.broker, rig.history, rig.targets = postgres, broker, history, targets
        stack.callback(client.close)
        stack.callback(rig.closing.set)
        for role in ROLES:
            rig.start(role)
        assert wait_until(rig.all_up, FOUND_S), cell.logs()
        yield rig


def _broker(
    scenario: Scenario, folder: Path, stack: ExitStack
) -> tuple[EmbeddedBroker | apache_kafka.ApacheKafka, str, int]:
    if scenario.broker == "apache":
        node = stack.enter_context(apache_kafka.start(folder / "kafka"))
        return node, node.bootstrap, SESSION_TIMEOUT_MS
    options = BrokerOptions(data_dir=folder / "broker")
    broker = stack.enter_context(EmbeddedBroker(options))
    return broker, broker.address, EMBEDDED_SESSION_TIMEOUT_MS


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
