"""How occurrences end is told on the same path as everything: once, signed, whatever dies."""

import datetime as dt
import json
import time
from typing import Any

import pytest
from standardwebhooks import Webhook

from commandside.fault_points import CALLBACKS_DEFINED
from infra.embedded.processes import wait_until
from tests.end_to_end.cell import Cell
from tests.end_to_end.receiver import Got, Receiver

SHOWN_S = 60.0
DIES_S = 60.0
JOBS = 40


@pytest.fixture(scope="module")
def served(module_cell: Cell) -> Cell:
    """A cell without a projector: tests start that themselves."""
    for role in ("api", "scheduler", "dispatcher"):
        module_cell.start(role).started()
    return module_cell


def soon(ms: int = 0) -> str:
    """Return an instant so far from now."""
    at = dt.datetime.now(dt.UTC) + dt.timedelta(milliseconds=ms)
    return at.isoformat(timespec="milliseconds")


def job(receiver: Receiver, path: str, **more: Any) -> dict[str, Any]:
    """Return a one-time job that says what is told of it, and is never tried again."""
    told = {
        f"on_{end}": {"kind": "http", "url": f"{receiver.url}/told/{end}", "method": "POST"}
        for end in ("success", "failure", "skipped")
    }
    return {
        "type": "one_time",
        "run_at": soon(),
        "target": {"kind": "http", "url": f"{receiver.url}{path}", "method": "POST"},
        "retry": {"max_attempts": 1},
        "name": path,
        **told,
        **more,
    }


def told(got: list[Got]) -> list[Got]:
    """Return the calls that tell."""
    return [one for one in got if one.path.startswith("/told/")]


def verified(cell: Cell, one: Got) -> dict[str, Any]:
    """Return what a call says, which is signed by the tenant's key."""
    (key,) = cell.client.get("/v1/signing-keys").json()["items"]
    found: dict[str, Any] = Webhook(key["secret"]).verify(one.body, one.headers)
    assert found == json.loads(one.body)
    return found


def runs(cell: Cell, job_id: str, status: str) -> dict[str, Any]:
    """Return a job's only run, when it has ended so."""
    found: list[dict[str, Any]] = []

    def there() -> bool:
        found[:] = cell.client.get(f"/v1/jobs/{job_id}/runs").json()["items"]
        return [run["status"] for run in found] == [status]

    assert wait_until(there, SHOWN_S), (found, cell.logs())
    return found[0]


def test_every_kind_of_end_is_told_once_and_signed(served: Cell, receiver: Receiver) -> None:
    projector = served.start("projector").started()
    receiver.answer = lambda got: 503 if got.path == "/dies" else 200
    ids = {
        "success": served.define(job(receiver, "/succeeds"))["job_id"],
        "failure": served.define(job(receiver, "/dies"))["job_id"],
    }
    at = time.time()
    late = served.define(job(receiver, "/late", run_at=soon(3_000)))["job_id"]
    ids["skipped"] = late
    assert served.client.post(f"/v1/jobs/{late}/pause").status_code == 200
    assert wait_until(lambda: time.time() > at + 3.1, 10)
    resumed = served.client.post(f"/v1/jobs/{late}/resume", json={"catch_up": "none"})
    assert resumed.status_code == 200, resumed.text

    calls = told(receiver.wait(lambda got: len(told(got)) >= 3))
    said = {one.path.removeprefix("/told/"): verified(served, one) for one in calls}
    assert {end: body["type"] for end, body in said.items()} == {
        "success": "run.succeeded",
        "failure": "run.dead",
        "skipped": "run.skipped",
    }
    assert {end: body["data"]["job_id"] for end, body in said.items()} == ids
    statuses = {"success": "succeeded", "failure": "dead", "skipped": "skipped"}
    for end, status in statuses.items():
        run = runs(served, ids[end], status)
        data = said[end]["data"]
        assert (data["run_id"], data["scheduled_for"]) == (run["run_id"], run["scheduled_for"])
        assert said[end]["timestamp"] == run["ended_at"]
    assert said["failure"]["data"]["last_status"] == 503
    assert said["failure"]["data"]["attempts"] == 1
    for one in calls:
        callback = served.client.get(f"/v1/jobs/{one.headers['tocsin-job-id']}").json()
        end = one.path.removeprefix("/told/")
        assert callback["callback_of"]["job_id"] == ids[end]
        runs(served, callback["job_id"], "succeeded")
    assert len(told(receiver.got)) == 3
    served.planned_before += 6
    served.settled(served.planned_before)
    assert projector.stop() == 0


def test_a_callback_that_is_refused_is_a_dead_letter_and_nobody_is_told_of_it(
    served: Cell, receiver: Receiver
) -> None:
    projector = served.start("projector").started()
    target = {"kind": "http", "url": f"{receiver.url}/told/default", "method": "POST"}
    made = served.client.put("/v1/callbacks", json={"on_failure": target, "on_success": target})
    assert made.status_code == 201, made.text
    receiver.answer = lambda _: 400
    silent = {"on_success": None, "on_failure": None, "on_skipped": None}
    body = {k: v for k, v in job(receiver, "/dies").items() if k not in silent}
    dead = served.define(body)["job_id"]
    (call,) = told(receiver.wait(lambda got: len(told(got)) >= 1))
    assert verified(served, call)["data"]["job_id"] == dead
    callback = call.headers["tocsin-job-id"]
    run = runs(served, callback, "dead")
    assert run["attempts"][0]["status"] == 400
    letters = served.client.get("/v1/dead-letters").json()["items"]
    assert callback in {letter["job_id"] for letter in letters}

    # Another end is told after it: had there been a callback of the callback, it came before.
    off = served.define(job(receiver, "/dies", on_failure=False))["job_id"]
    runs(served, off, "dead")
    last = served.define(body)["job_id"]
    calls = told(receiver.wait(lambda got: len(told(got)) >= 2))
    assert [verified(served, one)["data"]["job_id"] for one in calls] == [dead, last]
    assert served.client.delete("/v1/callbacks").status_code == 200
    served.planned_before += 5
    served.settled(served.planned_before)
    assert projector.stop() == 0


def test_a_reactor_killed_before_its_position_is_stored_defines_nothing_twice(
    served: Cell, receiver: Receiver
) -> None:
    armed = served.start("projector", f"{CALLBACKS_DEFINED}:2").started()
    receiver.answer = lambda got: 503 if got.path == "/dies" else 200
    half = [job(receiver, "/dies" if n % 2 else "/succeeds") for n in range(JOBS // 2)]
    ids = served.define_many(half)
    receiver.wait(lambda got: len(told(got)) >= 1)
    ids += served.define_many(half)
    assert armed.died(DIES_S), f"{CALLBACKS_DEFINED} was not hit: {armed.text}"
    projector = served.start("projector").started()
    served.planned_before += 2 * JOBS
    calls = told(receiver.wait(lambda got: len(told(got)) >= JOBS))
    served.settled(served.planned_before)
    assert sorted(verified(served, one)["data"]["job_id"] for one in calls) == sorted(ids)
    assert len({one.headers["tocsin-job-id"] for one in calls}) == JOBS
    assert len(told(receiver.got)) == JOBS
    assert projector.stop() == 0
