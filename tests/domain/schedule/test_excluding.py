"""Exclusions remove exactly: what is left is the schedule without its slots on excluded times."""

from itertools import pairwise
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.instant import DAY, HOUR, MINUTE, SECOND
from domain.schedule import zone
from domain.schedule.excluding import SKIPS_MAX, Excluding, excluded, without
from domain.schedule.exclusion import WEEK_S, Cover, Exclusion, packed, pairs_of
from domain.schedule.plan import Plan, ScheduleBreach
from domain.schedule.schedule import Cron, Every, between, parse_cron, parse_every, plan
from tests.domain.schedule.instants import ms

ZONES: Final = (
    *("UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Africa/Casablanca"),
    *("Pacific/Apia", "Asia/Kathmandu", "America/Sao_Paulo"),
)
YEAR: Final = ms("2026-01-01T00:00:00Z")
YEAR_S: Final = YEAR // SECOND
TEXTS: Final = ("0 9 * * *", "*/20 * * * *", "30 2 * * *", "0 0 * * 1", "15,45 1-3 * * *")
CHANGES: Final = tuple(
    sorted(
        start * SECOND
        for name in ZONES
        for start in zone.load(name).starts
        if YEAR_S < start < YEAR_S + 366 * 86_400
    )
)
"""Instants at which one of the clocks jumps."""


@st.composite
def schedules(draw: st.DrawFn) -> Cron:
    found = parse_cron(draw(st.sampled_from(TEXTS)), draw(st.sampled_from(ZONES)))
    assert isinstance(found, Cron)
    return found


@st.composite
def exclusions(draw: st.DrawFn) -> Exclusion:
    stretch = st.tuples(
        st.integers(0, 366 * 96).map(lambda quarter: YEAR_S + quarter * 900),
        st.sampled_from((900, 3600, 86_400, 9 * 86_400)),
    ).map(lambda pair: (pair[0], pair[0] + pair[1]))
    weekly = st.tuples(st.integers(0, 7 * 24 - 1), st.integers(1, 60)).map(
        lambda pair: (pair[0] * 3600, min(pair[0] * 3600 + pair[1] * 3600, WEEK_S))
    )
    return Exclusion(
        draw(st.sampled_from("abc")),
        1,
        draw(st.sampled_from(("", *ZONES))),
        packed(draw(st.lists(stretch, max_size=20))),
        packed(draw(st.lists(stretch, max_size=5))),
        packed(draw(st.lists(weekly, max_size=2))),
    )


def is_excluded(slot: int, exclusion: Exclusion, name: str) -> bool:
    """Tell by the definition, one instant at a time."""
    seconds = slot // SECOND
    local_s = seconds + zone.load(exclusion.zone or name).offset_s(seconds)
    in_week = (local_s + 3 * 86_400) % WEEK_S
    return any(
        first <= value < end
        for value, content in (
            (local_s, exclusion.ranges),
            (seconds, exclusion.instants),
            (in_week, exclusion.weekly),
        )
        for first, end in pairs_of(content)
    )


def walked(slots: Plan, after: int, until: int) -> list[int]:
    found, slot = [], slots.next_after(after)
    while slot is not None and slot <= until:
        found.append(slot)
        slot = slots.next_after(slot)
    return found


def walked_back(slots: Plan, after: int, until: int) -> list[int]:
    found, slot = [], slots.last_until(until)
    while slot is not None and slot > after:
        found.append(slot)
        slot = slots.last_until(slot - 1)
    return found[::-1]


@settings(deadline=None, max_examples=150)
@given(
    schedules(),
    st.lists(exclusions(), min_size=1, max_size=3),
    st.one_of(
        st.integers(YEAR, YEAR + 360 * DAY),
        st.sampled_from(CHANGES).map(lambda change: change - 2 * DAY),
    ),
)
def test_what_is_left_is_the_schedule_without_the_excluded_slots_in_both_directions(
    schedule: Cron, given_: list[Exclusion], after: int
) -> None:
    until = after + 12 * DAY
    calendars = tuple(given_)
    slots = walked(plan(schedule), after, until)
    kept = [s for s in slots if not any(is_excluded(s, e, schedule.zone) for e in calendars)]
    left = without(schedule, 0, 0, calendars)
    try:
        assert walked(left, after, until) == kept
        assert walked_back(left, after, until) == kept
    except ScheduleBreach as breach:
        assert "NeverRuns" in str(breach)  # noqa: PT017 - all that is beyond may be excluded
        assert any(e.weekly for e in calendars)


@settings(deadline=None, max_examples=150)
@given(
    schedules(),
    st.lists(exclusions(), min_size=1, max_size=3),
    st.integers(YEAR, YEAR + 360 * DAY),
)
def test_the_excluded_slots_are_each_one_calendars_and_counted(
    schedule: Cron, given_: list[Exclusion], after: int
) -> None:
    until = after + 9 * DAY
    calendars = tuple(
        Exclusion(f"c{n}", 1, e.zone, e.ranges, e.instants, e.weekly) for n, e in enumerate(given_)
    )
    expected = []
    slots = walked(plan(schedule), after, until)
    for number, calendar in enumerate(calendars):
        mine = [
            s
            for s in slots
            if is_excluded(s, calendar, schedule.zone)
            and not any(is_excluded(s, e, schedule.zone) for e in calendars[:number])
        ]
        if mine:
            expected.append((calendar.name, (mine[0], mine[-1], len(mine))))
    assert excluded(between(schedule, 0, 0), schedule, calendars, after, until) == expected


@settings(deadline=None, max_examples=150)
@given(exclusions(), st.sampled_from(ZONES), st.integers(YEAR // MINUTE, YEAR // MINUTE + 525_600))
def test_a_cover_answers_as_its_definition_does_at_every_edge(
    exclusion: Exclusion, name: str, minute: int
) -> None:
    t = minute * MINUTE
    covering = Cover(exclusion, zone.load(exclusion.zone or name))
    end = covering.end(t)
    assert bool(end) == is_excluded(t, exclusion, name)
    if end:
        assert end > t
        assert covering.start(t) <= t
        assert is_excluded(end - 1, exclusion, name)
        assert is_excluded(covering.start(t), exclusion, name)
    ahead = covering.next_from(t)
    behind = covering.last_to(t)
    near = [t + n * 15 * MINUTE for n in range(-400, 401)]
    out = [x for x in near if is_excluded(x, exclusion, name)]
    assert ahead is None or is_excluded(ahead, exclusion, name)
    assert behind is None or is_excluded(behind, exclusion, name)
    later, earlier = [x for x in out if x >= t], [x for x in out if x <= t]
    assert not later or (ahead is not None and t <= ahead <= later[0])
    assert not earlier or (behind is not None and earlier[-1] <= behind <= t)


class _Counting:
    """A plan that counts how often it is asked."""

    def __init__(self, inner: Plan) -> None:
        self.inner, self.asked = inner, 0

    def next_after(self, t: int) -> int | None:
        self.asked += 1
        return self.inner.next_after(t)

    def last_until(self, t: int) -> int | None:
        self.asked += 1
        return self.inner.last_until(t)


def test_a_year_without_a_job_of_every_second_is_one_step() -> None:
    every = parse_every("PT1S", "2026-01-01T00:00:00Z", "UTC", min_interval_s=1)
    assert isinstance(every, Every)
    year = Exclusion("a", 1, "UTC", packed([(YEAR_S, YEAR_S + 365 * 86_400)]))
    inner = _Counting(plan(every))
    slots = Excluding(inner, (Cover(year, zone.load("UTC")),))
    assert slots.next_after(YEAR + HOUR) == YEAR + 365 * DAY
    assert slots.last_until(YEAR + 364 * DAY) is None
    assert inner.asked <= 4
    ((name, span),) = excluded(inner, every, (year,), YEAR, YEAR + 300 * DAY)
    assert (name, span) == ("a", (YEAR + SECOND, YEAR + 300 * DAY, None))
    assert inner.asked < 1_100


def test_a_search_that_finds_only_excluded_slots_ends_and_says_so() -> None:
    daily = parse_cron("0 9 * * *", "UTC")
    assert isinstance(daily, Cron)
    nine = packed([(day * 86_400 + 9 * 3600, day * 86_400 + 9 * 3600 + 60) for day in range(7)])
    slots = without(daily, 0, 0, (Exclusion("a", 1, "UTC", weekly=nine),))
    with pytest.raises(ScheduleBreach, match=f"{SKIPS_MAX} excluded stretches"):
        slots.next_after(YEAR)


def test_where_excluded_slots_are_hard_to_find_the_range_is_not_counted() -> None:
    often = parse_cron("50 * * * *", "UTC")
    assert isinstance(often, Cron)
    # Each stretch lies beside the slots: none of them is found within the bounds of the search.
    odd = packed([(YEAR_S + n * 3600, YEAR_S + n * 3600 + 60) for n in range(9_000)])
    found = excluded(plan(often), often, (Exclusion("a", 1, "UTC", odd),), YEAR, YEAR + 360 * DAY)
    assert found == [("a", (YEAR + 1, YEAR + 360 * DAY, None))]


def test_contents_have_one_form() -> None:
    assert packed([(5, 9), (1, 3), (3, 5)]) == packed([(1, 9)])
    assert pairs_of(packed([(1, 2), (4, 6)])) == ((1, 2), (4, 6))
    for first, second in pairwise(pairs_of(packed([(9, 12), (1, 4), (2, 3), (6, 7)]))):
        assert first[1] < second[0]
