"""What every store of the kit does; and what the inbox makes of it, on each of them."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

import pytest

from tests.receiver.calls import Call, Clock
from tocsin_receiver import Answer, Busy, Claimed, Inbox, Record, Repeat, Stale, Store
from tocsin_receiver.record import Outcome, State

T = TypeVar("T")
KEEP_MS = 60_000
THREADS = 8
ROUNDS = 20

FIRST = Record(
    run_id="rn_1",
    seen=3,
    fence=3,
    nonce="n1",
    state=State.CLAIMED,
    claimed_until_ms=10,
    keep_until_ms=20,
)
SECOND = replace(
    FIRST,
    state=State.DONE,
    answer=Answer(201, (("content-type", "text/plain"),), bytes(range(256))),
)
DONE = Answer(200, (("content-type", "application/json"), ("set-cookie", "a=b")), b'{"n":1}')


class StoreContract:
    """Subclasses give the fixture `store`: an empty one."""

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    def inbox(self, store: Store, clock: Clock) -> Inbox:
        return Inbox(store, claim_s=60, keep_s=3_600, clock=clock)

    # The port.

    def test_an_unknown_key_has_no_record(self, store: Store) -> None:
        assert store.load("k") is None

    def test_a_record_is_kept_as_it_was_given(self, store: Store) -> None:
        assert store.swap("k", None, SECOND, KEEP_MS)
        assert store.load("k") == SECOND
        assert store.load("other") is None

    def test_a_key_is_taken_once(self, store: Store) -> None:
        assert store.swap("k", None, FIRST, KEEP_MS)
        assert not store.swap("k", None, SECOND, KEEP_MS)
        assert store.load("k") == FIRST

    def test_a_record_is_replaced_by_who_knows_it(self, store: Store) -> None:
        assert store.swap("k", None, FIRST, KEEP_MS)
        assert not store.swap("k", SECOND, SECOND, KEEP_MS)
        assert store.load("k") == FIRST
        assert store.swap("k", FIRST, SECOND, KEEP_MS)
        assert not store.swap("k", FIRST, SECOND, KEEP_MS)
        assert store.load("k") == SECOND

    def test_what_is_not_there_cannot_be_replaced(self, store: Store) -> None:
        assert not store.swap("k", FIRST, SECOND, KEEP_MS)
        assert store.load("k") is None

    def test_of_many_at_once_one_takes_a_key(self, store: Store) -> None:
        for number in range(ROUNDS):
            key, records = f"k{number}", [replace(FIRST, nonce=f"n{n}") for n in range(THREADS)]
            won = at_once([taking(store, key, None, record) for record in records])
            assert won.count(True) == 1
            assert store.load(key) == records[won.index(True)]

    def test_of_many_at_once_one_replaces_a_record(self, store: Store) -> None:
        for number in range(ROUNDS):
            key, records = f"k{number}", [replace(SECOND, nonce=f"n{n}") for n in range(THREADS)]
            assert store.swap(key, None, FIRST, KEEP_MS)
            won = at_once([taking(store, key, FIRST, record) for record in records])
            assert won.count(True) == 1
            assert store.load(key) == records[won.index(True)]

    # The inbox on it.

    def test_a_finished_key_answers_again_what_it_answered(self, inbox: Inbox) -> None:
        assert inbox.finish(claimed(inbox.claim(Call().delivery())), DONE)
        for fence in (3, 4):
            again = inbox.claim(Call(attempt=2, fence=fence).delivery())
            # A cookie belongs to the exchange that it was set in.
            assert again == Repeat(replace(DONE, headers=DONE.headers[:1]))

    def test_a_key_in_progress_is_busy_until_its_claim_is_over(
        self, inbox: Inbox, clock: Clock
    ) -> None:
        claimed(inbox.claim(Call().delivery()))
        clock.at_s += 20.5
        assert inbox.claim(Call(attempt=2, fence=4).delivery()) == Busy(40)
        clock.at_s += 39
        assert inbox.claim(Call(attempt=3, fence=5).delivery()) == Busy(1)

    def test_a_claim_that_expired_is_taken_over_and_its_late_answer_is_not_kept(
        self, inbox: Inbox, clock: Clock
    ) -> None:
        slow = claimed(inbox.claim(Call().delivery()))
        clock.at_s += 60
        second = claimed(inbox.claim(Call(attempt=2, fence=4).delivery()))
        assert not inbox.finish(slow, Answer(200, (), b"late"))
        assert not inbox.release(slow)
        assert inbox.finish(second, DONE)
        assert isinstance(inbox.claim(Call(attempt=3, fence=5).delivery()), Repeat)

    def test_the_same_attempt_that_came_twice_has_two_claims(
        self, inbox: Inbox, clock: Clock
    ) -> None:
        slow = claimed(inbox.claim(Call().delivery()))
        clock.at_s += 60
        second = claimed(inbox.claim(Call().delivery()))
        assert not inbox.finish(slow, DONE)
        assert inbox.finish(second, DONE)

    def test_a_late_answer_is_kept_while_nobody_took_over(self, inbox: Inbox, clock: Clock) -> None:
        slow = claimed(inbox.claim(Call().delivery()))
        clock.at_s += 61
        assert inbox.finish(slow, DONE)
        assert isinstance(inbox.claim(Call(fence=4).delivery()), Repeat)

    @pytest.mark.parametrize("status", [199, 301, 404, 500])
    def test_an_answer_that_is_no_success_gives_the_key_back(
        self, inbox: Inbox, status: int
    ) -> None:
        assert inbox.finish(claimed(inbox.claim(Call().delivery())), Answer(status))
        claimed(inbox.claim(Call(attempt=2, fence=4).delivery()))

    def test_a_released_key_is_claimed_again(self, inbox: Inbox) -> None:
        assert inbox.release(claimed(inbox.claim(Call().delivery())))
        claimed(inbox.claim(Call().delivery()))

    @pytest.mark.parametrize("end", ["claimed", "released", "finished"])
    def test_a_lower_fence_than_was_seen_is_stale(self, inbox: Inbox, end: str) -> None:
        claim = claimed(inbox.claim(Call(attempt=3, fence=7).delivery()))
        if end != "claimed":
            assert inbox.finish(claim, DONE if end == "finished" else None)
        assert inbox.claim(Call(attempt=2, fence=6).delivery()) == Stale(7)

    def test_a_fence_that_was_only_told_to_wait_was_seen(self, inbox: Inbox) -> None:
        first = claimed(inbox.claim(Call(fence=3).delivery()))
        assert isinstance(inbox.claim(Call(attempt=2, fence=8).delivery()), Busy)
        assert inbox.claim(Call(fence=7).delivery()) == Stale(8)
        # The one that runs is the one that was first: its answer is kept, for the later attempt.
        assert inbox.finish(first, DONE)
        assert isinstance(inbox.claim(Call(attempt=2, fence=8).delivery()), Repeat)
        assert isinstance(inbox.claim(Call(attempt=3, fence=9).delivery()), Repeat)
        assert inbox.claim(Call(attempt=2, fence=8).delivery()) == Stale(9)

    def test_fences_of_another_run_are_not_compared(self, inbox: Inbox) -> None:
        other = "rn_" + "0c" * 16
        assert inbox.finish(claimed(inbox.claim(Call(fence=7).delivery())), DONE)
        assert isinstance(inbox.claim(Call(run=other, fence=1).delivery()), Repeat)

    def test_keys_do_not_know_each_other(self, inbox: Inbox) -> None:
        claimed(inbox.claim(Call(fence=9).delivery()))
        claimed(inbox.claim(Call(slot="1", fence=1).delivery()))

    def test_an_asynchronous_answer_is_repeated_to_its_own_attempt_only(self, inbox: Inbox) -> None:
        accepted = Answer(202, (("tocsin-completion", "async"),))
        assert inbox.finish(claimed(inbox.claim(Call().delivery())), accepted)
        assert inbox.claim(Call().delivery()) == Repeat(accepted)
        second = claimed(inbox.claim(Call(attempt=2, fence=4).delivery()))
        assert inbox.finish(second, DONE)
        assert isinstance(inbox.claim(Call(attempt=3, fence=5).delivery()), Repeat)

    def test_a_key_is_forgotten_after_its_time(self, inbox: Inbox, clock: Clock) -> None:
        assert inbox.finish(claimed(inbox.claim(Call(fence=7).delivery())), DONE)
        clock.at_s += 3_599
        assert isinstance(inbox.claim(Call(fence=7).delivery()), Repeat)
        clock.at_s += 1
        claimed(inbox.claim(Call(fence=1).delivery()))

    def test_of_many_calls_at_once_one_is_handled(self, store: Store) -> None:
        inbox = Inbox(store)
        for number in range(ROUNDS):
            calls = [Call(slot=str(number), fence=3 + n % 3) for n in range(THREADS)]
            outcomes: list[Outcome] = at_once([claiming(inbox, call) for call in calls])
            found = [type(outcome) for outcome in outcomes]
            assert found.count(Claimed) == 1, found
            assert set(found) <= {Claimed, Busy, Stale}

    def test_records_are_text_that_a_person_can_read(self, store: Store) -> None:
        said = json.loads(SECOND.to_text())
        assert (said["state"], said["seen"], said["answer"]["status"]) == ("done", 3, 201)


def claimed(outcome: Outcome) -> Claimed:
    """Return a claim, which the outcome must be."""
    assert isinstance(outcome, Claimed), outcome
    return outcome


def taking(store: Store, key: str, old: Record | None, new: Record) -> Callable[[], bool]:
    """Return one swap, to be done later."""
    return lambda: store.swap(key, old, new, KEEP_MS)


def claiming(inbox: Inbox, call: Call) -> Callable[[], Outcome]:
    """Return one claim, to be done later."""
    delivery = call.delivery()
    return lambda: inbox.claim(delivery)


def at_once(functions: list[Callable[[], T]]) -> list[T]:
    """Return what each function returns, all begun at one moment."""
    gate = threading.Barrier(len(functions))

    def run(function: Callable[[], T]) -> T:
        gate.wait(30)
        return function()

    with ThreadPoolExecutor(len(functions)) as pool:
        return list(pool.map(run, functions))
