"""Callbacks in memory keep the contract."""

import pytest

from domain.envelope import Decision
from infra.memory.callbacks import MemoryCallbackDefaults, MemoryCallbackLog
from infra.memory.clock import VirtualClock
from infra.memory.feed import MemoryFeed
from infra.memory.log import MemoryLog
from infra.memory.vault import MemoryVault
from tests.contracts.callbacks import CallbacksContract

NOW = 1_800_000_000_000


class InMemory:
    """All of it over one log."""

    def __init__(self) -> None:
        self._clock = VirtualClock(NOW)
        self._log = MemoryLog(self.now)
        self.shards = self._log.shards
        self.feed = MemoryFeed(self._log)
        self.defaults = MemoryCallbackDefaults(self.now)
        self.log = MemoryCallbackLog(self._log, self.defaults)
        self.vault = MemoryVault()

    def now(self) -> int:
        return self._clock.now()

    def tick(self) -> None:
        self._clock.advance_ms(1)

    def append(self, decision: Decision) -> None:
        assert self._log.append([decision], self.now() + 5_000).refused == ()

    def destroy(self, tenant_id: bytes) -> None:
        self.vault.destroy(tenant_id)


class TestMemoryCallbacks(CallbacksContract):
    @pytest.fixture
    def bench(self) -> InMemory:
        return InMemory()
