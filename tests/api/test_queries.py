"""Questions over HTTP: one job, lists, runs, the audit trail, and how fresh they are."""

import json
from typing import Any

import pytest

from commandside.ports import Granted, Want
from domain.ports import Unavailable
from domain.run.decide import Result, report
from domain.run.events import FAILED, OK
from domain.run.state import Ready
from queryside import queries
from tests.api.world import JOB, World


def without_payload(**fields: Any) -> dict[str, Any]:
    """Return the job of the contract with another payload."""
    return {name: value for name, value in JOB.items() if name != "payload"} | fields


def lease(world: World) -> list[Granted]:
    """Lease every run that is due."""
    session = world.new_id(16)
    world.log.start(session)
    due = [row.run for row in world.log.waking(world.clock.now())]
    wants = [
        Want(run.facts.run_id, run.facts.version, run.facts.job_id)
        for run in due
        if isinstance(run, Ready)
    ]
    reply = world.log.lease(1, session, world.new_id(8), wants, world.clock.now() + 5_000)
    assert reply is not None
    return list(reply.granted)


def fire(world: World, result: Result) -> None:
    """Lease every run that is due and report it."""
    for granted in lease(world):
        facts = granted.run.facts
        decision = report(
            granted.job, granted.run, facts.fence, result, world.clock.now(), alone=True
        )
        assert decision is not None
        assert not world.log.append([decision], world.clock.now()).refused


def ids_of(answer: dict[str, Any]) -> list[str]:
    """Return the ids of a page of jobs."""
    return [item["job_id"] for item in answer["items"]]


# ------------------------------------------------------------------ one job


def test_a_job_is_shown_as_it_stands_without_waiting_for_a_view(world: World) -> None:
    job = world.define(JOB | {"key": "k", "name": "n", "labels": {"team": "a"}})
    found = world.send("GET", f"/v1/jobs/{job['job_id']}")
    shown = found.json()
    assert found.headers["etag"] == '"1"'
    assert shown["key"] == "k"
    assert shown["spec"]["payload"] == {"report": "daily"}
    assert shown["spec"]["labels"] == {"team": "a"}
    assert shown["next_run_at"] == job["next_run_at"]
    assert shown["next_due_at"] == job["next_due_at"]
    assert shown["in_flight"] == []


@pytest.mark.parametrize(
    ("field", "value"),
    [("payload_text", "h\u00e9llo"), ("payload_base64", "/wA="), ("payload", [1])],
)
def test_a_payload_comes_back_as_the_kind_it_was_sent(
    world: World, field: str, value: object
) -> None:
    job = world.define(without_payload(**{field: value}))
    assert world.send("GET", f"/v1/jobs/{job['job_id']}").json()["spec"][field] == value


def test_a_text_that_calls_itself_json_and_is_none_is_shown_as_text(world: World) -> None:
    body = without_payload(payload_text="{", content_type="application/json")
    job = world.define(body)
    assert world.send("GET", f"/v1/jobs/{job['job_id']}").json()["spec"]["payload_text"] == "{"


def test_the_bytes_of_a_payload_are_kept_as_sent(world: World) -> None:
    raw = json.dumps(without_payload()).encode()[:-1] + b', "payload": { "a" :1.50,\t"b":[ ] } }'
    world.define(raw)
    (head, _) = next(iter(world.log.heads.values()))
    facts = head.facts
    plain = world.vault.open(facts.tenant_id, facts.job_id, facts.spec.payload)
    assert plain == b'{ "a" :1.50,\t"b":[ ] }'


def test_an_erased_payload_is_said_to_be_erased(world: World) -> None:
    job = world.define()
    world.vault.destroy(b"t" * 16)
    assert world.send("GET", f"/v1/jobs/{job['job_id']}").json()["spec"]["payload_erased"] is True


def test_an_attempt_in_flight_is_seen(world: World) -> None:
    job = world.define()["job_id"]
    world.clock.advance_ms(3_606_000)
    (granted,) = lease(world)
    shown = world.send("GET", f"/v1/jobs/{job}").json()
    assert shown["in_flight"] == [f"rn_{granted.run.facts.run_id.hex()}"]
    paused = world.send("POST", f"/v1/jobs/{job}/pause", idempotency_key="p").json()
    assert paused["in_flight"] == shown["in_flight"]
    again = world.send("POST", f"/v1/jobs/{job}/pause", idempotency_key="p").json()
    assert again == paused


def test_a_job_can_be_seen_as_it_stood(world: World) -> None:
    job = world.define(JOB | {"name": "old"})["job_id"]
    world.clock.advance_ms(60_000)
    world.send("PATCH", f"/v1/jobs/{job}", {"name": "new"})
    shown = world.send("GET", f"/v1/jobs/{job}?as_of=2025-11-30T00:00:59Z").json()
    assert (shown["spec"]["name"], shown["version"]) == ("old", 1)
    before = world.send("GET", f"/v1/jobs/{job}?as_of=2025-11-29T00:00:00Z")
    assert before.status_code == 404
    assert world.send("GET", f"/v1/jobs/{job}?as_of=2030-01-01T00:00:00Z").status_code == 422


def test_a_version_that_is_not_there_yet_is_said_to_be_behind(world: World) -> None:
    job = world.define()["job_id"]
    assert world.send("GET", f"/v1/jobs/{job}?min_version=1").status_code == 200
    found = world.send("GET", f"/v1/jobs/{job}?min_version=2")
    assert found.status_code == 409
    assert found.headers["retry-after"] == "1"
    assert world.send("GET", f"/v1/jobs/{job}?min_version=-1").status_code == 422


# ------------------------------------------------------------------ lists


def test_a_list_pages_forwards_and_back_over_every_job_once(world: World) -> None:
    made = []
    for _ in range(5):
        world.clock.advance_ms(1)
        made.append(world.define()["job_id"])
    world.project()
    first = world.send("GET", "/v1/jobs?limit=2").json()
    second = world.send("GET", f"/v1/jobs?limit=2&cursor={first['next_cursor']}").json()
    third = world.send("GET", f"/v1/jobs?limit=2&cursor={second['next_cursor']}").json()
    assert ids_of(first) + ids_of(second) + ids_of(third) == made[::-1]
    assert first["prev_cursor"] is None
    assert third["next_cursor"] is None
    back = world.send("GET", f"/v1/jobs?limit=2&cursor={third['prev_cursor']}").json()
    assert ids_of(back) == ids_of(second)
    start = world.send("GET", f"/v1/jobs?limit=2&cursor={back['prev_cursor']}").json()
    assert ids_of(start) == ids_of(first)
    assert start["prev_cursor"] is None


def test_a_list_can_be_filtered(world: World) -> None:
    wanted = world.define(JOB | {"name": "alpha", "labels": {"team": "a"}})["job_id"]
    world.define(JOB | {"name": "beta", "labels": {"team": "b"}})
    world.project()
    for query in ("name_prefix=al", "label=team:a", "label=team:a&status=active"):
        assert ids_of(world.send("GET", f"/v1/jobs?{query}").json()) == [wanted], query
    assert len(ids_of(world.send("GET", "/v1/jobs?host=HOOKS.example.com").json())) == 2
    assert ids_of(world.send("GET", "/v1/jobs?status=paused").json()) == []


def test_a_job_is_found_by_its_key(world: World) -> None:
    job = world.define(JOB | {"key": "nightly", "name": "a"})["job_id"]
    world.define(JOB | {"key": "other"})
    unnamed = world.define(JOB)["job_id"]
    world.define(JOB | {"key": "nightly", "name": "b"})
    world.project()

    def found(query: str, **more: Any) -> list[tuple[str, str | None]]:
        items = world.send("GET", f"/v1/jobs{query}", **more).json()["items"]
        return [(item["job_id"], item["key"]) for item in items]

    assert found("?key=nightly") == [(job, "nightly")]
    assert found("?key=nightly&name_prefix=b") == [(job, "nightly")]
    assert found("?key=nightly&name_prefix=a") == []
    assert found("?key=never") == []
    assert found("?key=nightly", key=world.other_key) == []
    assert (unnamed, None) in found("")


def test_a_list_holds_the_tenants_own_jobs_only(world: World) -> None:
    world.define()
    world.project()
    assert ids_of(world.send("GET", "/v1/jobs", key=world.other_key).json()) == []


def test_a_cursor_is_of_one_tenant_and_one_filter(world: World) -> None:
    for _ in range(2):
        world.define()
    world.project()
    cursor = world.send("GET", "/v1/jobs?limit=1").json()["next_cursor"]
    theirs = world.send("GET", f"/v1/jobs?cursor={cursor}", key=world.other_key)
    other = world.send("GET", f"/v1/jobs?status=active&cursor={cursor}")
    bent = world.send("GET", f"/v1/jobs?cursor={cursor[:-1]}{'A' if cursor[-1] != 'A' else 'B'}")
    assert {theirs.status_code, other.status_code, bent.status_code} == {422}


def test_a_list_waits_for_the_position_of_a_command(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = world.define()
    asked = 0
    plain = world.positions.load

    def load(view: str) -> dict[int, int]:
        nonlocal asked
        asked += 1
        if asked == 3:
            world.project()
        return plain(view)

    monkeypatch.setattr(world.ports.views.freshness._positions, "load", load)  # type: ignore[union-attr]  # a view that comes
    found = world.send("GET", f"/v1/jobs?position={job['position']}")
    assert ids_of(found.json()) == [job["job_id"]]
    assert asked >= 3


def test_a_list_that_does_not_come_to_a_position_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "WAIT_S", 0.05)
    position = world.define()["position"]
    found = world.send("GET", f"/v1/jobs?position={position}")
    assert found.status_code == 409
    assert found.json()["type"] == "/problems/behind"
    other = world.send("GET", f"/v1/jobs?position={position}", key=world.other_key)
    assert other.status_code == 422


def test_a_board_that_is_away_is_503(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> None:
        raise Unavailable("away")

    monkeypatch.setattr(world.ports.views.board, "page", away)  # type: ignore[union-attr]  # it is there
    assert world.send("GET", "/v1/jobs").status_code == 503


# ------------------------------------------------------------------ runs


def test_a_run_is_seen_planned_running_waiting_and_done(world: World) -> None:
    job = world.define()["job_id"]
    runs = f"/v1/jobs/{job}/runs"

    def newest() -> dict[str, Any]:
        world.project()
        found: dict[str, Any] = world.send("GET", runs).json()["items"][-1]
        return found

    assert newest()["status"] == "scheduled"
    world.clock.advance_ms(3_606_000)
    fire(world, Result(FAILED, "retry", 500, elapsed_us=1_500))
    waiting = newest()
    assert waiting["status"] == "waiting"
    assert waiting["attempts_made"] == 1
    assert waiting["attempts"][0]["status"] == 500
    assert waiting["attempts"][0]["latency_ms"] == 1.5
    world.clock.advance_ms(10_000)
    fire(world, Result(OK, "ok", 200))
    done = newest()
    assert done["status"] == "succeeded"
    assert [attempt["outcome"] for attempt in done["attempts"]] == ["failed", "ok"]
    assert done["ended_at"] is not None
    assert world.send("GET", runs).json()["items"][0]["status"] == "scheduled"


def test_runs_page_over_history_and_open_runs_together(world: World) -> None:
    job = world.define(JOB | {"schedule": "* * * * *", "jitter_s": 0})["job_id"]
    for _ in range(6):
        world.clock.advance_ms(60_000)
        fire(world, Result(OK, "ok", 200))
    world.project()
    everything = world.send("GET", f"/v1/jobs/{job}/runs").json()["items"]
    assert [item["status"] for item in everything] == ["scheduled", *["succeeded"] * 6]
    seen: list[dict[str, Any]] = []
    cursor, newest = "", None
    while True:
        page = world.send("GET", f"/v1/jobs/{job}/runs?limit=2{cursor}").json()
        seen += page["items"]
        if page["next_cursor"] is None:
            break
        cursor, newest = f"&cursor={page['next_cursor']}", page
    assert seen == everything
    assert newest is not None
    assert newest["items"] == everything[4:6]
    back = world.send("GET", f"/v1/jobs/{job}/runs?limit=3&cursor={newest['prev_cursor']}").json()
    assert back["items"] == everything[1:4]
    first = world.send("GET", f"/v1/jobs/{job}/runs?limit=3&cursor={back['prev_cursor']}").json()
    assert first["items"] == everything[:1]
    assert first["prev_cursor"] is None


def test_slots_that_passed_are_shown_with_their_verdict(world: World) -> None:
    job = world.define(JOB | {"schedule": "* * * * *", "jitter_s": 0})["job_id"]
    world.send("POST", f"/v1/jobs/{job}/pause")
    world.clock.advance_ms(600_000)
    world.send("POST", f"/v1/jobs/{job}/resume")
    world.project()
    items = world.send("GET", f"/v1/jobs/{job}/runs").json()["items"]
    ranges = [item for item in items if item["run_id"] is None]
    assert [item["verdict"] for item in ranges] == ["paused"]
    assert ranges[0]["count"] == 9


def test_a_run_that_an_edit_took_away_stays_among_the_runs(world: World) -> None:
    job = world.define(JOB | {"schedule": "0 * * * *", "timezone": "UTC"})["job_id"]
    (old,) = world.send("GET", f"/v1/jobs/{job}/runs").json()["items"]
    world.send("PATCH", f"/v1/jobs/{job}", {"schedule": "30 * * * *", "timezone": "UTC"})
    world.project()
    items = world.send("GET", f"/v1/jobs/{job}/runs").json()["items"]
    (gone,) = [item for item in items if item["run_id"] == old["run_id"]]
    assert len(items) == 2
    assert (gone["status"], gone["verdict"]) == ("withdrawn", "superseded")


def test_a_job_in_a_list_has_the_version_that_its_own_answer_has(world: World) -> None:
    job = world.define()["job_id"]
    world.send("POST", f"/v1/jobs/{job}/trigger")
    world.project()
    (line,) = world.send("GET", "/v1/jobs").json()["items"]
    assert line["version"] == world.send("GET", f"/v1/jobs/{job}").json()["version"] == 2
    assert line["status"] == "active"


# ------------------------------------------------------------------ events


def test_the_audit_trail_says_who_did_what_and_why(world: World) -> None:
    job = world.define()["job_id"]
    world.send("POST", f"/v1/jobs/{job}/pause", {"reason": "holiday"})
    items = world.send("GET", f"/v1/jobs/{job}/events").json()["items"]
    assert [(item["version"], item["event"]) for item in items] == [
        (1, "job.defined.v1"),
        (2, "job.paused.v1"),
    ]
    assert items[1]["detail"]["reason"] == "holiday"
    assert items[1]["actor"] == world.key.split("_")[2]
    assert "abc" not in json.dumps(items)


def test_the_audit_trail_pages_both_ways(world: World) -> None:
    job = world.define()["job_id"]
    for number in range(4):
        world.send("PATCH", f"/v1/jobs/{job}", {"name": str(number)})
    path = f"/v1/jobs/{job}/events?limit=2"
    first = world.send("GET", path).json()
    second = world.send("GET", f"{path}&cursor={first['next_cursor']}").json()
    third = world.send("GET", f"{path}&cursor={second['next_cursor']}").json()
    versions = [[item["version"] for item in page["items"]] for page in (first, second, third)]
    assert versions == [[1, 2], [3, 4], [5]]
    assert third["next_cursor"] is None
    assert world.send("GET", f"{path}&cursor={third['prev_cursor']}").json() == second


def test_the_events_of_a_run_are_its_jobs_own(world: World) -> None:
    job, other = world.define()["job_id"], world.define()["job_id"]
    run = world.send("GET", f"/v1/jobs/{job}/runs").json()["items"][0]["run_id"]
    items = world.send("GET", f"/v1/jobs/{job}/events?run={run}").json()["items"]
    assert [item["event"] for item in items] == ["run.scheduled.v1"]
    assert world.send("GET", f"/v1/jobs/{other}/events?run={run}").status_code == 404
    assert world.send("GET", f"/v1/jobs/{job}/events?run=rn_0").status_code == 404


# ------------------------------------------------------------------ roles


def test_a_command_role_answers_one_job_and_no_lists() -> None:
    world = World(query=False)
    job = world.define()["job_id"]
    assert world.send("GET", f"/v1/jobs/{job}").status_code == 200
    assert world.send("GET", "/v1/jobs").status_code == 405
    assert world.send("GET", f"/v1/jobs/{job}/runs").status_code == 404


def test_a_query_role_takes_no_commands() -> None:
    world = World(command=False)
    assert world.send("GET", "/v1/jobs").status_code == 200
    assert world.send("POST", "/v1/jobs", JOB).status_code == 405
    assert world.stored() == 0
