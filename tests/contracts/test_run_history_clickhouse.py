"""The run history on ClickHouse keeps the contract, over the HTTP interface of the embedded one."""

import socket
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import clickhouse_connect
import pytest
from clickhouse_connect.driver.client import Client

from domain.ports import Unavailable
from infra.clickhouse import runs as reading
from infra.clickhouse.runs import ClickHouseRuns
from infra.clickhouse.store import ClickHouseHistory
from infra.embedded.history import EmbeddedHistory, HistoryOptions
from projections.ports import HistoryStore
from queryside.ports import RunHistory
from tests.contracts.run_history import JOB, TENANT, Engine, RunHistoryContract, run


class OnClickHouse:
    """A database of its own in an engine that others use as well."""

    def __init__(self, port: int, database: str) -> None:
        self.port, self.database = port, database
        self.url = f"http://127.0.0.1:{port}"
        self.used: list[ClickHouseHistory | ClickHouseRuns] = []

    def store(self, copy: str = "") -> HistoryStore:
        store = ClickHouseHistory(self.url, self.database, copy)
        self.used.append(store)
        return store

    def runs(self) -> RunHistory:
        runs = ClickHouseRuns(self.url, self.database)
        self.used.append(runs)
        return runs

    def client(self, database: str | None = None) -> Client:
        name = self.database if database is None else database
        return clickhouse_connect.get_client(host="127.0.0.1", port=self.port, database=name)

    def lose(self) -> None:
        with self.client("default") as client:
            client.command(f"drop database if exists {self.database} sync")

    def away(self) -> Engine:
        with socket.create_server(("127.0.0.1", 0)) as nobody:
            port: int = nobody.getsockname()[1]
        return OnClickHouse(port, self.database)

    def close(self) -> None:
        for one in self.used:
            one.close()


@pytest.fixture
def engine(history: EmbeddedHistory) -> Iterator[OnClickHouse]:
    engine = OnClickHouse(history.port, f"h{uuid.uuid4().hex}")
    yield engine
    engine.close()
    engine.lose()


class TestClickHouseRunHistory(RunHistoryContract):
    @pytest.fixture
    def engine(self, engine: OnClickHouse) -> OnClickHouse:
        return engine


def test_a_repeated_token_leaves_no_second_row_behind(engine: OnClickHouse) -> None:
    store = engine.store()
    store.prepare()
    for _ in range(2):
        store.write([], [run(1)], "a")
    with engine.client() as client:
        assert client.command("select count() from runs") == 1


def test_a_page_reads_nothing_of_other_jobs(engine: OnClickHouse) -> None:
    store = engine.store()
    store.prepare()
    store.write([], [run(n) for n in range(20_000)], "a")
    plan = (
        "explain indexes = 1 select nominal from runs"
        " where tenant_id = toFixedString(unhex({tenant:String}), 16)"
        " and job_id = toFixedString(unhex({job:String}), 16)"
    )
    with engine.client() as client:
        lines = client.query(plan, parameters={"tenant": "74" * 16, "job": "6b" * 16}).result_rows
    assert "Granules: 0/" in str(lines)


def test_a_page_of_a_long_history_reads_little_of_it(engine: OnClickHouse) -> None:
    store = engine.store()
    store.prepare()
    store.write([], [run(n) for n in range(200_000)], "a")
    statement = reading._RUNS.format(
        columns="nominal", table="runs", edge=reading._FOLLOWING, order="desc"
    )
    values = {
        "tenant": TENANT.hex(),
        "job": JOB.hex(),
        "limit": 20,
        "nominal": run(150_000).nominal,
        "run": run(150_000).run_id.hex(),
    }
    with engine.client() as client:
        result = client.query(statement, parameters=values, settings=reading._BOUNDS)
    assert len(result.result_rows) == 20
    assert int(result.summary["read_rows"]) < 20_000


def test_an_engine_that_was_killed_is_used_again_with_all_that_was_written() -> None:
    with tempfile.TemporaryDirectory(prefix="tocsin-history-") as folder:
        killed = EmbeddedHistory(HistoryOptions(data_dir=Path(folder))).start()
        with closing(OnClickHouse(killed.port, "kept")) as engine:
            store, runs = engine.store(), engine.runs()
            store.prepare()
            store.write([], [run(1)], "a")
            assert len(runs.page(TENANT, JOB, None, 10)) == 1
            killed.kill()
            with pytest.raises(Unavailable):
                store.write([], [run(2)], "b")
            with pytest.raises(Unavailable):
                runs.page(TENANT, JOB, None, 10)
            with EmbeddedHistory(HistoryOptions(data_dir=Path(folder), port=killed.port)):
                assert not store.missing()
                store.write([], [run(1)], "a")
                store.write([], [run(2)], "b")
                assert len(runs.page(TENANT, JOB, None, 10)) == 2


@pytest.mark.parametrize("url", ["", "localhost:8123", "ftp://h:1", "http://"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(Unavailable, match=r"clickhouse\.url"):
        ClickHouseHistory(url, "tocsin")


@pytest.mark.parametrize("name", ["", "a.b", "x; drop table y", "UPPER", "x" * 50])
def test_a_database_that_is_no_plain_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no name"):
        ClickHouseHistory("http://127.0.0.1:1", name)
