"""What every store of large payloads does; each adapter runs the suite."""

import os
from abc import ABC, abstractmethod

import pytest

from commandside.payload_port import PayloadObject, PayloadStore, StoreAway
from domain.payload import ALTERED, MISSING, judged, ref_of

MIB = 1024 * 1024
TENANT, OTHER, JOB = b"t" * 16, b"o" * 16, b"j" * 16


def written(size: int, tenant_id: bytes = TENANT) -> tuple[PayloadObject, bytes]:
    """Return an object nobody else has."""
    data = os.urandom(size)
    return PayloadObject(tenant_id, JOB, ref_of(data)), data


class PayloadStoreContract(ABC):
    """A subclass says how a store is made, lost, damaged and cut off."""

    @pytest.fixture
    @abstractmethod
    def store(self) -> PayloadStore: ...

    @abstractmethod
    def damage(self, store: PayloadStore, wanted: PayloadObject, data: bytes) -> None:
        """Put other bytes in the place of an object."""

    @abstractmethod
    def cut_off(self, store: PayloadStore) -> None:
        """Make the store impossible to reach."""

    def test_what_was_put_is_got_byte_for_byte(self, store: PayloadStore) -> None:
        objects = [written(size) for size in (1, 17 * 1024, MIB + 31)]
        store.put(objects)
        assert store.get([wanted for wanted, _ in objects]) == [data for _, data in objects]

    def test_an_object_may_be_put_twice(self, store: PayloadStore) -> None:
        one = written(100)
        store.put([one])
        store.put([one])
        assert store.get([one[0]]) == [one[1]]

    def test_what_was_not_put_is_missing_beside_what_was(self, store: PayloadStore) -> None:
        here, gone = written(100), written(100)
        store.put([here])
        assert store.get([gone[0], here[0]]) == [None, here[1]]
        assert judged(gone[0].ref, None) == MISSING

    def test_what_was_deleted_is_missing_and_may_be_deleted_again(
        self, store: PayloadStore
    ) -> None:
        one, other = written(100), written(100)
        store.put([one, other])
        store.delete([one[0]])
        store.delete([one[0]])
        assert store.get([one[0], other[0]]) == [None, other[1]]

    def test_an_object_of_another_tenant_is_another_object(self, store: PayloadStore) -> None:
        one = written(100)
        store.put([one])
        theirs = PayloadObject(OTHER, JOB, one[0].ref)
        assert store.get([theirs]) == [None]
        store.delete([theirs])
        assert store.get([one[0]]) == [one[1]]

    @pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 5 * MIB])
    def test_an_altered_object_is_not_taken_for_what_was_put(
        self, store: PayloadStore, size: int
    ) -> None:
        wanted, data = written(100)
        store.put([(wanted, data)])
        self.damage(store, wanted, bytes(size))
        (found,) = store.get([wanted])
        assert found is not None
        assert len(found) <= len(data)
        assert judged(wanted.ref, found) == ALTERED

    def test_nothing_asked_for_is_nothing_done(self, store: PayloadStore) -> None:
        store.put([])
        assert store.get([]) == []
        store.delete([])

    def test_a_store_that_is_away_says_so_and_misses_nothing(self, store: PayloadStore) -> None:
        one = written(100)
        store.put([one])
        self.cut_off(store)
        for ask in (
            lambda: store.put([written(100)]),
            lambda: store.get([one[0]]),
            lambda: store.delete([one[0]]),
        ):
            with pytest.raises(StoreAway) as failed:
                ask()
            assert "\n" not in str(failed.value)
