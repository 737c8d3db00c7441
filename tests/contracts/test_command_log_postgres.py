"""The command log's contract on real Postgres."""

import asyncio
from collections.abc import Awaitable, Callable

import psycopg
import pytest

from commandside.command_port import CommandLog
from infra.clock import DatabaseClock
from infra.postgres.command_log import PostgresCommandLog
from tests.contracts.command_log import Answer, CommandLogContract


class OnPostgres:
    """Opens a log on a loop of its own for one scenario."""

    def __init__(self, conninfo: str) -> None:
        self.conninfo = conninfo

    def now(self) -> int:
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            row = connection.execute("select tocsin_now()").fetchone()
        assert row is not None
        return int(row[0])

    def run(self, scenario: Callable[[CommandLog], Awaitable[Answer]]) -> Answer:
        async def whole() -> Answer:
            log = PostgresCommandLog(self.conninfo, DatabaseClock())
            await log.start()
            try:
                return await scenario(log)
            finally:
                await log.close()

        return asyncio.run(whole())


class TestPostgresCommandLog(CommandLogContract):
    @pytest.fixture
    def bench(self, log_database: str) -> OnPostgres:
        return OnPostgres(log_database)
