"""Defining a job over HTTP."""

from tests.api.world import JOB, World


def test_the_form_of_the_original_design_works_verbatim(world: World) -> None:
    found = world.send("POST", "/v1/jobs", JOB)
    answer = found.json()
    assert found.status_code == 201, found.text
    assert found.headers["location"] == f"/v1/jobs/{answer['job_id']}"
    assert answer["status"] == "active"
    assert answer["next_run_at"] == "2025-11-30T01:00:00.000Z"
    assert answer["next_runs"][:2] == ["2025-11-30T01:00:00.000Z", "2025-11-30T02:00:00.000Z"]
    assert len(answer["next_runs"]) == 5


def test_every_answer_has_a_request_id(world: World) -> None:
    good = world.send("POST", "/v1/jobs", JOB)
    bad = world.send("POST", "/v1/jobs", b"{")
    assert good.headers["x-request-id"]
    assert bad.json()["request_id"] == bad.headers["x-request-id"]
