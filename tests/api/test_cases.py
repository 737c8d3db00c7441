"""The lines of `tests/cases/cases.jsonl` that are requests, and edits of schedules in time."""

import json
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.api.world import JOB, START, World

CASES = {
    case["id"]: case
    for case in map(
        json.loads,
        (Path(__file__).parents[1] / "cases" / "cases.jsonl").read_text().splitlines(),
    )
}
ASKED = [
    case
    for case in CASES.values()
    if "request" in case["input"] and ("status" in case["expected"] or "either" in case["expected"])
]
"""Requests with an answer."""


def whole(body: dict[str, Any]) -> dict[str, Any]:
    """Put a case's body over a valid job, of the type that it is about."""
    job = deepcopy(JOB)
    if body.get("type", "one_time" if "run_at" in body else "recurring") == "one_time":
        job = {name: value for name, value in job.items() if name not in ("schedule", "timezone")}
        job["type"] = "one_time"
        job["run_at"] = "2026-12-01T00:00:00Z"
    return job | body


def bodies(case: dict[str, Any]) -> list[Any]:
    """Every body of a case: one for each value of a list to try; raw ones as bytes."""
    body = case["input"]["body"]
    if "raw_body" in body:
        deep = b"[" * 100_000
        return [deep if body["raw_body"].startswith("[ x") else body["raw_body"].encode()]
    if isinstance(body.get("run_at"), list):
        return [body | {"run_at": text} for text in body["run_at"]]
    return [body]


def fits(answer: Any, wanted: dict[str, Any]) -> bool:
    """Whether status, the field and its words are those of the case."""
    if answer.status_code != wanted.get("status"):
        return False
    error = wanted.get("error", {})
    errors = answer.json().get("errors", [])
    if "field" in error:
        pointer = "/" + error["field"].replace(".", "/")
        errors = [one for one in errors if one["pointer"].startswith(pointer)]
    said = " ".join(one["detail"] for one in errors)
    return ("field" not in error or bool(errors)) and all(
        words in said for words in error.get("must_mention", ())
    )


@pytest.mark.parametrize("case", ASKED, ids=lambda case: case["id"])
def test_a_request_of_the_cases_gets_a_right_answer(world: World, case: dict[str, Any]) -> None:
    for body in bodies(case):
        if case["input"]["request"].startswith("PATCH"):
            path = f"/v1/jobs/{world.define()['job_id']}"
            before = world.send("GET", path)
            answer = world.send("PATCH", path, body)
            assert world.send("GET", path).content == before.content
        else:
            stored = world.stored()
            sent = body if isinstance(body, bytes) else whole(body)
            answer = world.send("POST", "/v1/jobs", sent)
            assert (world.stored() == stored) == (answer.status_code >= 400)
        allowed = case["expected"].get("either", [case["expected"]])
        assert any(fits(answer, one) for one in allowed), (body, answer.text)


def test_an_old_name_of_a_zone_has_the_same_instants() -> None:
    """TZ-02."""
    world = World()
    for name in ("Asia/Kolkata", "Asia/Calcutta"):
        answer = world.define(whole({"schedule": "0 9 * * *", "timezone": name}))
        assert answer["next_runs"][0] == "2025-11-30T03:30:00.000Z"


@pytest.mark.parametrize(
    ("key", "status"),
    [
        *zip(
            CASES["IDM-04"]["input"]["Idempotency-Key"],
            CASES["IDM-04"]["expected"]["statuses"],
            strict=True,
        )
    ],
)
def test_an_idempotency_key_has_a_length_and_an_alphabet(
    world: World, key: str, status: int
) -> None:
    """IDM-04."""
    sent = key.replace("a*256", "a" * 256)
    answer = world.send("POST", "/v1/jobs", JOB, idempotency_key=sent)
    assert answer.status_code == status
    assert (world.stored() > 0) == (status == 201)


def test_a_cancelled_job_is_shown_cancelled_again_and_not_changed(world: World) -> None:
    """CAN-03."""
    wanted = CASES["CAN-03"]["expected"]
    path = f"/v1/jobs/{world.define()['job_id']}"
    world.send("DELETE", path)
    shown = world.send("GET", path)
    assert shown.status_code == wanted["get"]["status"]
    assert shown.json()["status"] == wanted["get"]["job_status"]
    assert shown.json()["next_run_at"] == wanted["get"]["next_run_at"]
    assert world.send("DELETE", path).status_code == wanted["second_delete"]
    assert world.send("PATCH", path, {"name": "x"}).status_code == wanted["patch"]


def test_one_key_with_two_bodies_makes_one_job(world: World) -> None:
    """IDM-01."""
    wanted = CASES["IDM-01"]["expected"]
    bodies_sent = (JOB, JOB | {"name": "B"})
    sent = [world.send("POST", "/v1/jobs", body, idempotency_key="k1") for body in bodies_sent]
    assert [answer.status_code for answer in sent] == wanted["statuses"]
    assert len(world.log.heads) == wanted["jobs_created"]


# ------------------------------------------------------------------ edits in time


class Edited:
    """A job in a world whose clock is set: what a change makes of its next run."""

    def __init__(self, at: str, **fields: Any) -> None:
        self.world = World()
        self.to(at)
        self.job_id = self.world.define(JOB | {"jitter_s": 0} | fields)["job_id"]

    def to(self, at: str) -> None:
        """Move on to an instant."""
        moment = datetime.fromisoformat(at)
        ms = int((moment - datetime.fromtimestamp(START / 1000, UTC)).total_seconds() * 1000)
        self.world.clock.advance_ms(START + ms - self.world.clock.now())

    def edit(self, **fields: Any) -> str:
        """Change the job and return when it runs next; no run has begun by that."""
        events = self.world.stored()
        answer = self.world.send("PATCH", f"/v1/jobs/{self.job_id}", fields)
        assert answer.status_code == 200, answer.text
        self.changed = self.world.stored() - events
        return self.next()

    def next(self) -> str:
        """When the job runs next."""
        found: str = self.world.send("GET", f"/v1/jobs/{self.job_id}").json()["next_run_at"]
        return found


def test_another_zone_moves_the_next_run_and_makes_none() -> None:
    """TZ-12, in the year after the world begins."""
    job = Edited("2026-05-01T05:00:01+00:00", schedule="0 5 1 * *", timezone="UTC")
    job.to("2026-05-17T16:00:00+00:00")
    assert job.edit(timezone="Europe/Berlin") == "2026-06-01T03:00:00.000Z"


def test_a_zone_behind_that_of_the_host_is_not_due_all_the_time() -> None:
    """TZ-13, in the year after the world begins."""
    job = Edited(
        "2026-05-12T11:50:00+00:00", schedule="*/15 8-17 * * *", timezone="America/New_York"
    )
    assert job.next() == "2026-05-12T12:00:00.000Z"


@pytest.mark.parametrize(
    ("schedule", "after"),
    [
        ("0 14 * * *", "2026-03-03T14:00:00.000Z"),  # MIS-05
        ("0 2 * * *", "2026-03-03T02:00:00.000Z"),  # MIS-06
        ("* * * * *", "2026-03-02T15:01:00.000Z"),  # MIS-08
    ],
)
def test_another_schedule_runs_first_after_the_change(schedule: str, after: str) -> None:
    job = Edited("2026-03-02T01:00:01+00:00", schedule="0 1 * * *", timezone="UTC")
    job.to("2026-03-02T15:00:20+00:00")
    assert job.edit(schedule=schedule) == after


def test_an_edit_before_a_slot_takes_it_away() -> None:
    """MIS-07: what was looked ahead is not fired; the claim of an old one is refused elsewhere."""
    job = Edited("2026-03-02T00:00:00+00:00", schedule="0 23 * * *", timezone="UTC")
    job.to("2026-03-02T12:00:00+00:00")
    assert job.next() == "2026-03-02T23:00:00.000Z"
    assert job.edit(schedule="0 5 * * *") == "2026-03-03T05:00:00.000Z"


def test_an_edit_that_changes_nothing_leaves_the_next_run_alone() -> None:
    """MIS-14."""
    job = Edited("2026-03-02T00:00:30+00:00", schedule="* * * * *", timezone="UTC")
    for millisecond in range(0, 20_000, 200):
        job.to(f"2026-03-02T00:00:{30 + millisecond // 1000:02}.{millisecond % 1000:03}+00:00")
        assert job.edit(schedule="* * * * *") == "2026-03-02T00:01:00.000Z"
        assert job.changed == 0


def test_a_job_that_is_made_again_under_its_name_makes_nothing_up() -> None:
    """MIS-09."""
    job = Edited("2026-03-02T00:00:30+00:00", schedule="0 * * * *", timezone="UTC", key="nightly")
    job.to("2026-03-02T06:00:00+00:00")
    assert job.world.send("DELETE", f"/v1/jobs/{job.job_id}").status_code == 200
    job.to("2026-03-07T06:00:10+00:00")
    again = whole({"schedule": "* * * * *", "timezone": "UTC", "key": "nightly", "jitter_s": 0})
    answer = job.world.define(again)
    assert answer["next_runs"][0] == "2026-03-07T06:01:00.000Z"


def test_jitter_of_the_last_slot_has_no_other_limit() -> None:
    """JIT-02."""
    answer = World().define(whole({"run_at": "2026-12-01T00:00:00Z", "jitter_s": 5}))
    assert "2026-12-01T00:00:00.000Z" <= answer["next_due_at"] <= "2026-12-01T00:00:05.000Z"


def test_jitter_longer_than_the_distance_of_slots_keeps_their_order() -> None:
    """JIT-03."""
    for _ in range(10):
        answer = World().define(whole({"schedule": "*/1 * * * *", "jitter_s": 90}))
        assert answer["next_run_at"] <= answer["next_due_at"] < answer["next_runs"][1]


@pytest.mark.parametrize(
    ("dialect", "text", "first"),
    [
        ("quartz", "0 15 10 ? * 6L", "2025-12-26T10:15:00.000Z"),
        ("aws", "cron(15 10 ? * 6L *)", "2025-12-26T10:15:00.000Z"),
        ("spring", "0 15 10 ? * FRIL", "2025-12-26T10:15:00.000Z"),
        ("k8s", "@daily", "2025-12-01T00:00:00.000Z"),
        ("systemd", "Mon..Fri 10:15", "2025-12-01T10:15:00.000Z"),
    ],
)
def test_a_dialect_is_asked_for_by_name_and_the_text_is_shown_as_typed(
    world: World, dialect: str, text: str, first: str
) -> None:
    answer = world.define(whole({"schedule": text, "timezone": "UTC", "dialect": dialect}))
    assert answer["next_runs"][0] == first
    spec = world.send("GET", f"/v1/jobs/{answer['job_id']}").json()["spec"]
    assert (spec["schedule"], spec["dialect"]) == (text, dialect)
