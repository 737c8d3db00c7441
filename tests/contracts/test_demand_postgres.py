"""The demand on Postgres keeps the contract."""

from collections.abc import Iterator
from contextlib import ExitStack, closing

import psycopg
import pytest

from commandside.demand import Demand, Limits
from domain.envelope import Decision
from domain.ports import Unavailable
from infra.postgres.demand import PostgresDemand
from infra.postgres.due_index import PostgresDueIndex
from infra.postgres.views import PostgresBoardStore
from projections.job_board import VIEW, changes
from projections.ports import Recorded
from tests.contracts.demand import NOON, TENANT, DemandContract
from tests.engines.databases import SHARDS


class OnPostgres:
    """A log and a board in a database of their own."""

    def __init__(self, conninfo: str, stack: ExitStack) -> None:
        self.conninfo = conninfo
        self.stack = stack
        self.log = stack.enter_context(closing(PostgresDueIndex(conninfo, SHARDS)))
        self.store = PostgresBoardStore(conninfo)
        stack.callback(self.store._link.close)

    def demand(self, limits: Limits) -> Demand:
        return self.stack.enter_context(closing(PostgresDemand(self.conninfo, limits)))

    def append(self, decision: Decision) -> None:
        with psycopg.connect(self.conninfo) as connection:
            row = connection.execute("select tocsin_now()").fetchone()
        assert row is not None
        assert self.log.append([decision], row[0] + 5_000) == [True]
        recorded = [
            Recorded(0, 1, part.stream_id, part.version + at, event)
            for part in decision.slices
            for at, event in enumerate(part.events)
        ]
        self.store.write(VIEW, changes(recorded), {})


class TestPostgresDemand(DemandContract):
    @pytest.fixture
    def demands(self, log_database: str) -> Iterator[OnPostgres]:
        with ExitStack() as stack:
            yield OnPostgres(log_database, stack)


def test_a_demand_whose_database_is_away_is_unavailable() -> None:
    with closing(PostgresDemand("host=127.0.0.1 port=1 connect_timeout=1")) as demand:
        demand._pool.timeout = 0.2
        with pytest.raises(Unavailable):
            demand.of_tenant(TENANT, NOON, NOON)
