"""The contract of the store of calendars in memory."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from commandside.calendar_port import Calendars
from infra.memory.calendars import MemoryCalendars
from tests.contracts.calendars import Answer, CalendarsContract


class Virtual:
    """A store in virtual time."""

    def run(self, scenario: Callable[[Calendars], Awaitable[Answer]]) -> Answer:
        async def whole() -> Answer:
            return await scenario(MemoryCalendars(lambda: 1_800_000_000_000))

        return asyncio.run(whole())


class TestMemoryCalendars(CalendarsContract):
    @pytest.fixture
    def bench(self) -> Virtual:
        return Virtual()
