"""Looks after the topics: makes what is missing, refuses what is wrong, names the incarnation.

The incarnation is a function of the topics' own ids, so every process knows the same one without
asking the others, and topics that were deleted or wiped get a new one by being made again.
"""

from collections.abc import Callable
from concurrent.futures import Future
from hashlib import blake2b
from typing import Any, Final

import msgspec
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

from commandside.ports import Ref, Unavailable
from infra.kafka.offsets import GroupOffsets
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
        self._offsets = GroupOffsets(options, mono_us)

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
        if self.seen.incarnation:
            self._offsets.turn()

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
        topic, stamp, _ = ref.topic.partition(STAMP)
        if stamp and ref.topic != stamped(topic, self.seen.incarnation):
            return True
        return self._offsets.passed(Ref(topic, ref.partition, ref.offset))

    def close(self) -> None:
        """End the client that asks for offsets."""
        self._offsets.close()

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
                self._offsets.forget()
            self.seen = Seen(name, at_us=now)

    def _make(self, missing: list[str]) -> None:
        self._next_us = 0
        self._makes = True
        partitions, replication = self.options.partitions, self.options.replication
        self._asked = self._admin.create_topics(
            [NewTopic(topic, partitions, replication, config=TOPIC_CONFIG) for topic in missing],
            request_timeout=CALL_TIMEOUT_S,
        )
