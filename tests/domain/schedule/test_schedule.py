"""Plans as values: cached, checked in one place, counted with a bound, stored as bytes."""

import msgspec
import pytest

from domain.schedule import schedule
from domain.schedule.schedule import (
    COUNT_LIMIT,
    Cron,
    OneTime,
    ScheduleBreach,
    ScheduleSpec,
    parse_cron,
    passed,
    plan,
    warnings,
)

MINUTELY = Cron("* * * * *", "* * * * *", "UTC")
HALF_SEPTEMBER = 1_790_000_000_000  # 2026-09-21


class _Stuck:
    """A plan that answers with the instant it was asked about, or one before."""

    def __init__(self, by: int) -> None:
        self.by = by

    def next_after(self, t: int) -> int:
        return t + self.by

    def last_until(self, t: int) -> int:
        return t - self.by


@pytest.mark.parametrize("by", [0, -1])
def test_a_next_slot_that_is_not_later_is_a_breach(
    by: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "OneTimePlan", lambda _: _Stuck(by))
    broken = plan.__wrapped__(OneTime(5))
    with pytest.raises(ScheduleBreach):
        broken.next_after(7)


def test_a_newest_slot_that_is_later_is_a_breach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "OneTimePlan", lambda _: _Stuck(-1))
    broken = plan.__wrapped__(OneTime(5))
    with pytest.raises(ScheduleBreach):
        broken.last_until(7)


def test_a_zone_that_is_known_no_longer_is_a_breach() -> None:
    with pytest.raises(ScheduleBreach, match="Atlantis"):
        plan(Cron("* * * * *", "* * * * *", "Atlantis/Main_Street"))


def test_whatever_a_plan_raises_is_a_breach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "OneTimePlan", lambda _: object())
    broken = plan.__wrapped__(OneTime(5))
    with pytest.raises(ScheduleBreach, match="AttributeError"):
        broken.next_after(7)
    with pytest.raises(ScheduleBreach, match="AttributeError"):
        broken.last_until(7)


def test_equal_values_share_one_plan() -> None:
    assert plan(MINUTELY) is plan(Cron("* * * * *", "* * * * *", "UTC"))


def test_passed_slots_are_counted_exactly_up_to_the_limit_and_not_beyond() -> None:
    slots = plan(MINUTELY)
    last = COUNT_LIMIT * 60_000
    assert passed(slots, 0, last) == (60_000, last, COUNT_LIMIT)
    assert passed(slots, -1, last) == (0, last, None)
    assert passed(slots, 0, 59_999) is None
    assert passed(slots, 0, 10**13) == (60_000, 10**13 // 60_000 * 60_000, None)


def test_stored_schedules_keep_their_bytes() -> None:
    encoded = msgspec.msgpack.encode(Cron("0 9 * * 1", "0 9 * * MON", "UTC", "vixie", "skip", ""))
    assert encoded == b"\x97\x02\xa90 9 * * 1\xab0 9 * * MON\xa3UTC\xa5vixie\xa4skip\xa0"
    assert msgspec.msgpack.encode(OneTime(5)) == b"\x92\x01\x05"
    decoder = msgspec.msgpack.Decoder(ScheduleSpec)
    assert decoder.decode(b"\x92\x01\x05") == OneTime(5)
    assert decoder.decode(b"\x94\x02\xa1x\xa1y\xa3UTC") == Cron("x", "y", "UTC")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "30 2 * * *",
            "runs at 03:00 on 14 March 2027 since 02:30 does not exist in America/New_York",
        ),
        (
            "30 1 * * *",
            "01:30 on 1 November 2026 occurs twice in America/New_York: this runs the first",
        ),
        ("*/30 2 * * *", "no run at 02:00 on 14 March 2027, which does not exist"),
        (
            "*/30 1 * * *",
            "01:00 on 1 November 2026 occurs twice in America/New_York: this runs both",
        ),
        (
            "0 0 1 * mon",
            "the day fields are ORed: this runs on day 1 of the month and on every Mon",
        ),
        ("0 0 */10 * 1", "both day fields must match, as one begins with *: day */10"),
        ("0 9 * * 6,7", "never on a weekday"),
        ("0 9 31 * *", "nothing runs in February, April, June, September and November"),
        ("0 9 29 2 *", "29 February exists in leap years only"),
        ("*/7 * * * *", "*/7 in minute starts again at 0: after 56 come 4 minutes"),
        ("0 9 */2 * *", "*/2 in day-of-month starts again at 1 in each month"),
        (
            "0 9 */31 * *",
            "*/31 in day-of-month starts again at 1 in each month: this is day 1 only",
        ),
        ("23 0-23 * * *", "0-23 in hour covers every hour but does not begin with *"),
    ],
)
def test_a_surprise_is_said_in_a_sentence(text: str, sentence: str) -> None:
    spec = parse_cron(text, "America/New_York")
    assert isinstance(spec, Cron)
    assert [said for said in warnings(spec, HALF_SEPTEMBER) if said.startswith(sentence)]


@pytest.mark.parametrize("text", ["0 9 * * *", "*/15 * * * *", "0 12 1 * *", "0 9 * * 1-5"])
def test_an_ordinary_schedule_has_no_warning(text: str) -> None:
    spec = parse_cron(text, "America/New_York")
    assert isinstance(spec, Cron)
    assert warnings(spec, HALF_SEPTEMBER) == ()


def test_a_zone_without_clock_changes_has_no_warning_about_them() -> None:
    spec = parse_cron("30 0-23 * * *", "Asia/Kathmandu")
    assert isinstance(spec, Cron)
    assert warnings(spec, HALF_SEPTEMBER) == ()
