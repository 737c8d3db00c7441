"""A run that a receiver refused is redriven when it works again: the same key, the same body."""

from typing import Any

import httpx

from infra.embedded.processes import wait_until
from tests.end_to_end.cell import Cell
from tests.end_to_end.receiver import Got, Receiver

SHOWN_S = 30.0


def refused(receiver: Receiver, name: str) -> dict[str, Any]:
    """Return a job that fires now, and dies with its first failure."""
    return {
        "type": "recurring",
        "schedule": "0 0 1 1 *",
        "timezone": "UTC",
        "name": name,
        "labels": {"order": name},
        "target": {"kind": "http", "url": f"{receiver.url}/{name}", "method": "POST"},
        "payload": {"order": name},
        "retry": {"max_attempts": 1},
        "idempotency_key_template": "job-{job_id}-run-{scheduled_ts}",
    }


def dead_letters(cell: Cell, count: int) -> list[dict[str, Any]]:
    """Return the dead letters, when there are so many."""
    found: list[dict[str, Any]] = []

    def listed() -> bool:
        answer = cell.client.get("/v1/dead-letters")
        if answer.status_code == 200:
            found[:] = answer.json()["items"]
        return len(found) >= count

    assert wait_until(listed, SHOWN_S), found
    return found


def test_what_a_receiver_refused_comes_again_with_its_key_and_body(
    module_cell: Cell, receiver: Receiver
) -> None:
    cell = module_cell
    for role in ("api", "scheduler", "dispatcher"):
        cell.start(role).started()
    projector = cell.start("projector").started()
    receiver.answer = lambda _: 503
    jobs = [cell.define(refused(receiver, name))["job_id"] for name in ("a", "b", "c")]
    for job in jobs:
        assert cell.client.post(f"/v1/jobs/{job}/trigger").status_code == 200
    first = {one.path: one for one in receiver.wait_for_keys(3)}
    letters = dead_letters(cell, 3)
    assert {letter["job_id"] for letter in letters} == set(jobs)
    assert all(letter["attempts"][0]["status"] == 503 for letter in letters)

    def labelled() -> bool:
        # The board, on which the labels are, is another view than the history.
        asked = cell.client.get("/v1/dead-letters", params={"label": "order:b"})
        return [letter["job_id"] for letter in asked.json()["items"]] == [jobs[1]]

    assert wait_until(labelled, SHOWN_S)
    for letter in letters:
        alone = cell.client.get(f"/v1/runs/{letter['run_id']}")
        assert alone.json() == letter, "the log and its copy tell the same"
    figures = httpx.get(f"{projector.ops}/metrics").text
    assert 'tocsin_dead_letters_total{role="projector"} 3.0' in figures

    receiver.answer = lambda _: 200
    for job in jobs:
        edit = {"payload": {"order": "edited"}, "target": {"url": f"{receiver.url}/moved"}}
        found = cell.client.patch(
            f"/v1/jobs/{job}", json=edit, headers={"content-type": "application/merge-patch+json"}
        )
        assert found.status_code == 200, found.text

    one = next(letter for letter in letters if letter["job_id"] == jobs[0])
    answer = cell.client.post(f"/v1/runs/{one['run_id']}/redrive", json={"reason": "up again"})
    assert answer.status_code == 200, answer.text
    got = receiver.wait(lambda got: len(got) >= 4)
    _same(got[3], first["/a"], answer.json()["run_id"])

    dry = cell.client.post("/v1/dead-letters/redrive", json={"dry_run": True})
    assert (dry.json()["found"], dry.json()["runs"]) == (2, 2)
    for _ in range(2):
        many = cell.client.post(
            "/v1/dead-letters/redrive", json={"per_second": 5}, headers={"idempotency-key": "rest"}
        )
        assert many.status_code == 200, many.text
        assert many.json() == {**dry.json(), "dry_run": False, "seconds": many.json()["seconds"]}
    got = receiver.wait(lambda got: len(got) >= 6)
    assert {one.key for one in got[3:]} == {one.key for one in first.values()}
    assert {one.body for one in got[3:]} == {one.body for one in first.values()}
    assert len(got) == 6

    def succeeded() -> bool:
        shown = cell.client.get("/v1/dead-letters").json()["items"]
        return [one["redriven_by"]["status"] for one in shown] == ["succeeded"] * 3

    assert wait_until(succeeded, SHOWN_S)

    def linked() -> bool:
        runs = cell.client.get(f"/v1/jobs/{jobs[0]}/runs").json()["items"]
        of = [(each["redrive_of"], each["status"]) for each in runs if each["kind"] == "redrive"]
        return of == [(one["run_id"], "succeeded")]

    assert wait_until(linked, SHOWN_S)


def _same(again: Got, before: Got, run: str) -> None:
    """Tell that a call is another run of the same occurrence, at the target of today."""
    assert (again.key, again.body) == (before.key, before.body)
    assert again.run == run != before.run
    assert again.path == "/moved"
