"""Schedules of every kind over HTTP."""

from typing import Any

import pytest

from domain.schedule import recurrence
from tests.api.world import JOB, World

BARE: dict[str, Any] = {
    name: value for name, value in JOB.items() if name not in ("schedule", "timezone")
}
EVERY: dict[str, Any] = BARE | {"every": "PT90M", "anchor": "2025-11-30T00:30:00Z"}


def refused(world: World, body: dict[str, Any]) -> list[tuple[str, str]]:
    """Return pointer and detail of each refusal."""
    found = world.send("POST", "/v1/jobs", body)
    assert found.status_code == 422, found.text
    return [(reason["pointer"], reason["detail"]) for reason in found.json()["errors"]]


def spec_of(world: World, job_id: str) -> dict[str, Any]:
    """Return a job's spec as shown."""
    found: dict[str, Any] = world.send("GET", f"/v1/jobs/{job_id}").json()["spec"]
    return found


def test_an_interval_fires_at_its_anchor_and_at_each_step_after_it(world: World) -> None:
    answer = world.define(EVERY)
    assert answer["next_runs"][:3] == [
        "2025-11-30T00:30:00.000Z",
        "2025-11-30T02:00:00.000Z",
        "2025-11-30T03:30:00.000Z",
    ]


def test_an_interval_is_shown_as_it_can_be_sent_back(world: World) -> None:
    job_id = world.define(EVERY)["job_id"]
    spec = spec_of(world, job_id)
    assert (spec["every"], spec["anchor"]) == ("PT90M", "2025-11-30T00:30:00.000Z")
    sent = spec | {"target": EVERY["target"]}
    assert spec_of(world, world.define(sent)["job_id"]) == spec


def test_a_list_shows_an_interval_in_a_few_words(world: World) -> None:
    world.define(BARE | {"every": "P1M", "timezone": "Europe/Berlin"})
    world.project()
    item = world.send("GET", "/v1/jobs").json()["items"][0]
    assert (item["schedule"], item["timezone"]) == ("every P1M", "Europe/Berlin")


def test_a_change_of_the_kind_drops_what_belongs_to_the_other(world: World) -> None:
    job_id = world.define(JOB | {"dst": {"gap": "skip"}})["job_id"]
    path = f"/v1/jobs/{job_id}"
    assert world.send("PATCH", path, {"every": "PT2H"}).status_code == 200
    assert "schedule" not in spec_of(world, job_id)
    assert world.send("PATCH", path, {"schedule": "5 * * * *"}).status_code == 200
    spec = spec_of(world, job_id)
    assert (spec["schedule"], spec["timezone"]) == ("5 * * * *", "America/New_York")
    assert "every" not in spec
    assert "anchor" not in spec


def test_a_step_alone_can_be_changed_and_keeps_its_anchor(world: World) -> None:
    job_id = world.define(EVERY)["job_id"]
    found = world.send("PATCH", f"/v1/jobs/{job_id}", {"every": "PT30M"})
    assert found.json()["next_runs"][:2] == ["2025-11-30T00:30:00.000Z", "2025-11-30T01:00:00.000Z"]


@pytest.mark.parametrize(
    ("more", "pointer"),
    [
        ({"every": "90m"}, "/every"),
        ({"every": 90}, "/every"),
        ({"every": "PT5S"}, "/every"),
        ({"every": "P1D"}, "/timezone"),
        ({"every": "PT1H", "schedule": "* * * * *"}, "/every"),
        ({"every": "PT1H", "dialect": "vixie"}, "/dialect"),
        ({"every": "PT1H", "anchor": 5}, "/anchor"),
        ({"every": "PT1H", "anchor": "now"}, "/anchor"),
        ({"every": "PT1H", "timezone": "Mars/Base"}, "/timezone"),
        ({"every": "PT1H", "from": "start"}, "/from"),
        ({"every": "PT1H", "from": 5}, "/from"),
        ({"schedule": "* * * * *", "timezone": "UTC", "from": "completion"}, "/from"),
        ({"schedule": "* * * * *", "timezone": "UTC", "anchor": "2025-11-30T00:30:00Z"}, "/anchor"),
        ({"type": "one_time", "run_at": "2026-01-01T00:00:00Z", "every": "PT1H"}, "/every"),
        ({}, "/schedule"),
    ],
)
def test_a_schedule_that_is_refused_is_named_by_its_field(
    world: World, more: dict[str, Any], pointer: str
) -> None:
    assert [found for found, _ in refused(world, BARE | more)] == [pointer]
    assert world.stored() == 0


SPAN = JOB | {"starts_at": "2025-12-01T00:30:00Z", "ends_at": "2025-12-01T03:00:00Z"}


def test_only_slots_from_start_to_end_are_listed_and_both_are_shown(world: World) -> None:
    answer = world.define(SPAN)
    assert answer["next_runs"] == [f"2025-12-01T0{hour}:00:00.000Z" for hour in (1, 2, 3)]
    spec = spec_of(world, answer["job_id"])
    assert spec["starts_at"] == "2025-12-01T00:30:00.000Z"
    assert spec["ends_at"] == "2025-12-01T03:00:00.000Z"


def test_start_and_end_can_be_taken_away_again(world: World) -> None:
    job_id = world.define(SPAN)["job_id"]
    world.send("PATCH", f"/v1/jobs/{job_id}", {"starts_at": None, "ends_at": None})
    spec = spec_of(world, job_id)
    assert "starts_at" not in spec
    assert "ends_at" not in spec


def test_a_job_that_becomes_one_time_has_no_start_and_end(world: World) -> None:
    job_id = world.define(SPAN)["job_id"]
    patch = {"type": "one_time", "run_at": "2026-01-01T00:00:00Z"}
    assert world.send("PATCH", f"/v1/jobs/{job_id}", patch).status_code == 200
    assert "ends_at" not in spec_of(world, job_id)


def test_a_definition_is_repeated_after_its_end_has_passed(world: World) -> None:
    first = world.define(SPAN, idempotency_key="k")
    world.clock.advance_ms(3 * 86_400_000)
    assert world.define(SPAN, idempotency_key="k") == first


@pytest.mark.parametrize(
    ("more", "pointer"),
    [
        ({"starts_at": 5}, "/starts_at"),
        ({"starts_at": "tomorrow"}, "/starts_at"),
        ({"ends_at": "2025-11-29T00:00:00Z"}, "/ends_at"),
        ({"ends_at": "2025-11-30T00:59:59Z"}, "/ends_at"),
        ({"starts_at": "2025-12-02T00:00:00Z", "ends_at": "2025-12-01T00:00:00Z"}, "/ends_at"),
    ],
)
def test_a_start_or_an_end_that_leaves_no_slot_is_refused(
    world: World, more: dict[str, Any], pointer: str
) -> None:
    assert [found for found, _ in refused(world, JOB | more)] == [pointer]


def test_a_one_time_job_has_no_start_and_end(world: World) -> None:
    body = BARE | {"type": "one_time", "run_at": "2026-01-01T00:00:00Z"}
    ends = {"starts_at": "2025-12-01T00:00:00Z", "ends_at": "2026-12-01T00:00:00Z"}
    assert [found for found, _ in refused(world, body | ends)] == ["/starts_at", "/ends_at"]


def test_a_recurrence_rule_fires_on_its_dates_and_is_shown_as_it_was_sent(world: World) -> None:
    body = BARE | {"rrule": "FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=9", "timezone": "America/New_York"}
    answer = world.define(body)
    assert answer["next_runs"][:2] == ["2025-12-26T14:00:00.000Z", "2026-01-30T14:00:00.000Z"]
    spec = spec_of(world, answer["job_id"])
    assert spec["rrule"] == body["rrule"]
    assert spec["anchor"] == "2001-01-01T05:00:00.000Z"


def test_a_recurrence_rule_that_is_refused_is_named_by_its_field(world: World) -> None:
    body = BARE | {"rrule": "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30", "timezone": "UTC"}
    ((pointer, detail),) = refused(world, body)
    assert pointer == "/rrule"
    assert "never matches" in detail
    assert [found for found, _ in refused(world, BARE | {"rrule": "FREQ=DAILY"})] == ["/timezone"]


UNION = BARE | {
    "schedules": [
        {"schedule": "0 9 * * *"},
        {"every": "PT6H"},
        {"rrule": "FREQ=DAILY;BYHOUR=12", "timezone": "UTC"},
    ],
    "timezone": "America/New_York",
}


def test_a_job_may_have_several_schedules(world: World) -> None:
    answer = world.define(UNION)
    assert answer["next_runs"][:4] == [
        "2025-11-30T05:00:00.000Z",
        "2025-11-30T11:00:00.000Z",
        "2025-11-30T12:00:00.000Z",
        "2025-11-30T14:00:00.000Z",
    ]
    spec = spec_of(world, answer["job_id"])
    assert [part["timezone"] for part in spec["schedules"]] == [
        "America/New_York",
        "America/New_York",
        "UTC",
    ]
    again = world.define(spec | {"target": UNION["target"]})
    assert spec_of(world, again["job_id"]) == spec


def test_a_list_shows_all_schedules_of_a_job(world: World) -> None:
    world.define(UNION)
    world.project()
    item = world.send("GET", "/v1/jobs").json()["items"][0]
    assert item["schedule"] == "0 9 * * * | every PT6H | BYHOUR=12".replace(
        "BYHOUR", "FREQ=DAILY;BYHOUR"
    )
    assert item["timezone"] is None


@pytest.mark.parametrize(
    ("schedules", "pointer"),
    [
        ([], "/schedules"),
        ("* * * * *", "/schedules"),
        ([{"every": "PT1H"}] * 9, "/schedules"),
        ([{"every": "PT1H"}, 5], "/schedules/1"),
        ([{"every": "PT1H"}, {"every": "1h"}], "/schedules/1/every"),
        ([{"schedule": "0 9 * * *"}], "/schedules/0/timezone"),
        ([{"schedules": []}], "/schedules/0/schedules"),
        ([{"every": "PT1H", "name": "x"}], "/schedules/0/name"),
        ([{}], "/schedules/0/schedule"),
    ],
)
def test_a_part_that_is_refused_is_named_by_its_place(
    world: World, schedules: Any, pointer: str
) -> None:
    assert [found for found, _ in refused(world, BARE | {"schedules": schedules})] == [pointer]


def test_no_more_occurrences_are_listed_than_a_job_may_have(world: World) -> None:
    answer = world.define(JOB | {"max_runs": 2})
    assert len(answer["next_runs"]) == 2
    path = f"/v1/jobs/{answer['job_id']}"
    assert spec_of(world, answer["job_id"])["max_runs"] == 2
    assert len(world.send("GET", path).json()["next_runs"]) == 2
    assert len(world.send("PATCH", path, {"max_runs": None}).json()["next_runs"]) == 5


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "3", 1_000_001])
def test_a_number_of_runs_that_is_refused_is_named(world: World, count: Any) -> None:
    assert [found for found, _ in refused(world, JOB | {"max_runs": count})] == ["/max_runs"]


def test_a_rule_whose_next_date_is_too_far_to_be_found_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recurrence, "DAYS_LOOKED_AT", 30)
    rare = "FREQ=MINUTELY;INTERVAL=1439;BYHOUR=0;BYMINUTE=0"
    body = BARE | {"rrule": rare, "timezone": "UTC", "anchor": "2025-11-29T00:00:00Z"}
    ((pointer, detail),) = refused(world, body)
    assert pointer == "/rrule"
    assert "nothing on 30 days" in detail
    assert world.send("POST", "/v1/preview", body).status_code == 422


@pytest.mark.parametrize(
    ("fields", "pointer", "last"),
    [
        ({"rrule": "FREQ=DAILY;UNTIL=20200103T000000Z"}, "/rrule", "2020-01-03T00:00:00.000Z"),
        ({"schedule": "2020-01-01", "dialect": "systemd"}, "/schedule", "2020-01-01T00:00:00.000Z"),
        ({"schedule": "0 9 1 1 ? 2025", "dialect": "aws"}, "/schedule", "2025-01-01T09:00:00.000Z"),
        (
            {"schedule": "0 0 9 1 1 ? 2024,2025", "dialect": "quartz"},
            "/schedule",
            "2025-01-01T09:00:00.000Z",
        ),
        (
            {"schedules": [{"rrule": "FREQ=DAILY;COUNT=2", "anchor": "2025-11-28T09:00:00Z"}]},
            "/schedules",
            "2025-11-29T09:00:00.000Z",
        ),
    ],
)
def test_a_schedule_whose_last_slot_is_past_is_refused_and_not_a_job_that_has_finished(
    world: World, fields: dict[str, Any], pointer: str, last: str
) -> None:
    body = BARE | {"timezone": "UTC"} | fields
    ((found, detail),) = refused(world, body)
    assert (found, f"its last slot was {last}" in detail) == (pointer, True), detail
    path = f"/v1/jobs/{world.define()['job_id']}"
    before = world.send("GET", path).content
    patch = {"schedule": None} | fields
    assert world.send("PATCH", path, patch | {"timezone": "UTC"}).status_code == 422
    assert world.send("GET", path).content == before


@pytest.mark.parametrize("dialect", ["k8s", "robfig"])
def test_every_of_the_go_dialects_is_an_interval_that_no_process_begins(
    world: World, dialect: str
) -> None:
    body = JOB | {"schedule": "@every 1h30m", "timezone": "UTC", "dialect": dialect}
    made = world.send("POST", "/v1/jobs", body)
    assert made.status_code == 201, made.text
    shown = world.send("GET", f"/v1/jobs/{made.json()['job_id']}").json()["spec"]
    assert (shown["every"], shown["anchor"]) == ("PT1H30M", "2001-01-01T00:00:00.000Z")
    assert "schedule" not in shown


@pytest.mark.parametrize(
    ("dialect", "text", "says"),
    [
        ("k8s", "@every 30s", "PT60S"),
        ("robfig", "@every 1.5h", "is an interval"),
        ("vixie", "@every 1h", '{"every": "PT1H"}'),
        ("quartz", "@every 1h", '{"every": "PT1H"}'),
    ],
)
def test_every_that_cannot_be_is_refused_as_the_schedule(
    world: World, dialect: str, text: str, says: str
) -> None:
    body = JOB | {"schedule": text, "timezone": "UTC", "dialect": dialect}
    refused = world.send("POST", "/v1/jobs", body)
    assert refused.status_code == 422
    (error,) = refused.json()["errors"]
    assert error["pointer"] == "/schedule"
    assert says in error["detail"]
