"""The store in memory: the contract, and its bounds."""

from dataclasses import replace

import pytest

from tests.receiver.calls import Call, Clock
from tests.receiver.store_contract import DONE, FIRST, KEEP_MS, SECOND, StoreContract, claimed
from tocsin_receiver import Answer, Inbox, MemoryStore, StoreBusy


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self, clock: Clock) -> MemoryStore:
        return MemoryStore(clock=clock)

    def test_a_record_is_forgotten_after_its_time(self, clock: Clock) -> None:
        store = MemoryStore(clock=clock)
        assert store.swap("k", None, FIRST, 1_000)
        clock.at_s += 1
        assert store.load("k") is None
        assert store.swap("k", None, SECOND, 1_000)

    def test_a_full_store_forgets_the_oldest_key_that_is_not_claimed(self, clock: Clock) -> None:
        store = MemoryStore(keys_max=3, clock=clock)
        held = replace(FIRST, claimed_until_ms=int(clock.at_s * 1_000) + 10_000)
        assert store.swap("held", None, held, KEEP_MS)
        for number in range(5):
            assert store.swap(f"k{number}", None, SECOND, KEEP_MS)
            assert len(store) <= 3
        assert store.load("held") == held
        assert [n for n in range(5) if store.load(f"k{n}")] == [3, 4]

    def test_a_store_full_of_claims_takes_no_more_and_forgets_none(self, clock: Clock) -> None:
        store = MemoryStore(keys_max=2, clock=clock)
        inbox = Inbox(store, clock=clock)
        first = claimed(inbox.claim(Call(slot="1").delivery()))
        claimed(inbox.claim(Call(slot="2").delivery()))
        with pytest.raises(StoreBusy):
            inbox.claim(Call(slot="3").delivery())
        assert inbox.finish(first, DONE)
        claimed(inbox.claim(Call(slot="3").delivery()))

    def test_answers_are_held_to_so_many_bytes(self, clock: Clock) -> None:
        store = MemoryStore(answer_bytes_max=10_000, clock=clock)
        long = replace(SECOND, answer=Answer(200, (), bytes(3_000)))
        for number in range(10):
            assert store.swap(f"k{number}", None, long, KEEP_MS)
        assert [n for n in range(10) if store.load(f"k{n}")] == [7, 8, 9]

    def test_what_was_forgotten_is_not_counted(self, clock: Clock) -> None:
        store = MemoryStore(answer_bytes_max=10_000, clock=clock)
        long = replace(SECOND, answer=Answer(200, (), bytes(3_000)))
        for number in range(30):
            assert store.swap(f"k{number}", None, long, 1_000)
            assert store.load(f"k{number}")
            clock.at_s += 1
            assert store.load(f"k{number}") is None
        assert len(store) == 0
