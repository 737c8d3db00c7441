"""The fire log's contract on real Postgres."""

import select
from collections.abc import Iterator

import pytest

from infra.postgres.fire_log import PostgresFireLog
from tests.contracts.fire_log import FireLogContract

WAIT_S = 0.05


class PostgresBench:
    """A Postgres log, and how to wait for it."""

    def __init__(self, conninfo: str, stripes: int = 4, shards: int = 64) -> None:
        self.log = PostgresFireLog(conninfo, stripes, shards)

    def rest(self) -> None:
        sockets = self.log.sockets()
        reads = [descriptor for descriptor, _ in sockets]
        writes = [descriptor for descriptor, writing in sockets if writing]
        select.select(reads, writes, (), WAIT_S)


class TestPostgresFireLog(FireLogContract):
    @pytest.fixture
    def bench(self, log_database: str) -> Iterator[PostgresBench]:
        bench = PostgresBench(log_database)
        yield bench
        bench.log.close()
