"""Feed and view ports on Postgres keep the contract."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from domain.envelope import Decision
from domain.ports import Unavailable
from infra.postgres.due_index import PostgresDueIndex
from infra.postgres.feed import PostgresFeed
from infra.postgres.views import PostgresBoardStore, PostgresParking, PostgresPositions
from projections.rows import BoardRow
from tests.contracts.views import ViewsContract, defined, row
from tests.engines.databases import SHARDS

_ROWS = """
select job_id, tenant_id, version, status, one_time, name, schedule, timezone, target, host,
    labels, defined_at, changed_at, key
from job_board where view = %s
"""


class OnPostgres:
    """All of it on one database."""

    def __init__(self, conninfo: str) -> None:
        self.conninfo = conninfo
        self.shards = SHARDS
        self.index = PostgresDueIndex(conninfo, SHARDS)
        self.feed = PostgresFeed(conninfo, SHARDS)
        self.positions = PostgresPositions(conninfo)
        self.parking = PostgresParking(conninfo)
        self.board = PostgresBoardStore(conninfo)

    def now(self) -> int:
        with psycopg.connect(self.conninfo) as connection:
            found = connection.execute("select tocsin_now()").fetchone()
        assert found is not None
        return int(found[0])

    def append(self, decision: Decision) -> None:
        assert self.index.append([decision], self.now() + 5_000) == [True]

    def rows(self, view: str) -> dict[bytes, BoardRow]:
        with psycopg.connect(self.conninfo) as connection:
            found = connection.execute(_ROWS, (view,)).fetchall()
        rows: dict[bytes, BoardRow] = {}
        for job, tenant, *others, labels, began, changed, key in found:
            labelled: list[Any] = [*others, tuple(sorted(labels.items())), began, changed, key]
            rows[job.bytes] = BoardRow(job.bytes, tenant.bytes, *labelled)
        return rows

    def close(self) -> None:
        for port in (self.index, self.feed, self.positions, self.parking, self.board):
            port.close()


@pytest.fixture
def bench(log_database: str) -> Iterator[OnPostgres]:
    bench = OnPostgres(log_database)
    yield bench
    bench.close()


class TestPostgresViews(ViewsContract):
    pass


@pytest.mark.parametrize(
    "change",
    ["name = 'run.dreamt.v1'", "data = '\\x00'", "data = '\\x9221'", "data = '\\xc1'"],
    ids=["unknown name", "no event", "torn", "no msgpack"],
)
def test_an_event_that_cannot_be_read_comes_without_it_and_its_neighbours_whole(
    bench: OnPostgres, change: str
) -> None:
    defined(bench, 3)
    defined(bench, 3)
    with psycopg.connect(bench.conninfo) as connection:
        connection.execute(
            f"update events set {change}"  # noqa: S608 - a test's own text
            " where position = (select min(position) + 1 from events)"
        )
    events = bench.feed.read({3: 0}, 100)
    assert [e.event is None for e in events] == [False, True, False, False]
    assert events[1].name in ("run.dreamt.v1", "run.scheduled.v1")


def test_rows_are_not_kept_without_their_positions(bench: OnPostgres) -> None:
    with psycopg.connect(bench.conninfo) as connection:
        connection.execute("alter table view_positions add check (position < 100)")
    with pytest.raises(Unavailable, match="check constraint"):
        bench.board.write("view", [row(1)], {0: 100})
    assert bench.rows("view") == {}


def test_a_postgres_that_does_not_answer_is_unavailable() -> None:
    nowhere = "host=127.0.0.1 port=1 dbname=x"
    with pytest.raises(Unavailable):
        PostgresFeed(nowhere, SHARDS).head()
    with pytest.raises(Unavailable):
        PostgresPositions(nowhere).load("view")
    with pytest.raises(Unavailable):
        PostgresParking(nowhere).load("view")
    with pytest.raises(Unavailable):
        PostgresBoardStore(nowhere).write("view", [], {})


def test_a_connection_that_was_cut_is_made_again(bench: OnPostgres) -> None:
    bench.positions.save("view", {1: 1})
    cut = (
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where application_name = 'tocsin positions' and datname = current_database()"
    )
    with psycopg.connect(bench.conninfo, autocommit=True) as connection:
        connection.execute(cut)
    with pytest.raises(Unavailable):
        bench.positions.load("view")
    assert bench.positions.load("view") == {1: 1}
