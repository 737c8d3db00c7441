"""What may be said of a queue as a target, and who may send through an operator's connection.

Tenants give no broker addresses: the operator names connections, and says which tenants may use
each, and for which topics, exchanges or queues. A target that passes here can be sent: names,
headers and sizes are within what its broker takes.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from domain import ids
from domain.refusal import Refused, token
from domain.target import (
    AMQP,
    KAFKA,
    QUEUE_KINDS,
    SQS,
    AmqpTarget,
    Header,
    KafkaTarget,
    QueueTarget,
    SqsTarget,
    Target,
)

CONNECTION: Final = "main"
"""The connection of a target that names none."""
CONNECTION_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
EVERYONE: Final = "*"
TENANT: Final = "{tenant}"
"""In a prefix, the id of whoever sends."""
KEY_BYTES_MAX: Final = 1024

PAYLOAD_BYTES_MAX: Final = {KAFKA: 1_000_000, AMQP: 1_048_576, SQS: 750_000}
"""Kafka takes messages of 1 MiB with their headers; so does SQS, and bytes that are no text grow by
a third there."""

_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_EXCHANGE: Final = re.compile(r"[\x21-\x7e]{0,127}")
_ROUTING_KEY: Final = re.compile(r"[\x20-\x7e]{0,255}")
_QUEUE: Final = re.compile(r"(?=.{1,80}\Z)[A-Za-z0-9_-]+(\.fifo)?")
_GROUP: Final = re.compile(r"[\x21-\x7e]{1,128}")


class Grant(msgspec.Struct, frozen=True):
    """Who may send through a connection, and to what: names that begin with one of `prefixes`.

    Without prefixes every name is open to those tenants, but for `closed` ones.
    """

    tenants: frozenset[bytes] = frozenset()
    everyone: bool = False
    prefixes: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()

    def admits(self, tenant_id: bytes) -> bool:
        """Say whether this tenant may use the connection at all."""
        return self.everyone or tenant_id in self.tenants

    def opens(self, tenant_id: bytes, name: str) -> bool:
        """Say whether this tenant may send to this topic, exchange or queue."""
        if not self.admits(tenant_id) or name.startswith(self.closed):
            return False
        if not self.prefixes:
            return True
        mine = ids.text(ids.TENANT, tenant_id)
        return name.startswith(tuple(text.replace(TENANT, mine) for text in self.prefixes))


Grants = Mapping[tuple[str, str], Grant]
"""By kind and name of the connection."""


class _Kind(NamedTuple):
    fields: tuple[str, ...]
    example: str


KINDS: Final[dict[str, _Kind]] = {
    KAFKA: _Kind(("topic", "key"), '{"kind": "kafka", "topic": "orders"}'),
    AMQP: _Kind(("exchange", "routing_key"), '{"kind": "amqp", "routing_key": "orders"}'),
    SQS: _Kind(("queue", "group_id"), '{"kind": "sqs", "queue": "orders"}'),
}


def place_of(target: QueueTarget) -> tuple[str, str]:
    """Return what a grant is about, and its field: the queue itself for the empty exchange."""
    match target:
        case KafkaTarget():
            return target.topic, "topic"
        case AmqpTarget():
            if target.exchange:
                return target.exchange, "exchange"
            return target.routing_key, "routing_key"
        case SqsTarget():
            return target.queue, "queue"


def judge(target: Target, tenant_id: bytes, grants: Grants) -> Refused | None:
    """Say why this tenant may not send there; a connection of others is as if there were none."""
    kind = QUEUE_KINDS.get(type(target))
    if kind is None:
        return None
    assert isinstance(target, QueueTarget)
    grant = grants.get((kind, target.connection))
    if grant is None or not grant.admits(tenant_id):
        return Refused(
            "/target/connection",
            f"no {kind} connection {target.connection!r} is open to you: ask your operator",
        )
    name, field = place_of(target)
    if not grant.opens(tenant_id, name):
        return Refused(
            f"/target/{field}",
            f"{name!r} is not open to you on {target.connection!r}: ask your operator",
        )
    return None


def payload_refusal(target: Target, size: int) -> str | None:
    """Say why a target cannot be sent a payload of `size` bytes, if it cannot."""
    kind = QUEUE_KINDS.get(type(target))
    if kind is None:
        return None
    if size > PAYLOAD_BYTES_MAX[kind]:
        return f"{size} bytes; at most {PAYLOAD_BYTES_MAX[kind]} to {kind}"
    if kind == SQS and not size:
        return "sqs takes no message without a body: give a payload"
    return None


def parse_queue_target(
    kind: str, given: Mapping[str, object], headers: tuple[Header, ...]
) -> QueueTarget | tuple[Refused, ...]:
    """Judge a queue target as it was typed; its headers were judged before."""
    fields = KINDS[kind].fields
    known = ("kind", "connection", *fields, "headers")
    wrong = [
        Refused(f"/target/{token(name[:64])}", f"unknown field; {', '.join(known)}")
        for name in given
        if name not in known
    ]
    texts: dict[str, str] = {}
    for field in ("connection", *fields):
        value = given.get(field, CONNECTION if field == "connection" else "")
        texts[field] = value if isinstance(value, str) else ""
        if not isinstance(value, str):
            wrong.append(Refused(f"/target/{field}", "a string"))
    if not CONNECTION_NAME.fullmatch(texts["connection"]):
        wrong.append(
            Refused("/target/connection", f"a name that your operator gave, such as {CONNECTION}")
        )
    if wrong:
        return tuple(wrong)
    connection, first, second = texts.values()
    return tuple(_JUDGES[kind](texts)) or _MAKERS[kind](connection, first, second, headers)


def _kafka(texts: Mapping[str, str]) -> list[Refused]:
    wrong: list[Refused] = []
    topic = texts["topic"]
    if not _TOPIC.fullmatch(topic) or topic in {".", ".."}:
        wrong.append(
            Refused("/target/topic", "1 to 249 letters, digits, '.', '_', '-', such as orders")
        )
    if len(texts["key"].encode()) > KEY_BYTES_MAX:
        wrong.append(Refused("/target/key", f"at most {KEY_BYTES_MAX} bytes of UTF-8"))
    return wrong


def _amqp(texts: Mapping[str, str]) -> list[Refused]:
    wrong: list[Refused] = []
    if not _EXCHANGE.fullmatch(texts["exchange"]):
        wrong.append(
            Refused("/target/exchange", "at most 127 printable ASCII characters without blanks")
        )
    if not _ROUTING_KEY.fullmatch(texts["routing_key"]):
        wrong.append(Refused("/target/routing_key", "at most 255 printable ASCII characters"))
    if not texts["exchange"] and not texts["routing_key"]:
        wrong.append(Refused("/target/routing_key", "without an exchange, the name of a queue"))
    return wrong


def _sqs(texts: Mapping[str, str]) -> list[Refused]:
    wrong: list[Refused] = []
    queue, group_id = texts["queue"], texts["group_id"]
    if not _QUEUE.fullmatch(queue):
        wrong.append(
            Refused(
                "/target/queue",
                "the name of a queue, not its URL: at most 80 letters, digits, '_', '-',"
                " with .fifo at its end if it is one",
            )
        )
    if group_id and not queue.endswith(".fifo"):
        wrong.append(Refused("/target/group_id", "only a FIFO queue has groups"))
    elif group_id and not _GROUP.fullmatch(group_id):
        wrong.append(
            Refused("/target/group_id", "at most 128 printable ASCII characters without blanks")
        )
    return wrong


_JUDGES: Final = {KAFKA: _kafka, AMQP: _amqp, SQS: _sqs}
_MAKERS: Final[dict[str, Callable[[str, str, str, tuple[Header, ...]], QueueTarget]]] = {
    KAFKA: KafkaTarget,
    AMQP: AmqpTarget,
    SQS: SqsTarget,
}
