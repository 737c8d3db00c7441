"""The ready queue over real brokers: the embedded one, and Apache Kafka."""

import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from commandside.ports import ReadyQueue
from infra.embedded.broker import EmbeddedBroker
from infra.embedded.processes import wait_until
from infra.kafka.options import KafkaOptions
from infra.kafka.ready_queue import KafkaReadyQueue
from infra.kafka.topics import PartitionsDiffer
from tests.contracts.ready_queue import PARTITIONS, ReadyQueueContract
from tests.engines.apache_kafka import ApacheKafka

ESTABLISH_S = 30.0


class NoTelemetry:
    """Telemetry that nobody reads."""

    def count(self, name: str, by: int = 1) -> None: ...

    def observe(self, name: str, values: object) -> None: ...

    def gauge(self, name: str, value: int) -> None: ...

    def alarm(self, name: str, detail: str) -> None: ...


class Real:
    """Clients with topics and a group of their own on one broker."""

    def __init__(
        self, bootstrap: str, pid: Callable[[], int], wipe: Callable[[], None], session_ms: int
    ) -> None:
        self._bootstrap, self._pid, self._wipe = bootstrap, pid, wipe
        self._session_ms = session_ms
        self._name = f"t-{uuid.uuid4().hex[:12]}"
        self._open: list[KafkaReadyQueue] = []

    def options(
        self, *, produces: bool = False, consumes: bool = False, partitions: int = PARTITIONS
    ) -> KafkaOptions:
        return KafkaOptions(
            bootstrap=self._bootstrap,
            partitions=partitions,
            group=self._name,
            prefix=self._name,
            produces=produces,
            consumes=consumes,
            session_timeout_ms=self._session_ms,
        )

    def client(self, *, produces: bool = False, consumes: bool = False) -> ReadyQueue:
        options = self.options(produces=produces, consumes=consumes)
        queue = KafkaReadyQueue(options, self.mono_us, NoTelemetry())
        self._open.append(queue)
        queue.establish(ESTABLISH_S)
        return queue

    def until(self, look: Callable[[], object], what: str, patience_s: float = 60) -> None:
        assert wait_until(lambda: bool(look()), patience_s), f"no {what} within {patience_s} s"

    def mono_us(self) -> int:
        return time.monotonic_ns() // 1_000

    @contextmanager
    def stalled(self) -> Iterator[None]:
        os.kill(self._pid(), signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._pid(), signal.SIGCONT)

    def wipe(self) -> None:
        self._wipe()

    def close(self) -> None:
        for queue in self._open:
            queue.close()


class TestEmbeddedBroker(ReadyQueueContract):
    @pytest.fixture
    def broker(self, embedded_broker: EmbeddedBroker) -> Iterator[Real]:
        real = Real(
            embedded_broker.address, lambda: embedded_broker.pid, embedded_broker.recycle, 2_000
        )
        yield real
        real.close()


@pytest.mark.apache_kafka
class TestApacheKafka(ReadyQueueContract):
    @pytest.fixture
    def broker(self, apache_kafka: ApacheKafka) -> Iterator[Real]:
        def wipe() -> None:
            apache_kafka.kill()
            apache_kafka.wipe()
            apache_kafka.start()

        real = Real(apache_kafka.bootstrap, lambda: apache_kafka.pid, wipe, 6_000)
        yield real
        real.close()


def test_topics_of_another_partition_count_are_refused_by_name(
    embedded_broker: EmbeddedBroker,
) -> None:
    real = Real(embedded_broker.address, lambda: 0, embedded_broker.recycle, 2_000)
    real.client(produces=True).close()
    queue = KafkaReadyQueue(
        real.options(produces=True, partitions=PARTITIONS + 1), real.mono_us, NoTelemetry()
    )
    with pytest.raises(PartitionsDiffer, match="has 4 partitions, this installation"):
        queue.establish(ESTABLISH_S)
