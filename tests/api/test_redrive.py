"""Dead letters over HTTP: what is listed, redriven and refused, and what a repeat answers."""

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from domain.catalogue import DomainEvent
from domain.ids import RUN, parse
from domain.job.redrive import KEPT_MS
from domain.run.decide import Grant, Result, first_lease, report
from domain.run.events import FAILED, OK
from domain.run.state import InFlight, Ready
from domain.schedule.once import read_instant
from queryside import dead_letters
from tests.api.test_queries import fire
from tests.api.world import JOB, World

HOURLY: dict[str, Any] = {**JOB, "retry": {"max_attempts": 1}, "timezone": "UTC"}
HOUR_MS = 3_600_000
DOWN = Result(FAILED, "retry", 503, body=b"down")


def die(world: World, hours: int = 1) -> None:
    """Let each job's next runs end dead."""
    for _ in range(hours):
        world.clock.advance_ms(HOUR_MS)
        fire(world, DOWN)
    world.project()


def letters(world: World, query: str = "", **more: Any) -> list[dict[str, Any]]:
    """Return the dead letters of a filter, the last to end first."""
    found = world.send("GET", f"/v1/dead-letters{query}", **more)
    assert found.status_code == 200, found.text
    items: list[dict[str, Any]] = found.json()["items"]
    return items


def redrive(world: World, body: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Redrive by filter."""
    found = world.send("POST", "/v1/dead-letters/redrive", body, **more)
    assert found.status_code == 200, found.text
    answer: dict[str, Any] = found.json()
    return answer


def fire_redrives(world: World) -> None:
    """Let the redrives that are due succeed: their leases are decided, not granted."""
    session = world.new_id(16)
    world.log.start(session)
    at = world.clock.now()
    for row in [row.run for row in world.log.waking(at) if _is_redrive(row.run)]:
        job, _ = world.log.heads[row.facts.job_id]
        assert isinstance(row, Ready)
        leased = first_lease(job, row, (), at, Grant(session, bytes(8)))
        assert leased is not None
        assert not world.log.append([leased], at).refused
        run = leased.slices[0].after
        assert isinstance(run, InFlight)
        done = report(job, run, run.facts.fence, Result(OK, "ok", 200), at, alone=False)
        assert done is not None
        assert not world.log.append([done], at).refused
    world.project()


@pytest.fixture
def job(world: World) -> str:
    """A job whose first two runs ended dead."""
    found: str = world.define(HOURLY)["job_id"]
    world.clock.advance_ms(30_000)
    die(world, 2)
    return found


def test_a_dead_letter_is_listed_with_its_attempts(world: World, job: str) -> None:
    found = letters(world)
    assert [item["scheduled_for"] for item in found] == [
        "2025-11-30T02:00:00.000Z",
        "2025-11-30T01:00:00.000Z",
    ]
    first = found[1]
    assert (first["job_id"], first["status"], first["cause"]) == (job, "dead", "attempts")
    (attempt,) = first["attempts"]
    assert (attempt["status"], attempt["body"]) == (503, "down")
    assert "redriven_by" not in first


def test_dead_letters_are_filtered_by_job_cause_and_time(world: World, job: str) -> None:
    other = world.define(HOURLY)["job_id"]
    die(world)
    assert {item["job_id"] for item in letters(world)} == {job, other}
    assert len(letters(world, f"?job_id={job}")) == 3
    assert letters(world, "?cause=age") == []
    ended = letters(world, f"?job_id={job}")[1]["ended_at"]
    assert len(letters(world, f"?job_id={job}&since={ended}")) == 2
    assert len(letters(world, f"?job_id={job}&until={ended}")) == 2
    assert len(letters(world, f"?job_id={job}&since={ended}&until={ended}")) == 1


def test_dead_letters_are_filtered_and_redriven_by_the_labels_of_their_jobs(
    world: World, job: str
) -> None:
    labels = {"team": "billing", "tier": "1"}
    other = world.define(HOURLY | {"labels": labels})["job_id"]
    die(world, 2)
    assert {item["job_id"] for item in letters(world)} == {job, other}
    assert [item["job_id"] for item in letters(world, "?label=team:billing")] == [other] * 2
    assert len(letters(world, "?label=team:billing&label=tier:1")) == 2
    assert letters(world, "?label=team:billing&label=tier:2") == []
    assert letters(world, f"?label=team:billing&job_id={job}") == []
    assert letters(world, "?label=team:billing", key=world.other_key) == []
    page = world.send("GET", "/v1/dead-letters?label=team:billing&limit=1").json()
    rest = f"/v1/dead-letters?label=team:billing&limit=1&cursor={page['next_cursor']}"
    assert len(world.send("GET", rest).json()["items"]) == 1
    answer = redrive(world, {"labels": labels})
    assert (answer["found"], answer["runs"], answer["jobs"]) == (2, 2, 1)
    assert redrive(world, {"labels": labels})["found"] == 0
    assert redrive(world, {"labels": {"team": "nobody"}})["found"] == 0
    assert redrive(world, {"dry_run": True})["found"] == 4


def test_a_filter_by_labels_waits_for_the_board_too(
    world: World, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    position = world.define(HOURLY | {"labels": {"team": "billing"}})["position"]
    die(world)
    load = world.positions.load
    asked: list[str] = []

    def noted(view: str) -> dict[int, int]:
        asked.append(view)
        return load(view)

    monkeypatch.setattr(world.positions, "load", noted)
    assert len(letters(world, f"?label=team:billing&position={position}")) == 1
    assert set(asked) == {"job_board", "run_history"}
    asked.clear()
    letters(world, f"?position={position}")
    assert set(asked) == {"run_history"}


def test_a_filter_by_labels_looks_at_so_many_jobs_and_says_so(
    world: World, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "JOBS_MAX", 1)
    world.define(HOURLY | {"labels": {"team": "billing"}})
    die(world)
    for found in (
        world.send("GET", "/v1/dead-letters?label=team:billing"),
        world.send("POST", "/v1/dead-letters/redrive", {"labels": {"team": "billing"}}),
    ):
        assert found.status_code == 422
        assert "shorter time" in found.json()["detail"]


def test_a_dead_letter_ages_out_and_its_run_still_tells(world: World, job: str) -> None:
    second, first = letters(world)
    until = read_instant(first["redrivable_until"])
    assert until == read_instant(first["ended_at"]) + KEPT_MS
    world.clock.advance_ms(until - world.clock.now())
    assert [item["run_id"] for item in letters(world)] == [second["run_id"], first["run_id"]]
    assert redrive(world, {"dry_run": True})["runs"] == 2
    world.clock.advance_ms(1)
    assert [item["run_id"] for item in letters(world)] == [second["run_id"]]
    assert redrive(world, {"dry_run": True})["found"] == 1
    stored = world.stored()
    found = world.send("POST", f"/v1/runs/{first['run_id']}/redrive")
    assert (found.status_code, found.json()["type"]) == (409, "/problems/aged_out")
    assert first["redrivable_until"] in found.json()["detail"]
    assert world.stored() == stored
    run = world.send("GET", f"/v1/runs/{first['run_id']}").json()
    assert (run["status"], run["redrivable_until"]) == ("dead", first["redrivable_until"])
    assert run["attempts"] == first["attempts"]
    assert redrive(world, {})["runs"] == 1


def test_pages_follow_their_cursors_there_and_back(world: World, job: str) -> None:
    die(world, 3)
    whole = [item["run_id"] for item in letters(world)]
    page = world.send("GET", "/v1/dead-letters?limit=2").json()
    assert [item["run_id"] for item in page["items"]] == whole[:2]
    second = world.send("GET", f"/v1/dead-letters?limit=2&cursor={page['next_cursor']}").json()
    assert [item["run_id"] for item in second["items"]] == whole[2:4]
    back = world.send("GET", f"/v1/dead-letters?limit=2&cursor={second['prev_cursor']}").json()
    assert [item["run_id"] for item in back["items"]] == whole[:2]
    foreign = f"/v1/dead-letters?limit=2&job_id={job}&cursor={page['next_cursor']}"
    assert world.send("GET", foreign).status_code == 422, "a cursor is of its filter"


def test_the_dead_letters_of_another_tenant_are_not_there(world: World, job: str) -> None:
    assert letters(world, key=world.other_key) == []
    run = letters(world)[0]["run_id"]
    found = world.send("POST", f"/v1/runs/{run}/redrive", key=world.other_key)
    assert found.status_code == 404
    assert redrive(world, {"job_id": job}, key=world.other_key)["found"] == 0


def test_one_is_redriven_and_both_runs_say_so(world: World, job: str) -> None:
    dead = letters(world)[1]["run_id"]
    found = world.send("POST", f"/v1/runs/{dead}/redrive", {"reason": "it is up again"})
    assert found.status_code == 200, found.text
    answer = found.json()
    assert (answer["redrive_of"], answer["job_id"]) == (dead, job)
    assert answer["scheduled_for"] == "2025-11-30T01:00:00.000Z"
    runs = {run["run_id"]: run for run in world.send("GET", f"/v1/jobs/{job}/runs").json()["items"]}
    again = runs[answer["run_id"]]
    assert (again["kind"], again["status"], again["redrive_of"]) == ("redrive", "scheduled", dead)
    assert runs[dead]["redriven_by"] == {"run_id": answer["run_id"], "status": "scheduled"}
    fire_redrives(world)
    assert letters(world)[1]["redriven_by"] == {"run_id": answer["run_id"], "status": "succeeded"}
    runs = {run["run_id"]: run for run in world.send("GET", f"/v1/jobs/{job}/runs").json()["items"]}
    again = runs[answer["run_id"]]
    assert (again["kind"], again["status"], again["redrive_of"]) == ("redrive", "succeeded", dead)


def test_the_audit_trail_says_who_redrove_what(world: World, job: str) -> None:
    dead = letters(world)[0]["run_id"]
    world.send("POST", f"/v1/runs/{dead}/redrive", {"reason": "it is up again"})
    events = world.send("GET", f"/v1/jobs/{job}/events").json()["items"]
    (asked,) = [event for event in events if event["event"] == "job.redrive-requested.v1"]
    assert asked["actor"]
    assert asked["detail"]["reason"] == "it is up again"
    assert asked["detail"]["redriven"] == [dead]
    assert len(asked["detail"]["runs"]) == 1


def test_a_repeat_is_answered_as_the_first_and_another_body_is_not(world: World, job: str) -> None:
    dead, other = (item["run_id"] for item in letters(world))
    first = world.send("POST", f"/v1/runs/{dead}/redrive", idempotency_key="r")
    assert first.status_code == 200
    stored = world.stored()
    again = world.send("POST", f"/v1/runs/{dead}/redrive", idempotency_key="r")
    assert again.json() == first.json()
    assert world.stored() == stored
    found = world.send("POST", f"/v1/runs/{other}/redrive", idempotency_key="r")
    assert found.json()["type"] == "/problems/body_differs"
    anew = world.send("POST", f"/v1/runs/{dead}/redrive")
    assert (anew.status_code, anew.json()["type"]) == (409, "/problems/redriven")
    assert first.json()["run_id"] in anew.json()["detail"]
    assert world.stored() == stored


def test_a_run_that_is_not_dead_is_refused_with_its_status(world: World, job: str) -> None:
    world.clock.advance_ms(HOUR_MS)
    fire(world, Result(OK, "ok", 200))
    world.project()
    run = world.send("GET", f"/v1/jobs/{job}/runs").json()["items"]
    (done,) = [each["run_id"] for each in run if each["status"] == "succeeded"]
    found = world.send("POST", f"/v1/runs/{done}/redrive")
    assert (found.status_code, found.json()["type"]) == (409, "/problems/not_dead")
    assert "succeeded" in found.json()["detail"]


@pytest.mark.parametrize(("verb", "code"), [("pause", "paused"), ("", "cancelled")])
def test_a_job_that_takes_none_says_why(world: World, job: str, verb: str, code: str) -> None:
    dead = letters(world)[0]["run_id"]
    world.send("POST" if verb else "DELETE", f"/v1/jobs/{job}{'/' if verb else ''}{verb}")
    found = world.send("POST", f"/v1/runs/{dead}/redrive")
    assert (found.status_code, found.json()["type"]) == (409, f"/problems/{code}")
    many = redrive(world, {})
    assert (many["found"], many["runs"], many["more"]) == (2, 0, True)
    assert [(each["job_id"], each["code"]) for each in many["refused"]] == [(job, code)]


def test_a_dry_run_says_the_same_and_writes_nothing(world: World, job: str) -> None:
    stored = world.stored()
    dry = redrive(world, {"job_id": job, "dry_run": True})
    assert world.stored() == stored
    assert (dry["found"], dry["runs"], dry["jobs"], dry["more"]) == (2, 2, 1, False)
    assert dry["first"]["scheduled_for"] == "2025-11-30T01:00:00.000Z"
    assert dry["last"]["scheduled_for"] == "2025-11-30T02:00:00.000Z"
    assert redrive(world, {"job_id": job}) == dry | {"dry_run": False}
    assert redrive(world, {"job_id": job})["found"] == 0


def test_many_are_paced_over_jobs_the_oldest_first(world: World, job: str) -> None:
    world.define(HOURLY)
    die(world)
    answer = redrive(world, {"per_second": 1, "limit": 3})
    assert (answer["found"], answer["runs"], answer["more"]) == (3, 3, True)
    assert answer["seconds"] == 2
    due = sorted(row.run.facts.due_at for row in world.log.due.values() if _is_redrive(row.run))
    assert [at - world.clock.now() for at in due] == [0, 1_000, 2_000]
    rest = redrive(world, {"per_second": 1, "limit": 3})
    assert (rest["found"], rest["more"]) == (1, False)


def _is_redrive(run: Any) -> bool:
    found: bool = run.facts.is_redrive
    return found


def test_a_repeat_of_a_bulk_redrive_adds_nothing(world: World, job: str) -> None:
    for _ in range(3):
        world.define(HOURLY)
    die(world)
    first = redrive(world, {"limit": 3}, idempotency_key="all")
    assert first["runs"] == 3
    stored = world.stored()
    assert redrive(world, {"limit": 3}, idempotency_key="all") == first
    assert world.stored() == stored
    more = redrive(world, {"limit": 3}, idempotency_key="more")
    assert (more["runs"], more["more"]) == (3, False)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"strange": 1}, "/strange"),
        ({"job_id": "jb_0"}, "/job_id"),
        ({"job_id": 7}, "/job_id"),
        ({"labels": {}}, "/labels"),
        ({"labels": ["team"]}, "/labels"),
        ({"labels": {"team": 7}}, "/labels/team"),
        ({"labels": {str(n): "" for n in range(11)}}, "/labels"),
        ({"cause": ""}, "/cause"),
        ({"cause": "x" * 65}, "/cause"),
        ({"since": "yesterday"}, "/since"),
        ({"since": 1}, "/since"),
        ({"until": "2025-11-30T00:00:00"}, "/until"),
        ({"since": "2025-11-30T01:00:00Z", "until": "2025-11-30T00:00:00Z"}, "/since"),
        ({"limit": 0}, "/limit"),
        ({"limit": 1_001}, "/limit"),
        ({"limit": True}, "/limit"),
        ({"per_second": 101}, "/per_second"),
        ({"per_second": "10"}, "/per_second"),
        ({"dry_run": "yes"}, "/dry_run"),
        ({"reason": 7}, "/reason"),
        ({"reason": "x" * 513}, "/reason"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(
    world: World, job: str, body: dict[str, Any], pointer: str
) -> None:
    stored = world.stored()
    found = world.send("POST", "/v1/dead-letters/redrive", body)
    assert found.status_code == 422, found.text
    assert [each["pointer"] for each in found.json()["errors"]] == [pointer]
    assert world.stored() == stored


def test_a_field_that_does_not_exist_is_refused_with_those_that_do(world: World) -> None:
    found = world.send("POST", "/v1/dead-letters/redrive", {"label": "team:billing"})
    assert found.status_code == 422
    assert found.json()["errors"][0]["detail"] == (
        "unknown field; one of cause, dry_run, job_id, labels, limit, per_second, reason, since, "
        "until"
    )


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("job_id=jb_0", "job_id"),
        ("cause=", "cause"),
        ("label=team", "label"),
        ("since=now", "since"),
        ("until=2025", "until"),
        ("since=2025-11-30T01:00:00Z&until=2025-11-30T00:00:00Z", "since"),
        ("limit=0", "limit"),
        ("cursor=x", "cursor"),
        ("position=x", "position"),
    ],
)
def test_a_parameter_that_cannot_be_is_refused_by_name(
    world: World, query: str, parameter: str
) -> None:
    found = world.send("GET", f"/v1/dead-letters?{query}")
    assert found.status_code == 422, found.text
    assert [each["parameter"] for each in found.json()["errors"]] == [parameter]


@pytest.mark.parametrize("run", ["rn_0", "jb_" + "0" * 32, "rn_" + "0" * 32, "x"])
def test_a_run_that_never_was_is_absent(world: World, run: str) -> None:
    found = world.send("POST", f"/v1/runs/{run}/redrive")
    assert (found.status_code, found.json()["type"]) == (404, "/problems/absent")


def test_the_id_of_a_job_is_no_id_of_a_run(world: World, job: str) -> None:
    found = world.send("POST", f"/v1/runs/rn_{job.removeprefix('jb_')}/redrive")
    assert found.status_code == 404


@pytest.mark.parametrize("body", [{"reason": 1}, {"strange": "x"}])
def test_a_body_of_one_redrive_is_checked(world: World, job: str, body: dict[str, Any]) -> None:
    dead = letters(world)[0]["run_id"]
    assert parse(RUN, dead)
    assert world.send("POST", f"/v1/runs/{dead}/redrive", body).status_code == 422


def test_of_two_who_redrive_the_same_run_at_once_one_does(
    world: World, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = letters(world)[0]["run_id"]
    plain = world.commands.last_events
    others: list[httpx.Response] = []

    async def late(stream_ids: Sequence[bytes]) -> dict[bytes, DomainEvent]:
        """Answer what was read before the other one redrove it."""
        found = await plain(stream_ids)
        if not others:
            monkeypatch.setattr(world.commands, "last_events", plain)
            path = f"/v1/runs/{dead}/redrive"
            others.append(await asyncio.to_thread(world.send, "POST", path))
        return found

    monkeypatch.setattr(world.commands, "last_events", late)
    found = world.send("POST", f"/v1/runs/{dead}/redrive")
    assert [other.status_code for other in others] == [200]
    assert (found.status_code, found.json()["type"]) == (409, "/problems/redriven")
    runs = world.send("GET", f"/v1/jobs/{job}/runs").json()["items"]
    assert [run["kind"] for run in runs].count("redrive") == 1


@pytest.mark.parametrize("body", [{}, {"dry_run": True}])
def test_a_history_that_is_away_is_503(world: World, job: str, body: dict[str, Any]) -> None:
    world.histories.away = True
    stored = world.stored()
    assert world.send("GET", "/v1/dead-letters").status_code == 503
    assert world.send("POST", "/v1/dead-letters/redrive", body).status_code == 503
    assert world.stored() == stored


def test_one_is_redriven_while_the_history_is_away(world: World, job: str) -> None:
    dead = letters(world)[0]["run_id"]
    world.histories.away = True
    assert world.send("POST", f"/v1/runs/{dead}/redrive").status_code == 200
