"""`placement: emptiest`: the second with the least load, chosen once and kept."""

import json
from collections import Counter
from math import ceil
from typing import Any

import pytest

from domain.job.events import Defined
from tests.api.world import JOB, World

HOURLY: dict[str, Any] = {
    "type": "recurring",
    "schedule": "0 * * * *",
    "timezone": "UTC",
    "target": JOB["target"],
    "jitter_s": 59,
    "placement": "emptiest",
}


def seconds(world: World) -> Counter[int]:
    """How many open runs are due in each second."""
    return Counter(due.run.facts.due_at // 1_000 for due in world.log.due.values())


def moved(answer: dict[str, Any]) -> str:
    """Return the effective part of an answer's next instant."""
    assert answer["next_run_at"].endswith(":00:00.000Z")
    due: str = answer["next_due_at"]
    return due


def test_each_job_takes_the_second_with_the_least_load(world: World) -> None:
    for _ in range(180):
        world.define(HOURLY)
    assert sorted(seconds(world).values()) == [3] * 60


def test_the_jobs_of_a_batch_spread_over_the_window(world: World) -> None:
    lines = b"\n".join(json.dumps(HOURLY | {"name": str(n)}).encode() for n in range(1_000))
    answers = world.batch(lines)
    assert len(answers) == 1_000
    assert max(seconds(world).values()) <= ceil(1_000 / 60) + 1


def test_a_hash_spreads_them_worse(world: World) -> None:
    lines = b"\n".join(json.dumps(HOURLY | {"placement": "spread"}).encode() for _ in range(1_000))
    world.batch(lines)
    assert max(seconds(world).values()) > ceil(1_000 / 60) + 1


def test_other_tenants_are_counted_too(world: World) -> None:
    exact = {"type": "one_time", "target": JOB["target"]}
    for second in range(59):
        body = exact | {"run_at": f"2025-11-30T01:00:{second:02d}Z"}
        world.send("POST", "/v1/jobs", body, key=world.other_key)
    assert moved(world.define(HOURLY)) == "2025-11-30T01:00:59.000Z"


def test_what_was_chosen_is_stored_and_shown(world: World) -> None:
    made = world.define(HOURLY | {"key": "mine"})
    shown = world.send("GET", f"/v1/jobs/{made['job_id']}").json()
    assert shown["spec"]["placement"] == "emptiest"
    assert shown["next_due_at"] == made["next_due_at"]
    plain = world.define(HOURLY | {"placement": "spread"})
    assert "placement" not in world.send("GET", f"/v1/jobs/{plain['job_id']}").json()["spec"]


def test_a_definition_that_is_repeated_keeps_its_second(world: World) -> None:
    first = world.define(HOURLY | {"key": "mine"})
    world.define(HOURLY)
    again = world.define(HOURLY | {"key": "mine"})
    assert again["version"] == first["version"] == 1
    assert again["next_due_at"] == first["next_due_at"]


def test_an_edit_of_something_else_keeps_it_and_another_schedule_chooses_anew(world: World) -> None:
    body = HOURLY | {"jitter_s": 1_800}
    path = f"/v1/jobs/{world.define(body)['job_id']}"
    before = world.send("GET", path).json()["next_due_at"]
    patch = {"content_type": "application/merge-patch+json"}
    named = world.send("PATCH", path, {"name": "other"}, **patch)
    assert named.status_code == 200, named.text
    assert named.json()["next_due_at"] == before
    for hour in range(60):
        run_at = f"2025-11-30T01:30:{hour:02d}Z"
        world.define({"type": "one_time", "target": JOB["target"], "run_at": run_at})
    changed = world.send("PATCH", path, {"schedule": "30 * * * *", "jitter_s": 60}, **patch).json()
    assert changed["next_run_at"] == "2025-11-30T00:30:00.000Z"
    assert changed["next_due_at"] <= "2025-11-30T00:31:00.000Z"
    spread = world.send("PATCH", path, {"placement": "spread"}, **patch)
    assert spread.status_code == 200
    assert "placement" not in world.send("GET", path).json()["spec"]


def test_a_change_to_the_emptiest_second_goes_there(world: World) -> None:
    for second in range(60):
        run_at = f"2025-11-30T01:00:{second:02d}Z"
        if second != 33:
            world.define({"type": "one_time", "target": JOB["target"], "run_at": run_at})
    path = f"/v1/jobs/{world.define(HOURLY | {'placement': 'spread'})['job_id']}"
    mine = seconds(world)
    patch = {"content_type": "application/merge-patch+json"}
    changed = world.send("PATCH", path, {"placement": "emptiest"}, **patch)
    assert changed.status_code == 200, changed.text
    assert changed.json()["next_due_at"] == "2025-11-30T01:00:33.000Z", mine


def test_its_fires_stay_in_the_second_that_was_chosen(world: World) -> None:
    made = world.define(HOURLY)
    (stored,) = [
        event
        for job_id in world.log.heads
        for event in world.log.events_of(job_id)
        if isinstance(event, Defined)
    ]
    assert 0 <= stored.spec.spread_ms <= 59_000
    assert moved(made)[:19] == f"2025-11-30T01:00:{stored.spec.spread_ms // 1000:02d}"


def test_a_preview_says_that_it_is_not_known_yet(world: World) -> None:
    found = world.send("POST", "/v1/preview", HOURLY | {"key": "mine"}).json()["fires"][0]
    assert found["due_at"] is None
    assert found["due_until"] == "2025-11-30T01:00:59.000Z"


@pytest.mark.parametrize(
    "more", [{"placement": "fullest"}, {"placement": 5}, {"jitter_s": 0}, {"exact": True}]
)
def test_a_placement_without_a_window_is_refused(world: World, more: dict[str, Any]) -> None:
    body = HOURLY | more
    if body.get("exact"):
        del body["jitter_s"]
    found = world.send("POST", "/v1/jobs", body)
    assert found.status_code == 422
    assert [error["pointer"] for error in found.json()["errors"]] == ["/placement"]
    assert world.stored() == 0


def test_nothing_is_decided_while_the_load_cannot_be_read(world: World) -> None:
    world.log.away = True
    assert world.send("POST", "/v1/jobs", HOURLY).status_code == 503


def test_a_fixed_delay_has_no_second_to_choose(world: World) -> None:
    body = {name: value for name, value in HOURLY.items() if name not in ("schedule", "timezone")}
    found = world.send("POST", "/v1/jobs", body | {"every": "PT1H", "from": "completion"})
    assert [error["pointer"] for error in found.json()["errors"]] == ["/placement"]
