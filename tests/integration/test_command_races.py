"""Commands that race with leases on a real Postgres: the log stays lawful, whoever is first."""

import asyncio
import os
import random
import select
import threading
import time
from typing import Any

import psycopg
import pytest

from commandside.command_port import Accepted, Decide
from commandside.ports import DoneReply, Lease, LeaseReply, LogReply, LogRequest, Renew, Want
from domain import catalogue
from domain.envelope import Decision, Rejected
from domain.job import decide as job
from domain.job import events as je
from domain.job.state import JobState
from domain.run import events as re
from domain.run.state import OpenRun
from domain.sharding import shard_of, stripe_of
from infra.clock import DatabaseClock, wall_ms
from infra.postgres.command_log import PostgresCommandLog
from infra.postgres.fire_log import PostgresFireLog
from tests.contracts import jobs

JOBS = 200
BATCH = 10
SHARDS, STRIPES = 64, 4
PATIENCE_S = 60.0


class Leaser(threading.Thread):
    """Leases every wanted run, in small batches, as a dispatcher would."""

    def __init__(self, conninfo: str, wants: list[Want]) -> None:
        super().__init__()
        self.granted = 0
        self.gone = 0
        self._log = PostgresFireLog(conninfo, STRIPES, SHARDS)
        self._wants: dict[int, list[Want]] = {stripe: [] for stripe in range(STRIPES)}
        for want in wants:
            self._wants[stripe_of(shard_of(want.job_id, SHARDS), STRIPES)].append(want)
        self._session = os.urandom(16)

    def run(self) -> None:
        assert isinstance(self._ask(STRIPES, Renew(self._session, starts=True)), DoneReply)
        for stripe, wants in self._wants.items():
            for at in range(0, len(wants), BATCH):
                batch = wants[at : at + BATCH]
                expires_at = wall_ms() + 5_000
                reply = self._ask(stripe, Lease(self._session, os.urandom(8), batch, expires_at))
                assert isinstance(reply, LeaseReply), reply
                self.granted += len(reply.granted)
                self.gone += len(reply.gone)
        self._log.close()

    def _ask(self, stripe: int, request: LogRequest) -> LogReply:
        deadline = time.monotonic() + PATIENCE_S
        while not self._log.idle(stripe):
            self._rest(deadline)
            assert self._log.poll() == []
        self._log.submit(stripe, request)
        while not (replies := self._log.poll()):
            self._rest(deadline)
        return replies[0]

    def _rest(self, deadline: float) -> None:
        assert time.monotonic() < deadline
        sockets = self._log.sockets()
        writes = [descriptor for descriptor, writing in sockets if writing]
        select.select([descriptor for descriptor, _ in sockets], writes, (), 0.05)


def cancel(
    state: JobState | None, runs: tuple[OpenRun, ...], at: int
) -> Decision | Rejected | None:
    return job.cancel(state, runs, job.By(at))


def pause(state: JobState | None, runs: tuple[OpenRun, ...], at: int) -> Decision | Rejected | None:
    return job.pause(state, runs, job.By(at))


def patch(state: JobState | None, runs: tuple[OpenRun, ...], at: int) -> Decision | Rejected | None:
    assert state is not None
    spec = jobs.spec(state.facts.spec.schedule, payload=b"edited")
    return job.revise(state, runs, spec, "", job.By(at))


COMMANDS: tuple[Decide, ...] = (cancel, pause, patch)


@pytest.fixture
def log(log_database: str) -> list[dict[str, Any]]:
    """Every event of a database where commands raced with leases, by job, in commit order."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    order = random.Random(seed)
    numbers = [jobs.job_id(n % SHARDS, SHARDS) for n in range(JOBS)]
    wants: list[Want] = []

    async def scenario() -> None:
        commands = PostgresCommandLog(log_database, DatabaseClock())
        await commands.start()
        for job_id in numbers:
            # Due at once: the definition is as old as the schedule's last minute.
            decision = jobs.define(job_id, jobs.spec(jobs.minutely()), wall_ms() - 61_000)
            assert isinstance(await commands.define(decision), Accepted)
            run = jobs.ready_run(decision).facts
            wants.append(Want(run.run_id, run.version, job_id))
        order.shuffle(wants)
        leaser = Leaser(log_database, wants)
        commanded = list(numbers)
        order.shuffle(commanded)
        leaser.start()

        async def command(job_id: bytes) -> None:
            answer = await commands.command(job_id, b"", b"", order.choice(COMMANDS))
            assert isinstance(answer, Accepted)

        for at in range(0, len(commanded), BATCH):
            await asyncio.gather(*(command(job_id) for job_id in commanded[at : at + BATCH]))
        await asyncio.get_running_loop().run_in_executor(None, leaser.join, PATIENCE_S)
        await commands.close()
        assert leaser.granted
        assert leaser.gone, "no command came first: nothing raced"

    asyncio.run(scenario())
    with psycopg.connect(log_database) as connection:
        rows = connection.execute(
            "select stream_id, version, position, name, data from events order by shard, position"
        ).fetchall()
    return [
        {
            "stream": stream.bytes,
            "version": version,
            "position": position,
            "event": catalogue.decode(name, data),
        }
        for stream, version, position, name, data in rows
    ]


def test_no_run_of_a_job_is_leased_after_its_cancel_pause_or_under_a_spec_that_was_replaced(
    log: list[dict[str, Any]],
) -> None:
    owner: dict[bytes, bytes] = {}
    planned: dict[bytes, int] = {}
    closed: set[bytes] = set()
    spec_version: dict[bytes, int] = {}
    leased = set()
    for row in log:
        event, stream = row["event"], row["stream"]
        if isinstance(event, re.Scheduled):
            owner[stream] = event.job_id
            planned[stream] = event.spec_version
        elif isinstance(event, je.Cancelled | je.Paused):
            closed.add(stream)
        elif isinstance(event, je.Defined | je.Revised):
            spec_version[stream] = row["version"]
        elif isinstance(event, re.Leased):
            assert owner[stream] not in closed, "leased after a cancel or a pause"
            assert planned[stream] == spec_version[owner[stream]], "leased under a replaced spec"
            assert stream not in leased, "two leases of one run"
            leased.add(stream)


def test_every_stream_is_gapless_and_a_leased_run_is_never_appended_to_by_a_command(
    log: list[dict[str, Any]],
) -> None:
    versions: dict[bytes, int] = {}
    leased: set[bytes] = set()
    for row in log:
        assert row["version"] == versions.get(row["stream"], 0) + 1
        versions[row["stream"]] = row["version"]
        assert row["stream"] not in leased
        if isinstance(row["event"], re.Leased):
            leased.add(row["stream"])
