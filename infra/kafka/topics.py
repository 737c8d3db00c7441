"""Looks after the topics: makes what is missing, refuses what is wrong, names the incarnation.

The incarnation is a function of the topics' own ids, so every process knows the same one without
asking the others, and topics that were deleted or wiped get a new one by being made again.
"""

from collections.abc import Callable
from concurrent.futures import Future
from hashlib import blake2b
from typing import Any, Final

import msgspec
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from commandside.ports import Ref, Unavailable
from infra.kafka.options import (
    CALL_TIMEOUT_S,
    STAMP,
    TOPIC_CONFIG,
    KafkaOptions,
    client_config,
    stamped,
)

LOOK_EVERY_US: Final = 2_000_000
"""A wiped broker is noticed within this; three requests a process and second at most."""
HURRY_US: Final = 200_000
"""Between two looks while topics are missing or being made."""
OFFSETS_EVERY_US: Final = 2_000_000

_MISSING: Final = KafkaError.UNKNOWN_TOPIC_OR_PART


class PartitionsDiffer(Exception):
    """The broker's topics have another partition count than this installation was made with."""


class Seen(msgspec.Struct, frozen=True):
    """What the last complete look found; `wrong` names topics with another partition count."""

    incarnation: bytes = b""
    wrong: str = ""
    at_us: int = 0


class TopicWatch:
    """Asks about the topics without ever waiting; `turn` moves it on.

    The admin client is kept here as long as its futures: they end with it.
    """

    def __init__(self, options: KafkaOptions, mono_us: Callable[[], int]) -> None:
        """Make the client; nothing is asked before the first turn."""
        self.options = options
        self._mono_us = mono_us
        self._admin = AdminClient(client_config(options))
        self._asked: dict[str, Future[Any]] = {}
        self._makes = False
        self._next_us = 0
        self.seen = Seen()
        self._positions: dict[tuple[str, int], int] = {}
        self._offsets: Future[Any] | None = None
        self._offsets_next_us = 0
        self._offsets_wanted = False

    def turn(self) -> None:
        """Take what was answered and ask what is to be asked."""
        now = self._mono_us()
        if self._asked:
            if all(future.done() for future in self._asked.values()):
                asked, self._asked = self._asked, {}
                if self._makes:
                    # Made, or made by another process, or not: the next look tells.
                    self._makes, self._next_us = False, now + HURRY_US
                else:
                    self._look(asked, now)
        elif now >= self._next_us:
            self._asked = self._admin.describe_topics(
                TopicCollection(list(self.options.topics)), request_timeout=CALL_TIMEOUT_S
            )
        self._turn_offsets(now)

    def establish(self, wait: Callable[[float], None], timeout_s: float) -> None:
        """Look until the topics are there; `wait` passes the time between two looks.

        Raises PartitionsDiffer, or Unavailable when the broker does not answer in time.
        """
        deadline = self._mono_us() + int(timeout_s * 1e6)
        while not self.seen.incarnation:
            if self.seen.wrong:
                raise PartitionsDiffer(self.seen.wrong)
            if self._mono_us() > deadline:
                raise Unavailable(f"no answer from the broker at {self.options.bootstrap}")
            wait(0.02)
            self.turn()

    def committed(self, ref: Ref) -> bool:
        """Tell whether the group's last known offset is past this place; True where unknown."""
        self._offsets_wanted = True
        topic, stamp, _ = ref.topic.partition(STAMP)
        if stamp and ref.topic != stamped(topic, self.seen.incarnation):
            return True
        position = self._positions.get((topic, ref.partition))
        return position is None or ref.offset < position

    def _look(self, asked: dict[str, Future[Any]], now: int) -> None:
        self._next_us = now + LOOK_EVERY_US
        ids: list[str] = []
        missing: list[str] = []
        wrong = ""
        for topic, future in asked.items():
            try:
                found = future.result()
            except KafkaException as error:
                if error.args[0].code() != _MISSING:
                    return
                missing.append(topic)
                continue
            ids.append(f"{topic} {found.topic_id}")
            if len(found.partitions) != self.options.partitions:
                wrong = (
                    f"topic {topic} has {len(found.partitions)} partitions, this installation "
                    f"was made with {self.options.partitions}: delete the topic (it holds only "
                    f"hints), or give it a prefix of its own"
                )
        if wrong:
            self.seen = Seen(wrong=wrong, at_us=now)
        elif missing:
            self._make(missing)
        else:
            name = blake2b("\n".join(sorted(ids)).encode(), digest_size=16).digest()
            if name != self.seen.incarnation:
                self._positions = {}
            self.seen = Seen(name, at_us=now)

    def _make(self, missing: list[str]) -> None:
        self._next_us = 0
        self._makes = True
        partitions, replication = self.options.partitions, self.options.replication
        self._asked = self._admin.create_topics(
            [NewTopic(topic, partitions, replication, config=TOPIC_CONFIG) for topic in missing],
            request_timeout=CALL_TIMEOUT_S,
        )

    def _turn_offsets(self, now: int) -> None:
        if self._offsets is not None:
            if not self._offsets.done():
                return
            try:
                found = self._offsets.result().topic_partitions
                self._positions = {
                    # Nothing committed means that nothing was passed.
                    (place.topic, place.partition): max(0, place.offset)
                    for place in found
                    if place.error is None
                }
            except KafkaException:
                self._positions = {}
            self._offsets = None
        elif self._offsets_wanted and now >= self._offsets_next_us and self.seen.incarnation:
            self._offsets_wanted = False
            self._offsets_next_us = now + OFFSETS_EVERY_US
            every = [
                TopicPartition(topic, partition)
                for topic in self.options.topics
                for partition in range(self.options.partitions)
            ]
            asked = self._admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(self.options.group, every)],
                request_timeout=CALL_TIMEOUT_S,
            )
            self._offsets = asked[self.options.group]
