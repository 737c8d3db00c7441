"""The ready queue in memory: the contract, and the faults that only it can have."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from commandside.ports import ReadyQueue
from infra.memory.ready_queue import Faults, MemoryBroker, MemoryReadyQueue
from tests.contracts.ready_queue import PARTITIONS, ReadyQueueContract, chunk

STEP_US = 10_000


class Shared:
    """A broker in virtual time."""

    def __init__(self, seed: int = 1) -> None:
        self.now_us = 0
        self.broker = MemoryBroker(PARTITIONS, self.mono_us, random.Random(seed).random)

    def client(self, *, produces: bool = False, consumes: bool = False) -> ReadyQueue:
        return MemoryReadyQueue(self.broker, produces=produces, consumes=consumes, room=1_000)

    def until(self, look: Callable[[], object], what: str, patience_s: float = 60) -> None:
        deadline = self.now_us + int(patience_s * 1e6)
        while not look():
            assert self.now_us < deadline, f"no {what}"
            self.now_us += STEP_US

    def mono_us(self) -> int:
        return self.now_us

    @contextmanager
    def stalled(self) -> Iterator[None]:
        self.broker.holds = True
        yield
        self.broker.holds = False

    def wipe(self) -> None:
        self.broker.wipe()


class TestMemoryReadyQueue(ReadyQueueContract):
    @pytest.fixture
    def broker(self) -> Shared:
        return Shared()


def flow(faults: Faults, seed: int = 1, count: int = 200) -> list[int]:
    """Return what arrives of `count` chunks that are sent one after the other."""
    shared = Shared(seed)
    shared.broker.faults = faults
    sender, taker = shared.client(produces=True), shared.client(consumes=True)
    for number in range(count):
        sender.publish([chunk(number)], near=True)
    assert len(sender.confirmed()) == count
    return [delivery.chunk.second for delivery in taker.take(2 * count)]


def test_a_lost_chunk_is_confirmed_and_never_arrives() -> None:
    got = flow(Faults(lost=0.5))
    assert 0 < len(got) < 200
    assert got == sorted(set(got))


def test_a_doubled_chunk_arrives_twice() -> None:
    got = flow(Faults(doubled=0.5))
    assert sorted(set(got)) == list(range(200))
    assert len(got) > 200


def test_swapped_chunks_all_arrive_in_another_order() -> None:
    got = flow(Faults(swapped=0.5))
    assert sorted(got) == list(range(200))
    assert got != sorted(got)


def test_the_same_seed_gives_the_same_faults() -> None:
    faults = Faults(lost=0.1, doubled=0.1, swapped=0.1)
    assert flow(faults, seed=3) == flow(faults, seed=3)
    assert flow(faults, seed=3) != flow(faults, seed=4)


def test_a_wipe_that_cannot_be_noticed_leaves_clients_silent_until_they_are_rebuilt() -> None:
    shared = Shared()
    sender, taker = shared.client(produces=True), shared.client(consumes=True)
    sender.beat()
    taker.take(1)
    shared.broker.wipe(noticeable=False)
    shared.now_us += 20_000_000
    sender.publish([chunk(1)], near=True)
    sender.beat()
    assert (sender.confirmed(), taker.take(1)) == ([], [])
    assert taker.silent_ms(shared.now_us) == 20_000
    sender.rebuild()
    taker.rebuild()
    sender.publish([chunk(2)], near=True)
    assert [delivery.chunk.second for delivery in taker.take(1)] == [2]
