"""Slots that a pause has missed are run afterwards, each once and under its own key."""

import datetime as dt
from typing import Any, Final

from infra.embedded.processes import wait_until
from tests.end_to_end.cell import Cell
from tests.end_to_end.receiver import Receiver, keys_of_runs
from tests.end_to_end.test_first_fire import run_of_history

MINUTE_S: Final = 75.0


def minutely(receiver: Receiver) -> dict[str, Any]:
    """Return a job that calls the receiver with every minute."""
    return {
        "type": "recurring",
        "schedule": "* * * * *",
        "timezone": "UTC",
        "target": {"kind": "http", "url": f"{receiver.url}/run", "method": "POST"},
        "payload": {"a": 1},
        "idempotency_key_template": "job-{job_id}-run-{scheduled_ts}",
    }


def test_missed_slots_run_once_each_with_the_keys_that_they_would_have_had(
    module_cell: Cell, receiver: Receiver
) -> None:
    cell = module_cell
    for role in ("api", "scheduler", "dispatcher", "projector"):
        cell.start(role).started()
    began = dt.datetime.now(dt.UTC)
    job = cell.define(minutely(receiver))
    path = f"/v1/jobs/{job['job_id']}"
    assert cell.client.post(f"{path}/pause").status_code == 200
    second = dt.datetime.fromisoformat(job["next_runs"][1])
    assert wait_until(lambda: dt.datetime.now(dt.UTC) > second, 2 * MINUTE_S)
    assert cell.client.post(f"{path}/resume", json={"catch_up": "none"}).status_code == 200
    # The chain is sent far away, so that all that comes is the backfill.
    far = cell.client.patch(path, json={"schedule": "0 0 1 1 *"})
    assert far.status_code == 200, far.text
    asked = {"from": began.isoformat(timespec="milliseconds"), "to": job["next_runs"][1]}
    dry = cell.client.post(f"{path}/backfill", json={**asked, "dry_run": True})
    assert dry.status_code == 200, dry.text
    assert receiver.got == []
    answer = cell.client.post(
        f"{path}/backfill", json=asked, headers={"idempotency-key": "what was missed"}
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["backfill"]["runs"] == 2
    assert dry.json()["backfill"] | {"dry_run": False} == answer.json()["backfill"]
    slots = [dt.datetime.fromisoformat(text) for text in job["next_runs"][:2]]
    keys = [f"job-{job['job_id']}-run-{int(slot.timestamp()) * 1_000}" for slot in slots]
    got = receiver.wait_for_keys(2)
    assert [one.key for one in got] == keys
    runs = run_of_history(cell, job["job_id"], 2)
    assert [run["kind"] for run in runs] == ["backfill", "backfill"]
    again = cell.client.post(
        f"{path}/backfill", json=asked, headers={"idempotency-key": "what was missed"}
    )
    assert again.json() == answer.json()
    more = cell.client.post(f"{path}/backfill", json=asked).json()["backfill"]
    assert (more["succeeded"], more["runs"]) == (2, 0)
    assert "backfill" not in cell.client.get(path).json()
    rerun = cell.client.post(f"{path}/backfill", json={**asked, "rerun": True}).json()["backfill"]
    assert rerun["runs"] == 2
    got = receiver.wait_for_keys(4)
    assert len(got) == 4
    for one, key in zip(got[2:], keys, strict=True):
        assert one.key.startswith(f"{key}-m-")
    assert all(len(each) == 1 for each in keys_of_runs(got).values())
