"""From the log on Postgres to the board there and the history on ClickHouse."""

import uuid
from collections.abc import Iterator
from contextlib import closing

import clickhouse_connect
import psycopg
import pytest

from commandside.ports import Tick
from domain.envelope import Decision
from domain.job import decide as job_decide
from domain.job.state import JobState
from domain.ports import Unavailable
from domain.run.decide import Grant, Result, first_lease, report
from domain.run.state import InFlight
from infra.clickhouse.runs import ClickHouseRuns
from infra.clickhouse.store import ClickHouseHistory
from infra.embedded.history import EmbeddedHistory
from infra.postgres.due_index import PostgresDueIndex
from infra.postgres.feed import PostgresFeed
from infra.postgres.views import PostgresBoardStore, PostgresParking, PostgresPositions
from infra.rebuild import VIEWS, rebuild
from infra.settings import Clickhouse, Postgres, Settings, SettingsError
from infra.telemetry import Telemetry
from projections.runner import RETRY_US, BoardView, HistoryView, Projector
from tests.contracts.jobs import TENANT, define, job_id, once, ready_run, spec
from tests.engines.databases import SHARDS


class Stage:
    """Log, views and readers on real engines."""

    def __init__(self, conninfo: str, history: EmbeddedHistory) -> None:
        self.conninfo = conninfo
        self.port = history.port
        self.database = f"p{uuid.uuid4().hex}"
        url = f"http://127.0.0.1:{history.port}"
        self.settings = Settings(
            postgres=Postgres(url=conninfo), clickhouse=Clickhouse(url=url, database=self.database)
        )
        self.telemetry = Telemetry("projector")
        self.index = PostgresDueIndex(conninfo, SHARDS)
        self.feed = PostgresFeed(conninfo, SHARDS)
        self.positions = PostgresPositions(conninfo)
        self.parking = PostgresParking(conninfo)
        self.board = PostgresBoardStore(conninfo)
        self.store = ClickHouseHistory(url, self.database)
        self.reader = ClickHouseRuns(url, self.database)

    def close(self) -> None:
        self.lose()
        for one in (
            self.index,
            self.feed,
            self.positions,
            self.parking,
            self.board,
            self.store,
            self.reader,
        ):
            one.close()

    def append(self, decision: Decision | None) -> Decision:
        assert decision is not None
        assert self.index.append([decision], self.now() + 5_000) == [True]
        return decision

    def now(self) -> int:
        with psycopg.connect(self.conninfo) as connection:
            row = connection.execute("select tocsin_now()").fetchone()
        assert row is not None
        return int(row[0])

    def fire(self, shard: int = 0) -> bytes:
        """Define a job that is due now, let it succeed, and return its id."""
        at = self.now()
        defined = self.append(define(job_id(shard, SHARDS), spec(once(at - 1_000)), at))
        (state,) = (s.after for s in defined.slices if s.stream_id == defined.job_id)
        assert isinstance(state, JobState)
        grant = Grant(b"s" * 16, b"n" * 8)
        leased = self.append(first_lease(state, ready_run(defined), (), at, grant))
        (run,) = (s.after for s in leased.slices)
        assert isinstance(run, InFlight)
        result = Result("ok", "ok", 200, elapsed_us=1_234, body=b"done", sent_at=at + 3)
        self.append(report(state, run, run.facts.fence, result, at + 9, alone=True))
        return defined.job_id

    def projector(self) -> Projector:
        views = (BoardView(self.board), HistoryView(self.store, self.positions))
        projector = Projector(self.feed, views, self.positions, self.parking, self.telemetry)
        projector.start(Tick(self.now(), 0))
        return projector

    def statuses(self, job: bytes) -> list[tuple[str, list[str]]]:
        """Return status and outcomes of attempts of each run of a job."""
        lines = self.reader.page(TENANT, job, None, 10)
        return [(line.run.status, [a.outcome for a in line.attempts]) for line in lines]

    def board_statuses(self) -> dict[bytes, str]:
        with psycopg.connect(self.conninfo) as connection:
            found = connection.execute(
                "select job_id, status from job_board where view = 'job_board'"
            ).fetchall()
        return {job.bytes: status for job, status in found}

    def lose(self) -> None:
        with clickhouse_connect.get_client(host="127.0.0.1", port=self.port) as client:
            client.command(f"drop database if exists {self.database} sync")


@pytest.fixture
def stage(log_database: str, history: EmbeddedHistory) -> Iterator[Stage]:
    with closing(Stage(log_database, history)) as stage:
        yield stage


def test_a_job_that_fired_is_on_the_board_and_in_the_history(stage: Stage) -> None:
    job = stage.fire()
    stage.projector().run_one_batch(Tick(stage.now(), 0))
    assert stage.board_statuses() == {job: "active"}
    (line,) = stage.reader.page(TENANT, job, None, 10)
    (attempt,) = line.attempts
    assert (line.run.status, line.run.verdict, line.run.attempts) == ("succeeded", "succeeded", 1)
    assert (attempt.outcome, attempt.status, attempt.body) == ("ok", 200, b"done")
    assert (attempt.elapsed_us, attempt.lateness_ms) == (1_234, 3)
    assert attempt.nominal == line.run.nominal


def test_a_job_that_was_cancelled_before_it_was_due_is_so_in_both(stage: Stage) -> None:
    at = stage.now()
    defined = stage.append(define(job_id(0, SHARDS), spec(once(at + 60_000)), at))
    (state,) = (s.after for s in defined.slices if s.stream_id == defined.job_id)
    assert isinstance(state, JobState)
    cancel = job_decide.cancel(state, (ready_run(defined),), job_decide.By(at))
    assert isinstance(cancel, Decision)
    stage.append(cancel)
    stage.projector().run_one_batch(Tick(stage.now(), 0))
    assert stage.board_statuses() == {defined.job_id: "cancelled"}
    assert stage.statuses(defined.job_id) == [("cancelled", [])]


def test_a_projector_that_starts_again_goes_on(stage: Stage) -> None:
    first = stage.fire()
    stage.projector().run_one_batch(Tick(stage.now(), 0))
    second = stage.fire()
    stage.projector().run_one_batch(Tick(stage.now(), 0))
    assert stage.statuses(first) == stage.statuses(second) == [("succeeded", ["ok"])]


def test_a_lost_history_is_read_again_by_the_running_projector(stage: Stage) -> None:
    job = stage.fire()
    projector = stage.projector()
    projector.run_one_batch(Tick(stage.now(), 0))
    stage.lose()
    other = stage.fire()
    with pytest.raises(Unavailable):
        projector.run_one_batch(Tick(stage.now(), 0))
    projector.run_one_batch(Tick(stage.now(), RETRY_US))
    assert stage.statuses(job) == stage.statuses(other) == [("succeeded", ["ok"])]


def test_a_history_is_rebuilt_beside_the_live_one(stage: Stage) -> None:
    jobs = [stage.fire(shard) for shard in (0, 7, 63)]
    stage.projector().run_one_batch(Tick(stage.now(), 0))
    with clickhouse_connect.get_client(host="127.0.0.1", port=stage.port) as client:
        client.command(f"truncate table {stage.database}.attempts")
    assert stage.statuses(jobs[0]) == [("succeeded", [])]
    assert rebuild("run_history", stage.settings, stage.telemetry) == max(
        stage.feed.head().values()
    )
    for job in jobs:
        assert stage.statuses(job) == [("succeeded", ["ok"])]
    assert set(stage.positions.load("run_history_rebuild")) == set()


def test_a_projector_goes_on_after_a_rebuild(stage: Stage) -> None:
    projector = stage.projector()
    projector.run_one_batch(Tick(stage.now(), 0))
    for name in VIEWS:
        rebuild(name, stage.settings, stage.telemetry)
    job = stage.fire()
    projector.run_one_batch(Tick(stage.now(), 0))
    assert stage.statuses(job) == [("succeeded", ["ok"])]
    assert stage.board_statuses() == {job: "active"}


def test_a_board_is_rebuilt_beside_the_live_one(stage: Stage) -> None:
    job = stage.fire()
    stage.projector().run_one_batch(Tick(stage.now(), 0))
    with psycopg.connect(stage.conninfo) as connection:
        connection.execute("update job_board set status = 'wrong'")
    rebuild("job_board", stage.settings, stage.telemetry)
    assert stage.board_statuses() == {job: "active"}


def test_a_view_that_does_not_exist_cannot_be_rebuilt(stage: Stage) -> None:
    with pytest.raises(SettingsError, match="no view"):
        rebuild("runs", stage.settings, stage.telemetry)
