"""One run over HTTP: as its own stream tells it, whatever the views have read."""

from typing import Any

import pytest

from domain.ids import JOB as JOB_ID
from domain.ids import parse
from domain.run.decide import Result
from domain.run.events import FAILED, OK
from domain.tenant import JOBS_READ
from queryside import queries
from tests.api.test_queries import fire, lease
from tests.api.world import JOB, World

DOWN = Result(FAILED, "retry", 503, body=b"down")
RETRIED: dict[str, Any] = {
    **JOB,
    "timezone": "UTC",
    "retry": {"max_attempts": 3, "backoff": "fixed", "base_s": 5, "jitter": "none"},
}


@pytest.fixture
def job(world: World) -> str:
    """A job whose first run is due."""
    found: str = world.define(RETRIED)["job_id"]
    world.clock.advance_ms(3_600_000 + 5_000)
    return found


def newest(world: World, job: str) -> str:
    """Return the id of the newest open run of a job."""
    raw = parse(JOB_ID, job)
    assert raw is not None
    (run,) = world.log.runs_of(raw)
    return f"rn_{run.facts.run_id.hex()}"


def shown(world: World, run: str) -> dict[str, Any]:
    """Return a run."""
    found = world.send("GET", f"/v1/runs/{run}")
    assert found.status_code == 200, found.text
    answer: dict[str, Any] = found.json()
    return answer


def test_a_run_is_shown_in_every_state_before_any_view_has_read_of_it(
    world: World, job: str
) -> None:
    run = newest(world, job)
    planned = shown(world, run)
    assert (planned["job_id"], planned["status"], planned["attempts"]) == (job, "scheduled", [])
    lease(world)
    assert shown(world, run)["status"] == "running"
    world.clock.advance_ms(120_000)


def test_a_dead_run_shows_every_attempt_and_until_when_it_can_be_redriven(
    world: World, job: str
) -> None:
    run = newest(world, job)
    for attempt in (1, 2):
        fire(world, DOWN)
        waiting = shown(world, run)
        assert (waiting["status"], len(waiting["attempts"])) == ("waiting", attempt)
        assert "redrivable_until" not in waiting
        world.clock.advance_ms(5_000)
    fire(world, DOWN)
    dead = shown(world, run)
    assert (dead["status"], dead["verdict"], dead["cause"]) == ("dead", "dead", "attempts")
    assert [(one["attempt"], one["status"], one["body"]) for one in dead["attempts"]] == [
        (n, 503, "down") for n in (1, 2, 3)
    ]
    assert dead["redrivable_until"] > dead["ended_at"]
    world.project()
    (listed,) = world.send("GET", "/v1/dead-letters").json()["items"]
    assert listed == dead, "the log and its copy tell the same"


def test_a_run_that_succeeded_equals_its_row_of_the_history(world: World, job: str) -> None:
    run = newest(world, job)
    fire(world, Result(OK, "ok", 200, body=b"fine"))
    world.project()
    runs = world.send("GET", f"/v1/jobs/{job}/runs").json()["items"]
    (row,) = [each for each in runs if each["run_id"] == run]
    assert shown(world, run) == row | {"job_id": job}


def test_a_redrive_and_the_dead_run_name_each_other(world: World, job: str) -> None:
    run = newest(world, job)
    for _ in range(3):
        fire(world, DOWN)
        world.clock.advance_ms(5_000)
    again = world.send("POST", f"/v1/runs/{run}/redrive").json()["run_id"]
    assert shown(world, run)["redriven_by"] == {"run_id": again, "status": "scheduled"}
    assert shown(world, again)["redrive_of"] == run


def test_a_withheld_run_and_a_cancelled_one_are_shown(world: World, job: str) -> None:
    run = newest(world, job)
    world.send("POST", f"/v1/jobs/{job}/pause")
    assert shown(world, run)["status"] == "withdrawn"
    world.send("DELETE", f"/v1/jobs/{job}")
    assert shown(world, run)["status"] == "cancelled"


def test_a_run_of_another_tenant_is_absent_like_one_that_never_was(world: World, job: str) -> None:
    run = newest(world, job)
    for path, key in (
        (run, world.other_key),
        ("rn_" + "0" * 32, world.key),
        ("rn_0", world.key),
        ("rn_" + job.removeprefix("jb_"), world.key),
        (job, world.key),
    ):
        found = world.send("GET", f"/v1/runs/{path}", key=key)
        assert (found.status_code, found.json()["type"]) == (404, "/problems/absent"), path


def test_the_scope_of_runs_is_needed(world: World, job: str) -> None:
    key = world.add_key(b"t" * 16, (JOBS_READ,))
    assert world.send("GET", f"/v1/runs/{newest(world, job)}", key=key).status_code == 403


def test_a_process_without_lists_answers_a_run() -> None:
    world = World(query=False)
    world.clock.advance_ms(0)
    job = world.define(RETRIED)["job_id"]
    assert shown(world, newest(world, job))["status"] == "scheduled"


def test_a_run_that_ends_while_it_is_read_is_read_again(
    world: World, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = newest(world, job)
    told = world.commands.told
    ended: list[bool] = []

    async def ends_after(*asked: Any) -> Any:
        found = await told(*asked)
        if not ended:
            ended.append(True)
            fire(world, Result(OK, "ok", 200))
        return found

    monkeypatch.setattr(world.commands, "told", ends_after)
    assert shown(world, run)["status"] == "succeeded"


def test_a_run_that_cannot_be_read_whole_is_503(
    world: World, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = newest(world, job)
    fire(world, DOWN)
    monkeypatch.setattr(queries, "_line", lambda *_: None)
    assert world.send("GET", f"/v1/runs/{run}").status_code == 503
