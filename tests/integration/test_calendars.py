"""Calendars and their jobs on a real Postgres: edits, races, and who was killed in between."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any, TypeVar

import psycopg

from commandside.calendar_port import Use
from commandside.command_port import Accepted
from commandside.commands.calendars import TenantCalendars, resolved
from domain.envelope import Decision
from domain.instant import rfc3339
from domain.job.decide import By, NewJob, define
from domain.job.events import JobSpec
from domain.retry import ONE_TIME_DEFAULT
from domain.schedule.exclusion import Exclusion
from domain.schedule.schedule import Cron
from domain.target import HttpTarget
from domain.tenant import SCOPES, Caller
from infra.clock import DatabaseClock, wall_ms
from infra.ics import read_ics
from infra.postgres.calendars import PostgresCalendars
from infra.postgres.command_log import PostgresCommandLog

TENANT = b"t" * 16
CALLER = Caller(TENANT, "k_1", SCOPES)
DAY = 86_400_000
NEVER = {"ranges": [{"from": "2020-01-01", "until": "2020-01-02"}], "timezone": "UTC"}
Answer = TypeVar("Answer")


class Bench:
    """A log and a store of calendars on one database."""

    def __init__(self, conninfo: str, log: PostgresCommandLog, store: PostgresCalendars) -> None:
        self.conninfo, self.log, self.store = conninfo, log, store
        self.calendars = TenantCalendars(store, log, read_ics, wall_ms)

    def decision(self, number: int, hours: str, exclusions: tuple[Exclusion, ...]) -> Decision:
        """Return the definition of a job that fires in these hours of UTC."""
        target = HttpTarget("http", "127.0.0.1", 9, "/", "POST", (), "http://127.0.0.1:9/")
        spec = JobSpec(
            Cron(f"0 {hours} * * *", f"0 {hours} * * *", "UTC"),
            target,
            ONE_TIME_DEFAULT,
            30_000,
            "k-{job_id}-{scheduled_ts}",
            exclude=tuple(one.name for one in exclusions),
            exclusions=exclusions,
        )
        made = define(NewJob(number.to_bytes(16, "big"), TENANT, spec), None, By(wall_ms()))
        assert isinstance(made, Decision)
        return made

    async def define(self, number: int, hours: str = "*") -> None:
        """Define a job that excludes the calendar, as the API does."""
        job_id = number.to_bytes(16, "big")
        known = await self.calendars.claim(TENANT, [(job_id, ("c",))])
        made = await self.log.define(self.decision(number, hours, resolved(("c",), known)))
        assert isinstance(made, Accepted)
        await self.calendars.settle((made.job,))

    async def versions(self) -> list[int]:
        """Return the version that each job follows."""
        found = []
        for number in range(1, 100):
            standing = await self.log.standing(number.to_bytes(16, "big"))
            if standing is not None:
                found += [one.version for one in standing.job.facts.spec.exclusions]
        return found

    def open_runs(self) -> dict[int, int]:
        """Return the open occurrence of each job."""
        with psycopg.connect(self.conninfo) as connection:
            rows = connection.execute("select job_id, nominal from due_index").fetchall()
        return {row[0].int: row[1] for row in rows}

    def replanned(self) -> int:
        """Return how many events say that a calendar changed."""
        with psycopg.connect(self.conninfo) as connection:
            row = connection.execute(
                "select count(*) from events where name = 'job.replanned.v1'"
            ).fetchone()
        assert row is not None
        return int(row[0])


def on(conninfo: str, scenario: Callable[[Bench], Awaitable[Answer]]) -> Answer:
    """Run a scenario on a database."""

    async def whole() -> Answer:
        log = PostgresCommandLog(conninfo, DatabaseClock())
        await log.start()
        try:
            with closing(PostgresCalendars(conninfo)) as store:
                return await scenario(Bench(conninfo, log, store))
        finally:
            await log.close()

    return asyncio.run(whole())


def test_an_edit_moves_exactly_the_occurrences_that_it_touches(log_database: str) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.calendars.put(CALLER, "c", dict(NEVER))
        for number in range(1, 21):
            await bench.define(number)
        for number in range(21, 31):
            made = await bench.log.define(bench.decision(number, "*", ()))
            assert isinstance(made, Accepted)
        before = bench.open_runs()
        # Two days from today on: every hourly job moves there, and nobody else.
        today = wall_ms() // DAY * DAY
        two_days = {"from": _date(today), "until": _date(today + DAY)}
        body: dict[str, Any] = {"ranges": [two_days], "timezone": "UTC"}
        answer, _ = await bench.calendars.put(CALLER, "c", body)
        assert (answer.jobs, answer.recomputed, answer.pending) == (20, 20, 0)
        after = bench.open_runs()
        assert {after[number] for number in range(1, 21)} == {today + 2 * DAY}
        assert [after[n] for n in range(21, 31)] == [before[n] for n in range(21, 31)]
        assert bench.replanned() == 20
        # Another year is excluded as well: all follow, and none moves.
        body["ranges"].append({"from": "2098-01-01", "until": "2098-02-01"})
        answer, _ = await bench.calendars.put(CALLER, "c", body)
        assert (answer.recomputed, bench.replanned()) == (0, 40)
        assert bench.open_runs() == after
        assert set(await bench.versions()) == {3}

    on(log_database, scenario)


def _date(at: int) -> str:
    return rfc3339(at)[:10]


def test_definitions_and_edits_side_by_side_leave_no_job_with_an_older_version(
    log_database: str,
) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.calendars.put(CALLER, "c", dict(NEVER))
        work: list[Awaitable[object]] = []
        for number in range(1, 31):
            work.append(bench.define(number))
            if number % 3 == 0:
                day = f"2098-01-{number:02}"
                work.append(bench.calendars.put(CALLER, "c", {"dates": [day]}))
        await asyncio.gather(*work)
        calendar = await bench.store.find(TENANT, "c")
        assert calendar is not None
        assert await bench.store.behind(b"", 100) == []
        versions = await bench.versions()
        assert len(versions) == 30
        assert set(versions) == {calendar.exclusion.version}

    on(log_database, scenario)


def test_a_process_killed_after_its_edit_or_its_definition_leaves_it_to_the_next(
    log_database: str,
) -> None:
    async def killed(bench: Bench) -> None:
        await bench.calendars.put(CALLER, "c", dict(NEVER))
        await bench.define(1)
        # A definition that has appended and was not answered yet.
        job_id = (2).to_bytes(16, "big")
        known = await bench.calendars.claim(TENANT, [(job_id, ("c",))])
        made = await bench.log.define(bench.decision(2, "*", resolved(("c",), known)))
        assert isinstance(made, Accepted)
        # An edit that has committed its version and visited nobody.
        calendar = await bench.store.find(TENANT, "c")
        assert calendar is not None
        tomorrow = wall_ms() // DAY * DAY + DAY
        body = {"ranges": [{"from": "2020-01-01", "until": _date(tomorrow)}], "timezone": "UTC"}
        with closing(_Deaf(bench.conninfo)) as store:
            other = TenantCalendars(store, bench.log, read_ics, wall_ms)
            answer, _ = await other.put(CALLER, "c", body)
        assert answer.version == 2

    async def next_one(bench: Bench) -> None:
        assert await bench.versions() == [1, 1]
        assert await bench.calendars.sweep() == 2
        assert await bench.versions() == [2, 2]
        assert set(bench.open_runs().values()) == {wall_ms() // DAY * DAY + 2 * DAY}
        assert await bench.calendars.sweep() == 0

    on(log_database, killed)
    on(log_database, next_one)


class _Deaf(PostgresCalendars):
    """A store of whose jobs that are behind nobody hears: who asked was killed."""

    async def behind(
        self, after: bytes, limit: int, tenant_id: bytes = b"", name: str = ""
    ) -> list[Use]:
        del after, limit, tenant_id, name
        return []
