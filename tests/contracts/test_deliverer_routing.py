"""Each call goes to the deliverer of its kind, and none to a connection that is not open.

The queue behind the router is one whose confirmations the test brings by hand.
"""

import select
import time
from collections.abc import Iterator, Sequence

import msgspec
import pytest

from commandside.deliverer_port import Answer, AnyCall, Call, Message
from domain.queue_target import Grant
from domain.target import AmqpTarget, KafkaTarget, address_rules
from infra.targets.addresses import AddressBook
from infra.targets.curl import CurlDeliverer
from infra.targets.pending import DROPPED_MAX, Outcome, Pending, Ticket
from infra.targets.routing import RoutingDeliverer
from tests.contracts import queues
from tests.contracts.test_deliverer_curl import Names
from tests.engines.sink import PATIENCE_S, TargetServer

CONCURRENCY = 8
GRANTS = {
    ("kafka", "main"): Grant(everyone=True, prefixes=("orders",)),
    ("kafka", "theirs"): Grant(frozenset((b"u" * 16,))),
}


class ByHand:
    """A deliverer to queues that says nothing by itself, in a time that the test passes."""

    def __init__(self) -> None:
        self.now_us = time.monotonic_ns() // 1000
        self.pending = Pending(CONCURRENCY, lambda: self.now_us)
        self.tickets: list[Ticket] = []

    @property
    def in_flight(self) -> int:
        return self.pending.in_flight

    @property
    def room(self) -> int:
        return self.pending.room

    def submit(self, calls: Sequence[Message]) -> None:
        self.tickets += [t for t in map(self.pending.take, calls) if t is not None]

    def poll(self) -> list[Answer]:
        return self.pending.poll()

    def timeout_ms(self) -> int | None:
        return self.pending.timeout_ms()

    def fileno(self) -> int:
        return self.pending.fileno()

    def close(self) -> None:
        self.pending.close()


class Routed:
    """A router over an HTTP target and a queue."""

    def __init__(self, server: TargetServer) -> None:
        self.server = server
        self.queue = ByHand()
        book = AddressBook(address_rules(["127.0.0.0/8"]))
        http = CurlDeliverer(book, Names(), concurrency=CONCURRENCY)
        queued = {"kafka": self.queue}
        self.router = RoutingDeliverer(http, queued, GRANTS, concurrency=CONCURRENCY)

    def call(self, token: int) -> Call:
        until_us = time.monotonic_ns() // 1000 + 60_000_000
        place = ("http", "127.0.0.1", self.server.port, "/", "POST")
        return Call(token, queues.TENANT, *place, [b"A: b"], b"{}", 30_000, until_us)

    def message(self, token: int, connection: str = "main", topic: str = "orders") -> Message:
        return queues.message(KafkaTarget(connection, topic, "", ()), token)

    def answers(self, count: int) -> list[Answer]:
        got: list[Answer] = []
        until = time.monotonic() + PATIENCE_S
        while len(got) < count:
            assert time.monotonic() < until, f"{len(got)} of {count} answers"
            readable, writable = self.router.sockets()
            select.select(readable, writable, (), 0.1)
            got += self.router.poll()
        return got


@pytest.fixture
def routed() -> Iterator[Routed]:
    with TargetServer() as server:
        found = Routed(server)
        yield found
        found.router.close()


def test_calls_and_messages_share_the_room_and_find_their_kind(routed: Routed) -> None:
    calls: list[AnyCall] = [routed.call(1), routed.message(2), routed.call(3)]
    routed.router.submit(calls)
    assert (routed.router.in_flight, routed.router.room) == (3, CONCURRENCY - 3)
    assert {answer.token for answer in routed.answers(2)} == {1, 3}
    (ticket,) = routed.queue.tickets
    assert ticket.message.token == 2
    routed.queue.pending.bring(Outcome(ticket))
    assert [(answer.token, answer.error) for answer in routed.answers(1)] == [(2, "")]
    assert routed.router.room == CONCURRENCY


@pytest.mark.parametrize(
    ("connection", "topic", "error"),
    [
        ("main", "invoices", "not_authorized"),
        ("theirs", "orders", "no_connection"),
        ("gone", "orders", "no_connection"),
    ],
)
def test_what_the_operator_does_not_allow_any_more_is_not_sent(
    routed: Routed, connection: str, topic: str, error: str
) -> None:
    routed.router.submit([routed.message(1, connection, topic), routed.call(2)])
    answers = {answer.token: answer for answer in routed.answers(2)}
    assert (answers[1].error, answers[1].sent) == (error, False)
    assert answers[2].status == 200
    assert routed.queue.tickets == []


def test_a_kind_without_any_connection_is_answered(routed: Routed) -> None:
    routed.router.submit([queues.message(AmqpTarget("main", "", "q", ()), 1)])
    assert [answer.error for answer in routed.answers(1)] == ["no_connection"]


def test_a_confirmation_that_another_thread_brings_wakes_the_owner(routed: Routed) -> None:
    routed.router.submit([routed.message(1)])
    bell = routed.queue.fileno()
    assert select.select([bell], (), (), 0)[0] == []
    routed.queue.pending.bring(Outcome(routed.queue.tickets[0]))
    assert select.select([bell], (), (), 0)[0] == [bell]
    assert len(routed.router.poll()) == 1
    assert select.select([bell], (), (), 0)[0] == []


def test_the_deadline_is_kept_if_the_client_hangs_and_its_late_word_is_dropped() -> None:
    queue = ByHand()
    asked = queues.message(KafkaTarget("main", "orders", "", ()), 1)
    queue.submit([msgspec.structs.replace(asked, timeout_ms=1_000)])
    (ticket,) = queue.tickets
    queue.pending.started(ticket)
    queue.now_us += 999_999
    assert queue.poll() == []
    queue.now_us += 1
    (answer,) = queue.poll()
    assert (answer.error, answer.sent, answer.elapsed_us) == ("timeout", True, 1_000_000)
    queue.pending.bring(Outcome(ticket))
    assert queue.poll() == []
    assert queue.room == CONCURRENCY
    queue.close()


def test_what_waited_too_long_in_a_queue_of_ours_is_not_started() -> None:
    queue = ByHand()
    asked = queues.message(KafkaTarget("main", "orders", "", ()), 1)
    soon = msgspec.structs.replace(asked, not_after_us=queue.now_us + 10)
    queue.submit([soon])
    (ticket,) = queue.tickets
    assert queue.pending.may_start(ticket)
    queue.now_us += 11
    assert not queue.pending.may_start(ticket)
    queue.close()


def test_a_client_that_lets_nothing_go_is_given_no_more() -> None:
    queue = ByHand()
    asked = queues.message(KafkaTarget("main", "orders", "", ()), 1)
    for _ in range(DROPPED_MAX):
        queue.submit([msgspec.structs.replace(asked, timeout_ms=1)] * CONCURRENCY)
        queue.now_us += 2_000
        assert {answer.error for answer in queue.poll()} == {"timeout"}
    queue.submit([asked])
    assert [answer.error for answer in queue.poll()] == ["broker_down"]
    for ticket in queue.tickets:
        queue.pending.bring(Outcome(ticket))
    assert queue.poll() == []
    queue.submit([asked])
    assert queue.poll() == []
    queue.close()


def test_answers_that_came_long_before_their_deadline_are_not_kept() -> None:
    queue = ByHand()
    asked = queues.message(KafkaTarget("main", "orders", "", ()), 1)
    for _ in range(100):
        queue.submit([asked])
        queue.pending.bring(Outcome(queue.tickets.pop()))
        assert len(queue.poll()) == 1
    assert len(queue.pending._deadlines) <= 2 * CONCURRENCY
    queue.close()
