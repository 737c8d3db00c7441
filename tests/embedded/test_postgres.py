"""The embedded Postgres, for real: starts, stops, dies, comes back."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psycopg
import psycopg.pq
import pytest

from infra.embedded import processes
from infra.embedded.errors import EngineError
from infra.embedded.postgres import EmbeddedPostgres, PostgresOptions

DEADLINE_S = 30.0
ROOT = Path(__file__).parents[2]


def query(conninfo: str, sql: str) -> list[tuple[object, ...]]:
    with psycopg.connect(conninfo, autocommit=True, connect_timeout=5) as connection:
        cursor = connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


def small(folder: Path) -> PostgresOptions:
    return PostgresOptions(data_dir=folder, shared_buffers_mb=32)


def test_it_answers_by_its_socket(postgres: EmbeddedPostgres) -> None:
    assert query(postgres.conninfo, "select current_database()") == [("tocsin",)]


def test_it_is_version_18_and_durable(postgres: EmbeddedPostgres) -> None:
    names = ("fsync", "synchronous_commit", "full_page_writes", "jit", "max_connections")
    shown = [query(postgres.conninfo, f"show {name}")[0][0] for name in names]
    version = query(postgres.conninfo, "show server_version_num")[0][0]
    assert (shown, str(version)[:2]) == (["on", "on", "on", "off", "100"], "18")


def test_durability_cannot_be_altered_by_the_server_itself(postgres: EmbeddedPostgres) -> None:
    query(postgres.conninfo, "alter system set synchronous_commit = off")
    query(postgres.conninfo, "select pg_reload_conf()")
    assert query(postgres.conninfo, "show synchronous_commit") == [("on",)]


def test_no_port_is_listened_on(postgres: EmbeddedPostgres) -> None:
    assert query(postgres.conninfo, "show listen_addresses") == [("",)]
    own = {f"socket:[{number}]" for number in listening()}
    files = Path(f"/proc/{postgres.pid}/fd").iterdir()
    assert not own & {str(file.readlink()) for file in files}


def listening() -> set[str]:
    """Return the numbers of the sockets of this machine that listen on a port."""
    tables = [Path(f"/proc/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table]
    return {row[9] for row in rows if row[3] == "0A"}


def test_its_files_and_socket_are_closed_to_others(postgres: EmbeddedPostgres) -> None:
    modes = [path.stat().st_mode & 0o077 for path in (postgres.folder, postgres.socket_dir)]
    assert modes == [0, 0]


def test_the_supervisor_never_runs_it_as_root(postgres: EmbeddedPostgres) -> None:
    assert Path(f"/proc/{postgres.pid}").stat().st_uid != 0


def test_memory_is_told(postgres: EmbeddedPostgres) -> None:
    assert postgres.rss_bytes() > 1_000_000


def test_data_survive_a_fast_stop(postgres_folder: Path) -> None:
    with EmbeddedPostgres(small(postgres_folder)) as first:
        query(first.conninfo, "create table fast as select 7 as a")
    with EmbeddedPostgres(small(postgres_folder)) as second:
        assert query(second.conninfo, "select a from fast") == [(7,)]


def test_a_commit_survives_an_immediate_stop(postgres_folder: Path) -> None:
    engine = EmbeddedPostgres(small(postgres_folder)).start()
    query(engine.conninfo, "create table immediate as select 8 as a")
    engine.stop_immediately()
    with engine:
        assert query(engine.conninfo, "select a from immediate") == [(8,)]


def test_a_commit_survives_kill_9_of_the_postmaster_with_a_statement_running(
    postgres_folder: Path,
) -> None:
    engine = EmbeddedPostgres(small(postgres_folder)).start()
    query(engine.conninfo, "create table killed as select 9 as a")
    busy = psycopg.pq.PGconn.connect(engine.conninfo.encode())
    # This backend does not look at the postmaster before its statement ends.
    busy.send_query(b"select count(*) from generate_series(1, 20000000)")
    engine.kill()
    with engine:
        assert query(engine.conninfo, "select a from killed") == [(9,)]
    busy.finish()


def test_a_stopped_one_leaves_no_process(postgres_folder: Path) -> None:
    engine = EmbeddedPostgres(small(postgres_folder)).start()
    pids = (engine.pid, *processes.children(engine.pid))
    engine.stop()
    assert len(pids) > 1
    assert [pid for pid in pids if processes.start_ticks(pid) is not None] == []


def test_a_socket_of_a_killed_one_whose_number_is_another_programs_is_no_obstacle(
    postgres_folder: Path,
) -> None:
    engine = EmbeddedPostgres(small(postgres_folder)).start()
    lock = engine.socket_dir / ".s.PGSQL.5432.lock"
    lines = lock.read_text().splitlines()
    engine.kill()
    lock.write_text("\n".join([str(os.getppid()), *lines[1:], ""]))
    with engine:
        assert query(engine.conninfo, "select 1") == [(1,)]


def test_a_folder_in_use_is_refused(postgres: EmbeddedPostgres) -> None:
    with pytest.raises(EngineError, match=f"in use by process {os.getpid()}"):
        EmbeddedPostgres(small(postgres.folder)).start()
    assert query(postgres.conninfo, "select 1") == [(1,)]


def test_a_wrong_setting_is_named(postgres_folder: Path) -> None:
    options = PostgresOptions(data_dir=postgres_folder, settings={"work_mem": "lots"})
    with pytest.raises(EngineError, match="work_mem"):
        EmbeddedPostgres(options).start()


def test_a_pid_file_that_names_another_program_is_no_obstacle(postgres_folder: Path) -> None:
    engine = EmbeddedPostgres(small(postgres_folder)).start()
    pid_file = engine.cluster_dir / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    engine.kill()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        pid_file.write_text("\n".join([str(other.pid), *lines[1:]]))
        with engine:
            assert query(engine.conninfo, "select 1") == [(1,)]
        assert other.poll() is None
        other.communicate(b"\n", timeout=DEADLINE_S)


def test_a_long_path_moves_the_socket_to_the_temporary_folder(tmp_path: Path) -> None:
    engine = EmbeddedPostgres(PostgresOptions(data_dir=tmp_path / ("long" * 30)))
    assert len(str(engine.socket_dir)) < 80


@pytest.fixture
def orphan(postgres_folder: Path) -> EmbeddedPostgres:
    """A folder whose supervisor was killed while its Postgres was up."""
    script = textwrap.dedent("""
        import sys
        from pathlib import Path
        from infra.embedded.postgres import EmbeddedPostgres, PostgresOptions
        options = PostgresOptions(data_dir=Path(sys.argv[1]), shared_buffers_mb=32)
        engine = EmbeddedPostgres(options).start()
        print(engine.pid, flush=True)
        input()
    """)
    command = [sys.executable, "-c", script, str(postgres_folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as supervisor:
        assert supervisor.stdout is not None
        assert int(supervisor.stdout.readline()) > 0
        supervisor.kill()
        assert supervisor.wait(DEADLINE_S) == -signal.SIGKILL
    return EmbeddedPostgres(small(postgres_folder))


def test_it_starts_again_after_its_supervisor_was_killed(orphan: EmbeddedPostgres) -> None:
    with orphan:
        assert query(orphan.conninfo, "select 1") == [(1,)]


def test_it_does_not_outlive_a_killed_supervisor(orphan: EmbeddedPostgres) -> None:
    pid_file = orphan.cluster_dir / "postmaster.pid"
    assert processes.wait_until(lambda: not pid_file.exists(), DEADLINE_S)
