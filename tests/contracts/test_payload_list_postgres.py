"""The list of large payloads in Postgres."""

from collections.abc import Iterator

import psycopg
import pytest

from infra.clock import wall_ms
from infra.postgres.payloads import PostgresPayloads
from tests.contracts.payload_list import PayloadListContract


class TestPostgresPayloads(PayloadListContract):
    """In Postgres."""

    @pytest.fixture
    def listed(self, log_database: str) -> Iterator[PostgresPayloads]:
        self.conninfo = log_database
        listed = PostgresPayloads(log_database)
        yield listed
        listed.close()

    def now(self) -> int:
        return wall_ms()

    def later(self, ms: int) -> None:
        with psycopg.connect(self.conninfo) as connection:
            connection.execute("update payload_objects set look_at = look_at - %s", (ms,))
