"""Calendars over HTTP: their versions, what jobs exclude by them, and what an edit does to jobs."""

import json
from typing import Any

import pytest

from domain import ids
from domain.job import events as je
from domain.run import events as re
from tests.api.world import JOB, Body, World

HOURLY: dict[str, Any] = JOB | {"timezone": "UTC", "schedule": "0 * * * *", "jitter_s": 0}
NIGHT: dict[str, Any] = {
    "ranges": [{"from": "2025-11-30T00:00", "until": "2025-11-30T06:00"}],
    "timezone": "UTC",
}
PATH = "/v1/calendars/holidays"


def put(world: World, body: Body = None, path: str = PATH, **headers: str) -> dict[str, Any]:
    """Put a calendar and return the answer."""
    found = world.send("PUT", path, NIGHT if body is None else body, **headers)
    assert found.status_code in (200, 201), found.text
    answer: dict[str, Any] = found.json()
    assert found.headers["etag"] == f'"{answer["version"]}"'
    return answer


def excluding(world: World, **more: Any) -> dict[str, Any]:
    """Define a job that leaves out the calendar."""
    return world.define(HOURLY | {"exclude": ["holidays"]} | more)


def shown(world: World, job_id: str) -> dict[str, Any]:
    found: dict[str, Any] = world.send("GET", f"/v1/jobs/{job_id}").json()
    return found


# ---------------------------------------------------------------- calendars


def test_a_calendar_is_made_changed_and_shown_in_every_version(world: World) -> None:
    made = world.send("PUT", PATH, NIGHT)
    assert made.status_code == 201
    assert made.headers["location"] == PATH
    assert made.json() == {
        "name": "holidays",
        "version": 1,
        "changed": True,
        "jobs": 0,
        "recomputed": 0,
        "pending": 0,
    }
    same = put(world, NIGHT)
    assert (same["version"], same["changed"]) == (1, False)
    weekend = {"weekly": [{"from": "Saturday 00:00", "until": "mon 06:00"}], "dates": []}
    assert put(world, weekend)["version"] == 2
    now = world.send("GET", PATH).json()
    assert (now["version"], now["timezone"], now["ranges"]) == (2, None, [])
    assert now["weekly"] == [
        {"from": "mon 00:00", "until": "mon 06:00"},
        {"from": "sat 00:00", "until": "sun 24:00"},
    ]
    first = world.send("GET", f"{PATH}?version=1").json()
    assert first["ranges"] == [{"from": "2025-11-30T00:00:00", "until": "2025-11-30T06:00:00"}]
    assert world.send("GET", f"{PATH}?version=3").status_code == 404


def test_what_is_shown_can_be_put_back(world: World) -> None:
    body = {
        "dates": ["2026-12-25", "2026-12-26"],
        "ranges": [
            {"from": "2027-01-01", "until": "2027-01-03"},
            {"from": "2027-02-01T12:00", "until": "2027-02-01T13:30:30"},
            {"from": "2027-03-01T12:00:00Z", "until": "2027-03-01T13:00:00+00:00"},
        ],
        "weekly": [{"from": "sat 00:00", "until": "mon 06:00"}],
        "timezone": "Europe/Berlin",
    }
    put(world, body)
    found = world.send("GET", PATH).json()
    assert found["ranges"] == [
        {"from": "2026-12-25", "until": "2026-12-26"},
        {"from": "2027-01-01", "until": "2027-01-03"},
        {"from": "2027-02-01T12:00:00", "until": "2027-02-01T13:30:30"},
        {"from": "2027-03-01T12:00:00.000Z", "until": "2027-03-01T13:00:00.000Z"},
    ]
    again = {name: found[name] for name in ("ranges", "weekly", "timezone")}
    assert not put(world, again)["changed"]


def test_an_icalendar_file_is_put_as_it_is(world: World) -> None:
    lines = (
        "BEGIN:VCALENDAR",
        "BEGIN:VEVENT",
        "DTSTART;VALUE=DATE:20251225",
        "RRULE:FREQ=YEARLY",
        "END:VEVENT",
        "END:VCALENDAR",
        "",
    )
    text = "\r\n".join(lines)
    answer = put(world, text, content_type="text/calendar; charset=utf-8")
    assert answer["expanded_until"] == "2031-01-01T00:00:00.000Z"
    found = world.send("GET", PATH).json()
    assert found["ranges"][0] == {"from": "2025-12-25", "until": "2025-12-25"}
    assert found["expanded_until"] == answer["expanded_until"]
    assert not put(world, {"ics": text})["changed"]


def test_calendars_are_listed_by_name_and_page(world: World) -> None:
    for name in ("b", "a", "c"):
        put(world, path=f"/v1/calendars/{name}")
    page = world.send("GET", "/v1/calendars?limit=2").json()
    assert [item["name"] for item in page["items"]] == ["a", "b"]
    rest = world.send("GET", f"/v1/calendars?limit=2&cursor={page['next_cursor']}").json()
    assert [item["name"] for item in rest["items"]] == ["c"]
    assert rest["next_cursor"] is None
    for query in ("limit=0", "limit=x", "limit=201", "cursor=%20"):
        assert world.send("GET", f"/v1/calendars?{query}").status_code == 422


def test_another_tenants_calendar_is_as_absent(world: World) -> None:
    put(world)
    assert world.send("GET", PATH, key=world.other_key).status_code == 404
    assert world.send("DELETE", PATH, key=world.other_key).status_code == 404
    body = HOURLY | {"exclude": ["holidays"]}
    assert world.send("POST", "/v1/jobs", body, key=world.other_key).status_code == 422


def test_a_version_that_is_not_current_any_more_is_refused(world: World) -> None:
    put(world)
    assert put(world, {"dates": []}, if_match='"1"')["version"] == 2
    found = world.send("PUT", PATH, NIGHT, if_match='"1"')
    assert found.status_code == 412
    assert found.json()["errors"][0]["header"] == "If-Match"


@pytest.mark.parametrize(
    ("body", "pointer", "says"),
    [
        ({}, "", "one of dates, ranges, weekly, ics"),
        ({"days": []}, "/days", "unknown field"),
        ({"dates": "2026-12-25"}, "/dates", "a list"),
        ({"dates": ["2026-12-25", "2026-02-30"]}, "/dates/1", "there is no 2026-02-30"),
        ({"dates": [20261225]}, "/dates/0", "a date"),
        ({"dates": ["2150-01-01"]}, "/dates/0", "1970 to 2099"),
        ({"dates": [], "timezone": "Mars/Base"}, "/timezone", "not a known IANA"),
        ({"dates": [], "timezone": 5}, "/timezone", "a string"),
        ({"ranges": [{"from": "2026-01-01"}]}, "/ranges/0/until", "required"),
        ({"ranges": [["2026-01-01"]]}, "/ranges/0", "an object"),
        (
            {"ranges": [{"from": "2026-01-02", "until": "2026-01-01"}]},
            "/ranges/0/until",
            "not after from",
        ),
        (
            {"ranges": [{"from": "2026-01-02T00:00", "until": "2026-01-02T01:00:00Z"}]},
            "/ranges/0/until",
            "both local",
        ),
        ({"ranges": [{"from": "tomorrow at noon", "until": "x"}]}, "/ranges/0/from", "not a date"),
        ({"weekly": [{"from": "sat", "until": "mon 06:00"}]}, "/weekly/0/from", "sat 00:00"),
        ({"weekly": [{"from": "sam 10:00", "until": "mon 06:00"}]}, "/weekly/0/from", "sat 00:00"),
        (
            {"weekly": [{"from": "sat 00:00", "until": "sat 00:00"}]},
            "/weekly/0/until",
            "the same as from",
        ),
        (
            {
                "weekly": [
                    {"from": "mon 00:00", "until": "fri 00:00"},
                    {"from": "fri 00:00", "until": "sun 24:00"},
                ]
            },
            "/weekly",
            "no job would ever run",
        ),
        (
            {
                "dates": [
                    f"{y}-{m:02}-{d:02}"
                    for y in range(2026, 2030)
                    for m in range(1, 13)
                    for d in range(1, 28, 2)
                ]
                * 2
            },
            "",
            "",
        ),
        ({"ics": 5}, "/ics", "the text of an iCalendar file"),
        ({"ics": "hello"}, "/ics", "not an iCalendar file"),
    ],
)
def test_a_calendar_that_is_refused_says_where_and_why(
    world: World, body: dict[str, Any], pointer: str, says: str
) -> None:
    found = world.send("PUT", PATH, body)
    if not says:
        assert found.status_code == 201, "dates given twice are one"
        return
    assert found.status_code == 422, found.text
    reason = found.json()["errors"][0]
    assert reason["pointer"] == pointer
    assert says in reason["detail"]
    assert world.send("GET", PATH).status_code == 404


def test_more_stretches_than_a_calendar_holds_are_refused(world: World) -> None:
    days = [
        f"{year}-{month:02}-{day:02}"
        for year in range(2026, 2033)
        for month in range(1, 13)
        for day in range(1, 28, 2)
    ]
    found = world.send("PUT", PATH, {"dates": days})
    assert found.status_code == 422
    assert "at most 1000" in found.text


def test_a_file_that_is_too_large_is_refused(world: World) -> None:
    found = world.send("PUT", PATH, b"x" * 600_000, content_type="text/calendar")
    assert found.status_code == 422
    assert "at most 524288 characters" in found.text


def test_other_bodies_and_names_are_refused(world: World) -> None:
    assert world.send("PUT", PATH, b"x", content_type="text/plain").status_code == 415
    assert world.send("PUT", PATH, b"\xff", content_type="text/calendar").status_code == 422
    assert world.send("PUT", PATH, b"{").status_code == 400
    named = world.send("PUT", "/v1/calendars/-x", NIGHT)
    assert named.status_code == 422
    assert "1 to 64 letters, digits" in named.json()["detail"]
    assert world.send("PUT", PATH, NIGHT, if_match="x").status_code == 400


# ---------------------------------------------------------------- jobs


def test_a_job_leaves_out_what_its_calendars_have(world: World) -> None:
    put(world)
    answer = excluding(world)
    assert answer["next_runs"][0] == "2025-11-30T06:00:00.000Z"
    job = shown(world, answer["job_id"])
    assert job["spec"]["exclude"] == ["holidays"]
    assert job["calendars"] == [{"name": "holidays", "version": 1}]
    assert job["next_runs"][0] == "2025-11-30T06:00:00.000Z"
    again = world.define(job["spec"] | {"target": HOURLY["target"]})
    assert shown(world, again["job_id"])["calendars"] == job["calendars"]


@pytest.mark.parametrize(
    ("more", "pointer", "says"),
    [
        ({"exclude": ["holidays", "hollidays"]}, "/exclude/1", "PUT /v1/calendars/hollidays"),
        ({"exclude": "holidays"}, "/exclude", "a list"),
        ({"exclude": ["holidays", "holidays"]}, "/exclude/1", "twice"),
        ({"exclude": ["a b"]}, "/exclude/0", "such as holidays"),
        ({"exclude": [7]}, "/exclude/0", "such as holidays"),
        ({"exclude": [f"c{n}" for n in range(17)]}, "/exclude", "at most 16"),
        ({"exclude": ["holidays"], "ends_at": "2025-11-30T05:30:00Z"}, "/exclude", "never runs"),
        ({"exclude": ["always"]}, "/exclude", "never runs"),
        ({"exclude": ["holidays"], "every": "PT1H", "from": "completion"}, "/exclude", "no slots"),
    ],
)
def test_an_exclude_that_is_refused_stores_nothing(
    world: World, more: dict[str, Any], pointer: str, says: str
) -> None:
    put(world)
    hours = [
        {"from": f"{d} {h:02}:00", "until": f"{d} {h:02}:01"}
        for d in ("mon", "tue", "wed", "thu")
        for h in range(24)
    ]
    put(world, {"weekly": hours}, "/v1/calendars/always")
    more = dict(more)
    base = dict(HOURLY)
    if "every" in more:
        del base["schedule"], base["timezone"]
    if more["exclude"] == ["always"]:
        more |= {"schedule": "0 * * * 1-4"}
    for path in ("/v1/jobs", "/v1/preview"):
        found = world.send("POST", path, base | more)
        if path == "/v1/jobs" or "never" not in says:
            assert found.status_code == 422, (path, found.text)
            reason = found.json()["errors"][0]
            assert reason["pointer"] == pointer
            assert says in reason["detail"]
    assert world.stored() == 0


def test_a_one_time_job_excludes_nothing(world: World) -> None:
    put(world)
    body = {"type": "one_time", "run_at": "2026-01-01T00:00:00Z", "target": JOB["target"]}
    found = world.send("POST", "/v1/jobs", body | {"exclude": ["holidays"]})
    assert [e["pointer"] for e in found.json()["errors"]] == ["/exclude"]
    job_id = excluding(world)["job_id"]
    patch = {"type": "one_time", "run_at": "2026-01-01T00:00:00Z"}
    assert world.send("PATCH", f"/v1/jobs/{job_id}", patch).status_code == 200
    assert "exclude" not in shown(world, job_id)["spec"]


def test_schedules_of_several_zones_need_a_calendar_with_one(world: World) -> None:
    put(world, {"dates": ["2025-12-25"]})
    bare = {name: value for name, value in HOURLY.items() if name not in ("schedule", "timezone")}
    zones = [{"schedule": "0 9 * * *", "timezone": z} for z in ("UTC", "Asia/Tokyo")]
    body = bare | {"schedules": zones, "exclude": ["holidays"]}
    found = world.send("POST", "/v1/jobs", body)
    assert found.json()["errors"][0]["pointer"] == "/exclude/0"
    put(world, {"dates": ["2025-12-25"], "timezone": "UTC"})
    world.define(body)


def test_exclude_is_changed_and_taken_away(world: World) -> None:
    put(world)
    job_id = world.define(HOURLY)["job_id"]
    path = f"/v1/jobs/{job_id}"
    found = world.send("PATCH", path, {"exclude": ["holidays"]})
    assert found.json()["next_runs"][0] == "2025-11-30T06:00:00.000Z"
    assert world.send("PATCH", path, {"exclude": ["unknown"]}).status_code == 422
    # What is not touched stays, with the version that is in force.
    assert (
        world.send("PATCH", path, {"name": "x"}).json()["next_runs"][0].startswith("2025-11-30T06")
    )
    nothings: tuple[list[str] | None, ...] = ([], None)
    for nothing in nothings:
        world.send("PATCH", path, {"exclude": ["holidays"]})
        found = world.send("PATCH", path, {"exclude": nothing})
        assert found.json()["next_runs"][0] == "2025-11-30T01:00:00.000Z"
        assert "calendars" not in shown(world, job_id)


def test_a_preview_leaves_out_what_calendars_have_and_stores_nothing(world: World) -> None:
    put(world)
    found = world.send("POST", "/v1/preview", HOURLY | {"exclude": ["holidays"]}).json()
    assert found["fires"][0]["nominal"] == "2025-11-30T06:00:00.000Z"
    assert found["fires_in_24h"] == 19
    assert world.send("GET", PATH).json()["jobs"] == 0


def test_an_edit_moves_the_open_occurrences_that_it_touches_and_says_how_many(
    world: World,
) -> None:
    put(world, {"dates": []})
    hourly = [excluding(world)["job_id"] for _ in range(3)]
    noon = excluding(world, schedule="0 12 * * *")["job_id"]
    other = world.define(HOURLY)["job_id"]
    answer = put(world)
    assert (answer["jobs"], answer["recomputed"], answer["pending"]) == (4, 3, 0)
    for job_id in hourly:
        assert shown(world, job_id)["next_run_at"] == "2025-11-30T06:00:00.000Z"
    assert shown(world, noon)["calendars"] == [{"name": "holidays", "version": 2}]
    assert shown(world, noon)["next_run_at"] == "2025-11-30T12:00:00.000Z"
    assert shown(world, other)["next_run_at"] == "2025-11-30T01:00:00.000Z"
    assert put(world)["recomputed"] == 0
    assert put(world, {"dates": []})["recomputed"] == 3
    events = world.send("GET", f"/v1/jobs/{hourly[0]}/events").json()["items"]
    (first, *_) = [e for e in events if e["event"] == "job.replanned.v1"]
    assert first["detail"]["cause"] == "calendar"
    assert first["detail"]["exclusions"] in (
        [{"name": "holidays", "version": 2}],
        [{"name": "holidays", "version": 3}],
    )


def test_a_calendar_that_jobs_use_is_not_deleted(world: World) -> None:
    put(world)
    kept = excluding(world)["job_id"]
    gone = excluding(world)["job_id"]
    found = world.send("DELETE", PATH)
    assert found.status_code == 409
    assert "2 jobs use it" in found.json()["detail"]
    world.send("PATCH", f"/v1/jobs/{kept}", {"exclude": None})
    world.send("DELETE", f"/v1/jobs/{gone}")
    world.clock.advance_ms(2 * 60_000)
    assert world.send("DELETE", PATH).status_code == 200
    assert world.send("GET", PATH).status_code == 404
    assert world.send("DELETE", PATH).status_code == 404
    assert put(world)["version"] == 2


def test_jobs_of_a_batch_leave_out_what_their_calendars_have(world: World) -> None:
    put(world)

    lines = [HOURLY | {"exclude": ["holidays"]}, HOURLY, HOURLY | {"exclude": ["none"]}]
    answers = world.batch(b"\n".join(json.dumps(line).encode() for line in lines))
    assert [a["code"] for a in answers] == [201, 201, 422]
    assert answers[0]["job"]["next_run_at"] == "2025-11-30T06:00:00.000Z"
    assert answers[1]["job"]["next_run_at"] == "2025-11-30T01:00:00.000Z"


def test_a_named_job_that_is_defined_again_follows_the_calendars_of_then(world: World) -> None:
    put(world)
    excluding(world, key="k")
    put(world, {"dates": []})
    again = excluding(world, key="k")
    assert shown(world, again["job_id"])["calendars"] == [{"name": "holidays", "version": 2}]
    world.send("DELETE", f"/v1/jobs/{again['job_id']}")
    put(world)
    reborn = excluding(world, key="k")
    assert reborn["next_runs"][0] == "2025-11-30T06:00:00.000Z"
    without = world.define(HOURLY | {"key": "k"})
    assert "calendars" not in shown(world, without["job_id"])


def test_excluded_hours_are_in_the_ledger_of_the_job(world: World) -> None:
    put(world)
    answer = excluding(world)
    world.clock.advance_ms(8 * 3_600_000)
    world.send("PATCH", f"/v1/jobs/{answer['job_id']}", {"schedule": "30 * * * *"})
    job_id = ids.parse(ids.JOB, answer["job_id"])
    assert job_id is not None
    last = world.log.events_of(job_id)[-1]
    assert isinstance(last, je.Revised)
    (found,) = [gone for gone in last.passed if gone.verdict == re.BLACKOUT]
    assert (found.cause, found.count) == ("holidays", 5)
