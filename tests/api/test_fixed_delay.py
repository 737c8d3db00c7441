"""`every` from `completion` over HTTP: what is said of it, and what is refused beside it."""

from typing import Any

import pytest

from tests.api.test_schedule_kinds import BARE, refused, spec_of
from tests.api.world import JOB, World

DELAY: dict[str, Any] = BARE | {"every": "PT5M", "from": "completion"}
FIRST = "2025-11-30T00:05:00.000Z"


def patched(world: World, job_id: str, **fields: Any) -> Any:
    """Change a job."""
    return world.send("PATCH", f"/v1/jobs/{job_id}", fields)


def pointers(answer: Any) -> list[str]:
    """Return what a refusal is about."""
    assert answer.status_code == 422, answer.text
    return [reason["pointer"] for reason in answer.json()["errors"]]


def test_only_the_first_run_is_known_and_that_is_said(world: World) -> None:
    answer = world.define(DELAY)
    assert answer["next_run_at"] == answer["next_due_at"] == FIRST
    assert answer["next_runs"] == [FIRST]
    assert any("depend on how long runs take" in said for said in answer["warnings"])
    shown = world.send("GET", f"/v1/jobs/{answer['job_id']}").json()
    assert (shown["next_run_at"], shown["next_runs"]) == (FIRST, [FIRST])


def test_a_start_or_an_anchor_to_come_is_the_first_run(world: World) -> None:
    for field in ("starts_at", "anchor"):
        answer = world.define(DELAY | {field: "2025-12-01T00:00:00Z"})
        assert answer["next_runs"] == ["2025-12-01T00:00:00.000Z"]


def test_it_is_shown_as_it_can_be_sent_back(world: World) -> None:
    job_id = world.define(DELAY | {"anchor": "2025-12-01T00:00:00Z"})["job_id"]
    spec = spec_of(world, job_id)
    assert (spec["every"], spec["from"]) == ("PT5M", "completion")
    assert (spec["anchor"], spec["jitter_s"]) == ("2025-12-01T00:00:00.000Z", 0)
    sent = spec | {"target": JOB["target"]}
    assert spec_of(world, world.define(sent)["job_id"]) == spec


def test_a_list_shows_it_in_a_few_words(world: World) -> None:
    world.define(DELAY)
    world.project()
    item = world.send("GET", "/v1/jobs").json()["items"][0]
    assert item["schedule"] == "every PT5M from completion"


def test_the_usual_origin_has_a_name(world: World) -> None:
    body = BARE | {"every": "PT5M", "from": "anchor"}
    assert len(world.define(body)["next_runs"]) == 5


def test_a_schedule_becomes_a_delay_and_back(world: World) -> None:
    job_id = world.define(JOB)["job_id"]
    answer = patched(world, job_id, every="PT10M", **{"from": "completion"})
    assert answer.json()["next_runs"] == ["2025-11-30T00:10:00.000Z"]
    assert patched(world, job_id, every="PT20M").json()["next_run_at"] == "2025-11-30T00:20:00.000Z"
    assert spec_of(world, job_id)["from"] == "completion"
    assert patched(world, job_id, **{"from": None}).status_code == 200
    spec = spec_of(world, job_id)
    assert (spec["every"], spec["anchor"]) == ("PT20M", "2001-01-01T05:00:00.000Z")
    assert "from" not in spec


def test_an_edit_elsewhere_keeps_the_instant(world: World) -> None:
    job_id = world.define(DELAY)["job_id"]
    world.clock.advance_ms(60_000)
    patched(world, job_id, name="other")
    assert world.send("GET", f"/v1/jobs/{job_id}").json()["next_run_at"] == FIRST


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a day": ({"every": "P1D"}, "/every"),
    "a month": ({"every": "P1M"}, "/every"),
    "too short": ({"every": "PT5S"}, "/every"),
    "a rule for clock changes": ({"dst": {"gap": "skip"}}, "/dst"),
    "an unknown zone": ({"timezone": "Mars/Base"}, "/timezone"),
    "an anchor that is no instant": ({"anchor": "now"}, "/anchor"),
    "runs that overlap": ({"overlap": "allow"}, "/overlap"),
    "runs that wait": ({"overlap": "buffer_one"}, "/overlap"),
    "runs that may overlap": ({"allow_overlap": True}, "/allow_overlap"),
    "all that is missed": ({"misfire": "all"}, "/misfire"),
    "nothing that is missed": ({"misfire": "skip"}, "/misfire"),
    "a window": ({"catch_up_window_s": 60}, "/catch_up_window_s"),
    "an end before the first": ({"ends_at": "2025-11-30T00:04:59Z"}, "/ends_at"),
    "a cron text beside": ({"schedule": "* * * * *"}, "/every"),
}


@pytest.mark.parametrize(("more", "pointer"), REFUSED.values(), ids=REFUSED.keys())
def test_what_a_delay_has_no_use_for_is_refused_by_name(
    world: World, more: dict[str, Any], pointer: str
) -> None:
    assert [found for found, _ in refused(world, DELAY | more)] == [pointer]
    assert world.stored() == 0


def test_a_delay_is_not_one_of_several_schedules(world: World) -> None:
    parts = [{"every": "PT1H"}, {"every": "PT5M", "from": "completion"}]
    ((pointer, detail),) = refused(world, BARE | {"schedules": parts})
    assert pointer == "/schedules/1/from"
    assert "one next one" in detail


def test_one_time_jobs_have_none(world: World) -> None:
    body = BARE | {"type": "one_time", "run_at": "2026-01-01T00:00:00Z", "from": "completion"}
    assert [found for found, _ in refused(world, body)] == ["/from"]


def test_policies_that_fit_a_clock_do_not_survive_a_change_to_a_delay(world: World) -> None:
    job_id = world.define(JOB | {"overlap": "allow", "misfire": "all"})["job_id"]
    to_delay = {"every": "PT5M", "from": "completion"}
    assert pointers(patched(world, job_id, **to_delay)) == [
        "/overlap",
        "/misfire",
        "/catch_up_window_s",
    ]
    answer = patched(world, job_id, **to_delay, overlap="skip", misfire="latest")
    assert answer.status_code == 200, answer.text
    assert pointers(patched(world, job_id, overlap="allow")) == ["/overlap"]
    assert pointers(patched(world, job_id, misfire="all")) == ["/misfire"]


def test_definitions_that_differ_only_in_the_origin_are_not_read_as_one(world: World) -> None:
    """What was read of policies is remembered by their text."""
    plain = world.define(BARE | {"every": "PT5M"})["job_id"]
    delay = world.define(DELAY)["job_id"]
    assert [spec_of(world, one)["jitter_s"] for one in (plain, delay)] == [5, 0]


def test_a_preview_shows_the_first_run_alone(world: World) -> None:
    body = {name: value for name, value in DELAY.items() if name != "target"}
    found = world.send("POST", "/v1/preview", body | {"count": 5}).json()
    assert [fire["nominal"] for fire in found["fires"]] == [FIRST]
    assert found["fires_in_24h"] is None
    assert found["description"] == "5 minutes after the end of each run"
    assert any("depend on how long runs take" in said for said in found["warnings"])


def test_a_load_leaves_out_what_no_clock_names(world: World) -> None:
    world.define(DELAY)
    body = {name: value for name, value in DELAY.items() if name != "target"}
    load = world.send("POST", "/v1/preview", body).json()["load"]
    assert (load["left_out"], load["exact"], load["worst_with"]) == (2, False, None)
