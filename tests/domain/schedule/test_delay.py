"""`every` from `completion`: durations as they are typed, and what follows an instant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.instant import LAST
from domain.schedule.schedule import (
    FixedDelay,
    Refused,
    between,
    parse_delay,
    passed,
    plan,
    warnings,
)
from domain.schedule.telling import description

START = 1_800_000_000_000
MINUTE = 60_000


def delay(text: str, anchor: str | None = None) -> FixedDelay:
    """Parse what must be right."""
    found = parse_delay(text, anchor, "UTC")
    assert isinstance(found, FixedDelay), found
    return found


@pytest.mark.parametrize(
    ("text", "ms"), [("PT1M", MINUTE), ("PT90S", 90_000), ("PT24H", 24 * 60 * MINUTE)]
)
def test_hours_minutes_and_seconds_have_one_length(text: str, ms: int) -> None:
    assert plan(delay(text)).next_after(START) == START + ms


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("P1D", "PT24H"),
        ("P2W", "PT336H"),
        ("P1M", "differ in length"),
        ("P1Y", "differ in length"),
        ("PT59S", "PT60S"),
        ("5m", "write PT5M"),
        ("PT0S", "without end"),
        ("P1DT12H", "not mixed"),
    ],
)
def test_a_duration_that_is_refused_is_told_what_would_be_right(text: str, words: str) -> None:
    found = parse_delay(text, None, "UTC")
    assert isinstance(found, Refused)
    assert found.pointer == "/every"
    assert words in found.detail


def test_an_unknown_zone_and_a_rule_for_clock_changes_are_refused() -> None:
    zone, rule = (
        parse_delay("PT5M", None, "Mars/Base"),
        parse_delay("PT5M", None, "UTC", gap="skip"),
    )
    assert isinstance(zone, Refused)
    assert isinstance(rule, Refused)
    assert (zone.pointer, rule.pointer) == ("/timezone", "/dst")


def test_an_anchor_is_the_first_fire_while_it_is_to_come() -> None:
    spec = delay("PT5M", "2027-01-15T09:00:00Z")
    assert plan(spec).next_after(START) == START + 60 * MINUTE
    assert plan(spec).next_after(START + 60 * MINUTE) == START + 65 * MINUTE
    assert "not before 2027-01-15T09:00:00.000Z" in description(spec)


def test_a_start_is_the_first_fire_and_nothing_fires_after_an_end() -> None:
    slots = between(delay("PT5M"), START + 7 * MINUTE, START + 20 * MINUTE)
    assert slots.next_after(START) == START + 7 * MINUTE
    assert slots.next_after(START + 7 * MINUTE) == START + 12 * MINUTE
    assert slots.next_after(START + 15 * MINUTE) == START + 20 * MINUTE
    assert slots.next_after(START + 15 * MINUTE + 1) is None
    assert plan(delay("PT5M")).next_after(LAST - MINUTE) is None


@given(st.integers(0, LAST), st.integers(0, LAST), st.integers(60, 86_400))
def test_the_next_is_later_and_nothing_passes(t: int, first: int, seconds: int) -> None:
    slots = between(delay(f"PT{seconds}S"), first, 0)
    following = slots.next_after(t)
    assert following is None or following > t
    assert slots.last_until(t) is None
    assert following is None or passed(slots, t, following - 1) is None


def test_it_is_said_that_only_the_first_time_is_known() -> None:
    said = warnings(delay("PT5M"), START)
    assert "the first run is PT5M after now" in said[0]
    assert "depend on how long runs take" in said[1]
    assert description(delay("PT1H30M")) == "1 hour and 30 minutes after the end of each run"
