"""What a client of the broker is told, each bound with its reason."""

from typing import Final

import msgspec

LANES: Final = ("standard", "exact")
NEAR, AHEAD = "now", "ahead"
STAMP: Final = "#"

CALL_TIMEOUT_S: Final = 2.0
"""One administrative request; the next look follows anyway."""
SESSION_TIMEOUT_MS: Final = 6_000
"""The least that Kafka's default settings allow: a dead consumer's partitions move after it."""
EMBEDDED_SESSION_TIMEOUT_MS: Final = 3_000
"""The embedded broker lets a group join, and rebalances it, only after half of this."""


class KafkaOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where the broker is and what this process does with it.

    `partitions` is the count of the installation: a broker that has another is refused. A longer
    `fetch_wait_ms` is cheaper on a broker that does not wake a waiting fetch (the embedded one
    looks twice in that time); Apache Kafka answers at once, whatever it is.
    """

    bootstrap: str
    partitions: int = 16
    group: str = "tocsin.dispatchers"
    prefix: str = "tocsin.due"
    produces: bool = False
    consumes: bool = False
    replication: int = 1
    fetch_wait_ms: int = 200
    session_timeout_ms: int = SESSION_TIMEOUT_MS

    def topic(self, lane: int, *, near: bool) -> str:
        """Return the topic of a lane: what is due within 2 s, or what is due later."""
        return f"{self.prefix}.{LANES[lane]}.{NEAR if near else AHEAD}"

    @property
    def canary_topic(self) -> str:
        """The topic whose every partition carries the canary."""
        return self.topic(0, near=True)

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics, in a fixed order."""
        return tuple(self.topic(lane, near=near) for lane in (0, 1) for near in (True, False))


def stamped(topic: str, incarnation: bytes) -> str:
    """Return the topic as confirmations name it: a place means nothing to another incarnation."""
    return f"{topic}{STAMP}{incarnation[:4].hex()}"


TOPIC_CONFIG: Final = {
    # A hint older than that was leased or handed off again long ago.
    "retention.ms": "3600000",
    "cleanup.policy": "delete",
    # Below the retention, or nothing would ever be deleted.
    "segment.ms": "600000",
}


Config = dict[str, str | int | float | bool]


def client_config(options: KafkaOptions) -> Config:
    """Return what every client is told."""
    return {
        "bootstrap.servers": options.bootstrap,
        # The broker makes up a partition count for a topic that is created by being named.
        "allow.auto.create.topics": False,
        # A broker that restarts is found again within a second.
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1_000,
        "socket.keepalive.enable": True,
        "socket.timeout.ms": 5_000,
        # Seen from the canary and the error callback; printed lines would only repeat them.
        "log_level": 0,
    }


def producer_config(options: KafkaOptions) -> Config:
    """Return what a producer is told: confirmed only when all replicas have it, and bounded."""
    return client_config(options) | {
        "acks": "all",
        # A doubled hint is harmless; a producer with sequence numbers ends for good, with an error
        # that no call expects, when the broker was replaced by an empty one.
        "enable.idempotence": False,
        "linger.ms": 5,
        # A pass hands off at most a few hundred messages; more than this is a broker in trouble.
        "queue.buffering.max.messages": 10_000,
        "queue.buffering.max.kbytes": 32 * 1_024,
        # Older than that, the rows are scanned and published again.
        "message.timeout.ms": 5_000,
        "topic.metadata.refresh.interval.ms": 10_000,
    }


def consumer_config(options: KafkaOptions) -> Config:
    """Return what a consumer is told: no automatic commits, bounded memory, soft rebalances."""
    return client_config(options) | {
        "group.id": options.group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # What was published before the group existed is a hint like any other.
        "auto.offset.reset": "earliest",
        # A join moves some partitions and leaves the others alone.
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": options.session_timeout_ms,
        "heartbeat.interval.ms": options.session_timeout_ms // 3,
        # Polling never blocks and never waits for work, so this is only a watchdog.
        "max.poll.interval.ms": 60_000,
        "fetch.wait.max.ms": options.fetch_wait_ms,
        "fetch.max.bytes": 8 * 1_024 * 1_024,
        "max.partition.fetch.bytes": 1_024 * 1_024,
        "queued.min.messages": 1_000,
        "queued.max.messages.kbytes": 16 * 1_024,
        # A full queue or an error must not cost half a second of everybody's lateness.
        "fetch.queue.backoff.ms": 50,
        "fetch.error.backoff.ms": 100,
        "topic.metadata.refresh.interval.ms": 10_000,
    }
