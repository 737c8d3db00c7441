"""Targets as a script says they answer, in the virtual time of whoever runs it."""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Final

import msgspec

from commandside.deliverer_port import (
    CONNECT_TIMEOUT_MS,
    ERRORS,
    KEPT_BODY_BYTES,
    KEPT_HEADERS,
    RESPONSE_BYTES_MAX,
    UNSENDABLE,
    Answer,
    AnyCall,
    Call,
    Message,
)

CONCURRENCY: Final = 128
NEVER_US: Final = 1 << 62
_NOT_SENT: Final = frozenset(
    {"blocked_address", "connect", "dns", "send_deadline"}
    | {error for error in ERRORS if error.startswith("tls")}
)


class Reply(msgspec.Struct, frozen=True):
    """What a target does with one call.

    It answers `latency_us` after the call was submitted (`NEVER_US`: not at all). `error` is one
    of `ERRORS` or empty; a status beside it means that the headers came whole.
    """

    status: int = 200
    latency_us: int = 1_000
    error: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b"ok"


class Hit(msgspec.Struct, frozen=True):
    """A request that reached its target, and when; `answered_us`: 0 where no answer came whole."""

    at_us: int
    call: Call
    status: int = 0
    answered_us: int = 0


class Sent(msgspec.Struct, frozen=True):
    """A message that reached its broker, and when."""

    at_us: int
    message: Message


Rule = Callable[[Call, int], Reply]
"""What answers a call that is submitted at that instant, µs of the monotonic clock."""
Broker = Callable[[Message, int], str]
"""What a broker says of a message, in `ERRORS`; nothing where it takes it."""
BROKER_US: Final = 1_000


def takes_all(_message: Message, _at_us: int) -> str:
    """Confirm every message."""
    return ""


class MemoryDeliverer:
    """Answers every call by one rule; the same calls at the same instants get the same answers.

    Besides the port: `hits` is what the targets saw and `messages` what the brokers took, `next_us`
    the instant of the next answer.
    """

    def __init__(
        self,
        rule: Rule,
        mono_us: Callable[[], int],
        *,
        concurrency: int = CONCURRENCY,
        broker: Broker = takes_all,
        seen_us: Callable[[], int] | None = None,
    ) -> None:
        """`seen_us`: the clock of targets and brokers, where it is another than the caller's."""
        self.hits: list[Hit] = []
        self.messages: list[Sent] = []
        self._rule = rule
        self._broker = broker
        self._mono_us = mono_us
        self._seen_us = seen_us or mono_us
        self._concurrency = concurrency
        self._count = 0
        self._pending: list[tuple[int, int, Answer]] = []

    @property
    def in_flight(self) -> int:
        """Calls submitted and not answered yet."""
        return len(self._pending)

    @property
    def room(self) -> int:
        """How many more calls `submit` takes now."""
        return self._concurrency - len(self._pending)

    @property
    def next_us(self) -> int | None:
        """When the next answer comes, if any does."""
        return self._pending[0][0] if self._pending else None

    def submit(self, calls: Sequence[AnyCall]) -> None:
        """Take calls, and settle at once what becomes of each and when."""
        assert len(calls) <= self.room, (len(calls), self.room)
        now_us = self._mono_us()
        for call in calls:
            answer = self._answer(call, now_us)
            self._count += 1
            heappush(self._pending, (now_us + answer.elapsed_us, self._count, answer))

    def poll(self) -> list[Answer]:
        """Return what has ended by now, in the order in which it ended."""
        now_us = self._mono_us()
        answers: list[Answer] = []
        while self._pending and self._pending[0][0] <= now_us:
            answers.append(heappop(self._pending)[2])
        return answers

    def close(self) -> None:
        """Drop every call in flight, unanswered."""
        self._pending.clear()

    def _answer(self, call: AnyCall, now_us: int) -> Answer:
        if now_us > call.not_after_us:
            return Answer(call.token, 0, "send_deadline", sent=False, elapsed_us=0)
        if isinstance(call, Message):
            error = self._broker(call, now_us)
            if not error:
                self.messages.append(Sent(self._seen_us(), call))
            return Answer(call.token, 0, error, sent=not error, elapsed_us=BROKER_US)
        if any(mark in line for line in call.headers for mark in (b"\r", b"\n", b"\0")):
            return Answer(call.token, 0, UNSENDABLE, sent=False, elapsed_us=0)
        reply = self._rule(call, now_us)
        assert not reply.error or reply.error in ERRORS, reply.error
        sent = reply.error not in _NOT_SENT
        if sent:
            seen_us = self._seen_us()
            whole = reply.status > 0 and not reply.error and reply.latency_us < NEVER_US
            answered_us = seen_us + reply.latency_us if whole else 0
            self.hits.append(Hit(seen_us, call, reply.status, answered_us))
        limit_us = 1_000 * (call.timeout_ms if sent else min(call.timeout_ms, CONNECT_TIMEOUT_MS))
        if reply.latency_us >= limit_us:
            reply = Reply(reply.status if reply.error == "timeout" else 0, limit_us, "timeout")
        answered = reply.status > 0
        size = len(reply.body) + sum(len(name) + len(value) + 4 for name, value in reply.headers)
        error = reply.error or ("response_too_large" if size > RESPONSE_BYTES_MAX else "")
        kept = tuple(
            (name.lower(), value) for name, value in reply.headers if name.lower() in KEPT_HEADERS
        )
        return Answer(
            call.token,
            reply.status,
            error,
            sent=sent,
            elapsed_us=reply.latency_us,
            headers=kept if answered else (),
            retry_after=dict(kept).get("retry-after", "") if answered else "",
            body=reply.body[:KEPT_BODY_BYTES] if answered else b"",
        )
