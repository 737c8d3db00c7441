"""Commands on a job over HTTP: change, pause, resume, trigger, cancel."""

import json
from typing import Any

import pytest

from domain.instant import HOUR, rfc3339
from domain.schedule.schedule import ScheduleBreach
from domain.slots import Slots
from tests.api.world import JOB, World


@pytest.fixture
def job(world: World) -> str:
    found: str = world.define()["job_id"]
    return found


def test_a_merge_patch_changes_only_what_it_names(world: World, job: str) -> None:
    found = world.send("PATCH", f"/v1/jobs/{job}", {"retry": {"max_attempts": 7}, "name": "x"})
    assert found.status_code == 200, found.text
    spec = world.send("GET", f"/v1/jobs/{job}").json()["spec"]
    assert spec["retry"]["max_attempts"] == 7
    assert spec["name"] == "x"
    assert spec["schedule"] == JOB["schedule"]
    assert spec["payload"] == JOB["payload"]


def test_a_patch_with_the_redacted_value_keeps_a_secret_header(world: World, job: str) -> None:
    shown = world.send("GET", f"/v1/jobs/{job}").json()["spec"]["target"]
    assert "abc" not in str(shown)
    found = world.send("PATCH", f"/v1/jobs/{job}", {"target": shown | {"method": "PUT"}})
    assert found.status_code == 200, found.text
    (head, _) = next(iter(world.log.heads.values()))
    facts = head.facts
    sealed = facts.spec.target.headers[0].value
    assert world.vault.open(facts.tenant_id, facts.job_id, sealed) == b"Bearer abc"


def test_what_is_shown_of_a_job_can_be_sent_back_without_a_change(world: World, job: str) -> None:
    spec = world.send("GET", f"/v1/jobs/{job}").json()["spec"]
    before = world.stored()
    assert world.send("PATCH", f"/v1/jobs/{job}", spec).json()["version"] == 1
    assert world.stored() == before


def test_an_edit_moves_the_next_run_and_never_into_the_past(world: World, job: str) -> None:
    world.clock.advance_ms(10_000)
    found = world.send("PATCH", f"/v1/jobs/{job}", {"schedule": "0 * * * *", "timezone": "UTC"})
    assert found.json()["next_run_at"] == "2025-11-30T01:00:00.000Z"


def test_a_patch_that_is_refused_names_its_field_and_changes_nothing(
    world: World, job: str
) -> None:
    before = world.stored()
    found = world.send("PATCH", f"/v1/jobs/{job}", {"schedule": "x", "colour": 1})
    assert found.status_code == 422
    assert {e["pointer"] for e in found.json()["errors"]} == {"/schedule", "/colour"}
    assert world.stored() == before


def test_if_match_of_another_version_is_412(world: World, job: str) -> None:
    etag = world.send("GET", f"/v1/jobs/{job}").headers["etag"]
    assert world.send("PATCH", f"/v1/jobs/{job}", {"name": "a"}, if_match=etag).status_code == 200
    found = world.send("PATCH", f"/v1/jobs/{job}", {"name": "b"}, if_match=etag)
    assert found.status_code == 412
    assert found.json()["errors"][0]["header"] == "If-Match"
    assert world.send("DELETE", f"/v1/jobs/{job}", if_match='W/"2"').status_code == 412
    assert world.send("DELETE", f"/v1/jobs/{job}", if_match="2, 3").status_code == 400
    assert world.send("DELETE", f"/v1/jobs/{job}", if_match="*").status_code == 200


def test_a_paused_job_has_no_next_run_until_it_is_resumed(world: World, job: str) -> None:
    paused = world.send("POST", f"/v1/jobs/{job}/pause", {"reason": "holiday"}).json()
    assert paused["status"] == "paused"
    assert paused["next_run_at"] is None
    shown = world.send("GET", f"/v1/jobs/{job}").json()
    assert shown["paused"]["reason"] == "holiday"
    resumed = world.send("POST", f"/v1/jobs/{job}/resume").json()
    assert resumed["status"] == "active"
    assert resumed["next_run_at"] == "2025-11-30T01:00:00.000Z"


def test_pausing_twice_is_done_already(world: World, job: str) -> None:
    first = world.send("POST", f"/v1/jobs/{job}/pause").json()
    again = world.send("POST", f"/v1/jobs/{job}/pause")
    assert again.status_code == 200
    assert again.json()["version"] == first["version"]


@pytest.mark.parametrize("body", [{}, {"until": "2027-03-02T09:00:00Z"}])
def test_a_pause_that_would_end_otherwise_is_refused_beside_one_that_lasts(
    world: World, job: str, body: dict[str, str]
) -> None:
    first = {"until": "2027-03-01T09:00:00Z"}
    assert world.send("POST", f"/v1/jobs/{job}/pause", first).status_code == 200
    assert world.send("POST", f"/v1/jobs/{job}/pause", first).status_code == 200
    found = world.send("POST", f"/v1/jobs/{job}/pause", body)
    assert found.status_code == 409
    assert "paused until 2027-03-01T09:00:00.000Z: resume it" in found.json()["detail"]


def test_a_repeated_command_is_answered_as_the_first_time(world: World, job: str) -> None:
    first = world.send("POST", f"/v1/jobs/{job}/pause", idempotency_key="p").json()
    world.clock.advance_ms(5_000)
    world.send("POST", f"/v1/jobs/{job}/resume", idempotency_key="r")
    before = world.stored()
    assert world.send("POST", f"/v1/jobs/{job}/pause", idempotency_key="p").json() == first
    assert world.stored() == before
    assert world.send("GET", f"/v1/jobs/{job}").json()["status"] == "active"


def test_one_key_for_two_commands_is_422(world: World, job: str) -> None:
    world.send("POST", f"/v1/jobs/{job}/pause", idempotency_key="k")
    found = world.send("POST", f"/v1/jobs/{job}/resume", idempotency_key="k")
    assert found.status_code == 422


def test_a_trigger_adds_a_manual_run_and_its_repeat_none(world: World, job: str) -> None:
    first = world.send("POST", f"/v1/jobs/{job}/trigger", idempotency_key="t").json()
    again = world.send("POST", f"/v1/jobs/{job}/trigger", idempotency_key="t").json()
    assert again == first
    assert len(world.log.due) == 2
    items = world.send("GET", f"/v1/jobs/{job}/runs").json()["items"]
    assert [item["run_id"] for item in items if item["kind"] == "manual"] == [first["run_id"]]


def test_two_triggers_without_a_key_are_two_runs(world: World, job: str) -> None:
    ids = {world.send("POST", f"/v1/jobs/{job}/trigger").json()["run_id"] for _ in range(2)}
    assert len(ids) == 2


def test_a_paused_job_cannot_be_triggered(world: World, job: str) -> None:
    world.send("POST", f"/v1/jobs/{job}/pause")
    found = world.send("POST", f"/v1/jobs/{job}/trigger")
    assert found.status_code == 409
    assert found.json()["type"] == "/problems/paused"


def test_a_cancelled_job_stays_and_its_repeat_has_the_same_answer(world: World, job: str) -> None:
    first = world.send("DELETE", f"/v1/jobs/{job}", {"reason": "over"})
    assert first.status_code == 200
    assert first.json()["status"] == "cancelled"
    assert first.json()["in_flight"] == []
    world.clock.advance_ms(60_000)
    again = world.send("DELETE", f"/v1/jobs/{job}").json()
    assert again == first.json() | {"position": again["position"]}
    assert world.send("GET", f"/v1/jobs/{job}").json()["status"] == "cancelled"
    assert not world.log.due


@pytest.mark.parametrize("verb", ["pause", "resume", "trigger"])
def test_nothing_can_be_done_with_a_cancelled_job(world: World, job: str, verb: str) -> None:
    world.send("DELETE", f"/v1/jobs/{job}")
    assert world.send("POST", f"/v1/jobs/{job}/{verb}").status_code == 409
    assert world.send("PATCH", f"/v1/jobs/{job}", {"name": "x"}).status_code == 409


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("PATCH", "", {"name": "x"}),
        ("DELETE", "", None),
        ("POST", "/pause", None),
        ("POST", "/resume", None),
        ("POST", "/trigger", None),
        ("GET", "/runs", None),
        ("GET", "/events", None),
    ],
)
def test_another_tenants_job_answers_like_one_that_never_was(
    world: World, job: str, method: str, path: str, body: dict[str, Any] | None
) -> None:
    before = world.stored()
    theirs = world.send(method, f"/v1/jobs/{job}{path}", body, key=world.other_key)
    never = world.send(method, f"/v1/jobs/jb_{'0' * 32}{path}", body, key=world.other_key)
    assert theirs.status_code == never.status_code == 404
    ours, none = theirs.json(), never.json()
    assert ours.pop("request_id") != none.pop("request_id")
    assert ours == none
    assert world.stored() == before


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ("pause", {"why": "x"}, "/why"),
        ("pause", {"reason": 1}, "/reason"),
        ("pause", {"reason": "x" * 600}, "/reason"),
        ("pause", {"until": "soon"}, "/until"),
        ("pause", {"until": "2001-01-01T00:00:00Z"}, "/until"),
        ("resume", {"catch_up": "some"}, "/catch_up"),
        ("resume", {"catch_up": ""}, "/catch_up"),
        ("resume", {"until": "noon"}, "/until"),
        ("trigger", {"overlap": "cancel_other"}, "/overlap"),
    ],
)
def test_a_field_of_a_command_that_is_refused_is_named(
    world: World, job: str, path: str, body: dict[str, Any], pointer: str
) -> None:
    before = world.stored()
    found = world.send("POST", f"/v1/jobs/{job}/{path}", body)
    assert found.status_code == 422, found.text
    assert [error["pointer"] for error in found.json()["errors"]] == [pointer]
    assert world.stored() == before


def test_a_resume_that_catches_up_fires_the_newest_slot_of_the_pause(world: World) -> None:
    body = {
        "type": "recurring",
        "schedule": "* * * * *",
        "timezone": "UTC",
        "jitter_s": 0,
        "target": {"kind": "http", "url": "https://hooks.example.com/v1"},
        "overlap": "buffer_one",
        "misfire": "all",
        "catch_up_window_s": 600,
        "max_lateness_s": 900,
    }
    job = world.send("POST", "/v1/jobs", body).json()["job_id"]
    shown = world.send("GET", f"/v1/jobs/{job}").json()["spec"]
    assert {name: shown[name] for name in body if name != "target"} == {
        name: value for name, value in body.items() if name != "target"
    }
    world.send("POST", f"/v1/jobs/{job}/pause")
    world.clock.advance_ms(10 * 60_000)
    found = world.send("POST", f"/v1/jobs/{job}/resume", {"catch_up": "latest"})
    assert found.status_code == 200, found.text
    (due,) = world.log.due.values()
    assert due.run.facts.due_at == world.clock.now()
    assert due.run.facts.nominal == world.clock.now() // 60_000 * 60_000


def test_a_pause_can_have_an_end(world: World, job: str) -> None:
    until = world.clock.now() + 3_600_000
    found = world.send("POST", f"/v1/jobs/{job}/pause", {"until": rfc3339(until)})
    assert found.json()["until"] == rfc3339(until)
    assert found.status_code == 200, found.text
    (head,) = [head for _, head in world.log.heads.values() if head.resume_at]
    assert head.resume_at == until
    assert world.send("GET", f"/v1/jobs/{job}").json()["paused"]["until"] == rfc3339(until)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """No schedule can say what is next."""

    def raises(_slots: Slots, at: int) -> None:
        raise ScheduleBreach(f"no slot after {at}")

    monkeypatch.setattr(Slots, "first_after", raises)


def test_a_resume_under_a_schedule_that_cannot_answer_is_refused_with_the_reason(
    world: World, job: str, request: pytest.FixtureRequest
) -> None:
    world.send("POST", f"/v1/jobs/{job}/pause")
    world.clock.advance_ms(2 * HOUR)
    request.getfixturevalue("broken")
    found = world.send("POST", f"/v1/jobs/{job}/resume")
    assert (found.status_code, found.json()["type"]) == (409, "/problems/schedule_error")
    assert "no slot after" in found.json()["detail"]


@pytest.mark.usefixtures("broken")
def test_a_definition_whose_first_slot_cannot_be_found_is_refused_alone(
    world: World,
) -> None:
    one_time = b'{"type": "one_time", "run_at": "2026-12-01T00:00:00Z", "target": %s}'
    target = json.dumps(JOB["target"]).encode()
    lines = [json.dumps(JOB).encode(), one_time % target]
    assert [answer["code"] for answer in world.batch(b"\n".join(lines))] == [409, 201]


def test_a_job_whose_schedule_cannot_answer_is_shown_run_and_cancelled(
    world: World, job: str, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue("broken")
    triggered = world.send("POST", f"/v1/jobs/{job}/trigger")
    assert (triggered.status_code, triggered.json()["next_run_at"]) == (200, None)
    assert world.send("GET", f"/v1/jobs/{job}").status_code == 200
    assert world.send("DELETE", f"/v1/jobs/{job}").status_code == 200


def test_a_pause_without_an_end_shows_none(world: World, job: str) -> None:
    world.send("POST", f"/v1/jobs/{job}/pause")
    assert world.send("GET", f"/v1/jobs/{job}").json()["paused"]["until"] is None


def test_a_lateness_that_is_often_exceeded_is_a_warning(world: World) -> None:
    """MIS-16."""
    body = {
        "type": "recurring",
        "schedule": "0 10 * * *",
        "timezone": "UTC",
        "target": {"kind": "http", "url": "https://hooks.example.com/v1"},
    }
    for lateness, warned in ((2, True), (10, False)):
        found = world.send("POST", "/v1/jobs", {**body, "max_lateness_s": lateness}).json()
        assert any("max_lateness_s" in said for said in found["warnings"]) is warned
