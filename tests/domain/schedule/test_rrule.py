"""`rrule`: what is accepted and refused, and the dates of rules that surprise."""

import pytest

from domain.schedule import recurrence, rrule
from domain.schedule.schedule import Refused, RRule, parse_rrule, plan, warnings
from tests.domain.schedule.instants import ms, texts


def rule(text: str, anchor: str | None = "2026-01-05T09:00:00Z", zone: str = "UTC") -> RRule:
    """Parse what must be right; the anchor is a Monday."""
    found = parse_rrule(text, anchor, zone)
    assert isinstance(found, RRule), found
    return found


def dates(text: str, count: int = 3, after: str = "2026-01-01T00:00:00Z") -> list[str]:
    """Return the first slots."""
    return texts(plan(rule(text)), ms(after), count)


def refusal(text: str, anchor: str | None = "2026-01-05T09:00:00Z") -> Refused:
    """Return why a rule is refused."""
    found = parse_rrule(text, anchor, "UTC")
    assert isinstance(found, Refused), found
    return found


def test_what_a_text_leaves_out_comes_from_the_anchor() -> None:
    assert dates("FREQ=WEEKLY", 2) == ["2026-01-05T09:00:00Z", "2026-01-12T09:00:00Z"]
    assert dates("FREQ=MONTHLY", 2) == ["2026-01-05T09:00:00Z", "2026-02-05T09:00:00Z"]
    assert dates("FREQ=YEARLY", 2) == ["2026-01-05T09:00:00Z", "2027-01-05T09:00:00Z"]
    assert dates("FREQ=DAILY;INTERVAL=10", 2) == ["2026-01-05T09:00:00Z", "2026-01-15T09:00:00Z"]


def test_the_last_friday_of_each_month() -> None:
    assert dates("RRULE:freq=monthly;byday=-1FR") == [
        "2026-01-30T09:00:00Z",
        "2026-02-27T09:00:00Z",
        "2026-03-27T09:00:00Z",
    ]


def test_the_last_working_day_of_each_month() -> None:
    assert dates("FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1") == [
        "2026-01-30T09:00:00Z",
        "2026-02-27T09:00:00Z",
        "2026-03-31T09:00:00Z",
    ]


def test_a_weekday_may_stand_beside_a_counted_one() -> None:
    assert dates("FREQ=MONTHLY;BYDAY=1MO,2TU") == [
        "2026-01-05T09:00:00Z",
        "2026-01-13T09:00:00Z",
        "2026-02-02T09:00:00Z",
    ]
    assert dates("FREQ=MONTHLY;BYDAY=SU,1MO")[:2] == [
        "2026-01-05T09:00:00Z",
        "2026-01-11T09:00:00Z",
    ]


def test_a_count_is_counted_from_the_anchor() -> None:
    text = "FREQ=DAILY;COUNT=3"
    assert dates(text, 9) == [f"2026-01-0{day}T09:00:00Z" for day in (5, 6, 7)]
    assert dates(text, 9, "2026-01-06T12:00:00Z") == ["2026-01-07T09:00:00Z"]
    assert plan(rule(text)).last_until(ms("2030-01-01T00:00:00Z")) == ms("2026-01-07T09:00:00Z")


def test_the_instant_of_until_is_included() -> None:
    text = "FREQ=DAILY;UNTIL=20260106T090000Z"
    assert dates(text, 9) == ["2026-01-05T09:00:00Z", "2026-01-06T09:00:00Z"]


def test_the_local_time_stays_over_a_clock_change() -> None:
    spec = rule("FREQ=DAILY;BYHOUR=9", "2026-03-06T05:00:00Z", "America/New_York")
    assert texts(plan(spec), ms("2026-03-07T00:00:00Z"), 2) == [
        "2026-03-07T14:00:00Z",
        "2026-03-08T13:00:00Z",
    ]


def test_a_time_in_a_gap_runs_after_it_and_a_repeated_one_once() -> None:
    spec = rule("FREQ=DAILY;BYHOUR=2;BYMINUTE=30", "2026-03-06T05:00:00Z", "America/New_York")
    assert texts(plan(spec), ms("2026-03-08T00:00:00Z"), 1) == ["2026-03-08T07:00:00Z"]
    spec = rule("FREQ=DAILY;BYHOUR=1;BYMINUTE=30", "2026-03-06T05:00:00Z", "America/New_York")
    assert texts(plan(spec), ms("2026-11-01T00:00:00Z"), 2) == [
        "2026-11-01T05:30:00Z",
        "2026-11-02T06:30:00Z",
    ]


def test_a_rule_of_hours_follows_the_clock_as_it_runs() -> None:
    spec = rule("FREQ=HOURLY", "2026-11-01T00:30:00-04:00", "America/New_York")
    assert texts(plan(spec), ms("2026-11-01T05:00:00Z"), 3) == [
        "2026-11-01T05:30:00Z",
        "2026-11-01T06:30:00Z",
        "2026-11-01T07:30:00Z",
    ]


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("", "is not understood"),
        ("INTERVAL=2", "FREQ is one of"),
        ("FREQ=FORTNIGHTLY", "FREQ is one of"),
        ("FREQ=SECONDLY", '{"every": "PT30S"}'),
        ("FREQ=DAILY;FREQ=DAILY", "given twice"),
        ("FREQ=DAILY;BYEASTER=1", "is not understood"),
        ("FREQ=DAILY;INTERVAL=0", "from 1 to 1000"),
        ("FREQ=DAILY;INTERVAL=1001", "from 1 to 1000"),
        ("FREQ=HOURLY;INTERVAL=25", "from 1 to 24"),
        ("FREQ=DAILY;INTERVAL=\u0662", "plain ASCII"),
        ("FREQ=DAILY;COUNT=2;UNTIL=20270101T000000Z", "exclude each other"),
        ("FREQ=DAILY;COUNT=367", "from 1 to 366"),
        ("FREQ=DAILY;UNTIL=20270101", "such as 20271231T235959Z"),
        ("FREQ=DAILY;UNTIL=20270230T000000Z", "no such instant"),
        ("FREQ=DAILY;UNTIL=20260101T000000Z", "never matches"),
        ("FREQ=DAILY;BYMONTH=13", "from 1 to 12"),
        ("FREQ=DAILY;BYMONTH=-1", "from 1 to 12"),
        ("FREQ=MONTHLY;BYMONTHDAY=0", "from 1 to 31"),
        ("FREQ=MONTHLY;BYMONTHDAY=32", "from 1 to 31"),
        ("FREQ=DAILY;BYHOUR=24", "from 0 to 23"),
        ("FREQ=DAILY;BYHOUR=-1", "from 0 to 23"),
        ("FREQ=DAILY;BYSECOND=0,30", "one number"),
        ("FREQ=DAILY;BYDAY=XX", "2TU or -1FR"),
        ("FREQ=WEEKLY;BYDAY=1MO", "FREQ=MONTHLY or YEARLY"),
        ("FREQ=MONTHLY;BYDAY=6MO", "no such weekday"),
        ("FREQ=MONTHLY;BYDAY=0MO", "no such weekday"),
        ("FREQ=MONTHLY;BYWEEKNO=1", "YEARLY only"),
        ("FREQ=DAILY;BYYEARDAY=1", "use FREQ=YEARLY"),
        ("FREQ=WEEKLY;BYMONTHDAY=1", "use FREQ=DAILY or MONTHLY"),
        ("FREQ=DAILY;BYSETPOS=1", "another BY part"),
        ("FREQ=HOURLY;BYMINUTE=1,2;BYSETPOS=1", "does not go with"),
        ("FREQ=DAILY;WKST=1", "is not one of"),
        ("FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30", "never matches"),
        ("FREQ=MONTHLY;BYMONTHDAY=31;BYMONTH=2;BYSETPOS=4", "too rare"),
        ("DTSTART:20260101T000000Z;FREQ=DAILY", "the start is `anchor`"),
        ("FREQ=DAILY;BYHOUR=" + ",".join(["1"] * 200), "at most 256"),
    ],
)
def test_a_rule_that_is_refused_comes_with_what_is_right(text: str, right: str) -> None:
    found = refusal(text)
    assert found.pointer == "/rrule"
    assert right in found.detail


def test_a_count_needs_an_anchor_to_count_from() -> None:
    assert refusal("FREQ=DAILY;COUNT=3", None).pointer == "/anchor"


def test_what_dateutil_does_not_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(*_: object, **__: object) -> None:
        raise ValueError("no")

    monkeypatch.setattr(rrule, "rrulestr", other)
    assert "second parser" in refusal("FREQ=DAILY").detail


def test_the_least_distance_that_is_allowed_is_kept() -> None:
    found = parse_rrule("FREQ=MINUTELY;INTERVAL=4", None, "UTC", min_interval_s=300)
    assert isinstance(found, Refused)
    assert "240 s apart" in found.detail
    for text in ("FREQ=HOURLY;BYMINUTE=0,4", "FREQ=DAILY;BYHOUR=9;BYMINUTE=0,4"):
        assert isinstance(parse_rrule(text, None, "UTC", min_interval_s=300), Refused)


def test_a_month_that_is_left_out_is_said() -> None:
    assert "BYMONTHDAY=-1" in warnings(rule("FREQ=MONTHLY;BYMONTHDAY=31"), 0)[0]
    assert warnings(rule("FREQ=MONTHLY;BYMONTHDAY=-1"), 0) == ()


def test_the_first_days_of_a_year_may_be_of_its_last_weeks_number() -> None:
    # The week from 28 December 2026 has the number 53, which includes 1 to 3 January 2027.
    assert dates("FREQ=YEARLY;BYWEEKNO=53;BYDAY=MO,FR")[:2] == [
        "2026-12-28T09:00:00Z",
        "2027-01-01T09:00:00Z",
    ]
    assert dates("FREQ=YEARLY;BYWEEKNO=-1;BYDAY=MO,FR")[:2] == [
        "2026-12-28T09:00:00Z",
        "2027-01-01T09:00:00Z",
    ]


def test_positions_are_counted_in_the_whole_first_week() -> None:
    spec = rule("FREQ=WEEKLY;BYDAY=MO,WE,FR;BYSETPOS=1", "2026-01-06T09:00:00Z")
    assert texts(plan(spec), 0, 1) == ["2026-01-12T09:00:00Z"]


def test_a_rule_that_meets_a_clock_change_is_said() -> None:
    at, zone = ms("2026-01-01T00:00:00Z"), "America/New_York"
    daily = rule("FREQ=DAILY;BYHOUR=2;BYMINUTE=30", "2026-01-01T05:00:00Z", zone)
    (said,) = warnings(daily, at)
    assert said == "runs at 03:00 on 8 March 2026 since 02:30 does not exist in America/New_York"
    assert warnings(rule("FREQ=HOURLY", "2026-01-01T05:00:00Z", zone), at) == ()
    night = warnings(rule("FREQ=HOURLY;BYHOUR=1,2", "2026-01-01T05:00:00Z", zone), at)
    assert [said.split(" ")[0] for said in night] == ["no", "01:00"]


def test_a_rule_with_a_count_and_positions_is_compiled_with_one_look_at_each_period(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[int] = []
    positions = recurrence.Recurrence._positions

    def counted(self: recurrence.Recurrence, first: int, length: int) -> list[int]:
        looks.append(first)
        return positions(self, first, length)

    monkeypatch.setattr(recurrence.Recurrence, "_positions", counted)
    spec = rule("FREQ=YEARLY;BYDAY=MO,TU;BYHOUR=1,2;BYMINUTE=3,4;BYSETPOS=1;COUNT=300")
    plan(spec)
    warnings(spec, ms("2026-01-01T00:00:00Z"))
    assert len(looks) < 300 + 100


def test_a_count_ends_at_the_same_date_whether_positions_choose_it_or_not() -> None:
    by_position = plan(rule("FREQ=MONTHLY;BYDAY=MO,TU;BYSETPOS=-1,1;COUNT=7"))
    dates_of = texts(by_position, ms("2026-01-01T00:00:00Z"), 7)
    assert dates_of == texts(
        plan(rule("FREQ=MONTHLY;BYDAY=MO,TU;BYSETPOS=-1,1")), ms("2026-01-01T00:00:00Z"), 7
    )
    assert by_position.next_after(ms(dates_of[-1])) is None
