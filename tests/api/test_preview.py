"""`POST /v1/preview`: what a definition would do, before it is stored."""

from typing import Any

import pytest

from commandside.definitions.definition import Bounds
from domain.tenant import JOBS_READ, RUNS_READ
from tests.api.world import JOB, World

DAILY: dict[str, Any] = {
    "type": "recurring",
    "schedule": "30 2 * * *",
    "timezone": "America/New_York",
    "jitter_s": 0,
}


def preview(world: World, **body: Any) -> dict[str, Any]:
    """Return a preview of the daily job, changed."""
    found = world.send("POST", "/v1/preview", DAILY | body)
    assert found.status_code == 200, found.text
    answer: dict[str, Any] = found.json()
    return answer


def test_fires_are_listed_in_utc_and_in_local_time(world: World) -> None:
    found = preview(world, count=3, after="2026-03-07T00:00:00Z")["fires"]
    assert [(fire["nominal"], fire["local"]) for fire in found] == [
        ("2026-03-07T07:30:00.000Z", "2026-03-07T02:30:00-05:00"),
        ("2026-03-08T07:00:00.000Z", "2026-03-08T03:00:00-04:00"),
        ("2026-03-09T06:30:00.000Z", "2026-03-09T02:30:00-04:00"),
    ]
    assert found[0]["due_at"] == found[0]["due_until"] == found[0]["nominal"]


def test_nothing_is_stored(world: World) -> None:
    preview(world, key="nightly", target=JOB["target"], payload={"a": 1})
    assert world.stored() == 0


def test_the_spread_of_a_named_job_is_the_one_that_it_will_have(world: World) -> None:
    said = preview(world, key="nightly", jitter_s=600)["fires"][0]
    defined = world.define(DAILY | {"key": "nightly", "jitter_s": 600, "target": JOB["target"]})
    assert said["due_at"] == defined["next_due_at"]
    assert said["nominal"] == defined["next_run_at"]


def test_the_spread_of_a_job_without_a_name_is_said_by_its_end(world: World) -> None:
    said = preview(world, jitter_s=600)["fires"][0]
    assert said["due_at"] is None
    assert said["due_until"] == "2025-11-30T07:40:00.000Z"


def test_a_spread_ends_half_way_to_the_next_fire(world: World) -> None:
    said = preview(world, schedule="* * * * *", jitter_s=600)["fires"][0]
    assert said["due_until"] == "2025-11-30T00:01:30.000Z"


def test_words_and_warnings_say_what_it_does(world: World) -> None:
    said = preview(world, schedule="0 9 1 * 1")
    assert said["description"].startswith("At 09:00, on day 1 of the month, or on Monday")
    assert "the day fields are ORed" in said["warnings"][0]
    assert said["zone_data"]


@pytest.mark.parametrize(
    ("schedule", "count"), [("30 2 * * *", 1), ("*/15 * * * *", 96), ("0 0 1 1 *", 0)]
)
def test_fires_of_the_next_day_are_counted(world: World, schedule: str, count: int) -> None:
    assert preview(world, schedule=schedule)["fires_in_24h"] == count


def test_no_more_are_counted_than_the_bound() -> None:
    world = World(bounds=Bounds(min_interval_s=30))
    body = {"type": "recurring", "every": "PT30S"}
    found = world.send("POST", "/v1/preview", body)
    assert found.json()["fires_in_24h"] is None


def test_one_instant_is_previewed_too(world: World) -> None:
    body = {"type": "one_time", "run_at": "2026-02-01T09:00:00+01:00"}
    found = world.send("POST", "/v1/preview", body).json()
    assert [fire["nominal"] for fire in found["fires"]] == ["2026-02-01T08:00:00.000Z"]


def test_start_and_end_cut_the_list(world: World) -> None:
    ends = {"starts_at": "2025-12-01T00:00:00Z", "ends_at": "2025-12-03T00:00:00Z"}
    assert len(preview(world, **ends)["fires"]) == 2


def test_no_more_fires_are_listed_than_the_job_may_have(world: World) -> None:
    found = preview(world, schedule="*/15 * * * *", max_runs=2)
    assert len(found["fires"]) == 2
    assert found["fires_in_24h"] == 2


@pytest.mark.parametrize(
    ("more", "pointer"),
    [
        ({"count": 0}, "/count"),
        ({"count": 101}, "/count"),
        ({"count": True}, "/count"),
        ({"after": "now"}, "/after"),
        ({"after": 5}, "/after"),
        ({"schedule": "61 * * * *"}, "/schedule"),
        ({"target": {"kind": "http", "url": "ftp://x"}}, "/target/url"),
        ({"jitter_s": -1}, "/jitter_s"),
        ({"colour": "red"}, "/colour"),
        ({"language": "tlh"}, "/language"),
        ({"language": 5}, "/language"),
        ({"key": 5}, "/key"),
    ],
)
def test_a_preview_refuses_what_a_definition_would(
    world: World, more: dict[str, Any], pointer: str
) -> None:
    found = world.send("POST", "/v1/preview", DAILY | more)
    assert found.status_code == 422
    assert [reason["pointer"] for reason in found.json()["errors"]] == [pointer]


def test_the_description_is_in_the_language_that_is_asked_for(world: World) -> None:
    named = preview(world, language="de-AT")
    assert named["description"] == "Um 02:30 (America/New_York)"
    assert named["description_language"] == "de"
    rule = {"rrule": "FREQ=DAILY", "language": "de", "timezone": "UTC", "type": "recurring"}
    found = world.send("POST", "/v1/preview", rule).json()
    assert found["description"].startswith("by the rule FREQ=DAILY")
    assert found["description_language"] == "en"


@pytest.mark.parametrize(
    ("accepts", "language"),
    [
        ("fr-CA, de;q=0.9, en;q=0.8", "fr"),
        ("de;q=0.5, nl;q=0.7", "nl"),
        ("xx, zh-Hant-HK", "zh-TW"),
        ("de;q=0, *", "en"),
        ("no", "nb"),
        ("?;;q=x,,", "en"),
    ],
)
def test_the_description_is_in_a_language_that_the_client_accepts(
    world: World, accepts: str, language: str
) -> None:
    found = world.send("POST", "/v1/preview", DAILY, accept_language=accepts)
    assert found.json()["description_language"] == language


def test_each_of_several_schedules_is_told_as_it_would_be_alone(world: World) -> None:
    noon = {"schedule": "0 0 12 L * ?", "dialect": "quartz"}
    cron = {name: value for name, value in JOB.items() if name != "schedule"}
    two = cron | {"schedules": [{"schedule": "0 9 * * 1-5"}, noon], "timezone": "UTC"}
    told = {
        language: world.send("POST", "/v1/preview", two | {"language": language}).json()
        for language in ("en", "de")
    }
    assert told["en"]["description"] == (
        "At 09:00, Monday through Friday, in UTC; "
        "and at 12:00, on the last day of the month, in UTC"
    )
    assert told["de"]["description_language"] == "de"
    assert told["de"]["description"].startswith("Um 09:00, Montag bis Freitag (UTC); Um 12:00")
    mixed = two | {"schedules": [*two["schedules"], {"every": "P1D"}], "language": "de"}
    found = world.send("POST", "/v1/preview", mixed).json()
    assert found["description_language"] == "en"
    assert (
        "; and at 12:00, on the last day of the month, in UTC; and every day"
        in found["description"]
    )


def test_a_key_that_reads_jobs_may_preview(world: World) -> None:
    reads = world.add_key(b"t" * 16, (JOBS_READ,))
    other = world.add_key(b"t" * 16, (RUNS_READ,))
    assert world.send("POST", "/v1/preview", DAILY, key=reads).status_code == 200
    assert world.send("POST", "/v1/preview", DAILY, key=other).status_code == 403


def test_the_last_minutes_of_the_calendar_are_previewed_and_defined(world: World) -> None:
    last = {"type": "one_time", "run_at": "9999-12-31T23:59:59.999Z", "jitter_s": 3600}
    found = world.send("POST", "/v1/preview", last)
    assert found.status_code == 200, found.text
    assert (
        world.define(last | {"target": JOB["target"]})["next_due_at"] == "9999-12-31T23:59:59.999Z"
    )
    assert world.send("GET", "/v1/jobs").status_code == 200
    ends = {"every": "PT1M", "starts_at": "9999-12-31T23:00:00Z", "timezone": "Pacific/Apia"}
    every = world.send("POST", "/v1/preview", {"type": "recurring"} | ends)
    assert every.json()["fires"][0]["local"] == "9999-12-31T23:00:00+00:00"
