"""What all reads of large payloads for a loop do; each adapter runs the suite."""

from abc import ABC, abstractmethod

import pytest

from commandside.payload_port import PayloadObject, PayloadRead, PayloadReads
from domain.payload import ALTERED, MISSING, UNAVAILABLE
from infra.memory.payloads import MemoryPayloadStore
from tests.contracts.payload_store import written


class PayloadReadsContract(ABC):
    """A subclass says how reads of a store are made, and how one waits for a poll."""

    @pytest.fixture
    def store(self) -> MemoryPayloadStore:
        return MemoryPayloadStore()

    @pytest.fixture
    @abstractmethod
    def reads(self, store: MemoryPayloadStore) -> PayloadReads: ...

    @abstractmethod
    def poll(self, reads: PayloadReads) -> list[PayloadRead]:
        """Return what has ended, once something has."""

    def ended(self, reads: PayloadReads, count: int) -> dict[PayloadObject, bytes | str]:
        found: list[PayloadRead] = []
        while len(found) < count:
            found += self.poll(reads)
        assert len(found) == count
        return {read.object: read.found for read in found}

    def test_each_read_ends_once_with_the_bytes_or_the_reason(
        self, store: MemoryPayloadStore, reads: PayloadReads
    ) -> None:
        (here, data), (gone, _), (other, _) = written(100), written(100), written(100)
        store.put([(here, data), (other, bytes(100))])
        room = reads.room
        reads.submit([here, gone, other])
        assert reads.room == room - 3
        assert self.ended(reads, 3) == {here: data, gone: MISSING, other: ALTERED}
        assert reads.room == room
        assert reads.poll() == []

    def test_a_store_that_is_away_is_a_reason_of_its_own(
        self, store: MemoryPayloadStore, reads: PayloadReads
    ) -> None:
        wanted, data = written(100)
        store.put([(wanted, data)])
        store.away = True
        reads.submit([wanted])
        assert self.ended(reads, 1) == {wanted: UNAVAILABLE}
        store.away = False
        reads.submit([wanted])
        assert self.ended(reads, 1) == {wanted: data}

    def test_more_than_the_room_is_read_in_turns(
        self, store: MemoryPayloadStore, reads: PayloadReads
    ) -> None:
        objects = [written(1_000) for _ in range(3 * reads.room)]
        store.put(objects)
        left = [wanted for wanted, _ in objects]
        found: dict[PayloadObject, bytes | str] = {}
        while len(found) < len(objects):
            some, left = left[: reads.room], left[reads.room :]
            reads.submit(some)
            found |= {read.object: read.found for read in self.poll(reads)}
        assert found == dict(objects)
