"""A whole Tocsin in virtual time: schedulers with their audit loops, dispatchers, targets, faults.

Everything random comes from one seed, so the same seed gives the same trace. Processes run one
after the other, the one whose rest ends first; while nothing is due, all of them rest longer. Who
draws what has dice of its own, so that a fault more or less leaves the others as they are.
"""

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from typing import Final

import msgspec

from commandside.deliverer_port import Call
from commandside.ports import Chunk, LogRequest
from infra.memory.clock import VirtualClock
from infra.memory.command_log import MemoryCommandLog
from infra.memory.feed import MemoryPositions
from infra.memory.fire_log import Fate
from infra.memory.history import MemoryHistories
from infra.memory.log import MemoryLog
from infra.memory.payloads import MemoryPayloadStore
from infra.memory.ready_queue import MemoryBroker, Place
from infra.memory.shard_leases import MemoryShardLeases
from infra.memory.targets import NEVER_US, MemoryDeliverer, Reply
from infra.memory.views import MemoryBoardStore, MemoryParking
from tests.simulation.nodes import Crashed, Faults, Figures, Process, Trouble
from tests.simulation.roles import COMPLETIONS, Dispatching, Projecting, Scheduling
from tests.simulation.rules import Watch

START: Final = 1_800_000_000_000
SHARDS: Final = 8
PARTITIONS: Final = 4
QUIET_US: Final = 2_500_000
"""Rest while nothing is due; shorter than any lease of a process."""
SOON_MS: Final = 5_000
SLOW_MS: Final = 20_000
"""Longest time for which a hostile bus keeps a chunk back."""
CONCURRENCY: Final = 64
SKEW_MS: Final = 200
"""Error of a node's estimate; half of what it may be before the node stops by itself."""


class Weather(msgspec.Struct, frozen=True):
    """Chances of what goes wrong, per request, message or call; 0 for all is fair weather."""

    log: float = 0.0
    """A dispatcher's request to the log: lost, done and not answered, or done seconds later."""
    message: float = 0.0
    """A chunk is lost, doubled, or overtaken: each."""
    target: float = 0.0
    delay: float = 0.0
    """A chunk is kept back for seconds."""
    index: float = 0.0
    """A scheduler's or auditor's statement fails, before or after its commit."""
    command: float = 0.0
    """A command's transaction fails, before or after its commit."""
    view: float = 0.0
    """A projector's write fails, before or after its commit."""


class _Broker(MemoryBroker):
    """A bus that also delays, and remembers what was handed to it."""

    def __init__(self, world: "World") -> None:
        super().__init__(PARTITIONS, world.clock.mono_us, world.dice("bus").random)
        self._world = world
        self._late: list[tuple[int, int, Place, Chunk]] = []
        self.handed: list[tuple[int, bytes]] = []
        """(when in µs, ENTRY records)"""

    def append(self, place: Place, chunk: Chunk) -> int:
        self.handed.append((self.mono_us(), chunk.entries))
        self._world.watch.handed(chunk, self._world.log.terms)
        delay = self._world.weather.delay
        if delay and self.chance() < delay:
            due_us = self.mono_us() + int(self.chance() * SLOW_MS) * 1_000
            heappush(self._late, (due_us, len(self.handed), place, chunk))
            log = self.log(place)
            log.chunks.append(None)
            return log.end - 1
        return super().append(place, chunk)

    def release(self) -> None:
        """Let what was kept back arrive, behind all that came since."""
        while self._late and self._late[0][0] <= self.mono_us():
            _, _, place, chunk = heappop(self._late)
            self.log(place).chunks.append(chunk)


class World:
    """The processes, what they share, and the weather."""

    def __init__(self, seed: int | str, *, projects: bool = False, skew_ms: int = SKEW_MS) -> None:
        """`skew_ms`: the most by which a node's estimate of the database's clock is wrong."""
        self.seed, self.skew_ms = seed, skew_ms
        self.random = random.Random(seed)
        self.weather = Weather()
        self.concurrency = CONCURRENCY
        self.hurries = True
        """All rest longer while nothing is due, even one that waits for an answer of the log."""
        self.clock = VirtualClock(START)
        self.jump_ms = 0
        """How far the database's clock is from the host's."""
        self.log = MemoryLog(self.database_ms, SHARDS)
        self.commands = MemoryCommandLog(self.log)
        self.leases = MemoryShardLeases(self.log)
        self.payloads = MemoryPayloadStore()
        self._fates = self.dice("fate")
        self.broker = _Broker(self)
        self.positions = MemoryPositions()
        self.board = MemoryBoardStore(self.positions)
        self.histories = MemoryHistories()
        self.parking = MemoryParking()
        self.figures = Figures()
        self.watch = Watch()
        self.hits: Counter[str] = Counter()
        self.crashes: Counter[str] = Counter()
        self.deliverers: list[MemoryDeliverer] = []
        self.on_death: Callable[[Process, str], None] = lambda _process, _where: None
        self.claims: list[tuple[int, bytes]] = []
        self.processes: list[Process] = []
        self._queue: list[tuple[int, int]] = []
        self._asked: dict[int, int] = {}
        """When each process wanted to run again, µs, before it was let rest longer."""
        for number in range(2):
            self.add(Process(self, f"scheduler {number}", partial(Scheduling, self)))
        for number in range(2):
            self.add(Process(self, f"dispatcher {number}", partial(Dispatching, self)))
        if projects:
            self.add(Process(self, "projector", partial(Projecting, self)))

    def add(self, process: Process) -> None:
        """Let another process run from now on."""
        self.processes.append(process)
        heappush(self._queue, (self.clock.mono_us(), len(self.processes) - 1))

    @property
    def steps(self) -> int:
        """Return how many batches all processes have run."""
        return sum(process.steps for process in self.processes)

    # ---------------------------------------------------------------- what processes see

    def host_us(self) -> int:
        """Return the true time, which nobody but the host has."""
        return self.clock.mono_us()

    def database_ms(self) -> int:
        """Return the database's clock."""
        return self.clock.now() + self.jump_ms

    def reaches_database(self) -> bool:
        """Tell whether the database answers."""
        return not self.log.away

    def died(self, process: Process, where: str) -> None:
        """Tell whoever listens that a process died."""
        self.on_death(process, where)

    def dice(self, what: str) -> random.Random:
        """Return dice of somebody's own."""
        return random.Random(f"{self.seed} {what}")

    # ---------------------------------------------------------------- time

    def run_until(self, at: int) -> None:
        """Run until an instant, ms."""
        queue, clock = self._queue, self.clock
        while queue[0][0] < at * 1_000:
            when, number = heappop(queue)
            clock.advance_us(max(0, when - clock.mono_us()))
            self.broker.release()
            rest = max(self.processes[number].run(), 200)
            self._asked[number] = clock.mono_us() + rest
            if self.hurries and self._is_quiet():
                rest = max(rest, QUIET_US)
            heappush(queue, (clock.mono_us() + rest, number))
        clock.advance_us(at * 1_000 - clock.mono_us())

    def hold(self, number: int, until: int) -> None:
        """Keep a process from running until an instant, as a stopped machine does."""
        self._queue[:] = [(max(w, until * 1_000) if n == number else w, n) for w, n in self._queue]
        heapify(self._queue)
        self._asked[number] = max(self._asked.get(number, 0), until * 1_000)

    def wake(self) -> None:
        """Let nobody rest longer than was asked for: something came from outside."""
        now = self.clock.mono_us()
        self._queue[:] = [(min(w, max(now, self._asked.get(n, w))), n) for w, n in self._queue]
        heapify(self._queue)

    def _is_quiet(self) -> bool:
        wakes = self.log.wakes
        return not wakes or wakes[0][0] > self.database_ms() + SOON_MS

    # ---------------------------------------------------------------- what goes wrong

    def fate(self, _stripe: int, _request: LogRequest) -> Fate:
        """Return what happens to a request of a dispatcher."""
        if self._fates.random() >= self.weather.log:
            return Fate.DONE
        return self._fates.choice([fate for fate in Fate if fate is not Fate.DONE])

    def trouble(self, kind: str) -> Trouble:
        """Return what decides the calls of a kind of port: see `Weather`."""
        dice = self.dice(kind)

        def trouble(_call: str) -> bool | None:
            chance: float = getattr(self.weather, kind)
            return dice.random() < 0.5 if chance and dice.random() < chance else None

        return trouble

    def answer(self, call: Call, _at_us: int) -> Reply:
        """Return what a target does with a call."""
        dice = self.random.random()
        latency = self.random.randint(5_000, 800_000)
        if dice >= self.weather.target:
            return Reply(latency_us=latency)
        return self.random.choice(
            (
                Reply(status=500, latency_us=latency),
                Reply(status=503, latency_us=latency, headers=(("Retry-After", "7"),)),
                Reply(status=0, error="reset", latency_us=latency),
                Reply(status=0, error="connect", latency_us=latency),
                Reply(latency_us=20_000_000),
                Reply(latency_us=NEVER_US),
                Reply(status=404, latency_us=latency),
            )
        )

    def set_weather(self, weather: Weather) -> None:
        """Change the chances from now on."""
        self.weather = weather
        self.broker.faults.lost = weather.message
        self.broker.faults.doubled = weather.message
        self.broker.faults.swapped = weather.message

    # ---------------------------------------------------------------- what is seen

    def claimed(self, entries: bytes) -> None:
        """Note what a dispatcher found in the log by itself."""
        self.claims.append((self.clock.mono_us(), entries))

    def trace(self) -> str:
        """Return a hash over every event and every request that reached a target, in order."""
        digest = blake2b(digest_size=16)
        for shard in self.log.feed:
            for written in shard:
                digest.update(written.stream_id)
                digest.update(b"%d %d %b " % (written.position, written.version, written.data))
        for deliverer in self.deliverers:
            for hit in deliverer.hits:
                digest.update(b"%d " % hit.at_us)
                digest.update(b"\n".join(hit.call.headers))
        return digest.hexdigest()


__all__ = ["COMPLETIONS", "Crashed", "Faults", "Process", "Weather", "World"]
