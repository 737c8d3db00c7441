"""The contract of the store of calendars on real Postgres."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing

import pytest

from commandside.calendar_port import Calendar, Calendars
from domain.envelope import Rejected
from domain.schedule.exclusion import Exclusion
from infra.postgres.calendars import PostgresCalendars
from infra.postgres.connection import connect
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

    def test_a_refused_calendar_leaves_nothing(self, log_database: str) -> None:
        new = Calendar(Exclusion("holidays", 0), 0, 0, "kid")

        async def put(store: Calendars) -> object:
            return await store.put(b"t" * 16, new, 3)

        assert isinstance(OnPostgres(log_database).run(put), Rejected)
        with connect(log_database) as connection:
            assert connection.execute("select count(*) from calendars").fetchone() == (0,)
