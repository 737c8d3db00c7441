"""The store of secrets in memory."""

import pytest

from infra.memory.secret_store import MemorySecretStore
from tests.contracts.secret_store import SecretStoreContract

NOW_MS = 1_800_000_000_000


class TestMemorySecretStore(SecretStoreContract):
    """In memory."""

    tenant, other = bytes(16), b"\x01" * 16

    @pytest.fixture
    def store(self) -> MemorySecretStore:
        return MemorySecretStore(lambda: NOW_MS)

    @pytest.fixture
    def elsewhere(self, store: MemorySecretStore) -> MemorySecretStore:
        return store

    def now_s(self) -> int:
        return NOW_MS // 1000
