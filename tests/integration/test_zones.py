"""A change of zone data on a real Postgres: what moves, and who may plan."""

import asyncio
import shutil
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import psycopg
import pytest

from commandside.command_port import Accepted
from domain.envelope import Decision
from domain.job.decide import By, NewJob, define
from domain.job.events import JobSpec
from domain.retry import ONE_TIME_DEFAULT
from domain.schedule import schedule, zone
from domain.schedule.schedule import Cron
from domain.target import HttpTarget
from infra import zones
from infra.clock import DatabaseClock, wall_ms
from infra.embedded.processes import wait_until
from infra.keys.local import from_file
from infra.postgres import migrate
from infra.postgres.command_log import PostgresCommandLog
from infra.roles.process import Process
from infra.settings import Settings, load, replaced

HOUR = 3_600_000
JOBS = 3
PATIENCE_S = 30.0


def settings_of(conninfo: str) -> Settings:
    return replaced(load(environment={}), "postgres", url=conninfo)


def define_daily(conninfo: str, name: str, count: int) -> None:
    """Define jobs that fire at 23:59 in a zone."""
    target = HttpTarget("http", "127.0.0.1", 9, "/", "POST", (), "http://127.0.0.1:9/")
    spec = JobSpec(
        Cron("59 23 * * *", "59 23 * * *", name),
        target,
        ONE_TIME_DEFAULT,
        30_000,
        "k-{job_id}-{scheduled_ts}",
    )

    async def scenario() -> None:
        log = PostgresCommandLog(conninfo, DatabaseClock())
        await log.start()
        for n in range(count):
            job_id = (ord(name[0]) << 64 | n << 96).to_bytes(16, "big")
            made = define(NewJob(job_id, bytes(16), spec), None, By(wall_ms()))
            assert isinstance(made, Decision)
            assert isinstance(await log.define(made), Accepted)
        await log.close()

    asyncio.run(scenario())


def nominals(conninfo: str) -> list[int]:
    with psycopg.connect(conninfo) as connection:
        return [row[0] for row in connection.execute("select nominal from due_index order by 1")]


@pytest.fixture
def moved(log_database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A database with jobs in two zones, one of which has been moved since."""
    # Of two zones half a day apart, one is not about to fire.
    far = "Asia/Tokyo" if (wall_ms() // HOUR) % 24 < 12 else "America/Lima"
    define_daily(log_database, far, JOBS)
    define_daily(log_database, "UTC", 1)
    load_zone = zone.load
    known = load_zone(far)
    later = zone.Zone(far, known.starts, [offset - 1800 for offset in known.offsets])
    monkeypatch.setattr(zone, "load", lambda name: later if name == far else load_zone(name))
    schedule.plan.cache_clear()
    schedule.between.cache_clear()
    yield log_database
    schedule.plan.cache_clear()
    schedule.between.cache_clear()


def test_a_diff_names_what_would_move_and_changes_nothing(moved: str) -> None:
    before, said = nominals(moved), list[str]()
    zones.diff(settings_of(moved), said.append)
    assert len([line for line in said if " -> " in line]) == JOBS
    assert said[-1] == f"{JOBS} open occurrences would move"
    assert nominals(moved) == before


def test_what_moves_is_planned_anew_once(moved: str) -> None:
    before = nominals(moved)
    with psycopg.connect(moved) as connection:
        connection.execute("update installation set zone_data = '1999a'")
    said: list[str] = []
    zones.apply(settings_of(moved), said.append)
    assert said[-1] == f"{JOBS} open occurrences moved"
    assert sum(nominals(moved)) == sum(before) + JOBS * HOUR // 2
    assert migrate.installed(moved).zone_data == zone.VERSION
    zones.apply(settings_of(moved), said.append)
    assert said[-1] == "0 open occurrences moved"
    with psycopg.connect(moved) as connection:
        names = connection.execute(
            "select count(*) from events where name = 'job.replanned.v1'"
        ).fetchone()
    assert names == (JOBS,)


def test_the_fires_of_the_coming_year_are_compared_with_those_of_older_data(
    log_database: str, tmp_path: Path
) -> None:
    define_daily(log_database, "Asia/Tokyo", JOBS)
    define_daily(log_database, "UTC", 1)
    shutil.copytree(str(files("tzdata")), tmp_path / "tzdata")
    old = tmp_path / "tzdata"
    (old / "zoneinfo" / "Asia" / "Tokyo").write_bytes(
        (old / "zoneinfo" / "Asia" / "Shanghai").read_bytes()
    )
    init = old / "__init__.py"
    init.write_text(init.read_text().replace(zone.VERSION, "1999a"))
    said: list[str] = []
    zones.diff(settings_of(log_database), said.append, tmp_path)
    assert [line for line in said if line.startswith("59 23 * * * Asia/Tokyo  3 jobs, 36")]
    assert said[-1] == (
        f"1 of 2 schedules fire otherwise in the coming year with {zone.VERSION} than with 1999a"
    )


def test_a_folder_without_zone_data_is_refused_with_what_would_make_it(
    log_database: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="pip install --target"):
        zones.diff(settings_of(log_database), print, tmp_path)


def test_a_new_installation_plans_with_the_data_of_whoever_installs_it(log_database: str) -> None:
    assert migrate.installed(log_database).zone_data == zone.VERSION


def test_a_node_with_other_zone_data_decides_nothing_and_says_what_to_do(
    log_database: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("keys")
    settings = replaced(settings_of(log_database), "data", dir=str(folder))
    from_file(settings.master_file, create=True)
    process = Process("scheduler", settings)
    process.keeper.start()
    try:
        assert wait_until(lambda: not process.doubt, PATIENCE_S), process.doubt
        with psycopg.connect(log_database) as connection:
            connection.execute("update installation set zone_data = '1999a'")
        assert wait_until(lambda: "tocsin zones apply" in process.doubt, PATIENCE_S)
        process.role = "projector"
        assert not process.doubt
    finally:
        process.keeper.close()
