"""Composes the role of one process from its settings and runs it until it is told to stop.

Rings meet only here: a role gets adapters for its ports, and knows none of them.
"""

import asyncio
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from secrets import token_bytes
from typing import Final

import uvicorn

from commandside.auditor import Auditor, AuditorPorts
from commandside.definition import Bounds
from commandside.dispatcher import Dispatcher
from commandside.flights import DispatcherPorts
from commandside.hand_off import HandOff, SelfHandOff
from commandside.ports import Tick
from commandside.prompt import PromptLog
from commandside.scheduler import Scheduler, SchedulerPorts
from domain.target import address_rules
from infra import clock, lifecycle
from infra.clickhouse.runs import ClickHouseRuns
from infra.clickhouse.store import ClickHouseHistory
from infra.faults import NoFaults, SuicideAt, fault_point
from infra.kafka.options import KafkaOptions
from infra.kafka.ready_queue import KafkaReadyQueue
from infra.ops import OpsServer
from infra.postgres import migrate
from infra.postgres.board import PostgresBoard
from infra.postgres.clock import TimeKeeper
from infra.postgres.command_log import PostgresCommandLog
from infra.postgres.due_index import PostgresDueIndex
from infra.postgres.feed import PostgresFeed
from infra.postgres.fire_log import PostgresFireLog
from infra.postgres.shard_leases import PostgresShardLeases
from infra.postgres.tenants import PostgresKeys
from infra.postgres.views import PostgresBoardStore, PostgresParking, PostgresPositions
from infra.settings import Settings, SettingsError
from infra.targets.addresses import AddressBook
from infra.targets.curl import CurlDeliverer
from infra.targets.resolver import ThreadedResolver
from infra.telemetry import Telemetry
from infra.up.ports import free_port
from infra.vault import TenantVault, master_key
from infra.web import WebPorts, build_app
from projections.runner import BoardView, HistoryView, Projector
from queryside.queries import Views

TURN_S: Final = 0.5
DRAIN_S: Final = 10
"""Requests in progress are answered within this when the API is told to stop."""
JUMPED: Final = "the database's clock, or this node's, has jumped; waiting for two equal answers"
DISTRUST_US: Final = 100_000
STALE: Final = "Postgres has not answered for 5 s"


class Process:
    """What the process of any role has: settings, time, figures, an ops listener."""

    def __init__(self, role: str, settings: Settings) -> None:
        """Check what must hold before a role starts; raises what the command line shows as text."""
        self.role = role
        self.settings = settings
        self.conninfo = settings.postgres.url
        self.faults = _faults(role, settings)
        self.telemetry = Telemetry(role)
        self.keeper = TimeKeeper(self.conninfo)
        migrate.check_durability(self.conninfo)
        installation = migrate.installed(self.conninfo)
        self.shards, self.partitions = installation.shards, installation.partitions
        self.master = master_key(settings.master_file, create=False)
        self.more: Callable[[], dict[str, object]] = dict
        """What readiness shows beside Postgres; `ready` among it, where it is not."""

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Keep time and answer operators."""
        settings = self.settings.api
        self.keeper.start()
        with closing(self.keeper):
            ops = OpsServer(settings.ops_host, settings.ops_port, self.telemetry, self.readiness)
            ops.start()
            with closing(ops):
                yield

    def readiness(self) -> dict[str, object]:
        """Return what /readyz shows."""
        self.telemetry.gauge("clock_offset_ms", self.keeper.clock.offset_ms)
        shown: dict[str, object] = {"role": self.role, "ready": True, **self.more()}
        if not self.keeper.fresh:
            shown |= {"ready": False, "because": self.keeper.trouble or STALE}
        elif not self.keeper.clock.trusted:
            shown |= {"ready": False, "because": JUMPED}
        return shown

    def queue(self, *, produces: bool = False, consumes: bool = False) -> KafkaReadyQueue:
        """Return a client of the broker."""
        kafka = self.settings.kafka
        options = KafkaOptions(
            bootstrap=kafka.bootstrap,
            partitions=self.partitions,
            prefix=f"{kafka.prefix}.due",
            group=f"{kafka.prefix}.dispatchers",
            produces=produces,
            consumes=consumes,
            replication=kafka.replication,
            session_timeout_ms=kafka.session_timeout_ms,
        )
        return KafkaReadyQueue(options, clock.mono_us, self.telemetry)

    def unavailable(self, detail: str) -> None:
        """Say that an engine is away."""
        sys.stderr.write(f"{self.role}: {detail}\n")
        sys.stderr.flush()


def run(role: str, settings: Settings) -> int:
    """Run one role until SIGTERM or SIGINT; returns the exit status."""
    process = Process(role, settings)
    with process.serving():
        return ROLES[role](process)


class Trusting:
    """A role that rests while the clocks do not agree: nothing is decided by a time in doubt."""

    def __init__(self, role: lifecycle.Role, process: Process) -> None:
        self._role, self._process = role, process
        self._said = False

    def start(self, tick: Tick) -> None:
        """Start the role."""
        self._role.start(tick)

    def run_one_batch(self, tick: Tick) -> int:
        """Run the role, or rest."""
        if self._process.keeper.clock.trusted:
            self._said = False
            return self._role.run_one_batch(tick)
        if not self._said:
            self._said = True
            self._process.unavailable(JUMPED)
        return DISTRUST_US

    def drain(self, tick: Tick) -> bool:
        """Drain the role."""
        return self._role.drain(tick)


class Together:
    """Several roles in one process, run in turn."""

    def __init__(self, *roles: lifecycle.Role) -> None:
        """The first one drains last."""
        self._roles = roles

    def start(self, tick: Tick) -> None:
        """Start all."""
        for role in self._roles:
            role.start(tick)

    def run_one_batch(self, tick: Tick) -> int:
        """Run all; return the shortest rest."""
        return min(role.run_one_batch(tick) for role in self._roles)

    def drain(self, tick: Tick) -> bool:
        """Drain all, the last one first."""
        drained = [role.drain(tick) for role in reversed(self._roles)]
        return all(drained)


def _dispatcher(process: Process) -> int:
    settings = process.settings
    with ExitStack() as stack:
        log = stack.enter_context(
            closing(
                PostgresFireLog(
                    process.conninfo,
                    stripes=settings.log.stripes,
                    shards=process.shards,
                )
            )
        )
        rules = address_rules(settings.targets.allow, settings.targets.ports)
        deliverer = stack.enter_context(
            closing(
                CurlDeliverer(
                    AddressBook(rules),
                    ThreadedResolver(),
                    concurrency=settings.dispatch.concurrency,
                )
            )
        )
        vault = stack.enter_context(closing(TenantVault(process.conninfo, process.master)))
        queue = stack.enter_context(closing(process.queue(consumes=True)))
        ports = DispatcherPorts(
            log, deliverer, vault, _unsigned, process.faults, process.telemetry, token_bytes
        )
        dispatcher = Dispatcher(ports, queue, heap_max=settings.dispatch.held_max)

        def sockets() -> lifecycle.Sockets:
            readable, writable = deliverer.sockets()
            for descriptor, writes in log.sockets():
                readable.append(descriptor)
                if writes:
                    writable.append(descriptor)
            return readable, writable

        def readiness() -> dict[str, object]:
            trouble = log.trouble()
            if trouble:
                return {"ready": False, "because": trouble[0]}
            return {}

        process.more = readiness
        return _loop(process, dispatcher, sockets)


def _scheduler(process: Process) -> int:
    with ExitStack() as stack:
        hand_off, retries = _handing_off(process, stack)
        leases = stack.enter_context(closing(PostgresShardLeases(process.conninfo, process.shards)))
        ports = SchedulerPorts(leases, process.faults, process.telemetry, token_bytes)
        scheduler = Scheduler(ports, hand_off)
        audit = AuditorPorts(scheduler.owned, process.faults, process.telemetry)
        return _loop(process, Together(scheduler, Auditor(audit, hand_off, retries)))


def _auditor(process: Process) -> int:
    """Audit every shard, whoever owns it."""
    with ExitStack() as stack:
        hand_off, retries = _handing_off(process, stack)
        everything = range(process.shards)
        ports = AuditorPorts(lambda _: everything, process.faults, process.telemetry)
        return _loop(process, Auditor(ports, hand_off, retries))


def _handing_off(process: Process, stack: ExitStack) -> tuple[HandOff, SelfHandOff]:
    queue = stack.enter_context(closing(process.queue(produces=True)))
    due = stack.enter_context(closing(PostgresDueIndex(process.conninfo, process.shards)))
    hand_off = HandOff(due, queue, process.faults, process.telemetry)
    return hand_off, SelfHandOff(queue, process.shards, process.telemetry)


def _projector(process: Process) -> int:
    clickhouse = process.settings.clickhouse
    with ExitStack() as stack:
        feed = stack.enter_context(closing(PostgresFeed(process.conninfo, process.shards)))
        positions = stack.enter_context(closing(PostgresPositions(process.conninfo)))
        parking = stack.enter_context(closing(PostgresParking(process.conninfo)))
        board = stack.enter_context(closing(PostgresBoardStore(process.conninfo)))
        store = stack.enter_context(closing(ClickHouseHistory(clickhouse.url, clickhouse.database)))
        views = (BoardView(board), HistoryView(store, positions))
        projector = Projector(feed, views, positions, parking, process.telemetry)
        return _loop(process, projector)


def _web(process: Process, *, command: bool, query: bool) -> int:
    settings, conninfo, now = process.settings, process.conninfo, process.keeper.clock.now
    port = settings.api.port if command else settings.api.query_port
    port = free_port(settings.api.host, port, "api.port" if command else "api.query_port")
    family = socket.AF_INET6 if ":" in settings.api.host else socket.AF_INET
    listener = socket.create_server((settings.api.host, port), family=family, backlog=1024)
    log = PostgresCommandLog(
        conninfo,
        process.keeper.clock,
        shards=process.shards,
        stripes=settings.log.stripes,
        say=process.unavailable,
    )
    keys = PostgresKeys(conninfo)
    with ExitStack() as stack:
        stack.enter_context(closing(listener))
        vault = stack.enter_context(closing(TenantVault(conninfo, process.master)))
        views = None
        if query:
            board = stack.enter_context(closing(PostgresBoard(conninfo)))
            clickhouse = settings.clickhouse
            history = stack.enter_context(
                closing(ClickHouseRuns(clickhouse.url, clickhouse.database))
            )
            views = Views(board, history, board)
        queue = stack.enter_context(closing(process.queue(produces=True)))
        hand_off = SelfHandOff(queue, process.shards, process.telemetry)
        prompt, turning = PromptLog(log, hand_off), _Turning(hand_off)
        rules = address_rules(settings.targets.allow, settings.targets.ports)
        ports = WebPorts(
            prompt, keys, vault, views, process.master, now, token_bytes, Bounds(rules)
        )
        app = build_app(
            ports,
            command=command,
            query=query,
            on_startup=(log.start, keys.start, turning.start),
            on_shutdown=(turning.close, log.close, keys.close),
        )
        config = uvicorn.Config(
            app,
            http="httptools",
            loop="uvloop",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=DRAIN_S,
        )
        uvicorn.Server(config).run(sockets=[listener])
    return 0


class _Turning:
    """Lets a hand-off's clients do their work, in an event loop."""

    def __init__(self, hand_off: SelfHandOff) -> None:
        self._hand_off = hand_off
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._turn())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _turn(self) -> None:
        while True:
            self._hand_off.turn()
            await asyncio.sleep(TURN_S)


def _loop(
    process: Process,
    role: lifecycle.Role,
    sockets: Callable[[], lifecycle.Sockets] | None = None,
) -> int:
    with lifecycle.Stop() as stop:
        drained = lifecycle.run(
            Trusting(role, process), stop, process.keeper.tick, sockets, process.unavailable
        )
    return 0 if drained else 1


def _faults(role: str, settings: Settings) -> NoFaults | SuicideAt:
    fault = settings.fault
    if fault.role not in ("", role):
        return NoFaults()
    try:
        return fault_point(fault.point)
    except ValueError as error:
        raise SettingsError(f"fault.point: {error}") from error


def _unsigned(_tenant_id: bytes, _key: str, _seconds: int, _body: bytes) -> bytes:
    """Tenants have no signing secrets yet: no signature rather than one that proves nothing."""
    return b""


ROLES: Final[dict[str, Callable[[Process], int]]] = {
    "api": lambda process: _web(process, command=True, query=process.settings.api.with_queries),
    "query": lambda process: _web(process, command=False, query=True),
    "scheduler": _scheduler,
    "auditor": _auditor,
    "dispatcher": _dispatcher,
    "projector": _projector,
}
