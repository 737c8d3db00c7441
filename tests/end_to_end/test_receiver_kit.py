"""Tocsin fires at a service that has the receiver kit: both sides as they are run."""

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commandside import fault_points
from infra.embedded.processes import wait_until
from tests.end_to_end.cell import Cell
from tests.receiver.calls import OTHER_SECRET
from tests.receiver.example_run import Example, started

DIES_S = 60.0
ENDS_S = 90.0


@pytest.fixture(scope="module")
def served(module_cell: Cell) -> Cell:
    """A cell without a dispatcher."""
    for role in ("api", "scheduler", "projector"):
        module_cell.start(role).started()
    return module_cell


@pytest.fixture
def service(served: Cell, tmp_path: Path) -> Iterator[Example]:
    """The plain example of the kit, with the secret that Tocsin shows to its tenant."""
    (key,) = served.client.get("/v1/signing-keys").json()["items"]
    with started("asgi_app", tmp_path, key["secret"]) as found:
        yield found


def fired(cell: Cell, url: str) -> str:
    """Define a job that is due now, and return its id."""
    job = {
        "type": "one_time",
        "run_at": dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds"),
        "target": {"kind": "http", "url": url, "method": "POST"},
        "payload": {"report": "daily"},
        "retry": {"base_s": 1},
    }
    job_id: str = cell.define(job)["job_id"]
    return job_id


def ended(cell: Cell, job_id: str, status: str) -> list[dict[str, Any]]:
    """Wait until the job's only run ended so, and return its attempts, oldest first."""
    runs: list[dict[str, Any]] = []

    def there() -> bool:
        nonlocal runs
        runs = cell.client.get(f"/v1/jobs/{job_id}/runs").json()["items"]
        return [run["status"] for run in runs] == [status]

    assert wait_until(there, ENDS_S), (runs, cell.logs())
    attempts: list[dict[str, Any]] = runs[0]["attempts"]
    return attempts


def test_a_call_is_verified_and_handled(served: Cell, service: Example) -> None:
    dispatcher = served.start("dispatcher").started()
    job_id = fired(served, service.url)
    (attempt,) = ended(served, job_id, "succeeded")
    assert attempt["status"] == 200
    said = json.loads(attempt["body"])
    assert said["key"].startswith(f"job-{job_id}-run-")
    assert said["done_in_attempt"] == 1
    assert dispatcher.stop() == 0


def test_a_service_with_another_secret_refuses_the_call(served: Cell, tmp_path: Path) -> None:
    dispatcher = served.start("dispatcher").started()
    with started("asgi_app", tmp_path, OTHER_SECRET) as stranger:
        (attempt,) = ended(served, fired(served, stranger.url), "dead")
    assert attempt["status"] == 401
    assert json.loads(attempt["body"])["title"] == "forged"
    assert dispatcher.stop() == 0


def test_a_call_that_is_repeated_after_a_crash_is_not_handled_again(
    served: Cell, service: Example
) -> None:
    doomed = served.start("dispatcher", fault_points.ANSWERED_NOT_REPORTED).started()
    job_id = fired(served, service.url)
    assert doomed.died(DIES_S), doomed.text
    dispatcher = served.start("dispatcher").started()
    attempts = ended(served, job_id, "succeeded")
    assert [attempt["attempt"] for attempt in attempts] == [1, 2]
    assert attempts[1]["status"] == 200
    # Attempt 2 is told what attempt 1 did.
    assert json.loads(attempts[1]["body"])["done_in_attempt"] == 1
    assert dispatcher.stop() == 0
