"""Schedules of every kind over HTTP."""

from typing import Any

import pytest

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
        ({"every": "PT1H", "from": "completion"}, "/from"),
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
