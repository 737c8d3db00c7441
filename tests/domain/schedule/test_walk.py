"""Gaps, folds and rare dates, each with its options."""

from datetime import UTC, datetime

import pytest

from domain.schedule.schedule import Cron, parse_cron, plan


def _ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1000


def _next(  # noqa: PLR0913 - the question, and the two options
    text: str, zone: str, after: str, count: int, gap: str = "", fold: str = ""
) -> list[str]:
    spec = parse_cron(text, zone, gap=gap, fold=fold)
    assert isinstance(spec, Cron), spec
    t: int | None = _ms(after)
    found = []
    for _ in range(count):
        assert t is not None
        t = plan(spec).next_after(t)
        assert t is not None
        found.append(datetime.fromtimestamp(t / 1000, UTC).strftime("%Y-%m-%dT%H:%M"))
    return found


NY = "America/New_York"


@pytest.mark.parametrize(
    ("text", "gap", "found"),
    [
        ("30 2 * * *", "", ["2026-03-08T07:00", "2026-03-09T06:30"]),
        ("30 2 * * *", "next", ["2026-03-08T07:00", "2026-03-09T06:30"]),
        ("30 2 * * *", "skip", ["2026-03-09T06:30", "2026-03-10T06:30"]),
        ("*/30 2 * * *", "", ["2026-03-09T06:00", "2026-03-09T06:30"]),
        ("*/30 2 * * *", "next", ["2026-03-08T07:00", "2026-03-09T06:00"]),
        ("0,30 2,3 * * *", "next", ["2026-03-08T07:00", "2026-03-08T07:30"]),
    ],
)
def test_a_time_in_a_gap_follows_the_rule_that_was_asked_for(
    text: str, gap: str, found: list[str]
) -> None:
    assert _next(text, NY, "2026-03-07T12:00", 2, gap=gap) == found


@pytest.mark.parametrize(
    ("text", "fold", "found"),
    [
        ("30 1 * * *", "", ["2026-11-01T05:30", "2026-11-02T06:30"]),
        ("30 1 * * *", "first", ["2026-11-01T05:30", "2026-11-02T06:30"]),
        ("30 1 * * *", "last", ["2026-11-01T06:30", "2026-11-02T06:30"]),
        ("30 1 * * *", "both", ["2026-11-01T05:30", "2026-11-01T06:30"]),
        ("*/40 1 * * *", "", ["2026-11-01T05:00", "2026-11-01T05:40", "2026-11-01T06:00"]),
        ("*/40 1 * * *", "first", ["2026-11-01T05:00", "2026-11-01T05:40", "2026-11-02T06:00"]),
        ("*/40 1 * * *", "last", ["2026-11-01T06:00", "2026-11-01T06:40", "2026-11-02T06:00"]),
    ],
)
def test_a_time_that_repeats_follows_the_rule_that_was_asked_for(
    text: str, fold: str, found: list[str]
) -> None:
    assert _next(text, NY, "2026-10-31T12:00", len(found), fold=fold) == found


@pytest.mark.parametrize("gap", ["", "next"])
def test_nothing_is_made_up_for_a_day_that_was_left_out(gap: str) -> None:
    found = _next("0 9 * * 5", "Pacific/Apia", "2011-12-28T00:00", 1, gap=gap)
    assert found == ["2012-01-05T19:00"]


def test_a_slot_in_a_gap_and_one_at_its_end_are_one_run() -> None:
    found = _next("0 2,3 * * *", NY, "2026-03-07T12:00", 3)
    assert found == ["2026-03-08T07:00", "2026-03-09T06:00", "2026-03-09T07:00"]


def test_a_leap_day_on_a_friday_is_found_across_a_century_without_one() -> None:
    assert _next("0 0 29 2 */5", "UTC", "2092-03-01T00:00", 1) == ["2104-02-29T00:00"]


def test_there_is_no_slot_before_1970_nor_after_9999() -> None:
    spec = parse_cron("0 0 1 1 *", "UTC")
    assert isinstance(spec, Cron)
    slots = plan(spec)
    assert slots.next_after(-(10**15)) == 0
    assert slots.last_until(-1) is None
    assert slots.next_after(_ms("9998-01-01T00:00")) == _ms("9999-01-01T00:00")
    assert slots.next_after(_ms("9999-01-01T00:00")) is None
    assert slots.last_until(10**18) == _ms("9999-01-01T00:00")


def test_a_walk_back_from_the_far_future_passes_the_end_of_the_zone_table() -> None:
    spec = parse_cron("0 0 29 2 *", NY)
    assert isinstance(spec, Cron)
    slots = plan(spec)
    assert slots.last_until(_ms("2504-02-29T04:59")) == _ms("2496-02-29T05:00")
    assert slots.next_after(_ms("2496-02-29T05:00")) == _ms("2504-02-29T05:00")


def test_a_question_between_two_seconds_is_answered_by_the_whole_second_before_or_after() -> None:
    spec = parse_cron("* * * * *", "UTC")
    assert isinstance(spec, Cron)
    slots = plan(spec)
    assert slots.next_after(59_999) == 60_000
    assert slots.next_after(60_000) == 120_000
    assert slots.last_until(60_000) == 60_000
    assert slots.last_until(59_999) == 0


def test_a_rare_date_on_which_the_clock_is_set_back_has_its_second_pass() -> None:
    found = _next("*/30 1 1 11 *", NY, "2026-11-01T05:45", 3)
    assert found == ["2026-11-01T06:00", "2026-11-01T06:30", "2027-11-01T05:00"]
    spec = parse_cron("*/30 1 1 11 *", NY)
    assert isinstance(spec, Cron)
    assert plan(spec).last_until(_ms("2026-11-01T05:59")) == _ms("2026-11-01T05:30")
    assert plan(spec).last_until(_ms("2026-11-01T06:15")) == _ms("2026-11-01T06:00")
