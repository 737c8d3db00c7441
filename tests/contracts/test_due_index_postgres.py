"""Due index and shard leases on real Postgres; time passes by moving stored instants back."""

import select
from collections.abc import Iterator
from typing import Final

import psycopg
import pytest

from infra.postgres.due_index import PostgresDueIndex
from infra.postgres.fire_log import PostgresFireLog
from infra.postgres.shard_leases import PostgresShardLeases
from tests.contracts.due_index import DueIndexContract
from tests.contracts.shard_leases import ShardLeasesContract
from tests.engines.databases import SHARDS

WAIT_S: Final = 0.05
PASSES: Final = (
    "update due_index set wake_at = wake_at - %(ms)s, until = until - %(ms)s",
    "update due_index set handed_off_at = handed_off_at - %(ms)s",
    "update sessions set until = until - %(ms)s",
    "update shards set until = until - %(ms)s",
    "update schedulers set until = until - %(ms)s",
)


class OnPostgres:
    """All of it on one database."""

    def __init__(self, conninfo: str) -> None:
        self.conninfo = conninfo
        self.shards = SHARDS
        self.log = PostgresFireLog(conninfo, shards=SHARDS)
        self.index = PostgresDueIndex(conninfo, SHARDS)
        self.leases = PostgresShardLeases(conninfo, SHARDS)

    def rest(self) -> None:
        sockets = self.log.sockets()
        reads = [descriptor for descriptor, _ in sockets]
        writes = [descriptor for descriptor, writing in sockets if writing]
        select.select(reads, writes, (), WAIT_S)

    def pass_ms(self, ms: int) -> None:
        with psycopg.connect(self.conninfo) as connection:
            for statement in PASSES:
                connection.execute(statement, {"ms": ms})

    def close(self) -> None:
        for port in (self.log, self.index, self.leases):
            port.close()


@pytest.fixture
def bench(log_database: str) -> Iterator[OnPostgres]:
    bench = OnPostgres(log_database)
    yield bench
    bench.close()


class TestPostgresDueIndex(DueIndexContract):
    pass


class TestPostgresShardLeases(ShardLeasesContract):
    pass
