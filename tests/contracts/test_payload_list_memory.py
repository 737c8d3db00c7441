"""The list of large payloads in memory."""

import pytest

from infra.memory.clock import VirtualClock
from infra.memory.payloads import MemoryPayloadList
from tests.contracts.payload_list import PayloadListContract


class TestMemoryPayloadList(PayloadListContract):
    """In memory."""

    @pytest.fixture
    def listed(self) -> MemoryPayloadList:
        self.clock = VirtualClock(1_800_000_000_000)
        return MemoryPayloadList(self.clock.now)

    def now(self) -> int:
        return self.clock.now()

    def later(self, ms: int) -> None:
        self.clock.advance_ms(ms)
