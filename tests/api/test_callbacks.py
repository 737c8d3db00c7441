"""Who is told how occurrences end, over HTTP: of a job, and by default."""

import itertools
from typing import Any

import pytest

from commandside.definitions.definition import Bounds
from domain.ids import JOB as JOB_ID
from domain.ids import callback_id, parse, text
from domain.queue_target import Grant
from tests.api.world import JOB, World

TOLD = {"kind": "http", "url": "https://told.example.com/x", "method": "POST", "headers": {}}
SECRET = TOLD | {"headers": {"Authorization": "Bearer abc"}}
KAFKA = {"kind": "kafka", "connection": "main", "topic": "ends", "headers": {}}
GRANTS = {("kafka", "main"): Grant(everyone=True)}
MINUTE = 60_000


@pytest.fixture
def granted() -> World:
    """A world whose operator has named a Kafka."""
    return World(bounds=Bounds(grants=GRANTS))


def shown(world: World, job_id: str) -> dict[str, Any]:
    """Return a job's spec as it is shown."""
    found: dict[str, Any] = world.send("GET", f"/v1/jobs/{job_id}").json()["spec"]
    return found


# ------------------------------------------------------------ of a job


def test_a_job_says_who_is_told_and_shows_it_without_header_values(granted: World) -> None:
    body = JOB | {"on_success": KAFKA, "on_failure": SECRET, "on_skipped": False}
    job = granted.define(body)["job_id"]
    found = shown(granted, job)
    assert found["on_success"] == KAFKA
    assert found["on_failure"] == TOLD | {"headers": {"Authorization": "…redacted"}}
    assert found["on_skipped"] is False
    again = granted.send("PATCH", f"/v1/jobs/{job}", {"on_failure": found["on_failure"]})
    assert again.json()["version"] == 1, "nothing changed"


def test_a_job_that_says_nothing_shows_nothing(world: World) -> None:
    found = shown(world, world.define()["job_id"])
    assert not {"on_success", "on_failure", "on_skipped"} & found.keys()


def test_a_definition_of_a_key_again_is_no_edit(world: World) -> None:
    body = JOB | {"key": "a", "on_failure": SECRET}
    versions = [world.define(body)["version"] for _ in range(2)]
    assert versions == [1, 1]
    assert world.define(body | {"on_failure": TOLD})["version"] == 2


def test_a_patch_changes_one_of_them_and_null_leaves_it_to_the_default(world: World) -> None:
    job = world.define(JOB | {"on_success": TOLD, "on_failure": SECRET})["job_id"]
    path = f"/v1/jobs/{job}"
    assert world.send("PATCH", path, {"on_success": False}).json()["version"] == 2
    assert shown(world, job)["on_success"] is False
    assert shown(world, job)["on_failure"]["headers"] == {"Authorization": "…redacted"}
    moved = {"on_failure": {"url": "https://other.example.com/"}}
    assert world.send("PATCH", path, moved).status_code == 200
    assert shown(world, job)["on_failure"]["url"] == "https://other.example.com/"
    assert shown(world, job)["on_failure"]["headers"] == {"Authorization": "…redacted"}
    world.send("PATCH", path, {"on_success": None, "on_failure": None})
    assert not {"on_success", "on_failure"} & shown(world, job).keys()


def test_a_patch_of_something_else_leaves_them(world: World) -> None:
    job = world.define(JOB | {"on_failure": TOLD})["job_id"]
    assert world.send("PATCH", f"/v1/jobs/{job}", {"name": "other"}).status_code == 200
    assert shown(world, job)["on_failure"] == TOLD


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        (True, "/on_failure"),
        ("https://a.example.com", "/on_failure"),
        (None, "/on_failure"),
        ({"kind": "carrier pigeon"}, "/on_failure/kind"),
        (TOLD | {"url": "http://127.0.0.1/"}, "/on_failure/url"),
        (TOLD | {"url": "http://169.254.169.254/"}, "/on_failure/url"),
        (TOLD | {"url": "https://told.example.com:22/"}, "/on_failure/url"),
        (TOLD | {"method": "TRACE"}, "/on_failure/method"),
        (TOLD | {"headers": {"Host": "x"}}, "/on_failure/headers/Host"),
        (TOLD | {"headers": {"webhook-id": "x"}}, "/on_failure/headers/webhook-id"),
        (TOLD | {"headers": {"X": "a\r\nb"}}, "/on_failure/headers/X"),
        (TOLD | {"headers": {"Content-Type": "a/b"}}, "/on_failure/headers/Content-Type"),
        (TOLD | {"headers": {"X": {"secret": "none"}}}, "/on_failure/headers/X/secret"),
        (TOLD | {"payload": 1}, "/on_failure/payload"),
        (TOLD | {"method": "HEAD"}, "/on_failure/method"),
        (TOLD | {"credentials": "me:sesame"}, "/on_failure/credentials"),
        (KAFKA, "/on_failure/connection"),
        (KAFKA | {"topic": ".."}, "/on_failure/topic"),
    ],
)
def test_what_no_target_may_be_no_callback_is(world: World, given: Any, pointer: str) -> None:
    for path, body in (("/v1/jobs", JOB | {"on_failure": given}), ("", {"on_failure": given})):
        method = "POST" if path else "PUT"
        found = world.send(method, path or "/v1/callbacks", body)
        assert found.status_code == 422, found.text
        assert [error["pointer"] for error in found.json()["errors"]] == [pointer]
    assert world.stored() == 0
    assert world.send("GET", "/v1/callbacks").status_code == 404


def test_a_patch_is_judged_as_a_definition_is(world: World) -> None:
    job = world.define(JOB | {"on_failure": TOLD})["job_id"]
    for given, pointer in (
        ({"url": "http://10.0.0.1/"}, "/on_failure/url"),
        ({"headers": {"X": {"secret": "none"}}}, "/on_failure/headers/X/secret"),
        (KAFKA, "/on_failure/connection"),
    ):
        found = world.send("PATCH", f"/v1/jobs/{job}", {"on_failure": given})
        assert found.status_code == 422, found.text
        assert [error["pointer"] for error in found.json()["errors"]] == [pointer]
    assert shown(world, job)["on_failure"] == TOLD


def test_a_refused_header_of_a_callback_is_not_repeated(world: World) -> None:
    wrong = TOLD | {"headers": {"Authorization": "open\nsesame"}}
    assert "sesame" not in world.send("POST", "/v1/jobs", JOB | {"on_success": wrong}).text
    wrong = TOLD | {"url": "http://127.0.0.1/?token=sesame"}
    assert "sesame" not in world.send("POST", "/v1/jobs", JOB | {"on_success": wrong}).text


def test_a_callback_may_name_a_secret(world: World) -> None:
    world.send("PUT", "/v1/secrets/crm", {"value": "x"})
    target = TOLD | {"headers": {"Authorization": {"secret": "crm", "scheme": "Bearer"}}}
    job = world.define(JOB | {"on_success": target})["job_id"]
    assert shown(world, job)["on_success"] == target


def test_credentials_of_a_callback_are_the_header_that_sends_them(world: World) -> None:
    world.send("PUT", "/v1/secrets/pager", {"value": "me:sesame"})
    named = TOLD | {"credentials": {"secret": "pager"}}
    header = {"Authorization": {"secret": "pager", "scheme": "Basic"}}
    job = world.define(JOB | {"on_failure": named})["job_id"]
    assert shown(world, job)["on_failure"]["headers"] == header
    world.send("PATCH", f"/v1/jobs/{job}", {"on_success": named})
    assert shown(world, job)["on_success"]["headers"] == header
    made = world.send("PUT", "/v1/callbacks", {"on_failure": named})
    assert made.json()["on_failure"]["headers"] == header
    assert "warnings" not in made.json()
    world.send("PUT", "/v1/secrets/pager", {"value": "no pair"})
    assert "no colon" in world.define(JOB | {"on_failure": named})["warnings"][-1]
    changed = world.send("PUT", "/v1/callbacks", {"on_success": named})
    assert "no colon" in changed.json()["warnings"][0]


# ------------------------------------------------------------ by default


def test_a_default_is_put_shown_and_removed(granted: World) -> None:
    world = granted
    assert world.send("GET", "/v1/callbacks").status_code == 404
    assert world.send("DELETE", "/v1/callbacks").status_code == 404
    made = world.send("PUT", "/v1/callbacks", {"on_failure": SECRET, "on_skipped": KAFKA})
    assert (made.status_code, made.headers["etag"]) == (201, '"1"')
    assert made.headers["location"] == "/v1/callbacks"
    found = world.send("GET", "/v1/callbacks").json()
    assert found["on_failure"] == TOLD | {"headers": {"Authorization": "…redacted"}}
    assert found["version"] == 1
    assert "on_success" not in found
    back = {name: found[name] for name in ("on_failure", "on_skipped")}
    same = world.send("PUT", "/v1/callbacks", back)
    assert (same.status_code, same.json()["version"]) == (200, 1), "nothing changed"
    assert world.send("GET", "/v1/callbacks", key=world.other_key).status_code == 404
    gone = world.send("DELETE", "/v1/callbacks")
    assert (gone.status_code, gone.json()) == (200, {"version": 1})
    assert world.send("GET", "/v1/callbacks").status_code == 404
    again = world.send("PUT", "/v1/callbacks", {"on_failure": TOLD})
    assert (again.status_code, again.json()["version"]) == (201, 3)


def test_a_default_of_another_version_is_left(world: World) -> None:
    world.send("PUT", "/v1/callbacks", {"on_failure": TOLD})
    for method, body in (("PUT", {"on_success": TOLD}), ("DELETE", None)):
        found = world.send(method, "/v1/callbacks", body, if_match='"7"')
        assert found.status_code == 412, found.text
    assert world.send("PUT", "/v1/callbacks", {"on_success": TOLD}, if_match='"1"').json() == {
        "version": 2,
        "at": "2025-11-30T00:00:00.000Z",
        "on_success": TOLD,
    }


@pytest.mark.parametrize(
    ("body", "pointer"),
    [({}, ""), ({"on_failure": False}, "/on_failure"), ({"on_succes": TOLD}, "/on_succes")],
)
def test_a_default_that_says_nothing_is_refused(
    world: World, body: dict[str, Any], pointer: str
) -> None:
    found = world.send("PUT", "/v1/callbacks", body)
    assert found.status_code == 422, found.text
    assert pointer in [error["pointer"] for error in found.json()["errors"]]


def test_only_a_key_that_may_write_jobs_changes_a_default(world: World) -> None:
    weak = world.add_key(b"t" * 16, ("jobs:read",))
    assert world.send("PUT", "/v1/callbacks", {"on_failure": TOLD}, key=weak).status_code == 403
    assert world.send("DELETE", "/v1/callbacks", key=weak).status_code == 403
    assert world.send("GET", "/v1/callbacks", key=weak).status_code == 404


# ------------------------------------------------------------ the jobs that tell


def skipped(world: World, **more: Any) -> tuple[str, str]:
    """Define a minutely job, pause it for a while, resume it; return its id and the callback's."""
    job = world.define(JOB | {"schedule": "* * * * *", "jitter_s": 0} | more)["job_id"]
    assert world.send("POST", f"/v1/jobs/{job}/pause", {}).status_code == 200
    world.clock.advance_ms(10 * MINUTE)
    assert world.send("POST", f"/v1/jobs/{job}/resume", {}).status_code == 200
    world.project()
    raw = parse(JOB_ID, job)
    assert raw is not None
    version = next(
        version
        for version in itertools.count(1)
        if world.log.events_of(raw)[version - 1].__class__.__name__ == "Resumed"
    )
    return job, text(JOB_ID, callback_id(raw, version))


def test_a_callback_job_is_shown_with_what_it_tells_of_and_is_in_no_list(world: World) -> None:
    job, callback = skipped(world, on_skipped=SECRET, name="invoices")
    found = world.send("GET", f"/v1/jobs/{callback}").json()
    assert found["callback_of"] == {"event": "on_skipped", "job_id": job, "run_id": None}
    assert found["spec"]["name"] == "on_skipped of invoices"
    assert found["spec"]["target"]["headers"] == {"Authorization": "…redacted"}
    said = found["spec"]["payload"]
    assert (said["type"], said["data"]["job_id"]) == ("run.skipped", job)
    assert sum(each["count"] for each in said["data"]["skipped"]) >= 9
    assert {each["verdict"] for each in said["data"]["skipped"]} == {"paused"}
    listed = world.send("GET", "/v1/jobs").json()["items"]
    assert [item["job_id"] for item in listed] == [job]
    assert world.figures.alarms == []


def test_a_callback_job_takes_no_callbacks(world: World) -> None:
    _, callback = skipped(world, on_skipped=TOLD)
    found = world.send("PATCH", f"/v1/jobs/{callback}", {"on_failure": TOLD})
    assert found.status_code == 422, found.text
    assert found.json()["errors"][0]["pointer"] == "/on_failure"
    moved = {"target": {"url": "https://repaired.example.com/"}}
    assert world.send("PATCH", f"/v1/jobs/{callback}", moved).status_code == 200


def test_another_tenant_sees_no_callback_of_ours(world: World) -> None:
    _, callback = skipped(world, on_skipped=TOLD)
    assert world.send("GET", f"/v1/jobs/{callback}").status_code == 200
    assert world.send("GET", f"/v1/jobs/{callback}", key=world.other_key).status_code == 404


def test_the_default_tells_of_a_job_unless_it_says_otherwise(world: World) -> None:
    world.send("PUT", "/v1/callbacks", {"on_skipped": SECRET})
    world.clock.advance_ms(1)
    _, told = skipped(world)
    _, off = skipped(world, on_skipped=False)
    target = world.send("GET", f"/v1/jobs/{told}").json()["spec"]["target"]
    assert target == TOLD | {"headers": {"Authorization": "…redacted"}}
    assert world.send("GET", f"/v1/jobs/{off}").status_code == 404
