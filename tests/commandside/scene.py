"""A dispatcher in virtual time, with everything around it in memory and at the test's command."""

import itertools
import random
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from commandside.deliverer_port import Call, Deliverer, Message
from commandside.firing.dispatcher import Dispatcher
from commandside.firing.flights import DispatcherPorts
from commandside.ports import ENTRY, Chunk, Lease, LogRequest, Tick
from domain import chain
from domain.catalogue import DomainEvent
from domain.envelope import Decision
from domain.job.events import JobSpec
from domain.opaque import COMPLETION, Seal
from domain.run.decide import LOST, report
from domain.run.state import Ready
from domain.sharding import shard_of
from infra.memory.clock import VirtualClock
from infra.memory.due_index import MemoryDueIndex
from infra.memory.fire_log import Fate, MemoryFireLog
from infra.memory.log import MemoryLog
from infra.memory.payloads import MemoryPayloadReads, MemoryPayloadStore
from infra.memory.ready_queue import MemoryBroker, MemoryReadyQueue
from infra.memory.secret_store import MemorySecretStore
from infra.memory.targets import MemoryDeliverer, Reply
from infra.memory.vault import MemoryVault
from tests.contracts import jobs

COMPLETIONS: Final = Seal(bytes(32), COMPLETION)
START: Final = 1_800_000_000_000
SHARDS: Final = 8
STRIPES: Final = 2
STEPS_MAX: Final = 100_000
FAR_MS: Final = 3_600_000


class Crashed(BaseException):
    """The process died at a crash point; no handler of the program may catch it."""


class Faults:
    """Counts hits, and dies where it is told to."""

    def __init__(self) -> None:
        self.hits: Counter[str] = Counter()
        self.armed = ""

    def hit(self, name: str) -> None:
        self.hits[name] += 1
        if name == self.armed:
            self.armed = ""
            raise Crashed(name)


class Telemetry:
    """Keeps figures where tests can see them."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.observed: dict[str, list[int]] = {}
        self.gauges: dict[str, int] = {}
        self.alarms: list[tuple[str, str]] = []

    def count(self, name: str, by: int = 1) -> None:
        self.counts[name] += by

    def observe(self, name: str, values: Sequence[int]) -> None:
        self.observed.setdefault(name, []).extend(values)

    def gauge(self, name: str, value: int) -> None:
        self.gauges[name] = value

    def alarm(self, name: str, detail: str) -> None:
        self.alarms.append((name, detail))


class Scene:
    """One log, one broker, targets that do as `answer` says, and one dispatcher."""

    def __init__(
        self, *, concurrency: int = 128, heap_max: int = 200_000, host_share: int = 1 << 30
    ) -> None:
        self.clock = VirtualClock(START)
        self.log = MemoryLog(self.clock.now, SHARDS)
        self.fates: Callable[[int, LogRequest], Fate] = lambda _stripe, _request: Fate.DONE
        self.requests: list[tuple[int, LogRequest]] = []
        """Every request and when it was sent, ms."""
        self.answer: Callable[[Call], Reply] = lambda _call: Reply()
        self.confirm: Callable[[Message], str] = lambda _message: ""
        """What the broker of a queue says of a message."""
        self.broker = MemoryBroker(4, self.clock.mono_us, random.Random(1).random)
        self.index = MemoryDueIndex(self.log)
        self.sender = MemoryReadyQueue(self.broker, produces=True, consumes=False)
        self.vault = MemoryVault()
        self.secrets = MemorySecretStore(self.clock.now)
        self.objects = MemoryPayloadStore()
        self.telemetry = Telemetry()
        self.faults = Faults()
        self.heap_max, self.host_share = heap_max, host_share
        self.skew_ms = 0
        """How far the node's idea of the database clock is ahead of it."""
        self._ids = itertools.count(1)
        self.deliverer = MemoryDeliverer(
            lambda call, _at: self.answer(call),
            self.clock.mono_us,
            concurrency=concurrency,
            broker=lambda message, _at: self.confirm(message),
        )
        self.boot()

    def boot(self) -> None:
        """Start a dispatcher as a new process would; the old one is forgotten as it stands."""
        self.fire_log = MemoryFireLog(self.log, STRIPES, self._fate)
        self.queue = MemoryReadyQueue(self.broker, produces=False, consumes=True)
        self.reads = MemoryPayloadReads(self.objects)
        ports = DispatcherPorts(
            self.fire_log,
            self.targets(),
            self.vault,
            self.secrets,
            self.reads,
            self.faults,
            self.telemetry,
            self._new_id,
            COMPLETIONS,
        )
        self.dispatcher = Dispatcher(
            ports, self.queue, heap_max=self.heap_max, host_share=self.host_share
        )
        self.dispatcher.start(self.clock.tick())

    def targets(self) -> Deliverer[Any]:
        """Return what a dispatcher that is started calls."""
        return self.deliverer

    def _fate(self, stripe: int, request: LogRequest) -> Fate:
        self.requests.append((self.clock.now(), request))
        return self.fates(stripe, request)

    def _new_id(self, size: int) -> bytes:
        return next(self._ids).to_bytes(size, "big")

    # ---------------------------------------------------------------- jobs

    def define(self, spec: JobSpec, *, shard: int = 0, at: int = 0) -> Ready:
        """Define a job as of `at` (now), and return its first run."""
        job_id = jobs.job_id(shard, SHARDS)
        decision = jobs.define(job_id, spec, at or self.clock.now())
        self.append(decision)
        return jobs.ready_run(decision)

    def append(self, decision: Decision) -> None:
        """Append as another writer; it must hold."""
        assert self.log.append([decision], self.clock.now()).refused == ()

    def one_time(self, *, in_ms: int = 1_000, shard: int = 0) -> Ready:
        """Define a one-time job without a payload."""
        spec = jobs.spec(jobs.once(self.clock.now() + in_ms), payload=b"")
        return self.define(spec, shard=shard)

    def hand_off(self) -> None:
        """Publish everything that is ready, as a scheduler does, and mark it."""
        terms = dict(self.log.terms)
        chunks = self.index.window(terms, -1, self.clock.now() + FAR_MS, 100_000)
        self.sender.publish(chunks, near=False)
        self.index.mark(self.sender.confirmed())

    def audit(self) -> None:
        """End expired sessions and append the lapse of leases that are over, as an auditor does."""
        self.index.reap()
        decisions = []
        for standing, run in self.index.lapsed(range(SHARDS), 1_000):
            alone = chain.is_alone(run, standing.runs)
            decision = report(
                standing.job, run, run.facts.fence, LOST, self.clock.now(), alone=alone
            )
            assert decision is not None
            decisions.append(decision)
        self.index.append(decisions, self.clock.now())

    # ---------------------------------------------------------------- time

    def tick(self) -> Tick:
        """Return what the dispatcher is run with now."""
        return Tick(self.clock.now() + self.skew_ms, self.clock.mono_us())

    def step(self) -> None:
        """Run one batch, then let time pass until something can happen."""
        if not self.broker.away:
            self.sender.beat()  # as a scheduler does
        tick = self.tick()
        rest_us = self.dispatcher.run_one_batch(tick)
        ends = self.deliverer.next_us
        if ends is not None:
            rest_us = min(rest_us, max(0, ends - tick.mono_us))
        self.clock.advance_us(max(rest_us, 100))

    def until(self, true: Callable[[], object], what: str = "it") -> None:
        """Run until a condition holds; a bound on steps stands for a deadline."""
        for _ in range(STEPS_MAX):
            if true():
                return
            self.step()
        raise AssertionError(f"{what} has not happened by {self.clock.now() - START} ms")

    def run_ms(self, ms: int) -> None:
        """Run for so long."""
        end = self.clock.now() + ms
        self.until(lambda: self.clock.now() >= end)

    # ---------------------------------------------------------------- what is seen

    def sent(self, kind: type) -> list[LogRequest]:
        """Return the requests of a kind."""
        return [request for _, request in self.requests if isinstance(request, kind)]

    def names(self, run: Ready) -> list[str]:
        """Return the events of a run's stream, by class name."""
        return [type(event).__name__ for event in self.events(run.facts.run_id)]

    def events(self, stream: bytes) -> list[DomainEvent]:
        return self.log.events_of(stream)

    def ended(self, run: Ready) -> bool:
        return self.names(run)[-1] in ("Completed", "Cancelled", "Skipped")

    def keys(self) -> list[str]:
        """Return the idempotency key of each request that reached a target."""
        return [header(hit.call, "Idempotency-Key") for hit in self.deliverer.hits]

    def committed(self) -> dict[int, int]:
        """Return the committed offset of each partition that has messages."""
        return {place[1]: log.committed for place, log in self.broker.logs.items()}


def header(call: Call, name: str) -> str:
    """Return a header of a call, empty where it has none."""
    for line in call.headers:
        head, _, value = line.partition(b": ")
        if head == name.encode():
            return value.decode()
    return ""


def leases(scene: Scene) -> list[Lease]:
    return [request for _, request in scene.requests if isinstance(request, Lease)]


def struck(request: LogRequest, kinds: type | tuple[type, ...], fate: Fate) -> Fate:
    return fate if isinstance(request, kinds) else Fate.DONE


def once(kind: type, fate: Fate) -> Callable[[int, LogRequest], Fate]:
    left = [fate]

    def fates(_stripe: int, request: LogRequest) -> Fate:
        return left.pop() if left and isinstance(request, kind) else Fate.DONE

    return fates


def drain(scene: Scene) -> None:
    for _ in range(100_000):
        if scene.dispatcher.drain(scene.tick()):
            return
        scene.clock.advance_ms(1)
    raise AssertionError("the drain does not end")


def chunk_of(scene: Scene, run: Ready) -> Chunk:
    facts = run.facts
    entry = struct.pack(
        ENTRY, facts.run_id, facts.job_id, facts.tenant_id, facts.version, facts.due_at
    )
    shard = shard_of(facts.job_id, SHARDS)
    return Chunk(1, b"", shard, scene.log.terms[shard], facts.due_at // 1_000, 0, entry)


def failing_job(scene: Scene, *, payload: bytes) -> Ready:
    """Define a job whose first attempt has failed."""
    job_id = jobs.job_id(0, SHARDS)
    sealed = scene.vault.seal(jobs.TENANT, job_id, payload)
    decision = jobs.define(
        job_id, jobs.spec(jobs.once(scene.clock.now() + 100), payload=sealed), scene.clock.now()
    )
    scene.append(decision)
    run = jobs.ready_run(decision)
    scene.answer = lambda _call: Reply(status=500)
    scene.hand_off()
    scene.until(lambda: "Fired" in scene.names(run))
    scene.run_ms(100)
    return run
