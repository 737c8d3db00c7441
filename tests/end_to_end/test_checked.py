"""What a cell of real processes and engines leaves behind, judged by the history checker."""

import datetime as dt
import time
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import msgspec
import psycopg
import pytest

from infra.embedded.processes import wait_until
from tests.checker import dump, received
from tests.checker.check import check
from tests.checker.inputs import Fault, History, Operation, Scenario, read, write
from tests.end_to_end.cell import Cell
from tests.end_to_end.receiver import Got, Receiver

JOBS = 60
LEAD_MS = 1_500
REST_S = 60.0
LATE_MS = 60_000
"""How late a fire may be here: how fast this machine is just now is not what is tested."""
_BEHIND = """
select coalesce(sum(greatest(h.position - coalesce(v.position, 0), 0)), 0)
from (select shard, max(position) as position from events group by shard) h
cross join (values ('job_board'), ('run_history')) as w(view)
left join view_positions v on v.view = w.view and v.shard = h.shard
"""


class Client:
    """Calls the API and keeps what it was told."""

    def __init__(self, cell: Cell, tenant: bytes) -> None:
        self._cell, self._tenant = cell, tenant
        self.told: list[Operation] = []

    def define(self, job: dict[str, Any]) -> str:
        """Define a job and return its id."""
        body = msgspec.json.encode(job)
        payload = msgspec.json.encode(job["payload"])
        answer = self._call("define", "POST", "/v1/jobs", body, sha256(payload).digest())
        return str(answer["job_id"])

    def ask(self, action: str, job_id: str, body: bytes = b"{}") -> dict[str, Any]:
        """Pause, resume, trigger or cancel a job."""
        if action == "cancel":
            return self._call(action, "DELETE", f"/v1/jobs/{job_id}")
        return self._call(action, "POST", f"/v1/jobs/{job_id}/{action}", body)

    def _call(
        self, action: str, method: str, path: str, body: bytes = b"", payload: bytes | None = None
    ) -> dict[str, Any]:
        invoked_us = time.time_ns() // 1_000
        headers = {"content-type": "application/json"} if body else {}
        answer = self._cell.client.request(method, path, content=body, headers=headers)
        returned_us = time.time_ns() // 1_000
        assert answer.is_success, answer.text
        said: dict[str, Any] = answer.json()
        job = bytes.fromhex(said["job_id"].removeprefix("jb_"))
        self.told.append(
            Operation(
                "one",
                self._tenant,
                action,
                invoked_us,
                returned_us,
                "ok",
                job,
                answer.status_code,
                body_sha256=sha256(body).digest(),
                payload_sha256=payload,
                version=said.get("version", 0),
            )
        )
        return said


@pytest.fixture
def started(module_cell: Cell) -> Cell:
    for role in ("api", "scheduler", "projector"):
        module_cell.start(role).started()
    return module_cell


def test_fires_retries_commands_and_a_killed_dispatcher_leave_nothing_to_find(
    started: Cell, receiver: Receiver, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cell, tenant = started, _tenant(started)
    client = Client(cell, tenant)
    receiver.answer = _first_attempt_of_some_fails
    due = dt.datetime.fromtimestamp((time.time_ns() // 1_000_000 + LEAD_MS) / 1000, dt.UTC)
    dies = cell.start("dispatcher", "called:2").started()
    armed = time.time_ns() // 1_000_000
    for number in range(JOBS):
        client.define(_one_time(receiver, due, number))
    daily = client.define(_daily(receiver))
    assert dies.died(), dies.text
    cell.start("dispatcher").started()
    fault = Fault("dispatcher", "called:2", armed, time.time_ns() // 1_000_000)
    for action in ("trigger", "pause", "resume"):
        client.ask(action, daily)
    assert wait_until(lambda: _rests(cell, JOBS + 1), REST_S), cell.logs()
    client.ask("cancel", daily)
    assert wait_until(lambda: _is_projected(cell), REST_S), cell.logs()

    events, rows = dump.snapshot(cell.engines.postgres)
    now = time.time_ns() // 1_000_000
    history = History(
        events=events,
        hits=received.hits(receiver, tenant),
        clients=client.told,
        faults=[fault],
        projections=rows,
        history=dump.kept(cell.engines.clickhouse, cell.engines.prefix),
        scenario=Scenario(
            settled_at=now,
            ended_at=now,
            quiescent=True,
            late_ms=LATE_MS,
            expected=("retries", "reclaims"),
        ),
    )
    folder = tmp_path_factory.mktemp("checked")
    write(folder, history)
    report = check(read(folder))
    print(report.text())
    assert report.violations == [], report.text()
    assert report.paths["succeeded"] == JOBS + 1
    assert report.events == len(events)

    _finds_what_is_taken_away(history)


def _finds_what_is_taken_away(history: History) -> None:
    """The same history is wrong without its last event, a row, or a request."""
    losses: dict[str, Callable[[History], None]] = {
        "I9": lambda h: setattr(h, "events", [e for e in h.events if e.name != "job.resumed.v1"]),
        "I12": lambda h: setattr(h, "projections", list(h.projections or ())[1:]),
        "I15": lambda h: setattr(h, "history", list(h.history or ())[1:]),
        "I1": lambda h: setattr(h, "hits", [hit for hit in h.hits or () if hit.status != 200][:-1]),
    }
    losses["I13"] = losses.pop("I9")
    for invariant, lose in losses.items():
        lost = History(**{f: getattr(history, f) for f in history.__struct_fields__})
        lose(lost)
        assert check(lost).broken[invariant], invariant


def _first_attempt_of_some_fails(got: Got) -> int:
    return 503 if got.path == "/flaky" and got.headers["tocsin-attempt"] == "1" else 200


def _one_time(receiver: Receiver, due: dt.datetime, number: int) -> dict[str, Any]:
    return {
        "type": "one_time",
        "run_at": due.isoformat(timespec="milliseconds"),
        "target": {
            "kind": "http",
            "url": f"{receiver.url}/{'flaky' if number % 10 == 0 else 'steady'}",
            "method": "POST",
        },
        "payload": {"n": number},
        "retry": {"max_attempts": 5, "base_s": 1},
    }


def _daily(receiver: Receiver) -> dict[str, Any]:
    return {
        "type": "recurring",
        "schedule": "0 3 * * *",
        "timezone": "Europe/Berlin",
        "target": {"kind": "http", "url": f"{receiver.url}/daily", "method": "POST"},
        "payload": {"daily": True},
    }


def _tenant(cell: Cell) -> bytes:
    with psycopg.connect(cell.engines.postgres) as connection:
        row = connection.execute("select uuid_send(tenant_id) from tenants").fetchone()
    assert row is not None
    return bytes(row[0])


def _rests(cell: Cell, runs: int) -> bool:
    """Tell whether so many runs have succeeded."""
    query = "select count(*) from events where name = 'run.completed.v1'"
    with psycopg.connect(cell.engines.postgres) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return bool(row[0] >= runs)


def _is_projected(cell: Cell) -> bool:
    with psycopg.connect(cell.engines.postgres) as connection:
        row = connection.execute(_BEHIND).fetchone()
    assert row is not None
    return int(row[0]) == 0
