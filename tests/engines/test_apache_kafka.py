"""The Apache Kafka that other tests stand on does what they take for granted."""

import uuid

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.engines.apache_kafka import ApacheKafka

pytestmark = pytest.mark.apache_kafka

TIMEOUT_S = 30.0
MESSAGES = 1_000


def new_topic(node: ApacheKafka) -> str:
    """Make a topic of one partition and return its name."""
    topic = f"t-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    made = admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
    made[topic].result(TIMEOUT_S)
    return topic


def produce(node: ApacheKafka, topic: str) -> list[bytes]:
    """Write messages, wait until each is acknowledged, and return them."""
    sent = [b"%d" % number for number in range(MESSAGES)]
    refused: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            refused.append(error)

    producer = Producer({"bootstrap.servers": node.bootstrap, "acks": "all", "linger.ms": 5})
    for value in sent:
        producer.produce(topic, value, on_delivery=delivered)
    assert producer.flush(TIMEOUT_S) == 0
    assert refused == []
    return sent


def consume(node: ApacheKafka, topic: str) -> list[bytes | None]:
    """Read the whole topic from its start."""
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": topic,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    read: list[bytes | None] = []
    while len(read) < MESSAGES:
        batch = consumer.consume(MESSAGES - len(read), TIMEOUT_S)
        assert batch, f"{len(read)} of {MESSAGES} messages, then none for {TIMEOUT_S} s"
        assert [message.error() for message in batch if message.error()] == []
        read += [message.value() for message in batch]
    consumer.close()
    return read


def test_what_was_acknowledged_is_read(apache_kafka: ApacheKafka) -> None:
    topic = new_topic(apache_kafka)
    assert produce(apache_kafka, topic) == consume(apache_kafka, topic)


def test_what_was_acknowledged_is_still_there_after_a_kill(apache_kafka: ApacheKafka) -> None:
    topic = new_topic(apache_kafka)
    sent = produce(apache_kafka, topic)
    killed = apache_kafka.pid
    apache_kafka.kill()
    apache_kafka.start()
    assert apache_kafka.pid != killed
    assert consume(apache_kafka, topic) == sent


def test_a_wiped_node_starts_as_a_new_cluster_at_the_same_address(
    apache_kafka: ApacheKafka,
) -> None:
    topic, address = new_topic(apache_kafka), apache_kafka.bootstrap
    apache_kafka.stop()
    apache_kafka.wipe()
    apache_kafka.start()
    known = AdminClient({"bootstrap.servers": address}).list_topics(timeout=TIMEOUT_S).topics
    assert topic not in known
