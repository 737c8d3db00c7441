"""The embedded broker, for real: produces, consumes, and forgets."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from infra.embedded import processes
from infra.embedded.broker import BrokerOptions, EmbeddedBroker
from infra.embedded.errors import EngineError

TIMEOUT_S = 20.0
ROOT = Path(__file__).parents[2]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(BrokerOptions(data_dir=tmp_path)) as engine:
        yield engine


def admin_of(broker: EmbeddedBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.address})


def create(broker: EmbeddedBroker, topic: str, partitions: int) -> None:
    admin = admin_of(broker)
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(TIMEOUT_S)


def produce(broker: EmbeddedBroker, topic: str, values: list[bytes]) -> list[int | None]:
    offsets: list[int | None] = []
    producer = Producer(
        {"bootstrap.servers": broker.address, "enable.idempotence": True, "acks": "all"}
    )
    for value in values:
        producer.produce(
            topic, value, partition=0, on_delivery=lambda _e, m: offsets.append(m.offset())
        )
    assert producer.flush(TIMEOUT_S) == 0
    return offsets


def consumer_of(broker: EmbeddedBroker) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            # The broker lets a group join after half of this.
            "session.timeout.ms": 2000,
            "heartbeat.interval.ms": 500,
        }
    )


def topics_of(broker: EmbeddedBroker) -> dict[str, int]:
    topics = admin_of(broker).list_topics(timeout=TIMEOUT_S).topics
    return {name: len(topic.partitions) for name, topic in topics.items()}


def test_a_topic_has_the_partitions_asked_for(broker: EmbeddedBroker) -> None:
    create(broker, "due", 8)
    assert topics_of(broker) == {"due": 8}


def test_creating_a_topic_again_says_that_it_exists(broker: EmbeddedBroker) -> None:
    create(broker, "due", 8)
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        create(broker, "due", 8)


def test_an_idempotent_producer_gets_dense_offsets(broker: EmbeddedBroker) -> None:
    create(broker, "due", 1)
    assert produce(broker, "due", [b"a", b"b", b"c"]) == [0, 1, 2]


def test_a_group_reads_what_was_produced(broker: EmbeddedBroker) -> None:
    create(broker, "due", 1)
    produce(broker, "due", [b"a", b"b"])
    consumer = consumer_of(broker)
    consumer.subscribe(["due"])
    messages = consumer.consume(2, timeout=TIMEOUT_S)
    consumer.close()
    assert [message.value() for message in messages] == [b"a", b"b"]


def test_a_committed_offset_is_where_the_group_goes_on(broker: EmbeddedBroker) -> None:
    create(broker, "due", 1)
    produce(broker, "due", [b"a", b"b"])
    first = consumer_of(broker)
    first.subscribe(["due"])
    first.consume(1, timeout=TIMEOUT_S)
    first.commit(offsets=[TopicPartition("due", 0, 1)], asynchronous=False)
    first.close()
    second = consumer_of(broker)
    second.subscribe(["due"])
    messages = second.consume(1, timeout=TIMEOUT_S)
    second.close()
    assert [message.value() for message in messages] == [b"b"]


def test_a_recycled_broker_has_the_same_address_and_is_empty(broker: EmbeddedBroker) -> None:
    create(broker, "due", 8)
    address = broker.address
    broker.recycle()
    assert (broker.address, topics_of(broker)) == (address, {})


def test_memory_grows_with_what_is_produced(broker: EmbeddedBroker) -> None:
    create(broker, "due", 1)
    before = broker.rss_bytes()
    produce(broker, "due", [os.urandom(100_000) for _ in range(100)])
    assert broker.rss_bytes() - before > 8_000_000


def test_stop_leaves_no_process_and_no_record(tmp_path: Path) -> None:
    engine = EmbeddedBroker(BrokerOptions(data_dir=tmp_path)).start()
    pid = engine.pid
    engine.stop()
    assert (processes.start_ticks(pid), (tmp_path / "broker.pid").exists()) == (None, False)


def test_a_killed_broker_is_seen_to_have_ended(broker: EmbeddedBroker) -> None:
    os.kill(broker.pid, signal.SIGKILL)
    assert processes.wait_until(lambda: broker.exit_status() == -signal.SIGKILL, TIMEOUT_S)


def test_a_taken_port_is_one_line_naming_port_and_setting(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(EngineError) as caught:
            EmbeddedBroker(BrokerOptions(data_dir=tmp_path, port=port)).start()
    text = str(caught.value)
    assert (str(port) in text, "kafka.port" in text, "\n" in text) == (True, True, False)


def test_a_broker_dies_with_its_killed_supervisor_and_the_port_is_free_again(
    tmp_path: Path,
) -> None:
    script = textwrap.dedent("""
        import sys
        from pathlib import Path
        from infra.embedded.broker import BrokerOptions, EmbeddedBroker
        engine = EmbeddedBroker(BrokerOptions(data_dir=Path(sys.argv[1]))).start()
        print(engine.port, flush=True)
        input()
    """)
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as supervisor:
        assert supervisor.stdout is not None
        port = int(supervisor.stdout.readline())
        supervisor.kill()
    with EmbeddedBroker(BrokerOptions(data_dir=tmp_path, port=port)) as engine:
        assert engine.port == port
