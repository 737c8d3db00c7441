"""Handlers that take work over a real socket and end it over another, on real engines."""

from typing import Any

import httpx

from infra.embedded.processes import wait_until
from tests.end_to_end.cell import Cell
from tests.end_to_end.receiver import Got, Receiver
from tests.end_to_end.test_first_fire import one_time

HISTORY_S = 20.0
LAPSE_S = 110.0
"""The grace of an audit loop that has just connected, 60 s, or the lease, 40 s, and the retry."""


def say(cell: Cell, got: Got, word: str, body: Any = None) -> httpx.Response:
    """Say what a handler says, with what its call brought and nothing else."""
    with httpx.Client(base_url=cell.client.base_url, timeout=30) as client:
        headers = {"tocsin-completion-token": got.headers["tocsin-completion-token"]}
        return client.post(f"/v1/runs/{got.run}/{word}", json=body, headers=headers)


def shown(cell: Cell, job_id: str, status: str) -> dict[str, Any]:
    """Wait until the one run of a job is shown with this status."""
    found: dict[str, Any] = {}

    def there() -> bool:
        nonlocal found
        answer = cell.client.get(f"/v1/jobs/{job_id}/runs")
        assert answer.status_code == 200, answer.text
        items = [run for run in answer.json()["items"] if run["status"] == status]
        found = items[0] if items else {}
        return bool(items)

    assert wait_until(there, HISTORY_S), cell.logs()
    return found


def test_work_is_taken_goes_on_without_its_dispatcher_and_is_completed(
    either_cell: Cell, receiver: Receiver
) -> None:
    cell = either_cell
    for role in ("api", "scheduler", "projector"):
        cell.start(role).started()
    dispatcher = cell.start("dispatcher")
    dispatcher.started()
    receiver.answer = lambda _: 202
    receiver.headers = {"Tocsin-Completion": "async"}
    job = cell.define(one_time(receiver, heartbeat_timeout_s=30, max_run_time_s=600))
    (got,) = receiver.wait_for_keys(1)
    assert shown(cell, job["job_id"], "running")["attempts_made"] == 1

    def accepted() -> bool:
        events = cell.client.get(f"/v1/jobs/{job['job_id']}/events?run={got.run}").json()["items"]
        return bool(events) and events[-1]["event"] == "run.accepted.v1"

    assert wait_until(accepted, HISTORY_S), cell.logs()
    dispatcher.kill()
    beat = say(cell, got, "heartbeat", {"progress": 30, "note": "page 3"})
    assert (beat.status_code, beat.json()["status"]) == (200, "running")
    said = say(cell, got, "complete", {"result": {"rows": 3}})
    assert (said.status_code, said.json()["status"]) == (200, "succeeded")
    assert say(cell, got, "complete", {"result": {"rows": 3}}).json() == said.json()
    assert say(cell, got, "heartbeat").status_code == 409

    run = shown(cell, job["job_id"], "succeeded")
    (attempt,) = run["attempts"]
    assert (attempt["status"], attempt["outcome"], attempt["attempt"]) == (202, "ok", 1)
    assert attempt["body"].replace(" ", "") == '{"rows":3}'
    wrong = httpx.post(
        f"{cell.client.base_url}/v1/runs/{got.run}/complete",
        headers={"tocsin-completion-token": "x"},
    )
    assert wrong.status_code == 404
    assert len(receiver.got) == 1


def test_a_handler_that_falls_silent_is_followed_by_another_attempt_and_then_refused(
    module_cell: Cell, receiver: Receiver
) -> None:
    cell = module_cell
    for role in ("api", "scheduler", "dispatcher", "projector"):
        cell.start(role).started()
    receiver.answer = lambda _: 202
    receiver.headers = {"Tocsin-Completion": "async"}
    job = cell.define(one_time(receiver, heartbeat_timeout_s=30))
    (first,) = receiver.wait(lambda got: len(got) >= 1)
    _, second = receiver.wait(lambda got: len(got) >= 2, LAPSE_S)
    assert (first.run, first.key) == (second.run, second.key)
    assert second.headers["tocsin-possible-duplicate"] == "true"
    for word in ("complete", "fail", "heartbeat"):
        late = say(cell, first, word)
        assert (late.status_code, late.json()["type"]) == (409, "/problems/superseded")
    gave_up = say(cell, second, "fail", {"reason": "disk full", "retry": False})
    assert (gave_up.status_code, gave_up.json()["status"]) == (200, "dead")
    run = shown(cell, job["job_id"], "dead")
    outcomes = [(attempt["outcome"], attempt["error"]) for attempt in run["attempts"]]
    assert outcomes == [("lost", "heartbeat"), ("failed", "handler")]
    assert (run["cause"], run["attempts"][-1]["body"]) == ("handler", "disk full")
