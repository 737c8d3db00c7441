"""The fire log in memory, in virtual time."""

import pytest

from infra.memory.clock import VirtualClock
from infra.memory.fire_log import MemoryFireLog
from infra.memory.log import MemoryLog
from tests.contracts.fire_log import FireLogContract
from tests.contracts.policies import PoliciesContract

START: int = 1_800_000_000_000


class Virtual:
    """A log and the clock it goes by; each look lets a millisecond pass."""

    def __init__(self) -> None:
        self.clock = VirtualClock(START)
        self.log = MemoryFireLog(MemoryLog(self.clock.now), stripes=2)

    def rest(self) -> None:
        self.clock.advance_ms(1)


class TestMemoryFireLog(FireLogContract):
    @pytest.fixture
    def bench(self) -> Virtual:
        return Virtual()


class TestMemoryPolicies(PoliciesContract):
    @pytest.fixture
    def bench(self) -> Virtual:
        return Virtual()
