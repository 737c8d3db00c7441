"""Feed and view ports in memory keep the contract."""

import pytest

from domain.envelope import Decision
from infra.memory.feed import MemoryFeed, MemoryPositions
from infra.memory.log import MemoryLog
from infra.memory.views import MemoryBoardStore, MemoryParking
from projections.rows import BoardRow
from tests.contracts.views import ViewsContract

NOW = 1_800_000_000_000


class InMemory:
    """All of it over one log."""

    def __init__(self) -> None:
        self.log = MemoryLog(self.now)
        self.shards = self.log.shards
        self.feed = MemoryFeed(self.log)
        self.positions = MemoryPositions()
        self.parking = MemoryParking()
        self.board = MemoryBoardStore(self.positions)

    def now(self) -> int:
        return NOW

    def append(self, decision: Decision) -> None:
        assert self.log.append([decision], NOW + 5_000).refused == ()

    def rows(self, view: str) -> dict[bytes, BoardRow]:
        return dict(self.board.rows.get(view, {}))


class TestMemoryViews(ViewsContract):
    @pytest.fixture
    def bench(self) -> InMemory:
        return InMemory()
