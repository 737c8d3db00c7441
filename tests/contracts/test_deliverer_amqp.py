"""The deliverer to AMQP 0-9-1, against RabbitMQ behind a proxy that fails as it is told."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import aio_pika
import msgspec
import pytest
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage
from pamqp.common import FieldTable

from commandside.deliverer_port import Answer, Message
from domain.target import AmqpTarget
from infra.targets.amqp import AmqpDeliverer
from infra.targets.connections import AmqpConnection
from tests.contracts import queues
from tests.contracts.deliverer import DelivererContract
from tests.engines.proxy import TcpProxy
from tests.engines.rabbitmq import RabbitMQ

replace = msgspec.structs.replace
T = TypeVar("T")


class AmqpWorld:
    """A queue at RabbitMQ, and a deliverer that reaches it through a proxy."""

    def __init__(self, node: RabbitMQ) -> None:
        self._node = node
        self.queue = queues.unique("orders")
        self.proxy = TcpProxy(node.port)
        self.ask(lambda channel: channel.declare_queue(self.queue, durable=True))
        self.deliverer = self.deliverer_as("guest")

    def deliverer_as(self, password: str) -> AmqpDeliverer:
        connection = AmqpConnection(
            host="127.0.0.1", port=self.proxy.port, password=password, tenants=("*",)
        )
        return AmqpDeliverer({"main": connection}, concurrency=queues.CONCURRENCY)

    def ask(self, what: Callable[[AbstractChannel], Coroutine[Any, Any, T]]) -> T:
        """Do something at the broker, not through the proxy."""

        async def asked() -> T:
            connection = await aio_pika.connect(host="127.0.0.1", port=self._node.port)
            async with connection:
                return await what(await connection.channel())

        return asyncio.run(asked())

    def call(self, token: int) -> Message:
        return queues.message(AmqpTarget("main", "", self.queue, ()), token)

    def hush(self) -> None:
        self.proxy.mode = "swallow"

    def answers(self, count: int) -> list[Answer]:
        return queues.answers(self.deliverer, count)

    def one(self, asked: Message) -> Answer:
        return queues.one(self.deliverer, asked)

    def arrived(self) -> int:
        return len(self.read())

    def read(self) -> list[AbstractIncomingMessage]:
        """Take every message of the queue."""

        async def take(channel: AbstractChannel) -> list[AbstractIncomingMessage]:
            queue = await channel.get_queue(self.queue)
            found: list[AbstractIncomingMessage] = []
            while (got := await queue.get(no_ack=True, fail=False)) is not None:
                found.append(got)
            return found

        return self.ask(take)

    def close(self) -> None:
        self.deliverer.close()
        self.proxy.down()


@pytest.fixture
def amqp(rabbitmq: RabbitMQ) -> Iterator[AmqpWorld]:
    world = AmqpWorld(rabbitmq)
    yield world
    world.close()


@pytest.fixture
def world(amqp: AmqpWorld) -> AmqpWorld:
    return amqp


class TestAmqpDeliverer(DelivererContract):
    """The contract of every kind."""


def test_a_message_has_the_bytes_and_the_headers_of_its_fire(amqp: AmqpWorld) -> None:
    asked = replace(amqp.call(7), body=b"\x00\xffany bytes\n")
    assert amqp.one(asked).error == ""
    (got,) = amqp.read()
    assert got.body == asked.body
    assert got.headers == {name: value.decode() for name, value in asked.headers}
    assert (got.message_id, got.content_type) == (asked.key, "application/json")
    assert got.delivery_mode == aio_pika.DeliveryMode.PERSISTENT


def test_an_exchange_routes_by_the_key_of_the_target(amqp: AmqpWorld) -> None:
    exchange = queues.unique("events")

    async def bind(channel: AbstractChannel) -> None:
        made = await channel.declare_exchange(exchange, aio_pika.ExchangeType.TOPIC)
        await (await channel.get_queue(amqp.queue)).bind(made, "order.*")

    amqp.ask(bind)
    there = replace(amqp.call(1), target=AmqpTarget("main", exchange, "order.created", ()))
    nowhere = replace(amqp.call(2), target=AmqpTarget("main", exchange, "invoice.created", ()))
    assert amqp.one(there).error == ""
    answer = amqp.one(nowhere)
    assert (answer.error, answer.sent) == ("unroutable", True)
    assert [got.routing_key for got in amqp.read()] == ["order.created"]


def test_a_queue_that_is_not_there_is_unroutable(amqp: AmqpWorld) -> None:
    """F83."""
    asked = replace(amqp.call(1), target=AmqpTarget("main", "", queues.unique("nowhere"), ()))
    assert amqp.one(asked).error == "unroutable"
    assert amqp.one(amqp.call(2)).error == ""


def test_an_unknown_exchange_fails_its_own_messages_and_no_others(amqp: AmqpWorld) -> None:
    """F83."""
    unknown = AmqpTarget("main", queues.unique("nowhere"), "k", ())
    mixed = [replace(amqp.call(n), target=unknown) if n % 2 else amqp.call(n) for n in range(20)]
    amqp.deliverer.submit(mixed)
    answers = {answer.token: answer.error for answer in amqp.answers(20)}
    assert {answers[n] for n in range(0, 20, 2)} == {""}
    assert {answers[n] for n in range(1, 20, 2)} == {"unknown_exchange"}
    assert amqp.one(replace(amqp.call(21), target=unknown)).error == "unknown_exchange"
    assert amqp.arrived() == 10


def test_a_queue_that_is_full_refuses(amqp: AmqpWorld) -> None:
    small = queues.unique("small")
    limits: FieldTable = {"x-max-length": 1, "x-overflow": "reject-publish"}
    amqp.ask(lambda channel: channel.declare_queue(small, arguments=limits))
    to = AmqpTarget("main", "", small, ())
    errors = [amqp.one(replace(amqp.call(n), target=to)).error for n in range(4)]
    assert errors[0] == ""
    assert errors[-1] == "refused"


def test_a_broker_that_is_down_is_said_and_found_again(amqp: AmqpWorld) -> None:
    """F82."""
    assert amqp.one(amqp.call(1)).error == ""
    amqp.proxy.down()
    answers = [amqp.one(amqp.call(2)) for _ in range(2)]
    assert answers[-1].error == "broker_down"
    assert not answers[-1].sent
    amqp.proxy.up()
    assert amqp.one(amqp.call(3)).error == ""


def test_a_confirmation_that_is_lost_is_an_unknown_outcome(amqp: AmqpWorld) -> None:
    """F81."""
    assert amqp.one(amqp.call(1)).error == ""
    amqp.proxy.mode = "lose"
    answer = amqp.one(amqp.call(2))
    assert (answer.error, answer.sent) == ("confirm_lost", True)
    assert amqp.proxy.lost == 1
    amqp.proxy.mode = "pass"
    assert amqp.one(amqp.call(2)).error == ""
    keys = [got.message_id for got in amqp.read()]
    assert keys == [amqp.call(1).key, amqp.call(2).key, amqp.call(2).key]


def test_a_broker_that_hangs_costs_a_message_its_timeout_and_no_more(
    amqp: AmqpWorld, rabbitmq: RabbitMQ
) -> None:
    """F82, as under flow control."""
    assert amqp.one(amqp.call(1)).error == ""
    os.kill(rabbitmq.pid, signal.SIGSTOP)
    try:
        answer = amqp.one(replace(amqp.call(2), timeout_ms=300))
        assert (answer.error, answer.sent) == ("timeout", True)
    finally:
        os.kill(rabbitmq.pid, signal.SIGCONT)
    assert amqp.one(amqp.call(3)).error == ""
    assert amqp.deliverer.poll() == []


def test_a_wrong_password_is_not_authorized(amqp: AmqpWorld) -> None:
    stranger = amqp.deliverer_as("wrong")
    answer = queues.one(stranger, amqp.call(1))
    stranger.close()
    assert (answer.error, answer.sent) == ("not_authorized", False)


def test_messages_survive_a_crash_of_the_broker(amqp: AmqpWorld, rabbitmq: RabbitMQ) -> None:
    assert amqp.one(amqp.call(1)).error == ""
    rabbitmq.kill()
    rabbitmq.start()
    errors = [amqp.one(amqp.call(2)).error for _ in range(2)]
    assert errors[-1] == ""
    assert next(got.message_id for got in amqp.read()) == amqp.call(1).key
