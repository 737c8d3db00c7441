"""The history process, for real, through the client that projector and query use."""

import gzip
import http.client
import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import clickhouse_connect
import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError

from infra.embedded import processes
from infra.embedded.errors import EngineError
from infra.embedded.history import EmbeddedHistory, HistoryOptions

TIMEOUT_S = 30.0
ROOT = Path(__file__).parents[2]
WHEN = datetime(2026, 3, 29, 1, 30, 0, 123000, tzinfo=UTC)


def client_of(history: EmbeddedHistory, **options: Any) -> Client:
    return clickhouse_connect.get_client(host="127.0.0.1", port=history.port, **options)


@pytest.fixture
def client(history: EmbeddedHistory) -> Iterator[Client]:
    """A client of a database of its own."""
    with client_of(history) as first:
        first.command("create database tests")
        with client_of(history, database="tests") as client:
            yield client
        first.command("drop database tests sync")


@pytest.fixture
def attempts(client: Client) -> str:
    client.command(
        "create table attempts (run FixedString(4), n UInt32, at DateTime64(3, 'UTC'),"
        " outcome LowCardinality(String), note Nullable(String), version UInt64)"
        " engine = ReplacingMergeTree(version) order by (run, n)"
        " settings non_replicated_deduplication_window = 100"
    )
    return "attempts"


def row(run: bytes, version: int, outcome: str = "succeeded") -> list[object]:
    return [run, 1, WHEN, outcome, None, version]


def post(
    history: EmbeddedHistory, target: str, body: bytes = b"", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", history.port, timeout=TIMEOUT_S)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST", target, body, names)
    response = connection.getresponse()
    answer = response.status, dict(response.getheaders()), response.read()
    connection.close()
    return answer


def get(history: EmbeddedHistory, sql: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", history.port, timeout=TIMEOUT_S)
    connection.request("GET", f"/?query={quote(sql)}")
    response = connection.getresponse()
    answer = response.status, response.read()
    connection.close()
    return answer


def test_the_client_sees_a_server(client: Client) -> None:
    assert (client.ping(), str(client.server_version).startswith("26.")) == (True, True)


def test_inserted_rows_come_back_with_their_types(client: Client, attempts: str) -> None:
    client.insert(attempts, [row(b"run1", 1)])
    rows = client.query("select * from attempts", tz_mode="aware").result_rows
    assert rows == [(b"run1", 1, WHEN, "succeeded", None, 1)]


@pytest.mark.parametrize("compress", [False, "lz4", "zstd", "gzip"])
def test_columns_are_inserted_in_every_compression(
    history: EmbeddedHistory, client: Client, attempts: str, compress: str | bool
) -> None:
    count = 5000
    columns: list[list[object]] = [
        [b"run1"] * count,
        list(range(count)),
        [WHEN] * count,
        ["succeeded"] * count,
        [None] * count,
        [1] * count,
    ]
    with client_of(history, database="tests", compress=compress) as sender:
        summary = sender.insert(attempts, columns, column_oriented=True)
    found = client.query("select count(), sum(n) from attempts").result_rows
    assert (summary.written_rows, found) == (count, [(count, count * (count - 1) // 2)])


@pytest.mark.parametrize(
    ("form", "data"),
    [
        ("JSONEachRow", b'{"run": "run1", "n": 7}\n'),
        ("CSV", b"run1,7\n"),
        ("RowBinary", b"run1\x07\x00\x00\x00"),
    ],
)
def test_data_are_inserted_in_other_formats(
    client: Client, attempts: str, form: str, data: bytes
) -> None:
    client.raw_insert(attempts, ["run", "n"], data, fmt=form)
    assert client.query("select run, n from attempts").result_rows == [(b"run1", 7)]


def test_arrow_goes_in_and_out(client: Client, attempts: str) -> None:
    client.insert(attempts, [row(b"run1", 1)])
    arrow = client.raw_query("select run, n from attempts", fmt="ArrowStream")
    client.raw_insert(attempts, ["run", "n"], arrow, fmt="ArrowStream")
    assert client.command("select count() from attempts") == 2


def test_bytes_of_any_value_survive_an_insert(client: Client) -> None:
    client.command("create table blobs (b String) engine = MergeTree order by tuple()")
    blob = bytes(range(256)) + b"\n format Native\n"
    client.insert("blobs", [[blob]], column_names=["b"])
    found = client.query("select b from blobs", query_formats={"String": "bytes"}).result_rows
    assert found == [(blob,)]


def test_parameters_are_bound_by_the_engine(client: Client) -> None:
    sql = "select {s:String}, {n:UInt64}, {a:Array(String)}, {t:DateTime64(3, 'UTC')}"
    given = {"s": "it's a \\ '; drop table x --\t\n", "n": 2**63, "a": ["x'", "y"], "t": WHEN}
    rows = client.query(sql, parameters=given, tz_mode="aware").result_rows
    assert rows == [(given["s"], 2**63, ["x'", "y"], WHEN)]


def test_many_parameters_travel_as_a_form(client: Client) -> None:
    text = "x" * 100_000
    assert client.query("select length({s:String})", parameters={"s": text}).result_rows == [
        (100_000,)
    ]


def test_the_latest_version_wins_with_final(client: Client, attempts: str) -> None:
    client.insert(attempts, [row(b"run1", 1, "failed")])
    client.insert(attempts, [row(b"run1", 2, "succeeded")])
    client.insert(attempts, [row(b"run1", 1, "failed")])
    rows = client.query("select outcome from attempts final").result_rows
    assert rows == [("succeeded",)]


def test_a_token_is_inserted_once(client: Client, attempts: str) -> None:
    for version in (1, 2):
        settings = {"insert_deduplication_token": "batch-1"}
        client.insert(attempts, [row(b"run1", version)], settings=settings)
    assert client.command("select count() from attempts") == 1


def test_another_token_is_another_insert(client: Client, attempts: str) -> None:
    for token in ("batch-1", "batch-2"):
        settings = {"insert_deduplication_token": token}
        client.insert(attempts, [row(b"run1", 1)], settings=settings)
    assert client.command("select count() from attempts") == 2


@pytest.mark.parametrize(
    ("sql", "code", "name"),
    [
        ("select * from nowhere", 60, "UNKNOWN_TABLE"),
        ("select nothing", 47, "UNKNOWN_IDENTIFIER"),
        ("selec 1 from", 62, "SYNTAX_ERROR"),
        ("select throwIf(1)", 395, "FUNCTION_THROW_IF_VALUE_IS_NON_ZERO"),
        ("select {x:UInt8}", 456, "UNKNOWN_QUERY_PARAMETER"),
        ("select 1 format Nowhere", 73, "UNKNOWN_FORMAT"),
        ("create database tests", 82, "DATABASE_ALREADY_EXISTS"),
    ],
)
def test_an_error_has_its_code_and_name(client: Client, sql: str, code: int, name: str) -> None:
    with pytest.raises(DatabaseError) as caught:
        client.command(sql)
    assert (caught.value.code, caught.value.name) == (code, name)


def test_an_unknown_database_is_an_error(history: EmbeddedHistory) -> None:
    status, headers, _ = post(history, "/?database=nowhere", b"select 1")
    assert (status, headers["X-ClickHouse-Exception-Code"]) == (404, "81")


def test_an_unknown_setting_is_an_error(history: EmbeddedHistory) -> None:
    status, headers, _ = post(history, "/?no_such_setting=1", b"select 1")
    assert (status, headers["X-ClickHouse-Exception-Code"]) == (404, "115")


def test_a_setting_that_is_no_name_is_an_error(history: EmbeddedHistory) -> None:
    status, headers, _ = post(history, "/?max_threads%3D1%2C%20readonly=1", b"select 1")
    assert (status, headers["X-ClickHouse-Exception-Code"]) == (404, "115")


def test_torn_data_insert_nothing(client: Client, attempts: str) -> None:
    whole = client.raw_query("select 'run1' run, toUInt32(number) n from numbers(10)", fmt="Native")
    with pytest.raises(DatabaseError, match="CANNOT_READ_ALL_DATA"):
        client.raw_insert(attempts, ["run", "n"], whole[:-5], fmt="Native")
    assert client.command("select count() from attempts") == 0


def test_readonly_refuses_an_insert(client: Client, attempts: str) -> None:
    with pytest.raises(DatabaseError, match="READONLY"):
        client.command("insert into attempts (n) values (1)", settings={"readonly": 1})


def test_readonly_cannot_be_left_by_the_query(client: Client) -> None:
    with pytest.raises(DatabaseError, match="READONLY"):
        client.command("select 1 settings readonly = 0", settings={"readonly": 1})


def test_readonly_holds_for_one_call_only(client: Client, attempts: str) -> None:
    client.query("select 1", settings={"readonly": 1})
    client.command("insert into attempts (n) values (1)")
    assert client.command("select count() from attempts") == 1


def test_a_setting_holds_for_one_call_only(client: Client) -> None:
    client.query("select 1", settings={"max_threads": 2})
    assert client.command("select getSetting('max_threads')") == 1


def test_a_get_is_read_only(history: EmbeddedHistory) -> None:
    status, body = get(history, "create database by_get")
    assert (status, b"READONLY" in body) == (403, True)


def test_a_get_can_read(history: EmbeddedHistory) -> None:
    assert get(history, "select 40 + 2") == (200, b"42\n")


def test_a_query_that_takes_too_long_is_ended(client: Client) -> None:
    slow = "select count() from numbers(100000000000) where sipHash64(number) = 1"
    with pytest.raises(DatabaseError) as caught:
        client.query(slow, settings={"max_execution_time": 1})
    assert caught.value.code == 159


def test_a_query_that_takes_too_much_memory_is_ended(client: Client) -> None:
    with pytest.raises(DatabaseError) as caught:
        client.query("select groupArray(number) from numbers(1e9)", settings={"max_threads": 1})
    assert caught.value.code == 241


def test_query_id_and_summary_are_told(history: EmbeddedHistory) -> None:
    _, headers, _ = post(history, "/?query_id=mine", b"select number from numbers(10)")
    assert headers["X-ClickHouse-Query-Id"] == "mine"
    assert '"read_rows": "10"' in headers["X-ClickHouse-Summary"]


def test_the_statement_may_be_in_the_url_and_its_data_in_the_body(
    history: EmbeddedHistory, client: Client, attempts: str
) -> None:
    target = "/?database=tests&query=" + quote("insert into attempts (n) format TSV")
    status, _, _ = post(history, target, gzip.compress(b"1\n2\n"), Content_Encoding="gzip")
    assert (status, client.command("select sum(n) from attempts")) == (200, 3)


@pytest.mark.parametrize(
    ("target", "encoding", "status"),
    [("/", "br", 500), ("/", "gzip", 500), ("/?decompress=1", "identity", 501)],
    ids=["unknown", "torn", "native blocks"],
)
def test_a_body_that_cannot_be_read_is_refused(
    history: EmbeddedHistory, target: str, encoding: str, status: int
) -> None:
    assert post(history, target, b"select 1", Content_Encoding=encoding)[0] == status


def test_what_is_not_http_is_hung_up_on(history: EmbeddedHistory) -> None:
    with socket.create_connection(("127.0.0.1", history.port), TIMEOUT_S) as connection:
        connection.sendall(b"\x16\x03\x01 this is not http\r\n\r\n")
        assert connection.recv(1000) == b""


def test_a_query_does_not_wait_for_a_slow_one(history: EmbeddedHistory, client: Client) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", history.port, timeout=TIMEOUT_S)
    slow = b"select count() from numbers(100000000000) where sipHash64(number) = 1"
    connection.request("POST", "/?query_id=slow&max_execution_time=20", slow)
    running = "select count() from system.processes where query like '%sipHash64%=_1'"
    assert processes.wait_until(lambda: client.command(running) == 1, TIMEOUT_S)
    client.command("kill query where query like '%sipHash64%= 1' async")
    assert connection.getresponse().status == 500
    connection.close()


def test_it_never_runs_as_root(history: EmbeddedHistory) -> None:
    assert Path(f"/proc/{history.pid}").stat().st_uid != 0


def test_its_folder_is_closed_to_others(history: EmbeddedHistory) -> None:
    assert history.options.data_dir.stat().st_mode & 0o077 == 0


def test_it_listens_on_loopback_only(history: EmbeddedHistory) -> None:
    listening = Path(f"/proc/{history.pid}/net/tcp").read_text()
    assert f"0100007F:{history.port:04X} 00000000:0000 0A" in listening
    assert f"00000000:{history.port:04X}" not in listening


def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    engine = EmbeddedHistory(HistoryOptions(data_dir=tmp_path)).start()
    with client_of(engine) as client:
        client.command("create table t (a UInt64) engine = ReplacingMergeTree order by a")
        client.insert("t", [[n] for n in range(1000)], column_names=["a"])
    engine.kill()
    with engine, client_of(engine) as client:
        assert client.command("select count() from t") == 1000


def test_a_token_is_remembered_across_a_stop(tmp_path: Path) -> None:
    engine = EmbeddedHistory(HistoryOptions(data_dir=tmp_path))
    settings = {"insert_deduplication_token": "batch-1"}
    with engine, client_of(engine) as client:
        client.command(
            "create table t (a UInt64) engine = MergeTree order by a"
            " settings non_replicated_deduplication_window = 100"
        )
        client.insert("t", [[1]], column_names=["a"], settings=settings)
    with engine, client_of(engine) as client:
        client.insert("t", [[1]], column_names=["a"], settings=settings)
        assert client.command("select count() from t") == 1


def test_a_password_is_asked_for(tmp_path: Path) -> None:
    password_file = tmp_path / "password"
    password_file.write_text("open sesame\n")
    options = HistoryOptions(data_dir=tmp_path / "data", password_file=password_file)
    with EmbeddedHistory(options) as engine:
        with client_of(engine, password="open sesame") as client:
            assert client.command("select 1") == 1
        assert post(engine, "/?password=wrong", b"select 1")[0] == 403
        assert post(engine, "/", b"select 1")[0] == 403


def test_a_taken_port_is_one_line_naming_port_and_setting(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(EngineError) as caught:
            EmbeddedHistory(HistoryOptions(data_dir=tmp_path, port=port)).start()
    text = str(caught.value)
    assert (str(port) in text, "clickhouse.port" in text, "\n" in text) == (True, True, False)


def test_a_folder_in_use_is_refused(history: EmbeddedHistory) -> None:
    second = EmbeddedHistory(HistoryOptions(data_dir=history.options.data_dir))
    with pytest.raises(EngineError, match=f"in use by process {history.pid}"):
        second.start()
    assert history.exit_status() is None


def test_it_does_not_outlive_a_killed_supervisor(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import sys
        from pathlib import Path
        from infra.embedded.history import EmbeddedHistory, HistoryOptions
        engine = EmbeddedHistory(HistoryOptions(data_dir=Path(sys.argv[1]))).start()
        print(engine.pid, flush=True)
        input()
    """)
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as supervisor:
        assert supervisor.stdout is not None
        pid = int(supervisor.stdout.readline())
        supervisor.kill()
    assert processes.wait_until(lambda: processes.start_ticks(pid) is None, TIMEOUT_S)


def test_the_command_line_says_what_is_wrong_in_one_line(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    command = [sys.executable, "-m", "infra.embedded.history", "--data", str(tmp_path)]
    result = subprocess.run(
        [*command, "--password-file", missing],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PATH": os.defpath},
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
