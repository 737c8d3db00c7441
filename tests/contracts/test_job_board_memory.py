"""The job board in memory keeps the contract."""

from collections.abc import Sequence

import pytest

from domain.envelope import Decision
from infra.memory.board import MemoryBoard, MemoryFreshness
from infra.memory.feed import MemoryPositions
from infra.memory.log import MemoryLog
from infra.memory.views import MemoryBoardStore
from projections.job_board import VIEW
from projections.rows import BoardRow
from tests.contracts.job_board import NOON, JobBoardContract


class InMemory:
    """A board of its own."""

    def __init__(self) -> None:
        self.log = MemoryLog(lambda: NOON)
        positions = MemoryPositions()
        self.store = MemoryBoardStore(positions)
        self.board = MemoryBoard(self.log, self.store)
        self.freshness = MemoryFreshness(positions)

    def write(self, rows: Sequence[BoardRow], positions: dict[int, int]) -> None:
        self.store.write(VIEW, rows, positions)

    def append(self, decision: Decision) -> None:
        assert not self.log.append([decision], NOON).refused


class TestMemoryJobBoard(JobBoardContract):
    @pytest.fixture
    def boards(self) -> InMemory:
        return InMemory()
