"""From a definition over HTTP to a message in a queue, and the run history."""

import datetime as dt
import json
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Message as Received
from confluent_kafka.admin import AdminClient, NewTopic

from tests.contracts.queues import unique
from tests.contracts.test_deliverer_amqp import AmqpWorld
from tests.contracts.test_deliverer_sqs import SqsWorld
from tests.end_to_end.cell import Cell
from tests.end_to_end.test_first_fire import run_of_history
from tests.engines.rabbitmq import RabbitMQ

FIRE_S = 60.0
ROLES = ("api", "scheduler", "dispatcher", "projector")


def once(target: dict[str, Any], payload: Any) -> dict[str, Any]:
    """A job due now."""
    return {
        "type": "one_time",
        "run_at": dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds"),
        "target": target,
        "payload": payload,
    }


def first_message(bootstrap: str, topic: str) -> Received:
    """Wait for the first message of a topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = consumer.poll(FIRE_S)
    assert found is not None, "no message"
    assert found.error() is None, found.error()
    consumer.close()
    return found


def test_a_fire_is_a_message_of_a_topic(either_cell: Cell) -> None:
    cell = either_cell
    bootstrap, topic = cell.engines.kafka, unique("orders")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(FIRE_S)
    cell.connect(f'[kafka.main]\nbrokers = "{bootstrap}"\ntenants = ["*"]\nprefixes = ["orders"]\n')
    for role in ROLES:
        cell.start(role).started()
    payload = {"order": 7, "note": "grüße"}
    target = {"kind": "kafka", "topic": topic, "headers": {"X-Team": "billing"}}
    job = cell.define(once(target, payload))
    got = first_message(bootstrap, topic)

    value, key, headers = got.value(), got.key(), dict(got.headers() or ())
    assert value is not None
    assert json.loads(value) == payload
    assert key == job["job_id"].encode()
    idempotency_key = headers["idempotency-key"]
    assert isinstance(idempotency_key, bytes)
    assert idempotency_key.startswith(f"job-{job['job_id']}-run-".encode())
    assert headers["webhook-id"] == idempotency_key
    assert headers["tocsin-job-id"] == job["job_id"].encode()
    assert headers["tocsin-attempt"] == b"1"
    assert headers["content-type"] == b"application/json"
    assert headers["x-team"] == b"billing"
    (run,) = run_of_history(cell, job["job_id"], 1)
    (attempt,) = run["attempts"]
    assert (attempt["outcome"], attempt["status"], attempt["error"]) == ("ok", None, None)
    assert attempt["headers"] == {"offset": "0", "partition": "0"}


def test_fires_are_messages_of_an_exchange_and_of_an_sqs_queue(
    module_cell: Cell, rabbitmq: RabbitMQ, moto_port: int
) -> None:
    cell = module_cell
    rabbit, sqs = AmqpWorld(rabbitmq), SqsWorld(moto_port)
    cell.connect(
        f'[amqp.main]\nhost = "127.0.0.1"\nport = {rabbitmq.port}\ntenants = ["*"]\n'
        'password = "guest"\n[sqs.main]\nregion = "eu-west-1"\ntenants = ["*"]\n'
        f'endpoint = "http://127.0.0.1:{moto_port}"\n'
        'access_key_id = "AK"\nsecret_access_key = "SK"\n'
    )
    for role in ROLES:
        cell.start(role).started()
    payload = {"order": 7, "note": "grüße"}
    jobs = [
        cell.define(once({"kind": "amqp", "routing_key": rabbit.queue}, payload)),
        cell.define(once({"kind": "sqs", "queue": sqs.queue}, payload)),
    ]
    cell.settled(2)
    runs = [run_of_history(cell, job["job_id"], 1)[0] for job in jobs]
    (by_amqp,), (by_sqs,) = rabbit.read(), sqs.read()
    assert json.loads(by_amqp.body) == json.loads(by_sqs["Body"]) == payload
    keys = [by_amqp.message_id, by_sqs["MessageAttributes"]["idempotency-key"]["StringValue"]]
    for key, job in zip(keys, jobs, strict=True):
        assert key.startswith(f"job-{job['job_id']}-run-")
    assert by_amqp.headers["tocsin-job-id"] == jobs[0]["job_id"]
    assert [run["attempts"][0]["outcome"] for run in runs] == ["ok", "ok"]
    rabbit.close()
    sqs.close()
