"""The deliverer to SQS, against moto's server behind a proxy that fails as it is told."""

import json
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import boto3
import msgspec
import pytest

from commandside.deliverer_port import Answer, Message
from domain.target import SqsTarget
from infra.targets.connections import SqsConnection
from infra.targets.sqs import SqsDeliverer
from tests.contracts import queues
from tests.contracts.deliverer import DelivererContract
from tests.engines.proxy import TcpProxy

replace = msgspec.structs.replace


class SqsWorld:
    """A queue at moto, and a deliverer that reaches it through a proxy."""

    def __init__(self, port: int, queue: str = "") -> None:
        self.queue = queue or queues.unique("orders")
        self.proxy = TcpProxy(port)
        self.client = boto3.session.Session().client(
            "sqs",
            region_name="eu-west-1",
            endpoint_url=f"http://127.0.0.1:{port}",
            aws_access_key_id="AK",
            aws_secret_access_key="SK",
        )
        fifo = {"FifoQueue": "true"} if self.queue.endswith(".fifo") else {}
        made = self.client.create_queue(QueueName=self.queue, Attributes=fifo)  # type: ignore[arg-type]  # its keys are a closed set of literals
        self.url = made["QueueUrl"]
        connection = SqsConnection(
            region="eu-west-1",
            endpoint=f"http://127.0.0.1:{self.proxy.port}",
            access_key_id="AK",
            secret_access_key="SK",
            tenants=("*",),
        )
        self.deliverer = SqsDeliverer({"main": connection}, concurrency=queues.CONCURRENCY)

    def call(self, token: int) -> Message:
        return queues.message(SqsTarget("main", self.queue, "", ()), token)

    def hush(self) -> None:
        self.proxy.mode = "swallow"

    def answers(self, count: int) -> list[Answer]:
        return queues.answers(self.deliverer, count)

    def one(self, asked: Message) -> Answer:
        return queues.one(self.deliverer, asked)

    def arrived(self) -> int:
        return len(self.read())

    def read(self) -> list[dict[str, Any]]:
        """Take every message of the queue."""
        found: list[dict[str, Any]] = []
        while True:
            batch = self.client.receive_message(
                QueueUrl=self.url,
                MaxNumberOfMessages=10,
                MessageAttributeNames=["All"],
                MessageSystemAttributeNames=["All"],
                VisibilityTimeout=600,
            ).get("Messages", [])
            if not batch:
                return found
            found += [{**one} for one in batch]

    def close(self) -> None:
        self.deliverer.close()
        self.proxy.down()


@pytest.fixture
def sqs(moto_port: int) -> Iterator[SqsWorld]:
    world = SqsWorld(moto_port)
    yield world
    world.close()


@pytest.fixture
def world(sqs: SqsWorld) -> SqsWorld:
    return sqs


class TestSqsDeliverer(DelivererContract):
    """The contract of every kind."""


def attributes(message: dict[str, Any]) -> dict[str, str]:
    return {name: value["StringValue"] for name, value in message["MessageAttributes"].items()}


def test_a_message_has_the_text_and_the_headers_of_its_fire(sqs: SqsWorld) -> None:
    asked = replace(sqs.call(7), body='{"a": "grüße\t\\n"}'.encode())
    answer = sqs.one(asked)
    (got,) = sqs.read()
    assert answer.headers == (("message-id", got["MessageId"]),)
    assert got["Body"] == asked.body.decode()
    said = attributes(got)
    assert said["idempotency-key"] == said["webhook-id"] == asked.key
    assert said["content-type"] == "application/json"
    sent = {name: value.decode() for name, value in asked.headers}
    packed = json.loads(said.pop("tocsin")) | json.loads(said.pop("headers"))
    unpacked = said | {
        (name if name in sent else f"tocsin-{name}"): text for name, text in packed.items()
    }
    assert unpacked == sent


@pytest.mark.parametrize("body", [b"\x00\xff", b"a\x00b", b"\xef\xbf\xbe", b"\x1b[0m"])
def test_a_payload_that_is_no_text_is_sent_as_base64_and_says_so(
    sqs: SqsWorld, body: bytes
) -> None:
    assert sqs.one(replace(sqs.call(1), body=body)).error == ""
    (got,) = sqs.read()
    assert b64decode(got["Body"]) == body
    assert attributes(got)["content-transfer-encoding"] == "base64"


def test_a_message_has_ten_attributes_at_most(sqs: SqsWorld) -> None:
    asked = sqs.call(1)
    more = [(f"x-{n}", b"v") for n in range(20)]
    ours = [("tocsin-possible-duplicate", b"true"), ("webhook-signature", b"v1,abc")]
    asked = replace(asked, headers=[*more, *asked.headers, *ours], body=b"\xff")
    assert sqs.one(asked).error == ""
    assert len(attributes(sqs.read()[0])) == 9


def test_a_fifo_queue_drops_what_it_has_under_the_same_key(moto_port: int) -> None:
    world = SqsWorld(moto_port, queues.unique("orders") + ".fifo")
    try:
        asked = world.call(1)
        assert [world.one(asked).error for _ in range(2)] == ["", ""]
        long = replace(world.call(2), key="k" * 239)
        assert world.one(replace(long, target=SqsTarget("main", world.queue, "g1", ()))).error == ""
        first, second = (got["Attributes"] for got in world.read())
        assert first["MessageDeduplicationId"] == asked.key
        assert first["MessageGroupId"] == asked.group
        assert len(second["MessageDeduplicationId"]) == 64
        assert second["MessageGroupId"] == "g1"
    finally:
        world.close()


def test_an_unknown_queue_is_a_failure_with_its_reason(sqs: SqsWorld) -> None:
    """F83."""
    asked = replace(sqs.call(1), target=SqsTarget("main", "nowhere", "", ()))
    assert sqs.one(asked).error == "unknown_queue"
    assert sqs.one(sqs.call(2)).error == ""
    sqs.client.delete_queue(QueueUrl=sqs.url)
    assert sqs.one(sqs.call(3)).error == "unknown_queue"
    sqs.client.create_queue(QueueName=sqs.queue)
    assert sqs.one(sqs.call(4)).error == ""


def test_the_largest_payload_is_taken_and_a_larger_one_is_dead(sqs: SqsWorld) -> None:
    assert sqs.one(replace(sqs.call(1), body=b"\xff" * 750_000)).error == ""
    assert sqs.one(replace(sqs.call(2), body=b"x" * 1_100_000)).error == "message_too_large"


def test_sqs_that_is_down_is_said_and_found_again(sqs: SqsWorld) -> None:
    """F82."""
    assert sqs.one(sqs.call(1)).error == ""
    sqs.proxy.down()
    answer = sqs.one(sqs.call(2))
    assert (answer.error, answer.sent) == ("broker_down", False)
    sqs.proxy.up()
    assert sqs.one(sqs.call(3)).error == ""
    assert sqs.arrived() == 2


def test_an_answer_that_is_lost_is_an_unknown_outcome_and_nothing_is_sent_twice_by_the_client(
    sqs: SqsWorld,
) -> None:
    """F81."""
    assert sqs.one(sqs.call(1)).error == ""
    sqs.proxy.mode = "lose"
    answer = sqs.one(sqs.call(2))
    assert (answer.error, answer.sent) == ("confirm_lost", True)
    assert sqs.proxy.lost == 1
    sqs.proxy.mode = "pass"
    again = sqs.call(2)
    assert sqs.one(again).error == ""
    keys = [attributes(got)["idempotency-key"] for got in sqs.read()]
    assert sorted(keys) == sorted([sqs.call(1).key, again.key, again.key])


def test_what_waits_for_a_thread_past_its_send_deadline_is_not_begun(sqs: SqsWorld) -> None:
    assert sqs.one(sqs.call(0)).error == ""
    sqs.hush()
    patient = [replace(sqs.call(n), timeout_ms=2_000) for n in range(16)]
    sqs.deliverer.submit(patient)
    waits = sqs.call(16)
    soon = replace(waits, not_after_us=waits.not_after_us - 59_800_000, timeout_ms=60_000)
    sqs.deliverer.submit([soon])
    ended = {answer.token: answer for answer in sqs.answers(16)}
    assert {answer.error for answer in ended.values()} == {"timeout"}
    sqs.proxy.down()
    (late,) = sqs.answers(1)
    assert (late.token, late.error, late.sent) == (16, "send_deadline", False)
