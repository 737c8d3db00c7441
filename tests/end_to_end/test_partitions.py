"""A dispatcher that is cut off from the database, and lives."""

import datetime as dt
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from psycopg.conninfo import make_conninfo

from infra.embedded.broker import EmbeddedBroker
from infra.embedded.history import EmbeddedHistory
from infra.embedded.postgres import SOCKET_NUMBER, EmbeddedPostgres
from infra.embedded.processes import wait_until
from infra.kafka.options import EMBEDDED_SESSION_TIMEOUT_MS
from tests.end_to_end.cell import Cell, Engines, opened
from tests.end_to_end.receiver import Receiver, attempts, keys_of_runs
from tests.engines.proxy import Mode, TcpProxy

JOBS: Final = 200
SPREAD_MS: Final = 10_000
LEAD_MS: Final = 4_000
_numbers = itertools.count(1)


@pytest.fixture
def cell(
    log_database: str, embedded_broker: EmbeddedBroker, history: EmbeddedHistory, tmp_path: Path
) -> Iterator[Cell]:
    engines = Engines(
        log_database,
        embedded_broker.address,
        f"http://{history.address}",
        f"parted_{next(_numbers)}_{time.time_ns() % 10**9}",
        EMBEDDED_SESSION_TIMEOUT_MS,
    )
    with opened(engines, tmp_path) as found:
        yield found


def job(receiver: Receiver, due_ms: int) -> dict[str, Any]:
    due = dt.datetime.fromtimestamp(due_ms / 1000, dt.UTC)
    return {
        "type": "one_time",
        "run_at": due.isoformat(timespec="milliseconds"),
        "target": {"kind": "http", "url": f"{receiver.url}/{due_ms}", "method": "POST"},
    }


@pytest.mark.parametrize("mode", ["swallow", "part"], ids=["replies are lost", "both directions"])
def test_f120_a_dispatcher_that_is_cut_off_from_the_database_is_replaced_and_ends_nothing_twice(
    cell: Cell, postgres: EmbeddedPostgres, receiver: Receiver, mode: Mode
) -> None:
    with TcpProxy(f"{postgres.address}/.s.PGSQL.{SOCKET_NUMBER}") as proxy:
        parted = make_conninfo(cell.engines.postgres, host="127.0.0.1", port=proxy.port)
        for role in ("api", "scheduler", "dispatcher", "projector"):
            cell.start(role).started()
        cell.start("dispatcher", postgres=parted).started()
        first = time.time_ns() // 1_000_000 + LEAD_MS
        cell.define_many([job(receiver, first + n * SPREAD_MS // JOBS) for n in range(JOBS)])
        receiver.wait_for_keys(JOBS // 10)
        proxy.mode = mode
        assert wait_until(lambda: proxy.lost > 0, 30), "nothing was said over the parted line"
        receiver.wait_for_keys(JOBS, 120)
        proxy.mode = "pass"
        proxy.cut()
        # Each run has one end, however many attempts it had: there is none without its commit.
        cell.settled(JOBS, 120)
        got = receiver.got
        assert all(len(keys) == 1 for keys in keys_of_runs(got).values())
        assert max(attempts(got).values()) == 1, "no attempt was sent twice"
