"""Targets that are queues: what a definition may say, who may send where, and what is shown."""

from typing import Any

import pytest

from commandside.definitions.definition import Bounds
from domain import ids
from domain.queue_target import Grant
from domain.wording import REDACTED
from tests.api.world import JOB, World

MINE = b"t" * 16
OTHER = b"u" * 16
GRANTS = {
    ("kafka", "main"): Grant(everyone=True, prefixes=("{tenant}.", "orders"), closed=("t.due.",)),
    ("kafka", "open"): Grant(everyone=True, closed=("tocsin.due.",)),
    ("kafka", "theirs"): Grant(frozenset((OTHER,))),
    ("amqp", "main"): Grant(frozenset((MINE,)), prefixes=("events",)),
    ("sqs", "main"): Grant(frozenset((MINE,))),
}


@pytest.fixture
def world() -> World:
    return World(bounds=Bounds(grants=GRANTS))


def job(target: dict[str, Any], **more: Any) -> dict[str, Any]:
    return JOB | {"target": target} | more


SHOWN = [
    {"kind": "kafka", "connection": "main", "topic": "orders", "headers": {}},
    {
        "kind": "kafka",
        "connection": "main",
        "topic": f"{ids.text(ids.TENANT, MINE)}.x",
        "key": "ä",
        "headers": {},
    },
    {"kind": "amqp", "connection": "main", "exchange": "events", "headers": {}},
    {"kind": "amqp", "connection": "main", "routing_key": "events.one", "headers": {}},
    {"kind": "sqs", "connection": "main", "queue": "a.fifo", "group_id": "g", "headers": {}},
]


@pytest.mark.parametrize("target", SHOWN)
def test_a_queue_is_shown_as_it_was_defined(world: World, target: dict[str, Any]) -> None:
    found = world.define(job(target))
    shown = world.send("GET", f"/v1/jobs/{found['job_id']}").json()["spec"]
    assert shown["target"] == target
    assert world.send("POST", "/v1/jobs", shown | {"payload": 1}).status_code == 201


def test_the_connection_is_called_main_unless_another_is_named(world: World) -> None:
    found = world.define(job({"kind": "kafka", "topic": "orders"}))
    assert world.send("GET", f"/v1/jobs/{found['job_id']}").json()["spec"]["target"] == SHOWN[0]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"kind": "kafka"}, "/target/topic"),
    ({"kind": "kafka", "topic": ".."}, "/target/topic"),
    ({"kind": "kafka", "topic": "orders/1"}, "/target/topic"),
    ({"kind": "kafka", "topic": "orders" + "x" * 250}, "/target/topic"),
    ({"kind": "kafka", "topic": 5}, "/target/topic"),
    ({"kind": "kafka", "topic": "orders", "key": "ä" * 513}, "/target/key"),
    ({"kind": "kafka", "topic": "orders", "cluster": "main"}, "/target/cluster"),
    ({"kind": "kafka", "topic": "orders", "brokers": "10.0.0.1:9092"}, "/target/brokers"),
    ({"kind": "kafka", "topic": "orders", "connection": "Main"}, "/target/connection"),
    ({"kind": "kafka", "topic": "orders", "headers": []}, "/target/headers"),
    (
        {"kind": "kafka", "topic": "orders", "headers": {"Idempotency-Key": "x"}},
        "/target/headers/Idempotency-Key",
    ),
    ({"kind": "kafka", "topic": "orders", "headers": {"A": "b\n"}}, "/target/headers/A"),
    ({"kind": "amqp"}, "/target/routing_key"),
    ({"kind": "amqp", "exchange": "é"}, "/target/exchange"),
    ({"kind": "amqp", "exchange": "events", "routing_key": "x" * 256}, "/target/routing_key"),
    ({"kind": "sqs", "queue": "https://sqs.eu-west-1.amazonaws.com/1/q"}, "/target/queue"),
    ({"kind": "sqs", "queue": "q" * 81}, "/target/queue"),
    ({"kind": "sqs", "queue": "q", "group_id": "g"}, "/target/group_id"),
    ({"kind": "sqs", "queue": "q.fifo", "group_id": "a b"}, "/target/group_id"),
]


@pytest.mark.parametrize(("target", "pointer"), REFUSED)
def test_what_could_never_be_sent_is_refused_and_named(
    world: World, target: dict[str, Any], pointer: str
) -> None:
    found = world.send("POST", "/v1/jobs", job(target))
    assert found.status_code == 422, found.text
    assert pointer in [error["pointer"] for error in found.json()["errors"]]
    assert world.stored() == 0


CLOSED: list[tuple[dict[str, Any], str]] = [
    ({"kind": "kafka", "topic": "orders", "connection": "nowhere"}, "/target/connection"),
    ({"kind": "kafka", "topic": "orders", "connection": "theirs"}, "/target/connection"),
    ({"kind": "kafka", "topic": "invoices"}, "/target/topic"),
    ({"kind": "kafka", "topic": f"{ids.text(ids.TENANT, OTHER)}.x"}, "/target/topic"),
    ({"kind": "kafka", "topic": "tocsin.due.now", "connection": "open"}, "/target/topic"),
    ({"kind": "amqp", "exchange": "amq.direct"}, "/target/exchange"),
    ({"kind": "amqp", "routing_key": "queue-of-others"}, "/target/routing_key"),
]


@pytest.mark.parametrize(("target", "pointer"), CLOSED)
def test_nobody_sends_where_the_operator_does_not_allow_it(
    world: World, target: dict[str, Any], pointer: str
) -> None:
    found = world.send("POST", "/v1/jobs", job(target))
    assert found.status_code == 422, found.text
    assert [error["pointer"] for error in found.json()["errors"]] == [pointer]
    allowed = world.define(job({"kind": "kafka", "topic": "orders"}))["job_id"]
    changed = world.send("PATCH", f"/v1/jobs/{allowed}", {"target": target})
    assert changed.status_code == 422, changed.text


def test_a_connection_of_others_is_answered_like_one_that_does_not_exist(world: World) -> None:
    target = {"kind": "kafka", "topic": "orders"}
    bodies = [
        world.send("POST", "/v1/jobs", job(target | {"connection": name})).json()["errors"][0]
        for name in ("theirs", "absent")
    ]
    texts = [
        error["detail"].replace(name, "?")
        for error, name in zip(bodies, ("theirs", "absent"), strict=True)
    ]
    assert texts[0] == texts[1]


def test_what_one_tenant_may_send_is_not_remembered_for_another(world: World) -> None:
    mine = job({"kind": "sqs", "queue": "q"})
    world.define(mine)
    assert world.send("POST", "/v1/jobs", mine, key=world.other_key).status_code == 422


def test_a_payload_must_be_one_that_the_broker_takes(world: World) -> None:
    kafka = {"kind": "kafka", "topic": "orders"}
    large = {"payload_text": "x" * 1_000_001, "payload": ...}
    body = {name: value for name, value in (job(kafka) | large).items() if value is not ...}
    found = world.send("POST", "/v1/jobs", body)
    assert [error["pointer"] for error in found.json()["errors"]] == ["/payload"]
    fits = world.define(body | {"payload_text": "x" * 1_000_000})["job_id"]
    found = world.send("PATCH", f"/v1/jobs/{fits}", {"target": {"kind": "sqs", "queue": "q"}})
    assert found.status_code == 422, found.text
    none = job({"kind": "sqs", "queue": "q"})
    del none["payload"]
    assert world.send("POST", "/v1/jobs", none).status_code == 422
    assert world.send("POST", "/v1/jobs", none | {"payload_text": ""}).status_code == 422
    sent = world.define(none | {"payload_text": "a"})["job_id"]
    assert world.send("PATCH", f"/v1/jobs/{sent}", {"payload_text": None}).status_code == 422
    assert world.send("PATCH", f"/v1/jobs/{sent}", {"name": "b"}).status_code == 200


def test_another_kind_of_target_takes_the_place_of_the_whole_one(world: World) -> None:
    job_id = world.define()["job_id"]
    kafka = {"kind": "kafka", "topic": "orders", "headers": {"X-Team": "billing"}}
    found = world.send("PATCH", f"/v1/jobs/{job_id}", {"target": kafka})
    assert found.status_code == 200, found.text
    spec = world.send("GET", f"/v1/jobs/{job_id}").json()["spec"]
    assert spec["target"] == kafka | {"connection": "main", "headers": {"X-Team": REDACTED}}
    keyed = world.send("PATCH", f"/v1/jobs/{job_id}", {"target": {"key": "k"}})
    assert keyed.status_code == 200, keyed.text
    spec = world.send("GET", f"/v1/jobs/{job_id}").json()["spec"]
    assert spec["target"]["key"] == "k"
    assert spec["target"]["headers"] == {"X-Team": REDACTED}


def test_lists_show_a_queue_in_one_line_and_find_it_by_its_connection(world: World) -> None:
    world.define()
    world.define(job({"kind": "kafka", "topic": "orders"}))
    world.project()
    items = world.send("GET", "/v1/jobs?host=kafka:main").json()["items"]
    assert [item["target"] for item in items] == ["kafka://main/orders"]


def test_header_values_of_a_queue_are_never_shown(world: World) -> None:
    target = {"kind": "kafka", "topic": "orders", "headers": {"X-Token": "s3cr3t-value"}}
    found = world.define(job(target))
    for path in ("", "/events"):
        assert "s3cr3t" not in world.send("GET", f"/v1/jobs/{found['job_id']}{path}").text


def test_the_page_says_what_each_kind_takes(world: World) -> None:
    page = world.send("GET", "/openapi.json", key="").json()
    body = page["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]
    kinds = body["schema"]["properties"]["target"]["oneOf"]
    assert [kind["properties"]["kind"]["const"] for kind in kinds] == [
        "http",
        "kafka",
        "amqp",
        "sqs",
    ]
