"""A tenant's key is destroyed under a running installation: its data are gone, all else goes on."""

from typing import Any

import httpx
import psycopg

from infra.embedded.processes import wait_until
from tests.end_to_end.cell import Cell
from tests.end_to_end.receiver import Receiver

SHOWN_S = 60.0
ROLES = ("api", "scheduler", "dispatcher", "projector")


def yearly(receiver: Receiver, name: str, **more: Any) -> dict[str, Any]:
    """Return a job that fires when it is triggered, and whose failures end it at once."""
    return {
        "type": "recurring",
        "schedule": "0 0 1 1 *",
        "timezone": "UTC",
        "name": name,
        "target": {"kind": "http", "url": f"{receiver.url}/{name}", "method": "POST"},
        "retry": {"max_attempts": 1},
        **more,
    }


def ends(client: httpx.Client, job: str, count: int) -> list[tuple[str, str | None]]:
    """Return status and error of the triggered runs of a job, the newest first."""
    found: list[tuple[str, str | None]] = []

    def ended() -> bool:
        items = client.get(f"/v1/jobs/{job}/runs").json()["items"]
        found[:] = [
            (item["status"], item["attempts"][-1]["error"] if item["attempts"] else None)
            for item in items
            if item["kind"] == "manual" and item["ended_at"]
        ]
        return len(found) >= count

    assert wait_until(ended, SHOWN_S), found
    return found


def test_an_erased_tenants_runs_end_dead_with_a_reason_and_others_fire_on(
    module_cell: Cell, receiver: Receiver
) -> None:
    cell = module_cell
    for role in ROLES:
        cell.start(role).started()
    gone, other = (
        cell.client,
        httpx.Client(
            base_url=cell.client.base_url,
            headers={"authorization": f"Bearer {cell.key_of('other')}"},
            timeout=30,
        ),
    )
    with other:
        _erased(cell, receiver, gone, other)


def _erased(cell: Cell, receiver: Receiver, gone: httpx.Client, other: httpx.Client) -> None:
    jobs = {}
    for client, name in ((gone, "gone"), (other, "kept")):
        for kind, body in (("sealed", {"payload": {"of": name}}), ("bare", {})):
            made = client.post("/v1/jobs", json=yearly(receiver, f"{name}-{kind}", **body))
            assert made.status_code == 201, made.text
            jobs[name, kind] = made.json()["job_id"]

    def trigger(client: httpx.Client, job: str) -> None:
        answer = client.post(f"/v1/jobs/{job}/trigger")
        assert answer.status_code == 200, answer.text

    def fire() -> None:
        for (name, _), job in jobs.items():
            trigger(gone if name == "gone" else other, job)

    fire()
    receiver.wait_for_keys(4)
    for (name, _), job in jobs.items():
        assert ends(gone if name == "gone" else other, job, 1) == [("succeeded", None)]

    said = cell.tocsin("keys", "erase", "--tenant", "acme", "--yes")
    assert "destroyed" in said
    with psycopg.connect(cell.engines.postgres) as connection:
        left = connection.execute(
            "select count(*) from tenant_keys join tenants using (tenant_id) where name = 'acme'"
        ).fetchone()
    assert left == (0,)

    # Processes that have its key in memory know within ten seconds; new ones know at once.
    cell.restart("dispatcher")
    cell.restart("api")
    fire()
    for kind in ("sealed", "bare"):
        assert ends(gone, jobs["gone", kind], 2)[0] == ("dead", "key_gone")
        assert ends(other, jobs["kept", kind], 2)[0] == ("succeeded", None)
    assert {one.path for one in receiver.got[4:]} == {"/kept-sealed", "/kept-bare"}

    letters = gone.get("/v1/dead-letters").json()["items"]
    assert {(one["job_id"], one["attempts"][0]["error"]) for one in letters} == {
        (jobs["gone", "sealed"], "key_gone"),
        (jobs["gone", "bare"], "key_gone"),
    }
    shown = gone.get(f"/v1/jobs/{jobs['gone', 'sealed']}").json()
    assert shown["spec"]["payload_erased"] is True
    assert len(gone.get("/v1/jobs").json()["items"]) == 2
    again = gone.post("/v1/jobs", json=yearly(receiver, "new", payload=1))
    assert (again.status_code, again.json()["type"]) == (403, "/problems/forbidden")
    paused = gone.post(f"/v1/jobs/{jobs['gone', 'sealed']}/pause")
    assert paused.status_code == 200
    assert gone.delete(f"/v1/jobs/{jobs['gone', 'bare']}").status_code == 200

    # Views need no payload: they are built anew from the log that nobody can read any more.
    for view in ("run_history", "job_board"):
        assert "built anew" in cell.tocsin("projector", "--rebuild", view)
    assert ends(gone, jobs["gone", "sealed"], 2)[0] == ("dead", "key_gone")
    assert len(gone.get("/v1/jobs").json()["items"]) == 2
    assert ends(other, jobs["kept", "sealed"], 2)[0] == ("succeeded", None)
    with psycopg.connect(cell.engines.postgres) as connection:
        parked = connection.execute("select count(*) from parked_events").fetchone()
    assert parked == (0,)

    # And another master key changes nothing for either.
    said = cell.tocsin("keys", "rotate")
    assert "wrapped anew" in said
    trigger(other, jobs["kept", "sealed"])
    assert ends(other, jobs["kept", "sealed"], 3)[0] == ("succeeded", None)
    cell.restart("dispatcher")
    trigger(other, jobs["kept", "sealed"])
    assert ends(other, jobs["kept", "sealed"], 4)[0] == ("succeeded", None)
