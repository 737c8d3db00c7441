"""The receiving half: chunks in, offsets back, and what to do when partitions move.

A partition number stands for its four topics, and a soft rebalance may take one of them and leave
the others. Whoever asks `revoked` then forgets all four; what is still ours is delivered again from
here, so nothing waits for a re-hand-off.
"""

from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from commandside.ports import Delivery, Ref, Telemetry
from domain.sharding import partition_of
from infra.kafka.options import AHEAD, KafkaOptions, consumer_config
from infra.kafka.wire import Canary, decode

COMMIT_EVERY_US: Final = 250_000
"""A crash redelivers at most this much of finished work, which the leases then drop."""
TIDY_EVERY_US: Final = 30_000_000
"""Positions moved on by canaries alone are committed this rarely: they only save re-reading."""
POLL_MAX: Final = 2_000
"""Messages looked at in one take, canaries and foreign ones included."""

Place = tuple[str, int]


class Holding:
    """What is known of one assigned partition of one topic."""

    __slots__ = ("committed", "held", "next")

    def __init__(self) -> None:
        """Start with nothing received."""
        self.held: dict[int, Delivery] = {}
        """Delivered and not done, by offset, in order."""
        self.next = -1
        """Offset after the last message seen."""
        self.committed = -1

    @property
    def position(self) -> int:
        """The offset to commit: that of the first message not done, -1 if none was seen."""
        return next(iter(self.held), self.next)


class ChunkConsumer:
    """One member of the dispatchers' group; it is thrown away rather than repaired."""

    def __init__(
        self, options: KafkaOptions, mono_us: Callable[[], int], telemetry: Telemetry
    ) -> None:
        """Join the group in the background."""
        self._options = options
        self._mono_us = mono_us
        self._telemetry = telemetry
        self._holdings: dict[Place, Holding] = {}
        self._revoked: set[int] = set()
        self._again: list[Delivery] = []
        self._paused = False
        self._dirty = False
        self._canary_topic = options.canary_topic
        self._canaries = 0
        """Partitions held that carry canaries."""
        self.partitions: set[int] = set()
        """Partitions held, of whichever topic."""
        self._commit_us = self._tidy_us = 0
        self.incarnation = b""
        self.heard_us = 0
        """When a canary last came through; 0 before the first."""
        self.joined = False
        self.broken = ""
        self._consumer = Consumer(consumer_config(options) | {"error_cb": self._failed})
        self._consumer.subscribe(
            list(options.topics),
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_revoke,
        )

    @property
    def hears(self) -> bool:
        """Whether a canary must come: a partition that carries it is ours, or we are not in yet."""
        return not self.joined or self._canaries > 0

    def take(self, limit: int) -> list[Delivery]:
        """Return arrived chunks of the assigned partitions, never waiting."""
        found = self._again[:limit]
        self._again = self._again[limit:]
        for _ in range(POLL_MAX):
            if len(found) >= limit:
                break
            message = self._consumer.poll(0)
            if message is None:
                break
            delivery = self._received(message)
            if delivery is not None:
                found.append(delivery)
        self._commit(self._mono_us())
        return found

    def done(self, refs: Sequence[Ref]) -> None:
        """Note that everything up to these places is done; commits follow, grouped."""
        for ref in refs:
            holding = self._holdings.get((ref.topic, ref.partition))
            if holding is None or ref.partition in self._revoked:
                continue
            for offset in [offset for offset in holding.held if offset <= ref.offset]:
                del holding.held[offset]
            self._dirty = True
        self._commit(self._mono_us())

    def revoked(self) -> list[int]:
        """Return partitions lost since the last call; what is kept of them is delivered again."""
        gone, self._revoked = self._revoked, set()
        if gone:
            self._again = [
                delivery
                for (_, partition), holding in self._holdings.items()
                if partition in gone
                for delivery in holding.held.values()
            ] + [again for again in self._again if again.ref.partition not in gone]
        return sorted(gone)

    def everything(self) -> set[int]:
        """Return the partitions that are lost with this consumer."""
        return {partition for _, partition in self._holdings} | self._revoked

    def pause(self, *, paused: bool) -> None:
        """Stop or resume fetching what is due later."""
        if paused != self._paused:
            self._paused = paused
            self._apply_pause(list(self._holdings))

    def discard(self) -> None:
        """End the client without leaving the group; the session's timeout takes it out.

        Leaving while the group forms makes the embedded broker keep a leader that never answers,
        and nobody ever joins again; a client that is thrown away may be in any state. Takes as long
        as the broker is silent, and for ever where partitions are assigned just now: for a thread
        that nobody waits for.
        """
        for _ in range(POLL_MAX):
            # An assignment that nobody has taken would keep the client from its end.
            if self._consumer.poll(0) is None:
                break
        del self._consumer  # its end

    def close(self) -> bool:
        """Commit what is done and leave the group; False, and nothing, where we are not in it."""
        offsets = self._positions()
        if offsets:
            try:
                self._consumer.commit(offsets=offsets, asynchronous=True)
            except KafkaException:
                self._telemetry.count("queue_consumer_errors")
        if not self._holdings:
            return False
        try:
            self._consumer.close()
        except KafkaException:
            self._telemetry.count("queue_consumer_errors")
        return True

    def _received(self, message: Message) -> Delivery | None:
        error = message.error()
        if error is not None:
            self._failed(error)
            return None
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        holding = self._holdings.get((topic, partition))
        if holding is None:
            return None
        holding.next = offset + 1
        said = decode(message.value() or b"")
        if isinstance(said, Canary):
            self.heard_us = self._mono_us()
            self.incarnation = said.incarnation
            return None
        if said is None or partition_of(said.shard, self._options.partitions) != partition:
            self._telemetry.count("queue_messages_foreign")
            self._telemetry.alarm("queue_message_foreign", f"{topic}/{partition} at {offset}")
            return None
        holding.held[offset] = delivery = Delivery(said, Ref(topic, partition, offset))
        return delivery

    def _on_assign(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        self.joined = True
        added = [(place.topic, place.partition) for place in places]
        for place in added:
            self._holdings[place] = Holding()
        self._recount()
        # The client starts fetching when this returns; pausing needs the partitions assigned.
        self._consumer.incremental_assign(places)
        if self._paused:
            self._apply_pause(added)

    def _on_revoke(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        for place in places:
            holding = self._holdings.pop((place.topic, place.partition), None)
            if holding is not None:
                self._revoked.add(place.partition)
        self._recount()
        self._consumer.incremental_unassign(places)

    def _recount(self) -> None:
        """Count anew: this is asked in every turn of the loop, and changes with the group only."""
        self.partitions = {partition for _, partition in self._holdings}
        self._canaries = sum(topic == self._canary_topic for topic, _ in self._holdings)

    def _apply_pause(self, places: list[Place]) -> None:
        later = [
            TopicPartition(topic, partition)
            for topic, partition in places
            if topic.endswith(f".{AHEAD}")
        ]
        if not later:
            return
        if self._paused:
            self._consumer.pause(later)
        else:
            self._consumer.resume(later)

    def _positions(self) -> list[TopicPartition]:
        moved = []
        for (topic, partition), holding in self._holdings.items():
            position = holding.position
            if position > holding.committed:
                holding.committed = position
                moved.append(TopicPartition(topic, partition, position))
        return moved

    def _commit(self, now: int) -> None:
        due = (self._dirty and now >= self._commit_us) or now >= self._tidy_us
        if not due:
            return
        self._dirty = False
        self._commit_us, self._tidy_us = now + COMMIT_EVERY_US, now + TIDY_EVERY_US
        offsets = self._positions()
        if not offsets:
            return
        try:
            self._consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            self._failed(error.args[0])

    def _failed(self, error: KafkaError) -> None:
        self._telemetry.count("queue_consumer_errors")
        if error.fatal():
            self.broken = str(error)
