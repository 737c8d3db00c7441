"""The deliverer to Kafka, against the embedded broker and Apache Kafka."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka import Message as Received
from confluent_kafka.admin import AdminClient, NewTopic

from commandside.deliverer_port import Answer, Message
from domain.target import KafkaTarget
from infra.embedded.broker import BrokerOptions, EmbeddedBroker
from infra.targets.connections import KafkaConnection
from infra.targets.kafka import KafkaDeliverer
from tests.contracts import queues
from tests.contracts.deliverer import DelivererContract
from tests.engines.apache_kafka import ApacheKafka

replace = msgspec.structs.replace
TIMEOUT_S = 30.0


class KafkaWorld:
    """A topic of one partition on a broker, which can be stopped and goes on afterwards."""

    def __init__(self, bootstrap: str, pid: int) -> None:
        self.bootstrap = bootstrap
        self._pid = pid
        self._hushed = False
        self.topic = queues.unique("orders")
        admin = AdminClient({"bootstrap.servers": bootstrap})
        made = admin.create_topics([NewTopic(self.topic, num_partitions=1, replication_factor=1)])
        made[self.topic].result(TIMEOUT_S)
        connection = KafkaConnection(brokers=bootstrap, tenants=("*",))
        self.deliverer = KafkaDeliverer({"main": connection}, concurrency=queues.CONCURRENCY)

    def call(self, token: int) -> Message:
        return queues.message(KafkaTarget("main", self.topic, "", ()), token)

    def hush(self) -> None:
        os.kill(self._pid, signal.SIGSTOP)
        self._hushed = True

    def speak(self) -> None:
        if self._hushed:
            os.kill(self._pid, signal.SIGCONT)
            self._hushed = False

    def answers(self, count: int) -> list[Answer]:
        return queues.answers(self.deliverer, count)

    def one(self, asked: Message) -> Answer:
        return queues.one(self.deliverer, asked)

    def arrived(self) -> int:
        return len(self.read())

    def read(self) -> list[Received]:
        """Read the topic from its start to its end."""
        self.speak()
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.topic,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(self.topic, 0, 0)])
        found: list[Received] = []
        while True:
            got = consumer.poll(TIMEOUT_S)
            assert got is not None, f"{len(found)} messages, and no end"
            error = got.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                break
            found.append(got)
        consumer.close()
        return found

    def close(self) -> None:
        self.speak()
        self.deliverer.close()


@pytest.fixture(params=["embedded", "apache"])
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaWorld]:
    if request.param == "apache":
        node: ApacheKafka = request.getfixturevalue("apache_kafka")
        world = KafkaWorld(node.bootstrap, node.pid)
    else:
        broker: EmbeddedBroker = request.getfixturevalue("embedded_broker")
        world = KafkaWorld(broker.address, broker.pid)
    yield world
    world.close()


@pytest.fixture
def world(kafka: KafkaWorld) -> KafkaWorld:
    return kafka


class TestKafkaDeliverer(DelivererContract):
    """The contract of every kind."""


def test_a_message_has_the_bytes_the_key_and_the_headers_of_its_fire(kafka: KafkaWorld) -> None:
    body = b"\x00\xffany bytes\n"
    asked = replace(kafka.call(7), body=body)
    answer = kafka.one(asked)
    assert answer.headers == (("offset", "0"), ("partition", "0"))
    (got,) = kafka.read()
    assert got.value() == body
    assert got.key() == asked.group.encode()
    assert got.headers() == asked.headers
    assert dict(got.headers() or ())["idempotency-key"] == asked.key.encode()


def test_a_target_names_the_key_of_its_messages(kafka: KafkaWorld) -> None:
    kafka.one(replace(kafka.call(1), target=KafkaTarget("main", kafka.topic, "cust-ä", ())))
    assert [got.key() for got in kafka.read()] == ["cust-ä".encode()]


def test_a_message_without_a_body_is_an_empty_one(kafka: KafkaWorld) -> None:
    assert kafka.one(replace(kafka.call(1), body=b"")).error == ""
    assert [got.value() or b"" for got in kafka.read()] == [b""]


def test_an_unknown_topic_is_a_failure_with_its_reason_and_stays_unknown(kafka: KafkaWorld) -> None:
    """F83."""
    unknown = queues.unique("nowhere")
    asked = replace(kafka.call(1), target=KafkaTarget("main", unknown, "", ()))
    answer = kafka.one(asked)
    assert (answer.status, answer.error) == (0, "unknown_topic")
    listed = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=TIMEOUT_S)
    assert unknown not in listed.topics
    assert kafka.one(kafka.call(2)).error == ""


def test_a_message_of_the_largest_payload_is_taken_and_a_larger_one_is_dead(
    kafka: KafkaWorld,
) -> None:
    assert kafka.one(replace(kafka.call(1), body=b"x" * 1_000_000)).error == ""
    answer = kafka.one(replace(kafka.call(2), body=b"x" * 1_100_000))
    assert (answer.error, answer.sent) == ("message_too_large", False)


def test_a_confirmation_that_is_lost_is_sent_again_with_the_same_key(kafka: KafkaWorld) -> None:
    """F81."""
    kafka.one(kafka.call(1))
    kafka.hush()
    lost = kafka.one(replace(kafka.call(2), timeout_ms=300))
    assert (lost.error, lost.sent) == ("timeout", True)
    kafka.speak()
    again = kafka.call(2)
    assert kafka.one(again).error == ""
    keys = [dict(got.headers() or ())["idempotency-key"] for got in kafka.read()]
    assert keys[-1] == again.key.encode()
    assert set(keys) == {kafka.call(1).key.encode(), again.key.encode()}
    assert kafka.deliverer.poll() == []


def test_a_broker_that_is_down_is_told_from_one_that_is_slow(tmp_path: Path) -> None:
    """F82."""
    with EmbeddedBroker(BrokerOptions(data_dir=tmp_path / "broker")) as broker:
        world = KafkaWorld(broker.address, broker.pid)
        assert world.one(world.call(1)).error == ""
        broker.kill()
        answer = world.one(replace(world.call(2), timeout_ms=1_500))
        assert answer.error == "broker_down"
    again = EmbeddedBroker(BrokerOptions(data_dir=tmp_path / "broker", port=broker.port))
    with again:
        admin = AdminClient({"bootstrap.servers": again.address})
        admin.create_topics([NewTopic(world.topic, 1, 1)])[world.topic].result(TIMEOUT_S)
        # It is empty now, and knows no producer of before: some attempts may fail, and it heals.
        errors = [world.one(replace(world.call(n), timeout_ms=5_000)).error for n in range(3, 8)]
        assert errors[-1] == ""
        world.close()


def test_settings_that_no_client_takes_are_a_broker_that_cannot_be_reached() -> None:
    wrong = KafkaConnection(brokers="127.0.0.1:9", tls=True, ca_file="/nowhere", tenants=("*",))
    deliverer = KafkaDeliverer({"main": wrong}, concurrency=queues.CONCURRENCY)
    answer = queues.one(deliverer, queues.message(KafkaTarget("main", "orders", "", ()), 1))
    deliverer.close()
    assert (answer.error, answer.sent) == ("broker_down", False)


def test_a_client_that_holds_what_nobody_waits_for_takes_no_more(kafka: KafkaWorld) -> None:
    kafka.one(kafka.call(0))
    kafka.hush()
    errors: list[str] = []
    for _ in range(6):
        batch = [replace(kafka.call(n), timeout_ms=1) for n in range(queues.CONCURRENCY)]
        kafka.deliverer.submit(batch)
        errors += [answer.error for answer in kafka.answers(len(batch))]
    assert errors[-1] == "broker_down"
    assert set(errors) == {"timeout", "broker_down"}
