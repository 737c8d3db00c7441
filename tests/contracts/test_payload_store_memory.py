"""The store of large payloads in memory."""

import pytest

from commandside.payload_port import PayloadObject, PayloadStore
from infra.memory.payloads import MemoryPayloadStore
from tests.contracts.payload_store import PayloadStoreContract


class TestMemoryPayloadStore(PayloadStoreContract):
    """In memory."""

    @pytest.fixture
    def store(self) -> MemoryPayloadStore:
        return MemoryPayloadStore()

    def damage(self, store: PayloadStore, wanted: PayloadObject, data: bytes) -> None:
        assert isinstance(store, MemoryPayloadStore)
        store.objects[wanted] = data

    def cut_off(self, store: PayloadStore) -> None:
        assert isinstance(store, MemoryPayloadStore)
        store.away = True
