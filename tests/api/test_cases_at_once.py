"""Lines of `tests/cases/cases.jsonl` about requests at the same time, keys and pages."""

import asyncio
import json
from typing import Any

import httpx

from domain.idempotency import Template, parse_template, render
from domain.instant import MINUTE
from domain.run.decide import Result
from domain.run.events import OK
from tests.api.test_cases import CASES, whole
from tests.api.test_queries import fire
from tests.api.world import JOB, World
from tests.simulation.test_case_scenarios import ms

Asked = tuple[str, str, dict[str, Any], dict[str, str]]


def at_once(world: World, *requests: Asked) -> list[httpx.Response]:
    """Send requests that are all under way together."""

    async def send() -> list[httpx.Response]:
        transport = httpx.ASGITransport(world.app)  # type: ignore[arg-type]  # two names of one
        async with httpx.AsyncClient(transport=transport, base_url="http://tocsin") as client:
            return await asyncio.gather(
                *(
                    client.request(
                        method,
                        path,
                        content=json.dumps(body),
                        headers={
                            "content-type": "application/json",
                            "authorization": f"Bearer {world.key}",
                        }
                        | headers,
                    )
                    for method, path, body, headers in requests
                )
            )

    return asyncio.run(send())


def test_of_two_changes_of_one_version_one_is_refused(world: World) -> None:
    """CON-02."""
    wanted = CASES["CON-02"]["expected"]
    job = world.define()
    path, seen = f"/v1/jobs/{job['job_id']}", {"if-match": f'"{job["version"]}"'}
    answers = at_once(
        world, *(("PATCH", path, {"name": name}, seen) for name in ("first", "second"))
    )
    assert sorted(answer.status_code for answer in answers) == wanted["statuses"]
    shown = world.send("GET", path).json()
    (winner,) = [n for n, a in zip(("first", "second"), answers, strict=True) if a.is_success]
    assert (shown["spec"]["name"], shown["version"]) == (winner, job["version"] + 1)


def test_two_deploys_of_one_set_of_jobs_leave_one_of_each(world: World) -> None:
    """CON-04."""
    wanted = CASES["CON-04"]["expected"]
    noon = whole({"schedule": "0 12 * * *", "timezone": "UTC", "key": "noon", "jitter_s": 0})
    first = world.define(noon)
    world.clock.advance_ms(ms("2025-11-30T11:59:59Z") + 900 - world.clock.now())
    answers = at_once(world, *(("POST", "/v1/jobs", noon, {}) for _ in range(2)))
    assert {answer.json()["job_id"] for answer in answers} == {first["job_id"]}
    assert wanted["job_id"] == "unchanged"
    world.clock.advance_ms(MINUTE)
    fire(world, Result(OK, "ok", 200))
    world.project()
    runs = world.send("GET", f"/v1/jobs/{first['job_id']}/runs").json()["items"]
    at_noon = [run for run in runs if run["scheduled_for"] == "2025-11-30T12:00:00.000Z"]
    assert len(at_noon) == wanted["fires_at_12:00"]


def test_twenty_requests_with_one_key_make_one_job(world: World) -> None:
    """IDM-02."""
    wanted = CASES["IDM-02"]["expected"]
    answers = at_once(world, *(("POST", "/v1/jobs", JOB, {"idempotency-key": "k"}),) * 20)
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert len({answer.json()["job_id"] for answer in answers if answer.is_success}) == 1
    assert len(world.log.heads) == wanted["jobs_created"]


def test_both_passes_of_a_repeated_hour_have_keys_of_their_own(world: World) -> None:
    """IDM-05."""
    body = CASES["IDM-05"]["input"]["body"]
    template = parse_template(body["idempotency_key_template"])
    assert isinstance(template, Template)
    job_id = world.define(body)["job_id"]
    instants = CASES["IDM-05"]["expected"]["keys_for"]
    assert len({render(template, job_id, ms(instant)) for instant in instants}) == len(instants)


# ------------------------------------------------------------------ pages


def minutely(world: World) -> str:
    """Define a job that fires every minute, and return the path of its runs."""
    job = world.define(JOB | {"schedule": "* * * * *", "timezone": "UTC", "jitter_s": 0})
    return f"/v1/jobs/{job['job_id']}/runs"


def run_once(world: World) -> None:
    """Let a minute pass, and what is due run."""
    world.clock.advance_ms(MINUTE)
    fire(world, Result(OK, "ok", 200))
    world.project()


def test_a_history_read_back_is_the_reverse_of_it_read_forward(world: World) -> None:
    """PAG-02."""
    path = minutely(world)
    for _ in range(7):
        run_once(world)
    page = world.send("GET", f"{path}?limit=2").json()
    forward = [page["items"]]
    while page["next_cursor"]:
        page = world.send("GET", f"{path}?limit=2&cursor={page['next_cursor']}").json()
        forward.append(page["items"])
    backward = [page["items"]]
    while page["prev_cursor"]:
        page = world.send("GET", f"{path}?limit=2&cursor={page['prev_cursor']}").json()
        backward.append(page["items"])
    assert [run for part in reversed(backward) for run in part] == [
        run for part in forward for run in part
    ]


def test_runs_that_come_while_a_client_pages_move_nothing(world: World) -> None:
    """PAG-05."""
    wanted = CASES["PAG-05"]["expected"]
    path = minutely(world)
    for _ in range(8):
        run_once(world)
    old = [run["run_id"] for run in world.send("GET", path).json()["items"]]
    page = world.send("GET", f"{path}?limit=2").json()
    seen = [run["run_id"] for run in page["items"]]
    while page["next_cursor"]:
        run_once(world)
        page = world.send("GET", f"{path}?limit=2&cursor={page['next_cursor']}").json()
        seen += [run["run_id"] for run in page["items"]]
    assert len(seen) - len(set(seen)) == wanted["repeats"]
    assert len(set(old) - set(seen)) == wanted["missing_old_rows"]
