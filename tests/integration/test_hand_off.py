"""Scheduler and auditor over a real Postgres and real brokers, which lose all they hold."""

import itertools
import struct
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from secrets import token_bytes
from typing import Final

import pytest

from commandside.firing.auditor import Auditor, AuditorPorts
from commandside.firing.hand_off import HandOff, SelfHandOff
from commandside.firing.scheduler import Scheduler, SchedulerPorts
from commandside.ports import ENTRY, Tick
from infra.embedded.broker import EmbeddedBroker
from infra.embedded.processes import wait_until
from infra.faults import NoFaults
from infra.kafka.options import KafkaOptions
from infra.kafka.ready_queue import KafkaReadyQueue
from infra.postgres.due_index import PostgresDueIndex
from infra.postgres.shard_leases import PostgresShardLeases
from tests.commandside.scene import Telemetry
from tests.contracts import jobs
from tests.engines.apache_kafka import ApacheKafka
from tests.engines.databases import PARTITIONS, SHARDS

ESTABLISH_S: Final = 30.0
PATIENCE_S: Final = 60.0
RECOVERY_S: Final = 15.0
"""From a broker that is up again, and empty, to everything outstanding being with dispatchers."""
JOBS: Final = 200
DUE_MS: Final = range(30_000, 50_000)
BATCH: Final = 100


class Plant:
    """One scheduler with its audit loop, one consumer, a database and a broker."""

    def __init__(self, stack: ExitStack, conninfo: str, bootstrap: str, session_ms: int) -> None:
        self.telemetry = Telemetry()
        self.index = stack.enter_context(closing(PostgresDueIndex(conninfo, SHARDS)))
        leases = stack.enter_context(closing(PostgresShardLeases(conninfo, SHARDS)))
        name = f"t-{uuid.uuid4().hex[:12]}"

        def queue(*, produces: bool = False, consumes: bool = False) -> KafkaReadyQueue:
            options = KafkaOptions(
                bootstrap=bootstrap,
                partitions=PARTITIONS,
                group=name,
                prefix=name,
                produces=produces,
                consumes=consumes,
                session_timeout_ms=session_ms,
            )
            made = KafkaReadyQueue(options, mono_us, self.telemetry)
            stack.callback(made.close)
            made.establish(ESTABLISH_S)
            return made

        self.sender, self.consumer = queue(produces=True), queue(consumes=True)
        hand_off = HandOff(self.index, self.sender, NoFaults(), self.telemetry)
        ports = SchedulerPorts(leases, NoFaults(), self.telemetry, token_bytes)
        self.scheduler = Scheduler(ports, hand_off)
        self.auditor = Auditor(
            AuditorPorts(self.scheduler.owned, NoFaults(), self.telemetry),
            hand_off,
            SelfHandOff(self.sender, SHARDS, self.telemetry),
        )
        self.hand_off = hand_off
        self.arrived: list[bytes] = []
        self._next_us = 0
        self.scheduler.start(tick())

    def define(self, count: int) -> set[bytes]:
        """Define jobs that are due in half a minute or so; return their runs."""
        now = tick().at
        numbers = itertools.islice(itertools.cycle(DUE_MS), 0, None, 101)
        decisions = [
            jobs.define(
                jobs.job_id(n % SHARDS, SHARDS), jobs.spec(jobs.once(now + next(numbers))), now
            )
            for n in range(count)
        ]
        for start in range(0, count, BATCH):
            part = decisions[start : start + BATCH]
            assert all(self.index.append(part, now + 60_000))
        return {jobs.ready_run(decision).facts.run_id for decision in decisions}

    def until(self, look: Callable[[], bool], patience_s: float = PATIENCE_S) -> bool:
        """Run the roles until something is so; return whether it became so in time."""

        def turned() -> bool:
            self.turn()
            return look()

        return wait_until(turned, patience_s)

    def turn(self) -> None:
        now = tick()
        if now.mono_us >= self._next_us:
            rest = min(self.scheduler.run_one_batch(now), self.auditor.run_one_batch(now))
            self._next_us = now.mono_us + rest
        self.consumer.revoked()
        for delivery in self.consumer.take(1_000):
            entries = struct.iter_unpack(ENTRY, delivery.chunk.entries)
            self.arrived += [run_id for run_id, *_ in entries]


def mono_us() -> int:
    return time.monotonic_ns() // 1_000


def tick() -> Tick:
    return Tick(time.time_ns() // 1_000_000, mono_us())


class HandOffContract:
    """Subclasses give `plant`, and `wipe`."""

    def test_what_is_published_is_marked(self, plant: Plant) -> None:
        runs = plant.define(JOBS)
        assert plant.until(lambda: runs <= set(plant.arrived) and not plant.hand_off.pending)
        assert plant.telemetry.counts["rows_handed_off"] >= JOBS
        assert set(plant.arrived) == runs

    def test_after_a_wipe_under_traffic_everything_outstanding_comes_again(
        self, plant: Plant, wipe: Callable[[], None]
    ) -> None:
        runs = plant.define(JOBS)
        assert plant.until(lambda: runs <= set(plant.arrived) and not plant.hand_off.pending)
        plant.arrived.clear()
        wipe()
        more = plant.define(JOBS)
        assert plant.until(lambda: runs | more <= set(plant.arrived), RECOVERY_S)
        assert plant.until(lambda: not plant.hand_off.pending)


class TestEmbeddedBroker(HandOffContract):
    @pytest.fixture
    def plant(self, log_database: str, embedded_broker: EmbeddedBroker) -> Iterator[Plant]:
        with ExitStack() as stack:
            yield Plant(stack, log_database, embedded_broker.address, 2_000)

    @pytest.fixture
    def wipe(self, embedded_broker: EmbeddedBroker) -> Callable[[], None]:
        return embedded_broker.recycle


@pytest.mark.apache_kafka
class TestApacheKafka(HandOffContract):
    @pytest.fixture
    def plant(self, log_database: str, apache_kafka: ApacheKafka) -> Iterator[Plant]:
        with ExitStack() as stack:
            yield Plant(stack, log_database, apache_kafka.bootstrap, 6_000)

    @pytest.fixture
    def wipe(self, apache_kafka: ApacheKafka) -> Callable[[], None]:
        def wiped() -> None:
            apache_kafka.kill()
            apache_kafka.wipe()
            apache_kafka.start()

        return wiped
