"""The write API's log on a real Postgres, where only a real one can show it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from commandside.command_port import Accepted, BodyDiffers
from domain.envelope import Command, Decision, Rejected
from domain.job import decide
from domain.job import state as js
from domain.job.events import JobSpec
from domain.retry import ONE_TIME_DEFAULT
from domain.run import state as rs
from domain.schedule.schedule import Cron, OneTime
from domain.target import HttpTarget
from infra.clock import DatabaseClock, wall_ms
from infra.postgres import append
from infra.postgres.command_log import PostgresCommandLog

TENANT = bytes(15) + b"\1"


def spec(*, cron: str = "", name: str = "") -> JobSpec:
    when = Cron(cron, cron, "UTC") if cron else OneTime(wall_ms() + 60_000)
    target = HttpTarget("http", "127.0.0.1", 9, "/", "POST", (), "http://127.0.0.1:9/")
    return JobSpec(when, target, ONE_TIME_DEFAULT, 30_000, "k-{job_id}-{scheduled_ts}", name=name)


def definition(n: int, command: Command | None = None, *, cron: str = "") -> Decision:
    by = decide.By(wall_ms(), "test", command=command)
    made = decide.define(decide.NewJob(n.to_bytes(16, "big"), TENANT, spec(cron=cron)), None, by)
    assert isinstance(made, Decision)
    return made


def revision(made: Decision) -> Decision:
    """Return another name for a job that was just defined."""
    job, run = (piece.after for piece in made.slices)
    assert isinstance(job, js.Active)
    assert isinstance(run, rs.Ready)
    changed = decide.revise(job, (run,), spec(name="other"), "", decide.By(wall_ms(), "test"))
    assert isinstance(changed, Decision)
    return changed


@asynccontextmanager
async def opened(conninfo: str) -> AsyncIterator[PostgresCommandLog]:
    log = PostgresCommandLog(conninfo, DatabaseClock())
    await log.start()
    try:
        yield log
    finally:
        await log.close()


def test_many_definitions_at_once_are_all_there(log_database: str) -> None:
    async def scenario() -> None:
        async with opened(log_database) as log:
            answers = await asyncio.gather(*(log.define(definition(n << 96)) for n in range(1_000)))
            assert all(isinstance(answer, Accepted) for answer in answers)
            assert len({a.position for a in answers if isinstance(a, Accepted)}) == 1_000

    asyncio.run(scenario())
    with psycopg.connect(log_database) as connection:
        counts = connection.execute(
            "select (select count(*) from events), (select count(*) from due_index),"
            " (select count(*) from job_heads)"
        ).fetchone()
    assert counts == (2_000, 1_000, 1_000)


def test_a_group_of_new_jobs_has_a_statement_of_its_own() -> None:
    name, values = append.request([definition(1), definition(2, Command(b"c" * 16, b"h"))], 64, 0)
    assert name == "append_new"
    assert len(values) < len(append.request([revision(definition(1))], 64, 0)[1])


def test_the_next_life_of_a_job_takes_the_group_to_the_whole_statement() -> None:
    (first, run) = (piece.after for piece in definition(1).slices)
    assert isinstance(first, js.Active)
    assert isinstance(run, rs.Ready)
    ended = decide.cancel(first, (run,), decide.By(wall_ms(), "test"))
    assert isinstance(ended, Decision)
    cancelled = ended.slices[0].after
    assert isinstance(cancelled, js.Cancelled)
    again = decide.NewJob((1).to_bytes(16, "big"), TENANT, spec(), "", "")
    second = decide.define(again, cancelled, decide.By(wall_ms(), "test"))
    assert isinstance(second, Decision)
    assert append.request([definition(2), second], 64, 0)[0] == "append"


def test_the_same_command_twice_at_the_same_time_has_one_effect(log_database: str) -> None:
    async def scenario() -> None:
        async with opened(log_database) as log:
            command = Command(b"c" * 16, b"hash")
            first, second = await asyncio.gather(
                log.define(definition(1, command)), log.define(definition(1, command))
            )
            assert isinstance(first, Accepted)
            assert isinstance(second, Accepted)
            assert (first.replayed, second.replayed) == (False, True)
            assert first.position == second.position
            other = definition(1, Command(b"c" * 16, b"other"))
            assert isinstance(await log.define(other), BodyDiffers)
            assert isinstance(await log.define(definition(1)), Rejected)

    asyncio.run(scenario())


def test_commands_that_race_for_one_job_all_hold_in_some_order(log_database: str) -> None:
    async def scenario() -> None:
        async with opened(log_database) as log:
            await log.define(definition(1, cron="0 * * * *"))

            async def rename(n: int) -> None:
                def change(
                    job: js.JobState | None, runs: tuple[rs.OpenRun, ...], at: int
                ) -> Decision | Rejected | None:
                    by = decide.By(at)
                    return decide.revise(job, runs, spec(cron="0 * * * *", name=f"n{n}"), "", by)

                answer = await log.command((1).to_bytes(16, "big"), b"", b"", change)
                assert isinstance(answer, Accepted)

            await asyncio.gather(*(rename(n) for n in range(30)))
            standing = await log.standing((1).to_bytes(16, "big"))
            assert standing is not None
            assert standing.job.facts.version == 31
            assert standing.runs[0].facts.spec_version == 31

    asyncio.run(scenario())


def test_a_paused_job_is_read_with_its_withheld_run_and_resumes_it(log_database: str) -> None:
    async def scenario() -> None:
        async with opened(log_database) as log:
            job_id = (1).to_bytes(16, "big")
            await log.define(definition(1, cron="0 * * * *"))
            paused = await log.command(
                job_id, b"p" * 16, b"", lambda job, runs, at: decide.pause(job, runs, decide.By(at))
            )
            assert isinstance(paused, Accepted)
            standing = await log.standing(job_id)
            assert standing is not None
            assert [type(run) for run in standing.runs] == [rs.Withheld]
            resumed = await log.command(
                job_id,
                b"r" * 16,
                b"",
                lambda job, runs, at: decide.resume(job, runs, decide.By(at)),
            )
            assert isinstance(resumed, Accepted)
            assert [type(run) for run in resumed.runs] == [rs.Ready]
            assert resumed.runs[0].facts.run_id == standing.runs[0].facts.run_id

    asyncio.run(scenario())


@pytest.mark.parametrize("again", [1, 3])
def test_a_command_without_an_effect_is_remembered_and_answers_the_same(
    log_database: str, again: int
) -> None:
    async def scenario() -> None:
        async with opened(log_database) as log:
            job_id = (1).to_bytes(16, "big")
            await log.define(definition(1, cron="0 * * * *"))
            answers = await asyncio.gather(
                *(
                    log.command(
                        job_id,
                        b"r" * 16,
                        b"x",
                        lambda job, runs, at: decide.resume(job, runs, decide.By(at)),
                    )
                    for _ in range(again)
                )
            )
            assert {a.version for a in answers if isinstance(a, Accepted)} == {1}
            assert sum(not a.replayed for a in answers if isinstance(a, Accepted)) == 1

    asyncio.run(scenario())
