"""Handlers' words that race with each other and with lapses on a real Postgres: one end a run."""

import asyncio
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import psycopg

from commandside.command_port import Accepted
from commandside.commands.completions import Attempt, Completions, RunReply
from commandside.firing.auditor import lapses
from commandside.ports import Want
from domain.envelope import Decision
from domain.job.state import JobState
from domain.opaque import COMPLETION, Seal
from domain.problem import Problem
from domain.run import events as re
from domain.run import state as rs
from domain.run.accepted import accept
from infra.clock import DatabaseClock, wall_ms
from infra.postgres.command_log import PostgresCommandLog
from infra.postgres.due_index import PostgresDueIndex
from tests.contracts import jobs
from tests.integration.test_command_races import PATIENCE_S, SHARDS, Leaser

JOBS = 120
WORDS = ("complete", "complete", "fail", "heartbeat")
SEAL = Seal(bytes(32), COMPLETION)


def acceptance(_job: JobState | None, runs: tuple[rs.OpenRun, ...], at: int) -> Decision | None:
    (run,) = runs
    assert _job is not None
    return accept(_job.facts.spec, run, run.facts.fence, at)


async def accepted_runs(log: PostgresCommandLog, conninfo: str) -> list[Attempt]:
    """Return attempts that are leased and accepted."""
    wants, numbers = [], [jobs.job_id(n % SHARDS, SHARDS) for n in range(JOBS)]
    for job_id in numbers:
        decision = jobs.define(job_id, jobs.spec(jobs.minutely()), wall_ms() - 61_000)
        assert isinstance(await log.define(decision), Accepted)
        facts = jobs.ready_run(decision).facts
        wants.append(Want(facts.run_id, facts.version, job_id))
    leaser = Leaser(conninfo, wants)
    leaser.start()
    await asyncio.get_running_loop().run_in_executor(None, leaser.join, PATIENCE_S)
    assert leaser.granted == JOBS
    found = []
    for job_id in numbers:
        done = await log.command(job_id, b"", b"", acceptance)
        assert isinstance(done, Accepted)
        (run,) = done.runs
        assert isinstance(run, rs.Awaiting)
        found.append(Attempt(run.facts.run_id, job_id, run.facts.fence))
    return found


def stuck(run_id: bytes, why: str) -> None:
    raise AssertionError(f"{run_id.hex()}: {why}")


def lapse_all(conninfo: str) -> int:
    """End every accepted attempt whose lease is over, as the audit loop does."""
    index = PostgresDueIndex(conninfo, SHARDS)
    done = 0
    while over := index.lapsed(range(SHARDS), 20):
        decided = lapses(over, wall_ms(), stuck)
        done += sum(index.append(list(decided.values()), wall_ms() + 5_000))
    index.close()
    return done


async def say(completions: Completions, attempt: Attempt, word: str) -> str:
    """Say a word and return what came of it."""
    try:
        if word == "complete":
            reply: RunReply = await completions.complete(attempt, b"1")
        elif word == "fail":
            reply = await completions.fail(attempt, "no", retry=True)
        else:
            reply = await completions.heartbeat(attempt)
    except Problem as problem:
        return problem.code
    return reply.status


def test_words_of_two_processes_and_the_lapse_make_one_end_of_each_run(log_database: str) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    order = random.Random(seed)
    answers: dict[bytes, list[tuple[str, str]]] = {}
    streams: dict[bytes, list[re.Event]] = {}
    lapsed = 0

    async def scenario() -> None:
        nonlocal lapsed
        logs = [PostgresCommandLog(log_database, DatabaseClock()) for _ in range(2)]
        for log in logs:
            await log.start()
        attempts = await accepted_runs(logs[0], log_database)
        with psycopg.connect(log_database, autocommit=True) as admin:
            admin.execute(
                "update due_index set until = until - 3600000, wake_at = wake_at - 3600000"
                " where phase = 2"
            )
        said = [(attempt, order.choice(WORDS), n) for attempt in attempts for n in (0, 1, 0)]
        order.shuffle(said)
        spoken = [Completions(log, SEAL) for log in logs]
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as pool:
            lapsing = loop.run_in_executor(pool, lapse_all, log_database)

            async def one(attempt: Attempt, word: str, n: int) -> None:
                found = await say(spoken[n], attempt, word)
                answers.setdefault(attempt.run_id, []).append((word, found))

            for at in range(0, len(said), 30):
                await asyncio.gather(*(one(*word) for word in said[at : at + 30]))
            lapsed = await lapsing
        for attempt in attempts:
            events = await logs[1].events(attempt.job_id, attempt.run_id, 0, 100)
            streams[attempt.run_id] = [event for event in events if isinstance(event, re.Event)]
        for log in logs:
            await log.close()

    asyncio.run(scenario())
    print(Counter(answer for found in answers.values() for answer in found), "lapsed", lapsed)
    assert lapsed, "no lapse came first: nothing raced"
    for run_id, events in streams.items():
        state: rs.RunState | None = None
        for event in events:
            assert isinstance(event, re.RunEvent)
            state = rs.evolve(run_id, state, event)
        ends = [event for event in events if isinstance(event, re.Completed)]
        fired = [event for event in events if isinstance(event, re.Fired)]
        succeeded = any(answer == ("complete", "succeeded") for answer in answers[run_id])
        assert len(ends) == succeeded, answers[run_id]
        assert isinstance(state, rs.Ended) == succeeded
        assert len({(one.outcome, one.fence) for one in fired}) == len(fired)
        refused = [found for _, found in answers[run_id]]
        assert set(refused) <= {"succeeded", "waiting", "running", "ended", "superseded"}
