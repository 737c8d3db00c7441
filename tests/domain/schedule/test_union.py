"""Several schedules in one: its slots are those of the parts, each instant once."""

from hypothesis import given, settings
from hypothesis import strategies as st

from domain.schedule.schedule import (
    Cron,
    Every,
    RRule,
    Union,
    parse_cron,
    parse_every,
    parse_rrule,
    plan,
    warnings,
)
from domain.schedule.telling import description
from tests.domain.schedule.instants import ms, texts
from tests.domain.schedule.test_every import assert_laws

ZONES = ("UTC", "America/New_York", "Australia/Lord_Howe", "Europe/Dublin")
ZONE = st.sampled_from(ZONES)
CRON = st.builds(
    parse_cron,
    st.sampled_from(["0 9 * * *", "*/20 * * * *", "30 2 * * 0", "0 0 1 * *", "15,45 1-3 * 3,11 *"]),
    ZONE,
)
EVERY = st.builds(
    parse_every,
    st.sampled_from(["PT90M", "PT7H", "P1D", "P1M"]),
    st.sampled_from([None, "2026-01-31T02:30:00Z"]),
    ZONE,
)
RULE = st.builds(
    parse_rrule,
    st.sampled_from(["FREQ=WEEKLY;BYDAY=MO,TH", "FREQ=MONTHLY;BYDAY=-1FR", "FREQ=DAILY;COUNT=9"]),
    st.just("2026-03-01T07:30:00Z"),
    ZONE,
)
PARTS = st.lists(st.one_of(CRON, EVERY, RULE), min_size=1, max_size=4)
SPAN_MS = 10 * 86_400_000


def slots(spec: Union | Cron | Every | RRule, after: int, until: int) -> list[int]:
    """Return all slots in (after, until]."""
    found = []
    slot = plan(spec).next_after(after)
    while slot is not None and slot <= until:
        found.append(slot)
        slot = plan(spec).next_after(slot)
    return found


@settings(deadline=None)
@given(PARTS, st.integers(ms("2026-01-01T00:00:00Z"), ms("2027-01-01T00:00:00Z")))
def test_the_slots_of_a_union_are_those_of_its_parts_each_once(
    parts: list[Cron | Every | RRule], after: int
) -> None:
    until = after + SPAN_MS
    merged = {slot for part in parts for slot in slots(part, after, until)}
    assert slots(Union(tuple(parts)), after, until) == sorted(merged)


@settings(deadline=None)
@given(PARTS, st.integers(0, ms("2030-01-01T00:00:00Z")))
def test_slots_of_a_union_go_forward_and_back_over_the_same_instants(
    parts: list[Cron | Every | RRule], t: int
) -> None:
    assert_laws(plan(Union(tuple(parts))), t)


def test_two_parts_that_meet_on_one_instant_are_one_slot() -> None:
    noon, hourly = parse_cron("0 12 * * *", "UTC"), parse_every("PT6H", None, "UTC")
    assert isinstance(noon, Cron)
    assert isinstance(hourly, Every)
    found = texts(plan(Union((noon, hourly))), ms("2026-01-01T06:00:00Z"), 2)
    assert found == ["2026-01-01T12:00:00Z", "2026-01-01T18:00:00Z"]


def test_a_part_that_has_ended_leaves_the_others() -> None:
    count = parse_rrule("FREQ=DAILY;COUNT=1", "2026-01-01T00:00:00Z", "UTC")
    daily = parse_cron("0 12 * * *", "UTC")
    assert isinstance(count, RRule)
    assert isinstance(daily, Cron)
    found = texts(plan(Union((count, daily))), ms("2025-12-31T23:00:00Z"), 3)
    assert found == ["2026-01-01T00:00:00Z", "2026-01-01T12:00:00Z", "2026-01-02T12:00:00Z"]


def test_each_part_is_described_and_warned_of() -> None:
    first, second = parse_cron("0 9 * * 6,0", "UTC"), parse_every("P1M", None, "UTC")
    assert isinstance(first, Cron)
    assert isinstance(second, Every)
    spec = Union((first, second))
    assert "; and every month" in description(spec)
    assert "/schedules/0: never on a weekday" in warnings(spec, 0)
