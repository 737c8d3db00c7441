"""The contract of the store of calendars on real Postgres."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing

import pytest

from commandside.calendar_port import Calendars
from infra.postgres.calendars import PostgresCalendars
from tests.contracts.calendars import Answer, CalendarsContract


class OnPostgres:
    """Opens a store for one scenario."""

    def __init__(self, conninfo: str) -> None:
        self.conninfo = conninfo

    def run(self, scenario: Callable[[Calendars], Awaitable[Answer]]) -> Answer:
        async def whole() -> Answer:
            with closing(PostgresCalendars(self.conninfo)) as store:
                return await scenario(store)

        return asyncio.run(whole())


class TestPostgresCalendars(CalendarsContract):
    @pytest.fixture
    def bench(self, log_database: str) -> OnPostgres:
        return OnPostgres(log_database)
