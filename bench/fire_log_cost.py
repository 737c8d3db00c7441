"""What leases and reports cost: CPU and bytes of write-ahead log a run.

    python -m bench.fire_log_cost --jobs 20000 --batch 250 --stripes 2 [--recurring]

Defines jobs that are due, hands them off (all but the broker), leases them and reports them;
leases and reports with one request in flight a stripe.
Only ratios to another program in the same run mean anything.
"""

import argparse
import os
import select
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import psycopg

from commandside.ports import (
    Append,
    AppendReply,
    DoneReply,
    FireLog,
    Granted,
    Lease,
    LeaseReply,
    LogReply,
    LogRequest,
    Published,
    Ref,
    Renew,
    Want,
)
from domain.envelope import Decision
from domain.job.decide import By, NewJob, define
from domain.job.events import JobSpec
from domain.retry import ONE_TIME_DEFAULT
from domain.run.decide import Result, report
from domain.run.events import OK
from domain.run.state import Ready
from domain.schedule.schedule import Cron, OneTime, ScheduleSpec, parse_cron
from domain.sharding import shard_of, stripe_of
from domain.target import HttpTarget
from infra.embedded import processes
from infra.embedded.postgres import EmbeddedPostgres, PostgresOptions
from infra.postgres.due_index import PostgresDueIndex
from infra.postgres.fire_log import PostgresFireLog
from infra.postgres.migrate import install, migrate

SHARDS: Final = 64
PHASE_TIMEOUT_S: Final = 300.0
WAIT_S: Final = 0.05
Item = TypeVar("Item", Want, Decision)
EXPIRY_MS: Final = 300_000
WINDOW_ROWS: Final = 20_000
PAYLOAD_BYTES: Final = 200
_TICK_S: Final = 1.0 / os.sysconf("SC_CLK_TCK")


class Cost(msgspec.Struct, frozen=True):
    """CPU of one phase, in seconds, and its length."""

    client_s: float
    postgres_s: float
    elapsed_s: float
    wal_bytes: float


class Meter:
    """Reads the CPU of this process and of a Postgres server, and the length of its log."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection
        row = connection.execute("show data_directory").fetchone()
        assert row is not None
        lines = Path(row[0], "postmaster.pid").read_text(encoding="ascii").split()
        self._postmaster = int(lines[0])

    def measure(self, phase: Callable[[], None]) -> Cost:
        """Run a phase and return what it took."""
        before = self._look()
        phase()
        after = self._look()
        return Cost(*(b - a for a, b in zip(before, after, strict=True)))

    def _look(self) -> tuple[float, float, float, float]:
        row = self._connection.execute("select pg_current_wal_insert_lsn() - '0/0'").fetchone()
        assert row is not None
        return time.process_time(), self._postgres_s(), time.monotonic(), float(row[0])

    def _postgres_s(self) -> float:
        """Return CPU of the server's processes, those that have ended too."""
        total = 0
        for pid in (self._postmaster, *processes.children(self._postmaster)):
            text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
            fields = text.rpartition(")")[2].split()
            total += sum(map(int, fields[11 : 15 if pid == self._postmaster else 13]))
        return total * _TICK_S


class Driver:
    """Keeps every stripe of a log busy with what is queued for it."""

    def __init__(self, log: PostgresFireLog) -> None:
        self.log: FireLog = log
        self._sockets = log.sockets
        self.at = 0

    def now(self) -> int:
        """Return the database's clock."""
        self.run([[Renew(bytes(16))] if s == self.log.stripes else [] for s in range(self._all)])
        return self.at

    @property
    def _all(self) -> int:
        return self.log.stripes + 1

    def run(self, requests: Sequence[Iterable[LogRequest]]) -> list[LogReply]:
        """Send each stripe's requests, one after the other, and return all replies."""
        queues = [deque(of_stripe) for of_stripe in requests]
        waiting = sum(map(len, queues))
        replies: list[LogReply] = []
        deadline = time.monotonic() + PHASE_TIMEOUT_S
        while len(replies) < waiting:
            assert time.monotonic() < deadline, "the phase takes too long"
            for reply in self.log.poll():
                assert isinstance(reply, LeaseReply | AppendReply | DoneReply), reply
                self.at = reply.at
                replies.append(reply)
            for stripe, queue in enumerate(queues):
                if queue and self.log.idle(stripe):
                    self.log.submit(stripe, queue.popleft())
            sockets = self._sockets()
            writes = [descriptor for descriptor, writing in sockets if writing]
            select.select([descriptor for descriptor, _ in sockets], writes, (), WAIT_S)
        return replies


class Workload:
    """Jobs that are due at once."""

    def __init__(self, driver: Driver, batch: int, *, recurring: bool) -> None:
        self.driver, self.batch, self.recurring = driver, batch, recurring
        self.session, self.nonce = os.urandom(16), os.urandom(8)
        self.now = driver.now()
        self.wants: list[Want] = []
        self.granted: list[Granted] = []

    def define(self, jobs: int) -> None:
        """Define the jobs, due since a second."""
        schedule: ScheduleSpec = OneTime(self.now - 1_000)
        if self.recurring:
            cron = parse_cron("* * * * *", "UTC")
            assert isinstance(cron, Cron)
            schedule = cron
        at = self.now // 60_000 * 60_000 - 1 if self.recurring else self.now - 2_000
        decisions = []
        for _ in range(jobs):
            decision = define(NewJob(os.urandom(16), bytes(16), _spec(schedule)), None, By(at))
            assert isinstance(decision, Decision)
            decision = _due(decision, self.now - 1_000)
            decisions.append(decision)
            for part in decision.slices:
                if isinstance(part.after, Ready):
                    self.wants.append(Want(part.stream_id, 1, decision.job_id))
        self._append(decisions)

    def hand_off(self, index: PostgresDueIndex) -> None:
        """Read the due rows as chunks and mark them as published."""
        terms = dict.fromkeys(range(SHARDS), 0)
        marked = 0
        while chunks := index.window(terms, 0, self.now, WINDOW_ROWS):
            at = Ref("bench", 0, 0)
            marked += index.mark([Published(chunk, at) for chunk in chunks])
        assert marked == len(self.wants), "not all was handed off"

    def lease(self) -> None:
        """Lease all of it."""
        requests = [
            [Lease(self.session, self.nonce, wants, self.now + EXPIRY_MS) for wants in batches]
            for batches in self._batches(self.wants)
        ]
        for reply in self.driver.run(requests):
            assert isinstance(reply, LeaseReply)
            self.granted += reply.granted
        assert len(self.granted) == len(self.wants), "not all was leased"

    def begin(self) -> None:
        """Start the session."""
        stripes = self.driver.log.stripes
        self.driver.run([*([] for _ in range(stripes)), [Renew(self.session, starts=True)]])

    def report(self) -> None:
        """Report success of all that was leased."""
        at = self.driver.at
        result = Result(OK, "ok", 200, elapsed_us=900, headers=(("content-type", "text/plain"),))
        decisions = []
        for granted in self.granted:
            fence = granted.run.facts.fence
            decision = report(granted.job, granted.run, fence, result, at, alone=granted.alone)
            assert decision is not None
            decisions.append(decision)
        self._append(decisions)

    def _append(self, decisions: Sequence[Decision]) -> None:
        requests = [
            [Append(batch, self.now + EXPIRY_MS) for batch in batches]
            for batches in self._batches(decisions)
        ]
        for reply in self.driver.run(requests):
            assert isinstance(reply, AppendReply)
            assert not reply.refused, "a decision was refused"

    def _batches(self, items: Sequence[Item]) -> Iterator[list[list[Item]]]:
        stripes = self.driver.log.stripes
        shares: list[list[Item]] = [[] for _ in range(stripes)]
        for item in items:
            shares[stripe_of(shard_of(item.job_id, SHARDS), stripes)].append(item)
        for share in shares:
            yield [share[n : n + self.batch] for n in range(0, len(share), self.batch)]


def _due(decision: Decision, at: int) -> Decision:
    """Return a definition whose run is due at an instant, wherever in its minute that is."""
    slices = []
    for part in decision.slices:
        piece = part
        if isinstance(part.after, Ready):
            facts = msgspec.structs.replace(part.after.facts, due_at=at)
            piece = msgspec.structs.replace(part, after=Ready(facts))
        slices.append(piece)
    return msgspec.structs.replace(decision, slices=tuple(slices))


def _spec(schedule: ScheduleSpec) -> JobSpec:
    """Return a spec of the usual size."""
    url = "https://hooks.example.com/v1/hook"
    target = HttpTarget("https", "hooks.example.com", 443, "/v1/hook", "POST", (), url)
    key, body = "{job_id}/{scheduled_ts}", os.urandom(PAYLOAD_BYTES)
    return JobSpec(schedule, target, ONE_TIME_DEFAULT, 30_000, key, body, "application/json")


def main() -> None:
    """Measure once and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--batch", type=int, default=250)
    parser.add_argument("--stripes", type=int, default=2)
    parser.add_argument("--recurring", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = PostgresOptions(data_dir=Path(folder) / "postgres", shared_buffers_mb=1024)
        with EmbeddedPostgres(settings) as server:
            migrate(server.conninfo)
            install(server.conninfo, bytes(16), SHARDS, 16)
            _measure(server, options)


def _measure(server: EmbeddedPostgres, options: argparse.Namespace) -> None:
    log = PostgresFireLog(server.conninfo, options.stripes, SHARDS)
    index = PostgresDueIndex(server.conninfo, SHARDS)
    workload = Workload(Driver(log), options.batch, recurring=options.recurring)
    phases: list[tuple[str, Callable[[], None]]] = [
        ("define", lambda: workload.define(options.jobs)),
        ("hand-off", lambda: workload.hand_off(index)),
        ("session", workload.begin),
        ("lease", workload.lease),
        ("report", workload.report),
    ]
    print(f"{'a run':<10}{'client µs':>11}{'Postgres µs':>13}{'WAL bytes':>11}{'runs/s':>9}")
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        meter = Meter(connection)
        for name, phase in phases:
            cost = meter.measure(phase)
            if name == "session":
                continue
            client, postgres = (1e6 * s / options.jobs for s in (cost.client_s, cost.postgres_s))
            wal, rate = cost.wal_bytes / options.jobs, options.jobs / cost.elapsed_s
            print(f"{name:<10}{client:>11.1f}{postgres:>13.1f}{wal:>11.0f}{rate:>9.0f}")
    index.close()
    log.close()


if __name__ == "__main__":
    main()
