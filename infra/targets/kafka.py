"""Kafka topics as targets: one message for a fire, done when all replicas have it.

A producer of librdkafka works in threads of its own and tells what became of a message from its
`poll`, which a thread of ours calls. What must hold, and by what:

- *Confirmed by all replicas, in order, and not doubled by the client*: `acks=all`, idempotence.
- *Nothing is kept for ever.* The client drops a message after `message.timeout.ms`. That is a
  setting of a producer, so there are a few for each connection, for short, medium and long
  timeouts; its queue is bounded in messages and bytes.
- *A client that gave up is replaced.* An idempotent producer ends for good when the broker was
  replaced by an empty one; and it remembers every topic it was ever asked for.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Report

from commandside.deliverer_port import MESSAGE_TOO_LARGE, Message
from domain.target import KafkaTarget
from infra.clock import mono_us
from infra.targets.connections import KafkaConnection
from infra.targets.pending import Outcome, Pending, PendingDeliverer, Ticket

TIMEOUTS_MS: Final = (1_000, 5_000, 30_000)
"""A producer for each; a message goes to the longest that is not longer than its own."""
POLL_S: Final = 0.2
"""Longest wait for a report; whether to end is looked at in between."""
TOPICS_MAX: Final = 1_000
"""Topics that one producer is asked for; the client keeps each for as long as it lives."""
QUEUE_MESSAGES: Final = 4_096
QUEUE_KBYTES: Final = 64 * 1_024
JOIN_S: Final = 2.0
MESSAGE_BYTES_MAX: Final = 1_048_576

_CODES: Final = {
    KafkaError._UNKNOWN_TOPIC: "unknown_topic",
    KafkaError._UNKNOWN_PARTITION: "unknown_topic",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "unknown_topic",
    KafkaError.TOPIC_EXCEPTION: "unknown_topic",
    KafkaError.MSG_SIZE_TOO_LARGE: MESSAGE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE: MESSAGE_TOO_LARGE,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "not_authorized",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "not_authorized",
    KafkaError.SASL_AUTHENTICATION_FAILED: "not_authorized",
    KafkaError._AUTHENTICATION: "not_authorized",
    KafkaError.THROTTLING_QUOTA_EXCEEDED: "throttled",
    KafkaError._QUEUE_FULL: "broker_down",
    KafkaError._ALL_BROKERS_DOWN: "broker_down",
    KafkaError._PURGE_QUEUE: "broker_down",
    KafkaError._TRANSPORT: "confirm_lost",
    KafkaError._PURGE_INFLIGHT: "confirm_lost",
    KafkaError._FATAL: "confirm_lost",
}
_NOT_SENT: Final = frozenset({KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
_AWAY: Final = frozenset({KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE})


def producer_config(connection: KafkaConnection, timeout_ms: int) -> dict[str, object]:
    """Return what a producer is told; every bound beside its reason."""
    protocol = ("SASL_" if connection.username else "") + ("SSL" if connection.tls else "PLAINTEXT")
    config: dict[str, object] = {
        "bootstrap.servers": connection.brokers,
        "security.protocol": protocol,
        "client.id": "tocsin",
        "acks": "all",
        "enable.idempotence": True,
        "message.timeout.ms": timeout_ms,
        "request.timeout.ms": timeout_ms,
        "message.max.bytes": MESSAGE_BYTES_MAX,
        # Fires of one second are a batch; a single one hardly waits.
        "linger.ms": 2,
        "queue.buffering.max.messages": QUEUE_MESSAGES,
        "queue.buffering.max.kbytes": QUEUE_KBYTES,
        # A topic is there or it is not: what is new takes a moment to be known everywhere.
        "allow.auto.create.topics": False,
        "topic.metadata.propagation.max.ms": 1_000,
        "topic.metadata.refresh.interval.ms": 30_000,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1_000,
        "socket.connection.setup.timeout.ms": 5_000,
        "socket.keepalive.enable": True,
        # Seen from reports and the error callback; printed lines would only repeat them.
        "log_level": 0,
    }
    if connection.ca_file:
        config["ssl.ca.location"] = connection.ca_file
    if connection.username:
        config["sasl.mechanisms"] = connection.mechanism
        config["sasl.username"] = connection.username
        config["sasl.password"] = connection.password
    return config


class _Sender:
    """One producer with the thread that asks it for reports, until it is retired and empty."""

    def __init__(self, connection: KafkaConnection, timeout_ms: int, pending: Pending) -> None:
        self._pending = pending
        self.topics: set[str] = set()
        self.broken = False
        self.away = False
        """No broker can be reached, as far as the client has said."""
        self._ended = threading.Event()
        self._retired = False
        config = producer_config(connection, timeout_ms)
        self._producer = Producer({**config, "error_cb": self._failed})
        self._thread = threading.Thread(target=self._listen, name="kafka-reports", daemon=True)
        self._thread.start()

    @property
    def worn(self) -> bool:
        """It must be replaced."""
        return self.broken or len(self.topics) >= TOPICS_MAX

    @property
    def is_alive(self) -> bool:
        """It still waits for reports."""
        return self._thread.is_alive()

    def send(self, ticket: Ticket, target: KafkaTarget) -> None:
        """Hand a message to the client."""
        message = ticket.message
        ticket.link = self
        self.topics.add(target.topic)
        headers: list[tuple[str, str | bytes | None]] = [*message.headers]
        # After this, only the client knows whether bytes are on their way.
        self._pending.started(ticket)
        try:
            self._producer.produce(
                target.topic,
                message.body,
                (target.key or message.group).encode(),
                headers=headers,
                on_delivery=partial(self._reported, ticket),
            )
        except BufferError:
            ticket.started_us = 0
            self._pending.bring(Outcome(ticket, "broker_down"))
        except KafkaException as error:
            ticket.started_us = 0
            self._bring(ticket, error.args[0])

    def retire(self) -> None:
        """Take no more; end when everything has been reported."""
        self._retired = True

    def close(self) -> None:
        """Drop what is on its way."""
        self._ended.set()
        self._producer.purge()
        self._thread.join(JOIN_S)

    def _listen(self) -> None:
        while not self._ended.is_set():
            self._producer.poll(POLL_S)
            if self._retired and not len(self._producer):
                break
            if self.broken and self._retired:
                self._producer.purge()

    def _reported(self, ticket: Ticket, error: KafkaError | None, report: Report) -> None:
        if error is not None:
            self._bring(ticket, error)
            return
        self.away = False
        where = (("offset", str(report.offset())), ("partition", str(report.partition())))
        self._pending.bring(Outcome(ticket, "", where))

    def _bring(self, ticket: Ticket, error: KafkaError) -> None:
        code = error.code()
        if error.fatal():
            self.broken = True
        if code in _NOT_SENT:
            ticket.started_us = 0
        if code == KafkaError._MSG_TIMED_OUT:
            self._pending.bring(Outcome(ticket, "broker_down" if self.away else "timeout"))
            return
        self._pending.bring(Outcome(ticket, _CODES.get(code, "refused")))

    def _failed(self, error: KafkaError) -> None:
        if error.fatal():
            self.broken = True
        elif error.code() in _AWAY:
            self.away = True


class KafkaDeliverer(PendingDeliverer):
    """Sends to topics of the operator's clusters; a producer is made when it is first needed."""

    def __init__(
        self,
        connections: Mapping[str, KafkaConnection],
        *,
        concurrency: int,
        monotonic_us: Callable[[], int] = mono_us,
    ) -> None:
        self._connections = connections
        super().__init__(concurrency, monotonic_us)
        self._senders: dict[tuple[str, int], _Sender] = {}
        self._retired: list[_Sender] = []

    def submit(self, calls: Sequence[Message]) -> None:
        """Take messages."""
        for ticket in self._take(calls):
            target = ticket.message.target
            assert isinstance(target, KafkaTarget)
            try:
                sender = self._sender(target.connection, ticket.message.timeout_ms)
            except KafkaException:
                # No client is made of such settings, as where a file of certificates is missing.
                self._pending.bring(Outcome(ticket, "broker_down"))
                continue
            sender.send(ticket, target)

    def close(self) -> None:
        """Drop every message on its way, unanswered, and every connection."""
        for sender in (*self._senders.values(), *self._retired):
            sender.close()
        self._senders.clear()
        self._retired.clear()
        self._pending.close()

    def _sender(self, name: str, timeout_ms: int) -> _Sender:
        longest = max((t for t in TIMEOUTS_MS if t <= timeout_ms), default=TIMEOUTS_MS[0])
        found = self._senders.get((name, longest))
        if found is not None and not found.worn:
            return found
        if found is not None:
            found.retire()
            self._retired = [old for old in self._retired if old.is_alive]
            self._retired.append(found)
        fresh = _Sender(self._connections[name], longest, self._pending)
        self._senders[name, longest] = fresh
        return fresh
