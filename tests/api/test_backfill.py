"""A past range is run over HTTP: what is answered, what is refused, and what is left then."""

import asyncio
from typing import Any

import pytest

from commandside.ports import Unavailable
from domain.catalogue import DomainEvent
from domain.instant import HOUR, MINUTE, rfc3339
from domain.run.decide import Result
from domain.run.events import OK
from tests.api.test_queries import fire, lease
from tests.api.world import JOB, START, World

MINUTELY: dict[str, Any] = {**JOB, "schedule": "*/10 * * * *", "timezone": "UTC"}


def ask(since: int, until: int, **more: Any) -> dict[str, Any]:
    return {"from": rfc3339(since), "to": rfc3339(until), **more}


@pytest.fixture
def job(world: World) -> str:
    """A job that was paused for an hour, and runs again."""
    found: str = world.define(MINUTELY)["job_id"]
    world.send("POST", f"/v1/jobs/{found}/pause")
    world.clock.advance_ms(HOUR + MINUTE)
    world.send("POST", f"/v1/jobs/{found}/resume", {"catch_up": "none"})
    return found


def once(world: World) -> str:
    """A job of one time, a minute from now."""
    run_at = rfc3339(world.clock.now() + MINUTE)
    body = {"type": "one_time", "run_at": run_at, "target": JOB["target"]}
    found: str = world.define(body)["job_id"]
    return found


def ended(world: World) -> str:
    """A job of one time whose run has succeeded."""
    job = once(world)
    world.clock.advance_ms(2 * MINUTE)
    fire(world, Result(OK, "ok", 204))
    return job


def test_the_answer_says_what_runs_and_the_job_what_is_left(world: World, job: str) -> None:
    body = ask(START, START + HOUR, reason="the receiver was down")
    found = world.send("POST", f"/v1/jobs/{job}/backfill", body)
    assert found.status_code == 200, found.text
    assert found.json()["backfill"] == {
        "from": "2025-11-30T00:00:00.000Z",
        "to": "2025-11-30T01:00:00.000Z",
        "rerun": False,
        "slots": 6,
        "succeeded": 0,
        "dead": 0,
        "open": 0,
        "runs": 6,
        "first": "2025-11-30T00:10:00.000Z",
        "last": "2025-11-30T01:00:00.000Z",
        "dry_run": False,
    }
    shown = world.send("GET", f"/v1/jobs/{job}").json()
    assert shown["backfill"] == {
        "left": 6,
        "next": "2025-11-30T00:10:00.000Z",
        "to": "2025-11-30T01:00:00.000Z",
    }
    assert shown["status"] == "active"


def test_the_audit_trail_says_who_asked_for_what(world: World, job: str) -> None:
    world.send("POST", f"/v1/jobs/{job}/backfill", ask(START, START + HOUR, reason="down"))
    events = world.send("GET", f"/v1/jobs/{job}/events").json()["items"]
    (asked,) = [event for event in events if event["event"] == "job.backfill-requested.v1"]
    assert asked["actor"]
    assert asked["detail"]["reason"] == "down"
    assert asked["detail"]["since"] == "2025-11-30T00:00:00.000Z"
    assert asked["detail"]["slots"] == [
        {"first": "2025-11-30T00:10:00.000Z", "last": "2025-11-30T01:00:00.000Z", "count": 6}
    ]


def test_the_open_run_is_listed_as_a_backfill(world: World, job: str) -> None:
    world.send("POST", f"/v1/jobs/{job}/backfill", ask(START, START + HOUR))
    runs = world.send("GET", f"/v1/jobs/{job}/runs").json()["items"]
    kinds = {run["scheduled_for"]: run["kind"] for run in runs if run["status"] == "scheduled"}
    assert kinds["2025-11-30T00:10:00.000Z"] == "backfill"


def test_a_dry_run_says_the_same_and_writes_nothing(world: World, job: str) -> None:
    before = world.stored()
    dry = world.send("POST", f"/v1/jobs/{job}/backfill", ask(START, START + HOUR, dry_run=True))
    assert dry.status_code == 200, dry.text
    assert world.stored() == before
    wet = world.send("POST", f"/v1/jobs/{job}/backfill", ask(START, START + HOUR))
    assert dry.json()["backfill"] | {"dry_run": False} == wet.json()["backfill"]


def test_a_repeat_is_answered_as_the_first_was(world: World, job: str) -> None:
    path, body = f"/v1/jobs/{job}/backfill", ask(START, START + HOUR)
    first = world.send("POST", path, body, idempotency_key="k").json()
    before = world.stored()
    world.clock.advance_ms(MINUTE)
    assert world.send("POST", path, body, idempotency_key="k").json() == first
    other = world.send("POST", path, ask(START, START + MINUTE), idempotency_key="k")
    assert other.status_code == 422
    assert world.stored() == before


def test_a_second_one_is_refused_while_the_first_goes_on(world: World, job: str) -> None:
    path = f"/v1/jobs/{job}/backfill"
    world.send("POST", path, ask(START, START + HOUR))
    before = world.stored()
    found = world.send("POST", path, ask(START, START + HOUR))
    assert found.status_code == 409
    assert found.json()["type"] == "/problems/backfilling"
    assert "6 of its runs are left" in found.json()["detail"]
    assert world.stored() == before


def test_a_paused_job_is_409_dry_or_not(world: World, job: str) -> None:
    world.send("POST", f"/v1/jobs/{job}/pause")
    for dry in (False, True):
        body = ask(START, START + HOUR, dry_run=dry)
        found = world.send("POST", f"/v1/jobs/{job}/backfill", body)
        assert (found.status_code, found.json()["detail"][-15:]) == (409, "resume it first")


@pytest.mark.parametrize("dry", [False, True])
def test_the_job_of_another_tenant_is_absent(world: World, job: str, dry: bool) -> None:
    body = ask(START, START + HOUR, dry_run=dry)
    found = world.send("POST", f"/v1/jobs/{job}/backfill", body, key=world.other_key)
    assert found.status_code == 404


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({}, ["/from", "/to"]),
        ({"from": 1, "to": None}, ["/from", "/to"]),
        ({"from": "2025-11-30", "to": "2025-11-30T00:00:00Z"}, ["/from"]),
        ({"from": "2025-11-30T00:00:00", "to": "2025-11-30T00:00:00Z"}, ["/from"]),
        ({"from": "2025-13-30T00:00:00Z", "to": "2025-11-30T00:00:00Z"}, ["/from"]),
        (ask(START, START, colour="red"), ["/colour"]),
        (ask(START, START, rerun="yes"), ["/rerun"]),
        (ask(START, START, dry_run=1), ["/dry_run"]),
        (ask(START, START, reason=7), ["/reason"]),
        (ask(START, START, reason="x" * 513), ["/reason"]),
        (ask(START, START + 5 * HOUR), ["/to"]),
        (ask(START + HOUR, START), ["/from"]),
    ],
)
def test_a_range_that_is_none_is_refused_by_its_field(
    world: World, job: str, body: dict[str, Any], pointers: list[str]
) -> None:
    before = world.stored()
    found = world.send("POST", f"/v1/jobs/{job}/backfill", body)
    assert found.status_code == 422, found.text
    assert [reason["pointer"] for reason in found.json()["errors"]] == pointers
    assert world.stored() == before


def test_a_body_is_needed(world: World, job: str) -> None:
    assert world.send("POST", f"/v1/jobs/{job}/backfill").status_code in (400, 415)


def test_too_many_slots_are_refused_with_the_instant_up_to_which_they_go(world: World) -> None:
    job = world.define({**MINUTELY, "schedule": "* * * * *"})["job_id"]
    world.send("POST", f"/v1/jobs/{job}/pause")
    world.clock.advance_ms(20 * HOUR)
    world.send("POST", f"/v1/jobs/{job}/resume", {"catch_up": "none"})
    path = f"/v1/jobs/{job}/backfill"
    found = world.send("POST", path, ask(START, START + 20 * HOUR))
    assert found.status_code == 422
    last = START + 1_000 * MINUTE
    assert rfc3339(last) in found.json()["errors"][0]["detail"]
    assert world.send("POST", path, ask(START, last)).json()["backfill"]["runs"] == 1_000


def test_slots_of_each_schedule_and_zone_are_those_of_their_time(world: World) -> None:
    body = {**JOB, "schedule": "0 3 * * *", "timezone": "UTC"}
    job = world.define(body)["job_id"]
    world.send("POST", f"/v1/jobs/{job}/pause")
    world.clock.advance_ms(48 * HOUR)
    world.send("PATCH", f"/v1/jobs/{job}", {"timezone": "America/New_York"})
    world.clock.advance_ms(24 * HOUR)
    world.send("POST", f"/v1/jobs/{job}/resume", {"catch_up": "none"})
    until = START + 72 * HOUR
    found = world.send("POST", f"/v1/jobs/{job}/backfill", ask(START, until)).json()["backfill"]
    assert (found["slots"], found["first"]) == (3, "2025-11-30T03:00:00.000Z")
    assert found["last"] == "2025-12-02T08:00:00.000Z"


def test_a_job_that_counts_from_the_end_of_its_runs_has_missed_nothing(world: World) -> None:
    body = {name: value for name, value in JOB.items() if name not in ("schedule", "timezone")}
    job = world.define({**body, "every": "PT10M", "from": "completion"})["job_id"]
    world.clock.advance_ms(HOUR)
    found = world.send("POST", f"/v1/jobs/{job}/backfill", ask(START, START + HOUR))
    assert found.status_code == 422, found.text
    assert found.json()["errors"][0]["pointer"] == "/from"


def test_it_is_asked_again_where_the_job_moves_while_its_past_is_read(
    world: World, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0
    plain = world.commands.last_events

    async def busy(stream_ids: list[bytes]) -> dict[bytes, DomainEvent]:
        nonlocal reads
        reads += 1
        if reads == 1:
            (head, _) = next(iter(world.log.heads.values()))
            await asyncio.to_thread(world.send, "PATCH", f"/v1/jobs/{job}", {"name": "moved"})
            assert head.facts.spec.name == ""
        return await plain(stream_ids)

    monkeypatch.setattr(world.commands, "last_events", busy)
    found = world.send("POST", f"/v1/jobs/{job}/backfill", ask(START, START + HOUR))
    assert found.status_code == 200, found.text
    assert reads == 2
    assert found.json()["backfill"]["runs"] == 6


def test_a_log_that_is_away_is_503(world: World, job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(_: list[bytes]) -> dict[bytes, DomainEvent]:
        raise Unavailable("away")

    monkeypatch.setattr(world.commands, "last_events", away)
    found = world.send("POST", f"/v1/jobs/{job}/backfill", ask(START, START + HOUR))
    assert found.status_code == 503


def test_a_finished_job_of_one_time_is_not_said_to_run_again(world: World) -> None:
    path = f"/v1/jobs/{ended(world)}/backfill"
    for more in ({"dry_run": True}, {}):
        found = world.send("POST", path, ask(START, START + MINUTE, **more)).json()
        assert (found["status"], found["next_run_at"]) == ("finished", None)
        assert (found["next_due_at"], found["next_runs"]) == (None, [])
        assert (found["backfill"]["succeeded"], found["backfill"]["runs"]) == (1, 0)


def test_a_trigger_of_a_job_of_one_time_tells_how_its_own_run_stands(world: World) -> None:
    def triggered(key: str, job: str) -> dict[str, Any]:
        path, body = f"/v1/jobs/{job}/trigger", {"overlap": "allow"}
        found: dict[str, Any] = world.send("POST", path, body, idempotency_key=key).json()
        assert world.send("POST", path, body, idempotency_key=key).json() == found
        return {name: found[name] for name in ("status", *nothing)}

    nothing: dict[str, Any] = {"next_run_at": None, "next_due_at": None, "next_runs": []}
    assert triggered("early", once(world))["next_run_at"] == rfc3339(START + MINUTE)
    job = once(world)
    world.clock.advance_ms(2 * MINUTE)
    lease(world)
    assert triggered("while it goes on", job) == {"status": "active"} | nothing
    job = ended(world)
    assert triggered("after", job) == {"status": "finished"} | nothing
    assert world.send("PATCH", f"/v1/jobs/{job}", {"name": "n"}).status_code == 200
    assert triggered("edited", job) == {"status": "finished"} | nothing
