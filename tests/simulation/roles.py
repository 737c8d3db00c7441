"""The roles of the product as processes of the simulated world, over ports that can fail."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from commandside.deliverer_port import Answer, AnyCall, Call
from commandside.firing.auditor import Auditor, AuditorPorts
from commandside.firing.dispatcher import Dispatcher
from commandside.firing.flights import DispatcherPorts
from commandside.firing.hand_off import HandOff, SelfHandOff
from commandside.firing.scheduler import Scheduler, SchedulerPorts
from commandside.ports import (
    Chunk,
    Delivery,
    DueReply,
    LogReply,
    LogRequest,
    Overdue,
    Published,
    Ref,
    Tick,
)
from domain.opaque import COMPLETION, Seal
from infra.memory.due_index import MemoryDueIndex
from infra.memory.feed import MemoryFeed
from infra.memory.fire_log import MemoryFireLog
from infra.memory.history import MemoryHistory
from infra.memory.payloads import MemoryPayloadReads
from infra.memory.ready_queue import MemoryBroker, MemoryReadyQueue
from infra.memory.secret_store import MemorySecretStore
from infra.memory.targets import MemoryDeliverer, Reply
from infra.memory.vault import MemoryVault
from projections.runner import BoardView, HistoryView, Projector
from tests.simulation.nodes import Faults, Process, Wire

if TYPE_CHECKING:
    from tests.simulation.world import World

COMPLETIONS: Final = Seal(bytes(32), COMPLETION)
STRIPES: Final = 2
TRIP_US: Final = 2_000
"""A round trip to the log."""
LOOK_US: Final = 700_000
"""Shortest rest of a scheduler that waits for nothing: fewer looks, the same decisions."""
HEALTH_EVERY: Final = 100


class _Index(MemoryDueIndex):
    """Checks the chains of all jobs rarely: else three days would be little but that."""

    calls = 0

    def __init__(self, world: "World") -> None:
        super().__init__(world.log)
        self._watch = world.watch

    def mark(self, published: Sequence[Published]) -> int:
        self._watch.marked(published)
        return super().mark(published)

    def health(self, shards: Sequence[int], part: int = 0, parts: int = 1) -> Overdue:
        self.calls += 1
        if self.calls % HEALTH_EVERY:
            return Overdue(0, 0, 0)
        return super().health(shards, part, parts)


class _Queue(MemoryReadyQueue):
    """A client of the broker whose process can die in each call; silence is the host's."""

    def __init__(
        self, broker: MemoryBroker, faults: Faults, *, produces: bool, consumes: bool
    ) -> None:
        super().__init__(broker, produces=produces, consumes=consumes)
        self._faults = faults

    def publish(self, chunks: Sequence[Chunk], *, near: bool) -> None:
        self._faults.step()
        super().publish(chunks, near=near)
        self._faults.step()

    def take(self, limit: int) -> list[Delivery]:
        found = super().take(limit)
        if found:
            self._faults.step()
        return found

    def done(self, refs: Sequence[Ref]) -> None:
        self._faults.step()
        super().done(refs)
        self._faults.step()

    def silent_ms(self, mono_us: int) -> int:
        return super().silent_ms(self._broker.mono_us())


class _Log(MemoryFireLog):
    """The log as one dispatcher reaches it."""

    def __init__(self, world: "World", faults: Faults) -> None:
        super().__init__(world.log, STRIPES, world.fate)
        self._world, self._faults = world, faults

    def submit(self, stripe: int, request: LogRequest) -> int:
        self._faults.step()
        ticket = super().submit(stripe, request)
        self._faults.step()
        return ticket

    def poll(self) -> list[LogReply]:
        replies = super().poll()
        if replies:
            self._faults.step()
            for reply in replies:
                if isinstance(reply, DueReply) and reply.entries:
                    self._world.claimed(reply.entries)
        return replies


class _Deliverer(MemoryDeliverer):
    """The network as one dispatcher reaches it."""

    def __init__(self, world: "World", process: Process) -> None:
        super().__init__(
            self._answered,
            process.clocks.mono_us,
            concurrency=world.concurrency,
            seen_us=world.clock.mono_us,
        )
        self._faults, self._world = process.faults, world

    def _answered(self, call: Call, at_us: int) -> Reply:
        # Looked up with each call: a test may put another target in the world's place.
        return self._world.answer(call, at_us)

    def submit(self, calls: Sequence[AnyCall]) -> None:
        self._faults.step()
        super().submit(calls)
        self._faults.step()

    def poll(self) -> list[Answer]:
        answers = super().poll()
        if answers:
            self._faults.step()
        return answers


class Scheduling:
    """A scheduler with the audit loop over its shards."""

    def __init__(self, world: "World", process: Process) -> None:
        faults, figures = process.faults, world.figures
        self._queue = _Queue(world.broker, faults, produces=True, consumes=False)
        retries = _Queue(world.broker, faults, produces=True, consumes=False)
        due = Wire(_Index(world), faults, world.trouble("index"))
        hand_off = HandOff(due, self._queue, faults, figures)
        self._hand_off = hand_off
        leases = Wire(world.leases, faults, world.trouble("index"))
        ports = SchedulerPorts(leases, faults, figures, process.new_id)
        self._scheduler = Scheduler(ports, hand_off)
        self._auditor = Auditor(
            AuditorPorts(self._scheduler.owned, faults, figures),
            hand_off,
            SelfHandOff(retries, world.log.shards, figures),
        )

    def start(self, tick: Tick) -> None:
        self._scheduler.start(tick)
        self._auditor.start(tick)

    def run(self, tick: Tick) -> int:
        rest = min(self._scheduler.run_one_batch(tick), self._auditor.run_one_batch(tick))
        return rest if self._hand_off.pending else max(rest, LOOK_US)

    def die(self) -> None:
        self._queue.close()


class Dispatching:
    """A dispatcher and its connections."""

    def __init__(self, world: "World", process: Process) -> None:
        faults = process.faults
        self._queue = _Queue(world.broker, faults, produces=False, consumes=True)
        self._log = _Log(world, faults)
        self._deliverer = _Deliverer(world, process)
        world.deliverers.append(self._deliverer)
        ports = DispatcherPorts(
            self._log,
            self._deliverer,
            MemoryVault(),
            MemorySecretStore(world.clock.now),
            MemoryPayloadReads(world.payloads),
            faults,
            world.figures,
            process.new_id,
            COMPLETIONS,
        )
        self.dispatcher = Dispatcher(ports, self._queue, poll_us=1_000_000)

    def start(self, tick: Tick) -> None:
        self.dispatcher.start(tick)

    def run(self, tick: Tick) -> int:
        rest = self.dispatcher.run_one_batch(tick)
        if self._log.outstanding:
            rest = min(rest, TRIP_US)
        ends = self._deliverer.next_us
        return rest if ends is None else min(rest, ends - tick.mono_us)

    def die(self) -> None:
        # What the targets were sent stays sent; nobody hears the answers.
        self._deliverer.close()
        self._queue.close()


class Projecting:
    """A projector over both views."""

    def __init__(self, world: "World", process: Process) -> None:
        def wire(port: object) -> Wire:
            return Wire(port, process.faults, world.trouble("view"))

        positions = wire(world.positions)
        views = (
            BoardView(wire(world.board)),
            HistoryView(wire(MemoryHistory(world.histories)), positions),
        )
        feed = MemoryFeed(world.log)
        parking = wire(world.parking)
        self._projector = Projector(feed, views, positions, parking, world.figures)

    def start(self, tick: Tick) -> None:
        self._projector.start(tick)

    def run(self, tick: Tick) -> int:
        return self._projector.run_one_batch(tick)

    def die(self) -> None:
        """What was not stored is read again."""


__all__ = ["COMPLETIONS", "Dispatching", "Projecting", "Scheduling"]
