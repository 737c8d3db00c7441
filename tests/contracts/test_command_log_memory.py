"""The command log's contract in memory."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from commandside.command_port import CommandLog
from infra.memory.clock import VirtualClock
from infra.memory.command_log import MemoryCommandLog
from infra.memory.log import MemoryLog
from tests.contracts.command_log import Answer, CommandLogContract


class Virtual:
    """A log in virtual time."""

    def __init__(self) -> None:
        self.clock = VirtualClock(1_800_000_000_000)
        self.log = MemoryCommandLog(MemoryLog(self.clock.now))

    def now(self) -> int:
        return self.clock.now()

    def run(self, scenario: Callable[[CommandLog], Awaitable[Answer]]) -> Answer:
        async def whole() -> Answer:
            return await scenario(self.log)

        return asyncio.run(whole())


class TestMemoryCommandLog(CommandLogContract):
    @pytest.fixture
    def bench(self) -> Virtual:
        return Virtual()
