"""Engines that go away under load and come back, and nobody touches anything."""

import datetime as dt
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from infra.embedded.broker import BrokerOptions, EmbeddedBroker
from infra.embedded.history import EmbeddedHistory
from infra.embedded.postgres import EmbeddedPostgres, PostgresOptions
from infra.embedded.processes import wait_until
from infra.kafka.options import EMBEDDED_SESSION_TIMEOUT_MS
from tests.end_to_end.cell import Cell, Engines, opened
from tests.end_to_end.receiver import Receiver, keys_of_runs
from tests.engines.databases import Databases

WIPED_LATE_MS = 15_000
AWAY_S = 10.0
JOBS = 600
SPREAD_MS = 12_000
LEAD_MS = 4_000


class Lonely:
    """A cell with a Postgres and a broker of its own, which a test may stop and wipe."""

    def __init__(self, cell: Cell, postgres: EmbeddedPostgres, broker: EmbeddedBroker) -> None:
        self.cell, self.postgres, self.broker = cell, postgres, broker

    def spread(self, receiver: Receiver) -> int:
        """Define jobs due over the next seconds; returns the first due instant, ms."""
        first = time.time_ns() // 1_000_000 + LEAD_MS
        self.cell.define_many([job(receiver, first + n * SPREAD_MS // JOBS) for n in range(JOBS)])
        self.cell.planned_before += JOBS
        return first

    def soon(self, receiver: Receiver) -> str:
        """Define a job due in a moment; returns the path that it calls."""
        due_ms = time.time_ns() // 1_000_000 + 500
        self.cell.define_many([job(receiver, due_ms)])
        self.cell.planned_before += 1
        return f"/{due_ms}"


def job(receiver: Receiver, due_ms: int) -> dict[str, Any]:
    due = dt.datetime.fromtimestamp(due_ms / 1000, dt.UTC)
    return {
        "type": "one_time",
        "run_at": due.isoformat(timespec="milliseconds"),
        "target": {"kind": "http", "url": f"{receiver.url}/{due_ms}", "method": "POST"},
    }


@pytest.fixture
def lonely(history: EmbeddedHistory, tmp_path: Path) -> Iterator[Lonely]:
    with ExitStack() as stack:
        options = PostgresOptions(data_dir=tmp_path / "pg", shared_buffers_mb=64)
        postgres = stack.enter_context(EmbeddedPostgres(options))
        broker = stack.enter_context(EmbeddedBroker(BrokerOptions(data_dir=tmp_path / "broker")))
        engines = Engines(
            Databases(postgres).fresh(),
            broker.address,
            f"http://{history.address}",
            f"outage_{tmp_path.name.rpartition('_')[2]}_{time.time_ns() % 10**9}",
            EMBEDDED_SESSION_TIMEOUT_MS,
        )
        cell = stack.enter_context(opened(engines, tmp_path))
        for role in ("api", "scheduler", "dispatcher", "projector"):
            cell.start(role).started()
        yield Lonely(cell, postgres, broker)


def test_a_broker_wiped_under_load_makes_nothing_later_than_fifteen_seconds(
    lonely: Lonely, receiver: Receiver
) -> None:
    """F121, and it heals empty."""
    first = lonely.spread(receiver)
    receiver.wait_for_keys(JOBS // 10)
    lonely.broker.recycle()
    got = receiver.wait_for_keys(JOBS, 90)
    lonely.cell.settled(JOBS)
    assert all(len(keys) == 1 for keys in keys_of_runs(got).values())
    late = {one.path: one.at_ms - int(one.path[1:]) for one in reversed(got)}
    assert min(late.values()) >= 0
    assert max(late.values()) <= WIPED_LATE_MS, (
        f"first due {first}, the latest {max(late.values())}"
    )


def test_while_the_broker_is_silent_jobs_are_fired_from_the_log(
    lonely: Lonely, receiver: Receiver
) -> None:
    """F121: nobody hears the broker."""
    lonely.spread(receiver)
    receiver.wait_for_keys(JOBS // 10)
    os.kill(lonely.broker.pid, signal.SIGSTOP)
    try:
        # What was handed off is held already; this was not.
        paths = [lonely.soon(receiver) for _ in range(20)]
        got = receiver.wait_for_keys(JOBS + len(paths), 60)
    finally:
        os.kill(lonely.broker.pid, signal.SIGCONT)
    lonely.cell.settled(JOBS + len(paths))
    assert all(len(keys) == 1 for keys in keys_of_runs(got).values())


def test_while_postgres_is_away_the_api_answers_503_and_then_everything_goes_on(
    lonely: Lonely, receiver: Receiver
) -> None:
    lonely.spread(receiver)
    receiver.wait_for_keys(JOBS // 10)
    lonely.postgres.stop()
    stopped = time.monotonic()
    answer: httpx.Response | None = None

    def refused() -> bool:
        nonlocal answer
        answer = lonely.cell.client.post("/v1/jobs", json=job(receiver, 4_102_444_800_000))
        return answer.status_code == 503

    assert wait_until(refused, AWAY_S), answer and answer.text
    assert answer is not None
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.headers["content-type"] == "application/problem+json"
    assert wait_until(lambda: time.monotonic() - stopped >= AWAY_S, 2 * AWAY_S)
    lonely.postgres.start()
    got = receiver.wait_for_keys(JOBS, 90)
    lonely.cell.settled(JOBS)
    assert all(len(keys) == 1 for keys in keys_of_runs(got).values())
    accepted = lonely.cell.client.post("/v1/jobs", json=job(receiver, 4_102_444_800_000))
    assert accepted.status_code == 201, accepted.text
