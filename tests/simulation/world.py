"""A whole Tocsin in virtual time: schedulers with their audit loops, dispatchers, targets, faults.

Everything random comes from one seed, so the same seed gives the same trace. Processes run one
after the other, the one whose rest ends first; while nothing is due, all of them rest longer.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Final, Protocol

import msgspec

from commandside.auditor import Auditor, AuditorPorts
from commandside.deliverer_port import Call
from commandside.dispatcher import Dispatcher
from commandside.flights import DispatcherPorts
from commandside.hand_off import HandOff, SelfHandOff
from commandside.ports import LogRequest, Overdue, Tick, Unavailable
from commandside.scheduler import Scheduler, SchedulerPorts
from domain.opaque import COMPLETION, Seal
from infra.memory.clock import VirtualClock
from infra.memory.command_log import MemoryCommandLog
from infra.memory.due_index import MemoryDueIndex
from infra.memory.fire_log import Fate, MemoryFireLog
from infra.memory.log import MemoryLog
from infra.memory.payloads import MemoryPayloadReads, MemoryPayloadStore
from infra.memory.ready_queue import MemoryBroker, MemoryReadyQueue
from infra.memory.secret_store import MemorySecretStore
from infra.memory.shard_leases import MemoryShardLeases
from infra.memory.targets import NEVER_US, MemoryDeliverer, Reply
from infra.memory.vault import MemoryVault

COMPLETIONS: Final = Seal(bytes(32), COMPLETION)
START: Final = 1_800_000_000_000
SHARDS: Final = 8
PARTITIONS: Final = 4
STRIPES: Final = 2
TRIP_US: Final = 2_000
"""A round trip to the log."""
QUIET_US: Final = 2_500_000
"""Rest while nothing is due; shorter than any lease of a process."""
SOON_MS: Final = 5_000
LOOK_US: Final = 700_000
"""Shortest rest of a scheduler that waits for nothing: fewer looks, the same decisions."""
HEALTH_EVERY: Final = 100
DOWN_US: Final = 2_000_000
"""How long a process that died stays away."""


class Crashed(BaseException):
    """A process died at a crash point; no handler of the program may catch it."""


class Weather(msgspec.Struct, frozen=True):
    """Chances of what goes wrong, per request, message or call; 0 for all is fair weather."""

    log: float = 0.0
    message: float = 0.0
    target: float = 0.0


class Faults:
    """The crash points of one process: dies once at each armed name, whenever it comes there."""

    def __init__(self, hits: Counter[str], crashes: Counter[str]) -> None:
        self.armed: set[str] = set()
        self._hits, self._crashes = hits, crashes

    def hit(self, name: str) -> None:
        self._hits[name] += 1
        if name in self.armed:
            self.armed.remove(name)
            self._crashes[name] += 1
            raise Crashed(name)


class Figures:
    """Telemetry that is added up over all processes."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.alarms: list[tuple[str, str]] = []
        self.lateness_ms: list[int] = []

    def count(self, name: str, by: int = 1) -> None:
        self.counts[name] += by

    def observe(self, name: str, values: Sequence[int]) -> None:
        if name == "lateness_ms":
            self.lateness_ms += values

    def gauge(self, name: str, value: int) -> None:
        """Nobody looks at a gauge that has passed."""

    def alarm(self, name: str, detail: str) -> None:
        self.alarms.append((name, detail))


class Body(Protocol):
    """The living part of a process."""

    def start(self, tick: Tick) -> None: ...

    def run(self, tick: Tick) -> int: ...

    def die(self) -> None: ...


class Process:
    """One process: its body, its clock's error, and when it runs next."""

    def __init__(self, world: "World", name: str, build: Callable[[Faults], Body]) -> None:
        self.name = name
        self.faults = Faults(world.hits, world.crashes)
        self._world, self._build = world, build
        self._body: Body | None = None
        self._started = False
        self._skew_ms = 0

    def run(self) -> int:
        """Run one batch, or start, or die; return after how many µs to be run again."""
        world = self._world
        if self._body is None:
            self._body, self._started = self._build(self.faults), False
            self._skew_ms = world.random.randint(-200, 200)
        tick = Tick(world.clock.now() + self._skew_ms, world.clock.mono_us())
        try:
            if not self._started:
                self._body.start(tick)
                self._started = True
            return self._body.run(tick)
        except Unavailable:
            return 200_000
        except Crashed:
            self.kill()
            return DOWN_US

    def kill(self) -> None:
        """End it as SIGKILL does."""
        if self._body is not None:
            self._body.die()
            self._body = None


class _Index(MemoryDueIndex):
    """Checks the chains of all jobs rarely: else three days would be little but that."""

    calls = 0

    def health(self, shards: Sequence[int], part: int = 0, parts: int = 1) -> Overdue:
        self.calls += 1
        if self.calls % HEALTH_EVERY:
            return Overdue(0, 0, 0)
        return super().health(shards, part, parts)


class _Scheduling:
    """A scheduler with the audit loop over its shards."""

    def __init__(self, world: "World", faults: Faults) -> None:
        new_id = world.random.randbytes
        self._queue = MemoryReadyQueue(world.broker, produces=True, consumes=False)
        retries = MemoryReadyQueue(world.broker, produces=True, consumes=False)
        hand_off = HandOff(_Index(world.log), self._queue, faults, world.figures)
        self._hand_off = hand_off
        ports = SchedulerPorts(world.leases, faults, world.figures, new_id)
        self._scheduler = Scheduler(ports, hand_off)
        self._auditor = Auditor(
            AuditorPorts(self._scheduler.owned, faults, world.figures),
            hand_off,
            SelfHandOff(retries, SHARDS, world.figures),
        )

    def start(self, tick: Tick) -> None:
        self._scheduler.start(tick)
        self._auditor.start(tick)

    def run(self, tick: Tick) -> int:
        rest = min(self._scheduler.run_one_batch(tick), self._auditor.run_one_batch(tick))
        return rest if self._hand_off.pending else max(rest, LOOK_US)

    def die(self) -> None:
        self._queue.close()


class _Dispatching:
    """A dispatcher and its connections."""

    def __init__(self, world: "World", faults: Faults) -> None:
        self._world = world
        self._queue = MemoryReadyQueue(world.broker, produces=False, consumes=True)
        self._log = MemoryFireLog(world.log, STRIPES, world.fate)
        self._deliverer = MemoryDeliverer(world.answer, world.clock.mono_us, concurrency=64)
        world.deliverers.append(self._deliverer)
        ports = DispatcherPorts(
            self._log,
            self._deliverer,
            MemoryVault(),
            MemorySecretStore(world.clock.now),
            MemoryPayloadReads(MemoryPayloadStore()),
            faults,
            world.figures,
            world.random.randbytes,
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


class World:
    """The processes, what they share, and the weather."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.weather = Weather()
        self.hurries = True
        """All rest longer while nothing is due, even one that waits for an answer of the log."""
        self.clock = VirtualClock(START)
        self.log = MemoryLog(self.clock.now, SHARDS)
        self.commands = MemoryCommandLog(self.log)
        self.leases = MemoryShardLeases(self.log)
        self.broker = MemoryBroker(PARTITIONS, self.clock.mono_us, self.random.random)
        self.figures = Figures()
        self.hits: Counter[str] = Counter()
        self.crashes: Counter[str] = Counter()
        self.deliverers: list[MemoryDeliverer] = []
        self.processes = [
            *(Process(self, f"scheduler {n}", lambda f: _Scheduling(self, f)) for n in range(2)),
            *(Process(self, f"dispatcher {n}", lambda f: _Dispatching(self, f)) for n in range(2)),
        ]
        self._queue: list[tuple[int, int]] = []
        for number in range(len(self.processes)):
            heappush(self._queue, (self.clock.mono_us(), number))

    # ---------------------------------------------------------------- time

    def run_until(self, at: int) -> None:
        """Run until an instant, ms."""
        while self._queue[0][0] < at * 1_000:
            when, number = heappop(self._queue)
            self.clock.advance_us(max(0, when - self.clock.mono_us()))
            rest = max(self.processes[number].run(), 200)
            if self.hurries and self._is_quiet():
                rest = max(rest, QUIET_US)
            heappush(self._queue, (self.clock.mono_us() + rest, number))
        self.clock.advance_us(at * 1_000 - self.clock.mono_us())

    def hold(self, number: int, until: int) -> None:
        """Keep a process from running until an instant, as a stopped machine does."""
        self._queue = [(max(w, until * 1_000) if n == number else w, n) for w, n in self._queue]
        self._queue.sort()

    def _is_quiet(self) -> bool:
        wakes = self.log.wakes
        return not wakes or wakes[0][0] > self.clock.now() + SOON_MS

    # ---------------------------------------------------------------- what goes wrong

    def fate(self, _stripe: int, _request: LogRequest) -> Fate:
        """Return what happens to a request of a dispatcher."""
        if self.random.random() >= self.weather.log:
            return Fate.DONE
        return self.random.choice([fate for fate in Fate if fate is not Fate.DONE])

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
