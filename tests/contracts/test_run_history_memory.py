"""The run history in memory keeps the contract."""

import pytest

from infra.memory.history import MemoryHistories, MemoryHistory, MemoryRuns
from projections.ports import HistoryStore
from queryside.ports import RunHistory
from tests.contracts.run_history import Engine, RunHistoryContract


class InMemory:
    """An engine of its own."""

    def __init__(self) -> None:
        self.engine = MemoryHistories()

    def store(self, copy: str = "") -> HistoryStore:
        return MemoryHistory(self.engine, copy)

    def runs(self) -> RunHistory:
        return MemoryRuns(self.engine)

    def lose(self) -> None:
        self.engine.copies.clear()

    def away(self) -> Engine:
        self.engine.away = True
        return self


class TestMemoryRunHistory(RunHistoryContract):
    @pytest.fixture
    def engine(self) -> InMemory:
        return InMemory()
