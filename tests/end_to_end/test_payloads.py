"""Large payloads on real engines: from the store to the target, byte for byte."""

import base64
import datetime as dt
import os
import random
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from commandside import fault_points
from infra.embedded.processes import wait_until
from tests.end_to_end.cell import Cell
from tests.end_to_end.receiver import Receiver

MIB = 1024 * 1024
HISTORY_S = 30.0


@pytest.fixture(scope="module")
def cell(module_cell: Cell) -> Cell:
    for role in ("api", "scheduler", "dispatcher", "projector"):
        module_cell.start(role).started()
    return module_cell


def job(receiver: Receiver, body: bytes, **more: Any) -> dict[str, Any]:
    at = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=2)
    return {
        "type": "one_time",
        "run_at": at.isoformat(timespec="milliseconds"),
        "target": {"kind": "http", "url": f"{receiver.url}/{random.randrange(10**9)}"},
        "payload_base64": base64.b64encode(body).decode(),
    } | more


def runs(cell: Cell, job_id: str, status: str) -> list[dict[str, Any]]:
    """Wait until the history has the ended run of a job."""
    found: list[dict[str, Any]] = []

    def there() -> bool:
        nonlocal found
        answer = cell.client.get(f"/v1/jobs/{job_id}/runs")
        assert answer.status_code == 200, answer.text
        found = [run for run in answer.json()["items"] if run["status"] == status]
        return bool(found)

    assert wait_until(there, HISTORY_S), cell.logs()
    return found


def objects(cell: Cell) -> set[Path]:
    """Return the files that are objects: their names are hashes."""
    return {path for path in cell.payloads.rglob("*") if len(path.name) == 64}


def stored(cell: Cell, receiver: Receiver, body: bytes) -> tuple[str, Path]:
    """Define a job with a large body; return its id and its object."""
    before = objects(cell)
    answer = cell.define(job(receiver, body))
    (path,) = objects(cell) - before
    return answer["job_id"], path


def test_a_mebibyte_reaches_the_target_byte_for_byte(cell: Cell, receiver: Receiver) -> None:
    bodies = [os.urandom(MIB), os.urandom(16 * 1024 + 1), os.urandom(16 * 1024)]
    before = objects(cell)
    answers = [cell.define(job(receiver, body)) for body in bodies]
    got = receiver.wait_for_keys(3)
    by_job = {one.headers["tocsin-job-id"]: one for one in got}
    assert [by_job[answer["job_id"]].body for answer in answers] == bodies
    sizes = [path.stat().st_size for path in objects(cell) - before]
    # Sealed: a header of 15 bytes and a tag of 16 more.
    assert sorted(sizes) == [16 * 1024 + 32, MIB + 31]
    shown = cell.client.get(f"/v1/jobs/{answers[0]['job_id']}").json()
    assert base64.b64decode(shown["spec"]["payload_base64"]) == bodies[0]


def test_what_is_missing_or_altered_is_a_dead_letter_and_what_is_away_is_sent_when_it_is_back(
    cell: Cell, receiver: Receiver
) -> None:
    gone, path = stored(cell, receiver, os.urandom(20_000))
    path.unlink()
    altered, path = stored(cell, receiver, os.urandom(20_000))
    path.write_bytes(b"?" * path.stat().st_size)
    for job_id, reason in ((gone, "payload_missing"), (altered, "payload_altered")):
        (run,) = runs(cell, job_id, "dead")
        assert [attempt["error"] for attempt in run["attempts"]] == [reason]
    assert receiver.got == []

    body = os.urandom(20_000)
    late = cell.define(job(receiver, body))
    elsewhere = cell.payloads.with_name("elsewhere")
    cell.payloads.rename(elsewhere)
    refused = cell.client.post("/v1/jobs", json=job(receiver, body))
    small = cell.define(job(receiver, b"small"))
    (arrived,) = receiver.wait_for_keys(1)
    assert (arrived.headers["tocsin-job-id"], arrived.body) == (small["job_id"], b"small")
    assert wait_until(lambda: abandoned(cell, late["job_id"]), HISTORY_S), cell.logs()
    elsewhere.rename(cell.payloads)
    got = receiver.wait_for_keys(2)
    assert {one.body for one in got} == {b"small", body}
    assert refused.status_code == 503
    assert "cannot be stored now" in refused.json()["detail"]


def abandoned(cell: Cell, job_id: str) -> bool:
    """Tell whether an attempt was given back because its payload could not be read."""
    items = cell.client.get(f"/v1/jobs/{job_id}/runs").json()["items"]
    errors = {attempt["error"] for run in items for attempt in run["attempts"]}
    return "payload_unavailable" in errors


@pytest.mark.parametrize("point", [fault_points.PAYLOAD_NOTED, fault_points.PAYLOAD_WRITTEN])
def test_an_api_that_dies_between_an_object_and_its_event_leaves_nothing_for_ever(
    cell: Cell, receiver: Receiver, point: str
) -> None:
    before = objects(cell)
    cell.replace("api", point)
    with pytest.raises(httpx.HTTPError):
        cell.client.post("/v1/jobs", json=job(receiver, os.urandom(20_000)))
    assert len(objects(cell) - before) == (point == fault_points.PAYLOAD_WRITTEN)
    left = age_what_is_listed(cell)
    # The collector looks when an API starts; it dies once more, between deletion and list.
    died = cell.start("api", fault_points.PAYLOAD_DELETED)
    assert died.died()
    assert objects(cell) == before
    age_what_is_listed(cell)
    cell.replace("api")
    assert wait_until(lambda: listed(cell) < left, HISTORY_S), cell.logs()
    assert objects(cell) == before


def age_what_is_listed(cell: Cell) -> int:
    """Let the time come to look at every object; return how many are listed."""
    with psycopg.connect(cell.engines.postgres) as connection:
        connection.execute("update payload_objects set look_at = 0")
    return listed(cell)


def listed(cell: Cell) -> int:
    with psycopg.connect(cell.engines.postgres) as connection:
        row = connection.execute("select count(*) from payload_objects").fetchone()
    assert row is not None
    return int(row[0])
