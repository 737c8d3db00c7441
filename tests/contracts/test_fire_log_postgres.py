"""The fire log's contract on real Postgres."""

import select
from collections.abc import Iterator

import pytest

from infra.postgres.fire_log import PostgresFireLog
from tests.contracts.fire_log import FireLogContract
from tests.contracts.policies import PoliciesContract
from tests.engines.databases import Databases

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


@pytest.fixture(scope="module")
def bench(databases: Databases) -> Iterator[PostgresBench]:
    conninfo = databases.fresh()
    bench = PostgresBench(conninfo)
    yield bench
    bench.log.close()
    databases.drop(conninfo)


class TestPostgresFireLog(FireLogContract):
    """Jobs and sessions of one test are not those of another: they share the database."""


class TestPostgresPolicies(PoliciesContract):
    """As above."""
