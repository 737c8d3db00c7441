"""What every ready queue does, whichever broker is behind it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import count
from typing import Protocol

import pytest

from commandside.ports import Chunk, Delivery, Published, ReadyQueue, Ref, Unavailable

PARTITIONS = 4
RECOVERY_S = 15
"""What is published after a wipe is with a dispatcher within this."""
SENDS_MAX = 2_000


class Broker(Protocol):
    """A broker under test and the clients of it."""

    def client(self, *, produces: bool = False, consumes: bool = False) -> ReadyQueue:
        """Return a new client; what is still open after the test is closed."""

    def until(self, look: Callable[[], object], what: str, patience_s: float = 60) -> None:
        """Look again and again, time passing, until something is there."""

    def mono_us(self) -> int:
        """Return the clock of the clients."""

    def stalled(self) -> AbstractContextManager[None]:
        """Let the broker answer nothing for a while."""

    def wipe(self) -> None:
        """Lose all topics, messages and offsets; the address stays."""


def chunk(number: int, *, lane: int = 0, shard: int = 0, entries: int = 1) -> Chunk:
    """Return a chunk that its `second` tells from the others."""
    return Chunk(1, b"", shard, 7, number, lane, bytes(60 * entries))


def plain(ref: Ref) -> Ref:
    """Return the place of a confirmation as consumers name it."""
    return Ref(ref.topic.partition("#")[0], ref.partition, ref.offset)


class Taker:
    """Collects what a consumer is given."""

    def __init__(self, broker: Broker, queue: ReadyQueue) -> None:
        self.broker, self.queue = broker, queue
        self.deliveries: list[Delivery] = []

    def look(self) -> list[int]:
        self.deliveries += self.queue.take(100)
        return self.seconds

    @property
    def seconds(self) -> list[int]:
        return [delivery.chunk.second for delivery in self.deliveries]

    def wait_for(self, *seconds: int, patience_s: float = 60) -> list[Ref]:
        """Return the places of these chunks once all have come."""
        self.broker.until(lambda: set(seconds) <= set(self.look()), f"chunks {seconds}", patience_s)
        return [d.ref for d in self.deliveries if d.chunk.second in seconds]


class ReadyQueueContract:
    """Subclasses give the fixture `broker`."""

    @pytest.fixture
    def sender(self, broker: Broker) -> ReadyQueue:
        return broker.client(produces=True)

    @pytest.fixture
    def taker(self, broker: Broker) -> Taker:
        return Taker(broker, broker.client(consumes=True))

    def test_a_chunk_arrives_as_it_was_sent_and_names_the_incarnation(
        self, sender: ReadyQueue, taker: Taker
    ) -> None:
        sender.publish([chunk(1, shard=6, lane=1, entries=3)], near=True)
        taker.wait_for(1)
        (got,) = taker.deliveries
        assert got.chunk == Chunk(1, sender.incarnation(), 6, 7, 1, 1, bytes(180))
        assert got.ref.partition == 6 % PARTITIONS

    def test_a_confirmation_names_the_place_at_which_the_chunk_arrives(
        self, broker: Broker, sender: ReadyQueue, taker: Taker
    ) -> None:
        sender.publish([chunk(1), chunk(2), chunk(3)], near=True)
        confirmed: list[Published] = []

        def look() -> bool:
            confirmed.extend(sender.confirmed())
            return len(confirmed) == 3

        broker.until(look, "confirmations")
        taker.wait_for(1, 2, 3)
        assert {(p.chunk.second, plain(p.ref)) for p in confirmed} == {
            (d.chunk.second, d.ref) for d in taker.deliveries
        }

    def test_lanes_and_what_is_due_later_have_topics_of_their_own(
        self, sender: ReadyQueue, taker: Taker
    ) -> None:
        sender.publish([chunk(1, lane=0), chunk(2, lane=1)], near=True)
        sender.publish([chunk(3, lane=0), chunk(4, lane=1)], near=False)
        assert len({ref.topic for ref in taker.wait_for(1, 2, 3, 4)}) == 4

    def test_chunks_of_a_partition_keep_their_order(self, sender: ReadyQueue, taker: Taker) -> None:
        sender.publish([chunk(number) for number in range(50)], near=False)
        taker.wait_for(*range(50))
        assert taker.seconds == list(range(50))

    def test_a_pause_holds_back_only_what_is_due_later(
        self, sender: ReadyQueue, taker: Taker
    ) -> None:
        sender.publish([chunk(1)], near=True)
        taker.wait_for(1)
        taker.queue.pause(paused=True)
        sender.publish([chunk(2)], near=False)
        sender.publish([chunk(3)], near=True)
        taker.wait_for(3)
        assert 2 not in taker.seconds
        taker.queue.pause(paused=False)
        taker.wait_for(2)

    def test_what_is_not_done_is_delivered_to_the_next_consumer(
        self, broker: Broker, sender: ReadyQueue, taker: Taker
    ) -> None:
        sender.publish([chunk(1), chunk(2)], near=True)
        first, _ = taker.wait_for(1, 2)
        taker.queue.done([first])
        taker.queue.close()
        after = Taker(broker, broker.client(consumes=True))
        sender.publish([chunk(3)], near=True)
        after.wait_for(2, 3)
        assert after.seconds == [2, 3]

    @pytest.mark.parametrize("looks", [1, 10, 40])
    def test_a_consumer_that_goes_while_the_group_forms_keeps_nobody_out(
        self, broker: Broker, sender: ReadyQueue, looks: int
    ) -> None:
        sender.publish([chunk(1)], near=True)
        early, seen = broker.client(consumes=True), count(1)

        def looked() -> bool:
            early.take(1)
            return next(seen) >= looks

        broker.until(looked, "looks")
        early.close()
        Taker(broker, broker.client(consumes=True)).wait_for(1)

    def test_a_place_counts_as_passed_only_once_it_is_done(
        self, broker: Broker, sender: ReadyQueue, taker: Taker
    ) -> None:
        sender.publish([chunk(1), chunk(2)], near=True)
        first, second = taker.wait_for(1, 2)
        taker.queue.done([first])

        def passed() -> bool:
            # Unknown counts as passed, so both are asked for.
            taker.look()
            sender.confirmed()
            return sender.committed(first) and not sender.committed(second)

        broker.until(passed, "commit of the first place")

    def test_a_place_that_is_done_before_an_earlier_one_includes_it(
        self, broker: Broker, sender: ReadyQueue, taker: Taker
    ) -> None:
        sender.publish([chunk(1), chunk(2), chunk(3)], near=True)
        _, second, third = taker.wait_for(1, 2, 3)
        taker.queue.done([second])

        def passed() -> bool:
            taker.look()
            sender.confirmed()
            return sender.committed(second) and not sender.committed(third)

        broker.until(passed, "commit of the second place")

    def test_what_the_first_consumer_is_told_to_forget_is_delivered_again_to_one_of_them(
        self, broker: Broker, sender: ReadyQueue, taker: Taker
    ) -> None:
        sender.publish([chunk(n, shard=n) for n in range(PARTITIONS)], near=True)
        taker.wait_for(*range(PARTITIONS))
        other = Taker(broker, broker.client(consumes=True))
        lost: set[int] = set()

        def look() -> bool:
            taker.look()
            for partition in taker.queue.revoked():
                lost.add(partition)
                taker.deliveries = [d for d in taker.deliveries if d.ref.partition != partition]
            return bool(lost) and lost <= set(taker.look()) | set(other.look())

        broker.until(look, "what was forgotten")

    def test_a_broker_that_answers_nothing_bounds_what_is_sent_to_it(
        self, broker: Broker, sender: ReadyQueue, taker: Taker
    ) -> None:
        sender.publish([chunk(1)], near=True)
        taker.wait_for(1)
        with broker.stalled(), pytest.raises(Unavailable):
            sender.publish([chunk(n, entries=1_000) for n in range(10, SENDS_MAX)], near=True)

        def send() -> bool:
            try:
                sender.publish([chunk(2)], near=True)
            except Unavailable:
                sender.confirmed()
                return False
            return True

        broker.until(send, "room in the queue again")
        taker.wait_for(2)

    def test_canaries_that_come_through_keep_both_sides_from_being_silent(
        self, broker: Broker, sender: ReadyQueue, taker: Taker
    ) -> None:
        start = broker.mono_us()

        def look() -> bool:
            sender.beat()
            sender.confirmed()
            taker.look()
            now = broker.mono_us()
            silent = max(sender.silent_ms(now), taker.queue.silent_ms(now))
            return now - start > 3_000_000 and silent < 1_000

        broker.until(look, "a canary on both sides")

    def test_without_canaries_the_silence_grows(
        self, broker: Broker, sender: ReadyQueue, taker: Taker
    ) -> None:
        sender.beat()
        broker.until(
            lambda: (sender.confirmed(), sender.silent_ms(broker.mono_us()) > 1_000)[1], "silence"
        )

    def test_after_a_wipe_chunks_flow_again_and_what_was_held_is_forgotten(
        self, broker: Broker, sender: ReadyQueue, taker: Taker
    ) -> None:
        sender.publish([chunk(1)], near=True)
        (ref,) = taker.wait_for(1)
        before = sender.incarnation()
        broker.wipe()

        def renewed() -> bool:
            sender.confirmed()
            taker.look()
            return sender.incarnation() != before

        broker.until(renewed, "another incarnation", RECOVERY_S)
        sender.publish([chunk(2)], near=True)
        taker.wait_for(2, patience_s=RECOVERY_S)
        assert ref.partition in taker.queue.revoked()
        assert taker.queue.incarnation() == sender.incarnation()

    def test_a_place_of_a_broker_that_was_wiped_counts_as_passed(
        self, broker: Broker, sender: ReadyQueue, taker: Taker
    ) -> None:
        sender.publish([chunk(1), chunk(2)], near=True)
        confirmed: list[Published] = []

        def look() -> bool:
            confirmed.extend(sender.confirmed())
            return len(confirmed) == 2 and not sender.committed(confirmed[-1].ref)

        broker.until(look, "a place that is known not to be passed")
        before = sender.incarnation()
        broker.wipe()

        def renewed() -> bool:
            sender.confirmed()
            return sender.incarnation() != before

        broker.until(renewed, "another incarnation", RECOVERY_S)
        assert sender.committed(confirmed[-1].ref)

    def test_a_rebuilt_client_goes_on(
        self, broker: Broker, sender: ReadyQueue, taker: Taker
    ) -> None:
        sender.publish([chunk(1)], near=True)
        taker.wait_for(1)
        sender.rebuild()
        taker.queue.rebuild()
        sender.publish([chunk(2)], near=True)
        taker.wait_for(2)
