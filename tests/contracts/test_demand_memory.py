"""The demand in memory keeps the contract."""

import pytest

from commandside.demand import Demand, Limits
from domain.envelope import Decision
from infra.memory.demand import MemoryDemand
from infra.memory.log import MemoryLog
from tests.contracts.demand import NOON, DemandContract


class InMemory:
    """A log of its own."""

    def __init__(self) -> None:
        self.log = MemoryLog(lambda: NOON)

    def demand(self, limits: Limits) -> Demand:
        return MemoryDemand(self.log, limits)

    def append(self, decision: Decision) -> None:
        assert not self.log.append([decision], NOON).refused


class TestMemoryDemand(DemandContract):
    @pytest.fixture
    def demands(self) -> InMemory:
        return InMemory()
