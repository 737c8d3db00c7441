"""The sending half: chunks and canaries out, confirmations back."""

from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from commandside.firing.chunks import FORMAT
from commandside.ports import Chunk, Published, Ref, Telemetry, Unavailable
from domain.sharding import partition_of
from infra.kafka.options import KafkaOptions, producer_config, stamped
from infra.kafka.wire import Canary, encode


class ChunkProducer:
    """One producer; it is thrown away rather than repaired."""

    def __init__(
        self,
        options: KafkaOptions,
        incarnation: bytes,
        mono_us: Callable[[], int],
        telemetry: Telemetry,
    ) -> None:
        """Connect in the background. `incarnation` is stamped on what is sent."""
        self._options = options
        self._incarnation = incarnation
        self._places = {topic: stamped(topic, incarnation) for topic in options.topics}
        self._mono_us = mono_us
        self._telemetry = telemetry
        self._confirmed: list[Published] = []
        self.heard_us = 0
        """When the broker last confirmed a canary; 0 before the first."""
        self.broken = ""
        """What the client said when it gave up for good."""
        self._producer = Producer(producer_config(options) | {"error_cb": self._failed})

    def publish(self, chunks: Sequence[Chunk], *, near: bool) -> None:
        """Hand chunks to the client; raises Unavailable when its queue is full or it is broken."""
        for chunk in chunks:
            stamped = msgspec.structs.replace(chunk, incarnation=self._incarnation)
            self._send(
                self._options.topic(chunk.lane, near=near),
                partition_of(chunk.shard, self._options.partitions),
                encode(stamped),
                partial(self._delivered, chunk),
            )
        self._poll()

    def confirmed(self) -> list[Published]:
        """Return what the broker has confirmed since the last call."""
        self._poll()
        found, self._confirmed = self._confirmed, []
        return found

    def beat(self) -> None:
        """Send a canary to each partition of the canary's topic."""
        value = encode(Canary(FORMAT, self._incarnation))
        for partition in range(self._options.partitions):
            self._send(self._options.canary_topic, partition, value, self._beaten)

    def flush(self, timeout_s: float) -> None:
        """Wait for what is on its way."""
        self._producer.flush(timeout_s)

    def discard(self) -> None:
        """Drop everything; may take as long as the client's threads take to end."""
        self._producer.purge()
        del self._producer

    def _send(
        self,
        topic: str,
        partition: int,
        value: bytes,
        delivered: Callable[[KafkaError | None, Message], None],
    ) -> None:
        if self.broken:
            raise Unavailable(self.broken)
        try:
            self._producer.produce(topic, value, partition=partition, on_delivery=delivered)
        except BufferError as full:
            self._producer.poll(0)
            raise Unavailable("the queue to the broker is full") from full
        except KafkaException as error:
            self._failed(error.args[0])
            raise Unavailable(str(error)) from error

    def _poll(self) -> None:
        try:
            self._producer.poll(0)
        except KafkaException as error:
            self._failed(error.args[0])

    def _delivered(self, chunk: Chunk, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._telemetry.count("queue_publishes_failed")
            return
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        self._confirmed.append(Published(chunk, Ref(self._places[topic], partition, offset)))

    def _beaten(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.heard_us = self._mono_us()

    def _failed(self, error: KafkaError) -> None:
        self._telemetry.count("queue_producer_errors")
        if error.fatal():
            self.broken = str(error)
