"""What the process of any role has, and the loop that runs one."""

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Final

from commandside.ports import Resting, Tick
from domain.schedule import zone
from infra import clock, lifecycle
from infra.faults import NoFaults, SuicideAt, fault_point
from infra.kafka.options import KafkaOptions
from infra.kafka.ready_queue import KafkaReadyQueue
from infra.keys.masters import masters_of
from infra.keys.wrapping import unlock
from infra.ops import OpsServer
from infra.postgres import migrate
from infra.postgres.clock import TimeKeeper
from infra.settings import Settings, SettingsError
from infra.telemetry import Telemetry

STALE: Final = "Postgres has not answered for 5 s"
JUMPED: Final = "the database's clock, or this node's, has jumped; waiting for two equal answers"
OTHER_ZONES: Final = (
    "this node has zone data {}, and this installation plans with {}: give the node those, or "
    "change over with `tocsin zones apply` (`tocsin zones diff` shows what would move)"
)
READERS: Final = frozenset({"projector", "query"})
"""Roles that plan nothing."""
DISTRUST_US: Final = 100_000
GARBAGE: Final = (50_000, 20, 50)
"""Most of what we allocate is never in a cycle, and structs on the fire path are not even tracked:
looking for cycles after every 700 allocations finds nothing and costs a tenth of a definition."""


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
        self.keys = unlock(self.conninfo, masters_of(settings))
        self.more: Callable[[], dict[str, object]] = dict
        """What readiness shows beside Postgres; `ready` among it, where it is not."""

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Keep time and answer operators."""
        settings = self.settings.api
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GARBAGE)
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
        elif self.doubt:
            shown |= {"ready": False, "because": self.doubt}
        return shown

    @property
    def doubt(self) -> str:
        """Why this process decides nothing just now; empty where it may."""
        if not self.keeper.clock.trusted:
            return JUMPED
        planned_with = self.keeper.zone_data
        if planned_with in {"", zone.VERSION} or self.role in READERS:
            return ""
        return OTHER_ZONES.format(zone.VERSION, planned_with)

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

    def now(self) -> int:
        """Return the database clock, ms; raises Unavailable while it is in doubt."""
        if self.doubt:
            raise Resting(self.doubt)
        return self.keeper.clock.now()

    def unavailable(self, detail: str) -> None:
        """Say that an engine is away."""
        sys.stderr.write(f"{self.role}: {detail}\n")
        sys.stderr.flush()


class Trusting:
    """A role that rests while the clocks or the zone data of nodes do not agree."""

    def __init__(self, role: lifecycle.Role, process: Process) -> None:
        self._role, self._process = role, process
        self._said = False

    def start(self, tick: Tick) -> None:
        """Start the role."""
        self._role.start(tick)

    def run_one_batch(self, tick: Tick) -> int:
        """Run the role, or rest."""
        doubt = self._process.doubt
        if not doubt:
            self._said = False
            return self._role.run_one_batch(tick)
        if not self._said:
            self._said = True
            self._process.unavailable(doubt)
        return DISTRUST_US

    def drain(self, tick: Tick) -> bool:
        """Drain the role."""
        return self._role.drain(tick)


def loop(
    process: Process,
    role: lifecycle.Role,
    sockets: Callable[[], lifecycle.Sockets] | None = None,
) -> int:
    """Run a role until it is told to stop; returns the exit status."""

    def waited_for() -> lifecycle.Sockets:
        # A role that rests reads nothing: its sockets would wake it for ever.
        return sockets() if sockets is not None and not process.doubt else ((), ())

    with lifecycle.Stop() as stop:
        drained = lifecycle.run(
            Trusting(role, process), stop, process.keeper.tick, waited_for, process.unavailable
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
