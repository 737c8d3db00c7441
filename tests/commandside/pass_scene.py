"""A scheduler and an auditor in virtual time; dispatchers are what the test leases by hand."""

import itertools
import random
import struct
from collections.abc import Callable
from typing import Final

from commandside.firing.auditor import Auditor, AuditorPorts
from commandside.firing.hand_off import HandOff, SelfHandOff
from commandside.firing.scheduler import Scheduler, SchedulerPorts
from commandside.ports import (
    ENTRY,
    Chunk,
    Lease,
    LeaseReply,
    Renew,
    Tick,
    Unavailable,
    Want,
)
from domain.run.state import Ready
from domain.sharding import shard_of, stripe_of
from infra.memory.clock import VirtualClock
from infra.memory.due_index import MemoryDueIndex
from infra.memory.fire_log import MemoryFireLog
from infra.memory.log import MemoryLog
from infra.memory.ready_queue import MemoryBroker, MemoryReadyQueue
from infra.memory.shard_leases import MemoryShardLeases
from tests.commandside.scene import Faults, Telemetry
from tests.contracts import jobs

START: Final = 1_800_000_000_000
SHARDS: Final = 8
PARTITIONS: Final = 4
STEP_US: Final = 10_000
OWNER: Final = b"dispatcher".ljust(16, b".")


class Windows(MemoryDueIndex):
    """A due index that keeps what was asked of it, and can be away."""

    def __init__(self, log: MemoryLog) -> None:
        super().__init__(log)
        self.now = log.now
        self.windows: list[tuple[int, int, int, int]] = []
        """(asked at, shards, after, until), the last two from the instant of asking."""
        self.away = False

    def window(self, terms: dict[int, int], after: int, until: int, limit: int) -> list[Chunk]:
        if self.away:
            raise Unavailable("the database is away")
        now = self.now()
        self.windows.append((now, len(terms), after - now, until - now))
        return super().window(terms, after, until, limit)


class Process:
    """One scheduler process: the two roles over one hand-off."""

    def __init__(self, scene: "Scene") -> None:
        self.scene = scene
        self.index = Windows(scene.log)
        self.queue = MemoryReadyQueue(scene.broker, produces=True, consumes=False)
        self.faults = Faults()
        self.telemetry = Telemetry()
        self.hand_off = HandOff(self.index, self.queue, self.faults, self.telemetry)
        self.scheduler = Scheduler(
            SchedulerPorts(scene.leases, self.faults, self.telemetry, scene.new_id), self.hand_off
        )
        self.auditor = Auditor(
            AuditorPorts(self.scheduler.owned, self.faults, self.telemetry),
            self.hand_off,
            SelfHandOff(self.queue, SHARDS, self.telemetry),
        )
        self.audits = True
        self.refused: list[str] = []

    def start(self) -> None:
        self.scheduler.start(self.scene.clock.tick())
        self.auditor.start(self.scene.clock.tick())

    def turn(self, tick: Tick) -> None:
        try:
            self.scheduler.run_one_batch(tick)
            if self.audits:
                self.auditor.run_one_batch(tick)
        except Unavailable as away:
            self.refused.append(str(away))


class Scene:
    """One log, one broker, one consumer, and as many scheduler processes as the test starts."""

    def __init__(self) -> None:
        self.clock = VirtualClock(START)
        self.log = MemoryLog(self.clock.now, SHARDS)
        self.leases = MemoryShardLeases(self.log)
        self.broker = MemoryBroker(PARTITIONS, self.clock.mono_us, random.Random(1).random)
        self.consumer = MemoryReadyQueue(self.broker, produces=False, consumes=True)
        self.arrived: list[tuple[int, bytes]] = []
        """(when, run) of every entry that reached the dispatchers' side."""
        self.near: dict[bytes, bool] = {}
        self.commits = True
        """What arrives counts as dealt with; otherwise it stays queued."""
        self.processes: list[Process] = []
        self._ids = itertools.count(1)

    def new_id(self, size: int) -> bytes:
        return next(self._ids).to_bytes(size, "big")

    def boot(self) -> Process:
        """Start a scheduler process."""
        process = Process(self)
        process.start()
        self.processes.append(process)
        return process

    def once(self, after_ms: int, *, shard: int = 0) -> Ready:
        """Define a job that is due so long from now."""
        now = self.clock.now()
        spec = jobs.spec(jobs.once(now + after_ms))
        decision = jobs.define(jobs.job_id(shard, SHARDS), spec, min(now, now + after_ms - 1))
        done = self.log.append([decision], now + 5_000)
        assert not done.refused
        return jobs.ready_run(decision)

    def run_for(self, ms: int) -> None:
        """Let all processes run for so long."""
        self.run_until(lambda: False, ms)

    def run_until(self, look: Callable[[], bool], ms: int) -> bool:
        """Let all processes run until something is so; return whether it became so in time."""
        end = self.clock.mono_us() + ms * 1_000
        while not look():
            if self.clock.mono_us() >= end:
                return False
            tick = self.clock.tick()
            for process in self.processes:
                process.turn(tick)
            self._take()
            self.clock.advance_us(STEP_US)
        return True

    def _take(self) -> None:
        self.consumer.revoked()
        for delivery in self.consumer.take(10_000):
            if self.commits:
                self.consumer.done([delivery.ref])
            for run_id, *_ in struct.iter_unpack(ENTRY, delivery.chunk.entries):
                self.arrived.append((self.clock.now(), run_id))
                self.near[run_id] = delivery.ref.topic.endswith(".now")

    def runs_arrived(self) -> list[bytes]:
        return [run_id for _, run_id in self.arrived]

    def times_arrived(self, run: Ready) -> int:
        return self.runs_arrived().count(run.facts.run_id)

    def lease(self, run: Ready, owner: bytes = OWNER) -> None:
        """Lease a run as a dispatcher would."""
        log = MemoryFireLog(self.log)
        log.submit(log.stripes, Renew(owner, starts=True))
        facts = run.facts
        want = Want(facts.run_id, facts.version, facts.job_id)
        stripe = stripe_of(shard_of(facts.job_id, SHARDS), log.stripes)
        log.submit(stripe, Lease(owner, self.new_id(8), (want,), self.clock.now() + 2_000))
        (reply,) = [reply for reply in log.poll() if isinstance(reply, LeaseReply)]
        assert len(reply.granted) == 1, reply

    def is_marked(self, *runs: Ready) -> bool:
        return all(self.log.due[run.facts.run_id].handed_off_at is not None for run in runs)
