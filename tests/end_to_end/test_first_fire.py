"""From a definition over HTTP to a call at a socket, the run history, and the next occurrence."""

import datetime as dt
import json
from typing import Any

from standardwebhooks import Webhook

from infra.embedded.processes import wait_until
from tests.end_to_end.cell import Cell
from tests.end_to_end.receiver import Receiver

FIRE_S = 75.0
HISTORY_S = 20.0


def run_of_history(cell: Cell, job_id: str, number: int) -> list[dict[str, Any]]:
    """Wait until the history has so many ended runs of a job, and return them, newest first."""
    found: list[dict[str, Any]] = []

    def there() -> bool:
        nonlocal found
        answer = cell.client.get(f"/v1/jobs/{job_id}/runs")
        assert answer.status_code == 200, answer.text
        found = [run for run in answer.json()["items"] if run["status"] == "succeeded"]
        return len(found) >= number

    assert wait_until(there, HISTORY_S), cell.logs()
    return found


def test_a_job_of_the_original_design_fires_with_its_headers_and_plans_its_next_occurrence(
    either_cell: Cell, receiver: Receiver
) -> None:
    cell = either_cell
    for role in ("api", "scheduler", "dispatcher", "projector"):
        cell.start(role).started()
    payload = {"report": "daily", "rows": [1, 2, 3]}
    job = cell.define(
        {
            "type": "recurring",
            "schedule": "*/1 * * * *",
            "timezone": "America/New_York",
            "target": {
                "kind": "http",
                "url": f"{receiver.url}/report?x=1",
                "method": "POST",
                "headers": {"X-Team": "billing"},
            },
            "payload": payload,
            "retry": {"max_attempts": 5, "backoff": "exponential"},
            "idempotency_key_template": "job-{job_id}-run-{scheduled_ts}",
        }
    )
    first = receiver.wait_for_keys(1, FIRE_S)[0]

    (signing,) = cell.client.get("/v1/signing-keys").json()["items"]
    Webhook(signing["secret"]).verify(first.body, first.headers)
    assert first.method == "POST"
    assert first.path == "/report?x=1"
    assert json.loads(first.body) == payload
    assert first.headers["content-type"] == "application/json"
    assert first.headers["x-team"] == "billing"
    assert first.headers["user-agent"].startswith("Tocsin/")
    nominal_ms = int(first.key.rpartition("-run-")[2])
    assert first.key == f"job-{job['job_id']}-run-{nominal_ms}"
    assert nominal_ms % 60_000 == 0
    assert first.at_ms >= nominal_ms
    assert first.headers["webhook-id"] == first.key
    assert abs(int(first.headers["webhook-timestamp"]) * 1000 - first.at_ms) < 5_000
    assert first.headers["tocsin-job-id"] == job["job_id"]
    assert first.headers["tocsin-attempt"] == "1"
    assert int(first.headers["tocsin-fence"]) >= 1
    assert "tocsin-possible-duplicate" not in first.headers

    (run,) = run_of_history(cell, job["job_id"], 1)
    assert run["run_id"] == first.run
    assert [attempt["status"] for attempt in run["attempts"]] == [200]
    after = cell.client.get(f"/v1/jobs/{job['job_id']}").json()
    assert after["status"] == "active"
    assert after["next_run_at"] > job["next_run_at"]


def test_a_failing_target_is_called_again_with_the_same_key_until_it_takes_it(
    either_cell: Cell, receiver: Receiver
) -> None:
    cell = either_cell
    for role in ("api", "scheduler", "dispatcher", "projector"):
        cell.start(role).started()
    receiver.answer = lambda got: 503 if got.headers["tocsin-attempt"] in "12" else 200
    job = cell.define(one_time(receiver, retry={"max_attempts": 5, "base_s": 1}))
    got = receiver.wait(lambda got: len(got) >= 3)
    assert len({one.key for one in got}) == 1
    assert [one.headers["tocsin-attempt"] for one in got] == ["1", "2", "3"]
    fences = [int(one.headers["tocsin-fence"]) for one in got]
    assert fences == sorted(set(fences))
    (run,) = run_of_history(cell, job["job_id"], 1)
    assert [attempt["status"] for attempt in run["attempts"]] == [503, 503, 200]


def one_time(receiver: Receiver, **more: Any) -> dict[str, Any]:
    """A job due now."""
    return {
        "type": "one_time",
        "run_at": dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds"),
        "target": {"kind": "http", "url": f"{receiver.url}/once", "method": "POST"},
        "payload": {"a": 1},
    } | more


def test_a_fixed_delay_counts_from_the_end_of_the_run_before(
    either_cell: Cell, receiver: Receiver
) -> None:
    cell = either_cell
    for role in ("api", "scheduler", "dispatcher", "projector"):
        cell.start(role).started()
    receiver.answer = lambda got: 503 if got.headers["tocsin-attempt"] == "1" else 200
    job = cell.define(
        {
            "type": "recurring",
            "every": "PT1M",
            "from": "completion",
            "target": {"kind": "http", "url": f"{receiver.url}/next", "method": "POST"},
            "retry": {"max_attempts": 3, "backoff": "fixed", "base_s": 2, "jitter": "none"},
        }
    )
    first, *_ = receiver.wait_for_keys(1, FIRE_S)
    nominal_ms = int(first.key.rpartition("-")[2])
    assert nominal_ms - _ms(job["at"]) == 60_000
    (run,) = run_of_history(cell, job["job_id"], 1)
    assert [attempt["status"] for attempt in run["attempts"]] == [503, 200]
    after = cell.client.get(f"/v1/jobs/{job['job_id']}").json()
    assert _ms(after["next_run_at"]) == _ms(run["ended_at"]) + 60_000
    assert after["next_runs"] == [after["next_run_at"]]


def _ms(text: str) -> int:
    return round(dt.datetime.fromisoformat(text).timestamp() * 1000)
