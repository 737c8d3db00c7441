"""Jitter is fixed for a job, spread over jobs, and never reaches the next slot."""

from hypothesis import given
from hypothesis import strategies as st

from domain.instant import LAST
from domain.schedule.jitter import due_at, jitter_ms


def test_the_jitter_of_a_job_is_the_same_for_ever() -> None:
    assert jitter_ms(bytes(16), 5_000) == 1_986
    assert jitter_ms(bytes(15) + b"\x01", 5_000) == 1_325


@given(st.binary(min_size=16, max_size=16), st.integers(0, 10**9))
def test_jitter_lies_between_nothing_and_the_most(job_id: bytes, most: int) -> None:
    assert 0 <= jitter_ms(job_id, most) <= most


def test_jitter_is_spread_evenly_over_jobs() -> None:
    counts = [0] * 10
    for number in range(10_000):
        counts[jitter_ms(number.to_bytes(16, "big"), 9)] += 1
    assert min(counts) > 850
    assert max(counts) < 1_150


@given(st.integers(0, 10**13), st.integers(1, 10**9), st.integers(0, 10**9))
def test_a_slot_is_due_before_half_way_to_the_next(nominal: int, wide: int, jitter: int) -> None:
    due = due_at(nominal, nominal + wide, jitter)
    assert nominal <= due <= nominal + min(jitter, wide / 2)


def test_a_slot_without_a_next_one_has_its_whole_jitter() -> None:
    assert due_at(1_000, None, 5_000) == 6_000


@given(
    st.integers(0, 10**13),
    st.integers(1, 10**7),
    st.integers(1, 10**7),
    st.integers(0, 10**7),
)
def test_jitter_keeps_the_order_of_slots(nominal: int, one: int, two: int, jitter: int) -> None:
    first = due_at(nominal, nominal + one, jitter)
    second = due_at(nominal + one, nominal + one + two, jitter)
    assert first <= second


def test_no_jitter_leads_beyond_the_last_instant_that_has_a_text() -> None:
    assert due_at(LAST - 1, None, 5_000) == LAST
