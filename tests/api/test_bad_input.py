"""Bad input of each kind that the contract names: a problem that says where, and nothing stored."""

import json
from typing import Any

import pytest

from tests.api.world import JOB, START, World

DEEP = b'{"payload":' + b"[" * 33 + b"]" * 33 + b"}"


def changed(**fields: Any) -> dict[str, Any]:
    """Return the job of the contract with other fields."""
    return {name: value for name, value in {**JOB, **fields}.items() if value is not ...}


def target(**fields: Any) -> dict[str, Any]:
    """Return the job with another target."""
    return changed(target={**JOB["target"], **fields})


UNREADABLE = {
    "nothing": b"",
    "no JSON": b"{",
    "two values": b"{} {}",
    "an array": b"[]",
    "a text": b'"x"',
    "NaN": b'{"payload": NaN}',
    "infinity": b'{"payload": -Infinity}',
    "a number beyond a double": b'{"payload": 1e400}',
    "a number of 40 digits": b'{"payload": ' + b"1" * 40 + b"}",
    "too deep": DEEP,
    "very deep": b'{"payload":' + b"[" * 100_000,
    "a key twice": b'{"type": "one_time", "type": "recurring"}',
    "a key twice inside the payload": b'{"payload": {"a": 1, "a": 2}}',
    "the same key in two spellings": b'{"type": "one_time", "\\u0074ype": "recurring"}',
    "a control character": b'{"name": "a\nb"}',
    "not UTF-8": b'{"name": "\xff"}',
    "a byte order mark": b"\xef\xbb\xbf{}",
    "a comment": b'{"type": "one_time" /* x */}',
    "a trailing comma": b'{"type": "one_time",}',
    "too many values": b'{"labels": {"a": [' + b"1," * 6_000 + b"1]}}",
}


@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_what_is_not_json_as_we_read_it_is_400(world: World, body: bytes) -> None:
    found = world.send("POST", "/v1/jobs", body)
    assert found.status_code == 400, found.text
    assert found.json()["type"] == "/problems/bad_json"
    assert found.headers["content-type"] == "application/problem+json"
    assert world.stored() == 0


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (b'{"name": "\\ud800"}', "/name"),
        (b'{"name": "a\\u0000b"}', "/name"),
        (b'{"payload": {"a/b": [0, "\\ud800"]}}', "/payload/a~1b/1"),
        (b'{"payload": {"\\u0000": 1}}', "/payload"),
    ],
)
def test_what_is_no_character_is_422_and_named(world: World, body: bytes, pointer: str) -> None:
    """PAY-01, PAY-03 and TZ-09 of the cases: the JSON is right, a value of it is not."""
    found = world.send("POST", "/v1/jobs", body)
    assert found.status_code == 422, found.text
    assert [error["pointer"] for error in found.json()["errors"]] == [pointer]
    assert world.stored() == 0


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown field": (changed(colour="red"), "/colour"),
    "a duration without its unit": (changed(max_lateness=60), "/max_lateness"),
    "an unknown field with a slash": (changed(**{"a/b": 1}), "/a~1b"),
    "no type": (changed(type=...), "/type"),
    "another type": (changed(type="weekly"), "/type"),
    "a type that is a list": (changed(type=["recurring"]), "/type"),
    "no schedule": (changed(schedule=...), "/schedule"),
    "six fields": (changed(schedule="0 0 * * * *"), "/schedule"),
    "a step beyond its field": (changed(schedule="*/90 * * * *"), "/schedule"),
    "never matches": (changed(schedule="0 0 30 2 *"), "/schedule"),
    "random tokens": (changed(schedule="H H * * *"), "/schedule"),
    "a long schedule": (changed(schedule="0 " * 100), "/schedule"),
    "a schedule that is a number": (changed(schedule=5), "/schedule"),
    "no zone": (changed(timezone=...), "/timezone"),
    "an unknown zone": (changed(timezone="Mars/Olympus"), "/timezone"),
    "a zone that is a path": (changed(timezone="../../etc/passwd"), "/timezone"),
    "another dialect": (changed(dialect="Quartz"), "/dialect"),
    "an unknown dst rule": (changed(dst={"gap": "twice"}), "/dst/gap"),
    "a run_at on a recurring job": (changed(run_at="2030-01-01T00:00:00Z"), "/run_at"),
    "not supported yet": (changed(rrule="FREQ=DAILY"), "/rrule"),
    "no run at all": (changed(max_runs=0), "/max_runs"),
    "no target": (changed(target=...), "/target"),
    "a target that is a text": (changed(target="https://a.example.com"), "/target"),
    "another kind of target": (target(kind="nats"), "/target/kind"),
    "an unknown field of the target": (target(verify=False), "/target/verify"),
    "no URL": (target(url=None), "/target/url"),
    "another scheme": (target(url="file:///etc/passwd"), "/target/url"),
    "a relative URL": (target(url="/run"), "/target/url"),
    "credentials in the URL": (target(url="https://a:b@hooks.example.com/"), "/target/url"),
    "a fragment": (target(url="https://hooks.example.com/#x"), "/target/url"),
    "a loopback address": (target(url="http://127.0.0.1/"), "/target/url"),
    "a short address": (target(url="http://127.1/"), "/target/url"),
    "an octal address": (target(url="http://0177.0.0.1/"), "/target/url"),
    "a whole-number address": (target(url="http://2130706433/"), "/target/url"),
    "the metadata address": (target(url="http://169.254.169.254/latest"), "/target/url"),
    "an IPv6 loopback": (target(url="http://[::1]/"), "/target/url"),
    "an IPv4 inside IPv6": (target(url="http://[::ffff:127.0.0.1]/"), "/target/url"),
    "a closed port": (target(url="http://hooks.example.com:22/"), "/target/url"),
    "a line feed in the URL": (target(url="https://hooks.example.com/\r\nX: 1"), "/target/url"),
    "another method": (target(method="BREW"), "/target/method"),
    "a header with a line feed": (
        target(headers={"X-A": "a\r\nHost: b"}),
        "/target/headers/X-A",
    ),
    "a header with NUL's like": (target(headers={"X-A": "a\x7fb"}), "/target/headers/X-A"),
    "a header name with a colon": (target(headers={"X:A": "a"}), "/target/headers/X:A"),
    "a hop-by-hop header": (target(headers={"Connection": "close"}), "/target/headers/Connection"),
    "Host": (target(headers={"hOST": "a"}), "/target/headers/hOST"),
    "Content-Length": (target(headers={"Content-Length": "1"}), "/target/headers/Content-Length"),
    "our own header": (target(headers={"Tocsin-Job-Id": "a"}), "/target/headers/Tocsin-Job-Id"),
    "a signature of ours": (target(headers={"webhook-id": "a"}), "/target/headers/webhook-id"),
    "our key header": (
        target(headers={"Idempotency-Key": "a"}),
        "/target/headers/Idempotency-Key",
    ),
    "a header value that is a number": (target(headers={"X-A": 1}), "/target/headers/X-A"),
    "a body for HEAD": (target(method="HEAD"), "/payload"),
    "two payloads": (changed(payload_text="x"), "/payload_text"),
    "bad base64": (changed(payload=..., payload_base64="%%%"), "/payload_base64"),
    "a type without a payload": (changed(payload=..., content_type="text/plain"), "/content_type"),
    "a type with a line feed": (changed(content_type="text/plain\r\nX: 1"), "/content_type"),
    "retry that is a list": (changed(retry=[]), "/retry"),
    "no attempts": (changed(retry={"max_attempts": 0}), "/retry/max_attempts"),
    "attempts that are true": (changed(retry={"max_attempts": True}), "/retry/max_attempts"),
    "an unknown backoff": (changed(retry={"backoff": "linear"}), "/retry/backoff"),
    "a timeout of an hour": (changed(timeout_s=3_600), "/timeout_s"),
    "a timeout that is a text": (changed(timeout_s="30"), "/timeout_s"),
    "a timeout that is true": (changed(timeout_s=True), "/timeout_s"),
    "a huge timeout": (changed(timeout_s=10**29), "/timeout_s"),
    "a timeout finer than milliseconds": (changed(timeout_s=1.00005), "/timeout_s"),
    "a template without the job": (
        changed(idempotency_key_template="run-{scheduled_ts}"),
        "/idempotency_key_template",
    ),
    "a template with an attribute": (
        changed(idempotency_key_template="{job_id.__class__}-{scheduled_ts}"),
        "/idempotency_key_template",
    ),
    "a template that ends a header": (
        changed(idempotency_key_template="{job_id}-{scheduled_ts}\r\n"),
        "/idempotency_key_template",
    ),
    "an unknown overlap": (changed(overlap="sometimes"), "/overlap"),
    "overlap that is a list": (changed(overlap=["skip"]), "/overlap"),
    "overlap said twice": (changed(overlap="skip", allow_overlap=True), "/allow_overlap"),
    "an unknown misfire": (changed(misfire="most"), "/misfire"),
    "misfire that is a list": (changed(misfire=["skip"]), "/misfire"),
    "a buffer beyond its bound": (
        changed(overlap="buffer_all", overlap_limit=1001),
        "/overlap_limit",
    ),
    "a window without catch-up": (
        changed(misfire="skip", catch_up_window_s=60),
        "/catch_up_window_s",
    ),
    "no failures at all": (changed(pause_after_failures=0), "/pause_after_failures"),
    "a window of nothing": (changed(catch_up_window_s=0), "/catch_up_window_s"),
    "a negative lateness": (changed(max_lateness_s=-1), "/max_lateness_s"),
    "a limit of nothing": (changed(overlap="allow", overlap_limit=0), "/overlap_limit"),
    "a limit that is true": (changed(overlap="allow", overlap_limit=True), "/overlap_limit"),
    "a limit beyond the open runs": (changed(overlap="allow", overlap_limit=101), "/overlap_limit"),
    "a limit where there is one run": (changed(overlap_limit=2), "/overlap_limit"),
    "jitter of a day": (changed(jitter_s=86_400), "/jitter_s"),
    "jitter of an exact job": (changed(exact=True, jitter_s=5), "/jitter_s"),
    "exact that is a text": (changed(exact="yes"), "/exact"),
    "a long name": (changed(name="x" * 200), "/name"),
    "a name with a control character": (changed(name="a\u0085b"), "/name"),
    "labels that are a list": (changed(labels=["a"]), "/labels"),
    "a label that is a number": (changed(labels={"a": 1}), "/labels/a"),
    "a label with a blank name": (changed(labels={" ": "a"}), "/labels/ "),
    "a key with a blank": (changed(key="a b"), "/key"),
    "a key that is empty": (changed(key=""), "/key"),
    "a key that is a number": (changed(key=1), "/key"),
    "an instant without an offset": (
        changed(type="one_time", schedule=..., timezone=..., run_at="2030-01-01T00:00:00"),
        "/run_at",
    ),
    "an instant finer than milliseconds": (
        changed(type="one_time", schedule=..., timezone=..., run_at="2030-01-01T00:00:00.0001Z"),
        "/run_at",
    ),
    "an instant two minutes past": (
        changed(type="one_time", schedule=..., timezone=..., run_at="2025-11-29T23:58:00Z"),
        "/run_at",
    ),
    "a schedule on a one-time job": (
        changed(type="one_time", run_at="2030-01-01T00:00:00Z", timezone=...),
        "/schedule",
    ),
}


@pytest.mark.parametrize(("body", "pointer"), REFUSED.values(), ids=REFUSED.keys())
def test_a_value_that_is_refused_is_422_and_named(
    world: World, body: dict[str, Any], pointer: str
) -> None:
    found = world.send("POST", "/v1/jobs", body)
    assert found.status_code == 422, found.text
    assert pointer in [error["pointer"] for error in found.json()["errors"]]
    assert all(error["detail"] for error in found.json()["errors"])
    assert world.stored() == 0


def test_every_wrong_field_is_named_at_once(world: World) -> None:
    found = world.send("POST", "/v1/jobs", changed(timeout_s=0, name=5, target=1))
    assert {e["pointer"] for e in found.json()["errors"]} == {"/timeout_s", "/name", "/target"}


def test_a_refused_line_of_a_batch_stores_nothing_and_its_neighbours_are_stored(
    world: World,
) -> None:
    lines = [json.dumps(JOB).encode(), b'{"a": NaN}', json.dumps(changed(type="x")).encode()]
    answers = world.batch(b"\n".join([*lines, json.dumps(JOB).encode()]))
    assert [answer["code"] for answer in answers] == [201, 400, 422, 201]
    assert answers[2]["problem"]["errors"][0]["pointer"] == "/type"
    assert len(world.log.heads) == 2


def test_a_body_that_is_too_large_is_413(world: World) -> None:
    found = world.send("POST", "/v1/jobs", b'{"payload": "' + b"x" * 1_600_000 + b'"}')
    assert found.status_code == 413
    assert world.stored() == 0


def test_a_payload_at_its_limit_is_accepted_and_one_beyond_it_is_named(world: World) -> None:
    fits = changed(payload="x" * (1024 * 1024 - 2))
    assert world.send("POST", "/v1/jobs", fits).status_code == 201
    found = world.send("POST", "/v1/jobs", changed(payload="x" * 1024 * 1024))
    assert found.status_code == 422
    assert found.json()["errors"][0]["pointer"] == "/payload"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content_type": "text/plain"}, 415),
        ({"content_type": "application/xml"}, 415),
        ({"content_type": "application/json; charset=latin-1"}, 415),
        ({"content_type": "application/json", "content_encoding": "gzip"}, 415),
        ({"accept": "text/html"}, 406),
        ({"idempotency_key": '"half'}, 400),
        ({"idempotency_key": "x" * 300}, 400),
        ({"idempotency_key": ""}, 400),
        ({"idempotency_key": '"a" "b"'}, 400),
    ],
)
def test_a_header_that_cannot_be_honoured_is_refused(
    world: World, headers: dict[str, str], status: int
) -> None:
    found = world.send("POST", "/v1/jobs", JOB, **headers)
    assert found.status_code == status, found.text
    assert "header" in found.json()["errors"][0]
    assert world.stored() == 0


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/nothing", 404),
        ("GET", "/", 404),
        ("PUT", "/v1/jobs", 405),
        ("GET", "/v1/jobs:batch", 405),
        ("POST", "/v1/jobs/jb_00/runs", 405),
        ("GET", "/v1/jobs/jb_00000000000000000000000000000000", 404),
        ("GET", "/v1/jobs/jb_00", 404),
        ("GET", "/v1/jobs/JB_00000000000000000000000000000000", 404),
        ("GET", "/v1/jobs/..%2f..%2fetc", 404),
        ("DELETE", "/v1/jobs/jb_00000000000000000000000000000000", 404),
        ("POST", "/v1/jobs/jb_00000000000000000000000000000000/pause", 404),
        ("GET", "/v1/jobs?colour=red", 422),
        ("GET", "/v1/jobs?limit=0", 422),
        ("GET", "/v1/jobs?limit=201", 422),
        ("GET", "/v1/jobs?limit=ten", 422),
        ("GET", "/v1/jobs?limit=1&limit=2", 422),
        ("GET", "/v1/jobs?status=sleeping", 422),
        ("GET", "/v1/jobs?label=team", 422),
        ("GET", "/v1/jobs?label=te%00am:a", 422),
        ("GET", "/v1/jobs?label=team:%00", 422),
        ("GET", "/v1/jobs?cursor=abc", 422),
        ("GET", "/v1/jobs?position=abc", 422),
        ("GET", "/v1/jobs?name_prefix=%00", 422),
        ("POST", "/v1/jobs?dry_run=1", 422),
    ],
)
def test_a_request_to_what_is_not_there_is_a_problem(
    world: World, method: str, path: str, status: int
) -> None:
    body = JOB if method in ("POST", "PUT") and not path.endswith("pause") else None
    found = world.send(method, path, body)
    assert found.status_code == status, found.text
    assert found.headers["content-type"] == "application/problem+json"
    assert found.json()["status"] == status
    assert world.stored() == 0


def test_a_method_that_is_not_taken_names_those_that_are(world: World) -> None:
    found = world.send("PUT", "/v1/jobs", JOB)
    assert set(found.headers["allow"].replace(" ", "").split(",")) >= {"GET", "POST"}


def test_an_instant_up_to_a_minute_past_fires_at_once(world: World) -> None:
    body = changed(type="one_time", schedule=..., timezone=..., run_at="2025-11-29T23:59:30Z")
    answer = world.define(body)
    assert answer["next_run_at"] == "2025-11-29T23:59:30.000Z"
    assert answer["next_due_at"] == "2025-11-30T00:00:00.000Z"
    assert START == 1_764_460_800_000


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"timezone": ...}, "/timezone: required, such as Europe/Berlin or UTC"),
        ({"schedule": 5}, "/schedule: a string, such as 0 9 * * 1-5"),
        (
            {"starts_at": "2027-03-02T09:00:00Z", "ends_at": "2027-03-01T09:00:00Z"},
            "/ends_at: before starts_at: give a later instant",
        ),
    ],
)
def test_what_is_refused_comes_with_what_would_be_right(
    world: World, fields: dict[str, Any], detail: str
) -> None:
    assert world.send("POST", "/v1/jobs", changed(**fields)).json()["detail"] == detail


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/nothing"), ("PUT", "/v1/jobs")])
def test_a_request_that_no_route_takes_is_told_where_the_routes_are(
    world: World, method: str, path: str
) -> None:
    assert "/openapi.json" in world.send(method, path).json()["detail"]
