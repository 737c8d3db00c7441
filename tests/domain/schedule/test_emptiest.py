"""The emptiest second of a window, and a chosen spread as every fire has it."""

from collections import Counter
from math import ceil

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.schedule.jitter import due_at, emptiest, jitter_ms
from domain.schedule.schedule import OneTime, parse_cron
from domain.slots import Slots, room_of, spread_of
from tests.contracts import jobs

NOON = 1_790_000_040_000
"""A whole minute."""


def _ids(count: int, salt: int = 0) -> list[bytes]:
    return [(salt << 64 | number).to_bytes(16, "big") for number in range(count)]


@given(st.integers(1, 300), st.integers(0, 59_999), st.integers(0, 1_000), st.integers(0, 999))
def test_jobs_one_after_the_other_fill_a_window_evenly(
    count: int, most_ms: int, salt: int, phase: int
) -> None:
    load: Counter[int] = Counter()
    for job_id in _ids(count, salt):
        spread = emptiest(job_id, load, NOON + phase, most_ms)
        assert 0 <= spread <= most_ms
        load[(NOON + phase + spread) // 1_000] += 1
    seconds = (phase + most_ms) // 1_000 + 1
    assert max(load.values()) == ceil(count / seconds)


def test_a_hash_fills_it_unevenly() -> None:
    load = Counter(jitter_ms(job_id, 59_999) // 1_000 for job_id in _ids(60))
    assert max(load.values()) > 2


def test_it_is_the_one_second_with_the_least_load() -> None:
    load = {NOON // 1_000 + second: 5 for second in range(10)} | {NOON // 1_000 + 7: 4}
    assert {emptiest(job_id, load, NOON, 9_000) for job_id in _ids(20)} == {7_000}


def test_of_seconds_that_are_alike_the_id_draws_one() -> None:
    drawn = [emptiest(job_id, {}, NOON, 9_000) for job_id in _ids(200)]
    assert drawn == [emptiest(job_id, {}, NOON, 9_000) for job_id in _ids(200)]
    assert len(set(drawn)) == 10


@pytest.mark.parametrize(
    ("text", "jitter_ms", "most_ms"),
    [("0 * * * *", 600_000, 600_000), ("* * * * *", 50_000, 30_000)],
)
def test_the_window_ends_with_the_jitter_or_half_way(
    text: str, jitter_ms: int, most_ms: int
) -> None:
    schedule = parse_cron(text, "UTC")
    spec = msgspec.structs.replace(jobs.spec(schedule), jitter_ms=jitter_ms)  # type: ignore[arg-type]  # it is accepted
    room = room_of(spec, NOON)
    assert room.nominal == Slots(b"", spec).plan.next_after(NOON)
    assert room.most_ms == most_ms


def test_an_instant_has_its_whole_jitter_as_a_window() -> None:
    spec = msgspec.structs.replace(jobs.spec(OneTime(NOON)), jitter_ms=9_000)
    assert room_of(spec, NOON + 5) == room_of(spec, 0)
    assert room_of(spec, 0).most_ms == 9_000


def test_a_chosen_spread_is_the_same_for_every_job_and_fire() -> None:
    spec = msgspec.structs.replace(jobs.spec(jobs.minutely()), jitter_ms=50_000, spread_ms=20_000)
    for job_id in _ids(3):
        slots = Slots(job_id, spec)
        assert spread_of(job_id, spec) == 20_000
        assert [slots.due(NOON + n * 60_000) - NOON - n * 60_000 for n in range(3)] == [20_000] * 3
    late = msgspec.structs.replace(spec, spread_ms=50_000)
    assert Slots(b"", late).due(NOON) == due_at(NOON, NOON + 60_000, 50_000) == NOON + 30_000
