"""Due index and shard leases in memory, in virtual time."""

import pytest

from infra.memory.clock import VirtualClock
from infra.memory.due_index import MemoryDueIndex
from infra.memory.fire_log import MemoryFireLog
from infra.memory.log import MemoryLog
from infra.memory.shard_leases import MemoryShardLeases
from tests.contracts.due_index import DueIndexContract
from tests.contracts.shard_leases import ShardLeasesContract


class Virtual:
    """All of it over one log."""

    def __init__(self) -> None:
        self.clock = VirtualClock(1_800_000_000_000)
        state = MemoryLog(self.clock.now)
        self.shards = state.shards
        self.log = MemoryFireLog(state)
        self.index = MemoryDueIndex(state)
        self.leases = MemoryShardLeases(state)

    def rest(self) -> None:
        self.clock.advance_ms(1)

    def pass_ms(self, ms: int) -> None:
        self.clock.advance_ms(ms)


@pytest.fixture
def bench() -> Virtual:
    return Virtual()


class TestMemoryDueIndex(DueIndexContract):
    pass


class TestMemoryShardLeases(ShardLeasesContract):
    pass
