"""How far the dispatchers' group has come, as a scheduler needs to know it.

Asked through a consumer that never joins. The admin client's ListConsumerGroupOffsets must not be
used: librdkafka 2.16 dereferences a null group there when the broker answers with certain errors,
as it does after topics were made again, and takes the process with it.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from commandside.ports import Ref
from infra.kafka.options import CALL_TIMEOUT_S, KafkaOptions, client_config

ASK_EVERY_US: Final = 2_000_000

Positions = dict[tuple[str, int], int]


class GroupOffsets:
    """The group's committed offsets of one incarnation's topics, at most a few seconds old."""

    def __init__(self, options: KafkaOptions, mono_us: Callable[[], int]) -> None:
        """Nothing is asked before the first question."""
        self._options = options
        self._mono_us = mono_us
        self._positions: Positions = {}
        self._wanted = False
        self._next_us = 0
        self._closed = False
        self._asked: Future[Positions] | None = None
        # Its call waits for the broker, and nothing else may.
        self._thread = ThreadPoolExecutor(1, "group offsets")
        self._consumer: Consumer | None = None

    def turn(self) -> None:
        """Take what was answered, and ask again if someone wants to know."""
        if self._asked is not None:
            if self._asked.done():
                self._positions, self._asked = self._asked.result(), None
        elif self._wanted and self._mono_us() >= self._next_us:
            self._wanted = False
            self._next_us = self._mono_us() + ASK_EVERY_US
            self._asked = self._thread.submit(self._ask)

    def passed(self, ref: Ref) -> bool:
        """Tell whether the group's last known offset is past this place; True where unknown."""
        self._wanted = True
        position = self._positions.get((ref.topic, ref.partition))
        return position is None or ref.offset < position

    def forget(self) -> None:
        """Know nothing: the topics are others now, and so must be the client that asks."""
        self._positions = {}
        if self._asked is not None:
            self._asked.cancel()
            self._asked = None
        self._thread.submit(self._drop)

    def close(self) -> None:
        """End the client in the background, when its call is over; a second time it is nothing."""
        if self._closed:
            return
        self._closed = True
        self.forget()
        self._thread.shutdown(wait=False)

    def _ask(self) -> Positions:
        options = self._options
        if self._consumer is None:
            group = {"group.id": options.group, "enable.auto.commit": False}
            self._consumer = Consumer(client_config(options) | group)
        every = [
            TopicPartition(topic, partition)
            for topic in options.topics
            for partition in range(options.partitions)
        ]
        try:
            found = self._consumer.committed(every, timeout=CALL_TIMEOUT_S)
        except KafkaException:
            return {}
        # Nothing committed means that nothing was passed.
        return {(p.topic, p.partition): max(0, p.offset) for p in found if p.error is None}

    def _drop(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
