"""The job board on Postgres keeps the contract."""

from collections.abc import Iterator, Sequence
from contextlib import closing

import psycopg
import pytest

from domain.envelope import Decision
from domain.ports import Unavailable
from infra.postgres.board import PostgresBoard
from infra.postgres.due_index import PostgresDueIndex
from infra.postgres.views import PostgresBoardStore
from projections.job_board import VIEW
from projections.rows import BoardRow
from tests.contracts.job_board import ANY, TENANT, JobBoardContract
from tests.engines.databases import SHARDS


class OnPostgres:
    """A board in a database of its own."""

    def __init__(self, conninfo: str) -> None:
        self.conninfo = conninfo
        self.board = PostgresBoard(conninfo)
        self.freshness = self.board
        self.store = PostgresBoardStore(conninfo)

    def write(self, rows: Sequence[BoardRow], positions: dict[int, int]) -> None:
        self.store.write(VIEW, rows, positions)

    def append(self, decision: Decision) -> None:
        with psycopg.connect(self.conninfo) as connection:
            row = connection.execute("select tocsin_now()").fetchone()
        assert row is not None
        with closing(PostgresDueIndex(self.conninfo, SHARDS)) as log:
            assert log.append([decision], row[0] + 5_000) == [True]


class TestPostgresJobBoard(JobBoardContract):
    @pytest.fixture
    def boards(self, log_database: str) -> Iterator[OnPostgres]:
        found = OnPostgres(log_database)
        with closing(found.board), closing(found.store._link):
            yield found


def test_a_board_whose_database_is_away_is_unavailable() -> None:
    with closing(PostgresBoard("host=127.0.0.1 port=1 connect_timeout=1")) as board:
        board._pool.timeout = 0.2
        with pytest.raises(Unavailable):
            board.page(TENANT, ANY, None, 1)
