"""The processes that hand off: the scheduler, which audits its shards, and the auditor alone."""

from contextlib import ExitStack, closing
from secrets import token_bytes

from commandside.firing.auditor import Auditor, AuditorPorts
from commandside.firing.hand_off import HandOff, SelfHandOff
from commandside.firing.scheduler import Scheduler, SchedulerPorts
from commandside.ports import Tick
from infra import lifecycle
from infra.postgres.due_index import PostgresDueIndex
from infra.postgres.shard_leases import PostgresShardLeases
from infra.roles.process import Process, loop


def run(process: Process) -> int:
    """Hand off and audit the shards that this process owns."""
    with ExitStack() as stack:
        hand_off, retries = _handing_off(process, stack)
        leases = stack.enter_context(closing(PostgresShardLeases(process.conninfo, process.shards)))
        ports = SchedulerPorts(leases, process.faults, process.telemetry, token_bytes)
        scheduler = Scheduler(ports, hand_off)
        own = AuditorPorts(scheduler.owned, process.faults, process.telemetry)
        return loop(process, Together(scheduler, Auditor(own, hand_off, retries)))


def audit(process: Process) -> int:
    """Audit every shard, whoever owns it."""
    with ExitStack() as stack:
        hand_off, retries = _handing_off(process, stack)
        everything = range(process.shards)
        ports = AuditorPorts(lambda _: everything, process.faults, process.telemetry)
        return loop(process, Auditor(ports, hand_off, retries))


def _handing_off(process: Process, stack: ExitStack) -> tuple[HandOff, SelfHandOff]:
    queue = stack.enter_context(closing(process.queue(produces=True)))
    due = stack.enter_context(closing(PostgresDueIndex(process.conninfo, process.shards)))
    hand_off = HandOff(due, queue, process.faults, process.telemetry)
    return hand_off, SelfHandOff(queue, process.shards, process.telemetry)


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
