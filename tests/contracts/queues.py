"""What every deliverer to queues is tested with: messages, and the waiting for their answers."""

import select
import time
import uuid
from typing import Final

from commandside.deliverer_port import Answer, Message
from domain.target import QueueTarget
from infra.targets.routing import QueueDeliverer

PATIENCE_S: Final = 60.0
TENANT: Final = b"t" * 16
CONCURRENCY: Final = 64


def unique(what: str) -> str:
    """Return a name that no other test uses."""
    return f"{what}-{uuid.uuid4().hex[:12]}"


def message(target: QueueTarget, token: int, body: bytes = b'{"a": 1}') -> Message:
    """Return a message as a fire makes it, with time to spare."""
    key = f"job-jb_{'0' * 32}-run-{token}"
    headers = [
        ("x-team", b"billing"),
        ("content-type", b"application/json"),
        ("user-agent", b"Tocsin/0.1"),
        ("idempotency-key", key.encode()),
        ("webhook-id", key.encode()),
        ("webhook-timestamp", b"1800000000"),
        ("tocsin-job-id", b"jb_" + b"0" * 32),
        ("tocsin-run-id", b"rn_" + b"1" * 32),
        ("tocsin-scheduled-for", b"2027-01-15T08:00:00.000Z"),
        ("tocsin-attempt", b"1"),
        ("tocsin-fence", b"2"),
        ("traceparent", b"00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01"),
    ]
    not_after_us = time.monotonic_ns() // 1000 + 60_000_000
    group = f"jb_{'0' * 32}"
    return Message(token, TENANT, target, key, group, headers, body, 30_000, not_after_us)


def answers(deliverer: QueueDeliverer, count: int) -> list[Answer]:
    """Wait as the dispatcher does until so many messages are answered."""
    got: list[Answer] = []
    until = time.monotonic() + PATIENCE_S
    while len(got) < count:
        assert time.monotonic() < until, f"{len(got)} of {count} answers"
        wait_ms = deliverer.timeout_ms()
        assert wait_ms is not None, "nothing is waited for"
        select.select([deliverer.fileno()], (), (), min(wait_ms, 1_000) / 1_000)
        got += deliverer.poll()
    return got


def one(deliverer: QueueDeliverer, asked: Message) -> Answer:
    """Send one message, and return what came of it."""
    deliverer.submit([asked])
    (answer,) = answers(deliverer, 1)
    return answer
