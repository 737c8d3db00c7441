"""iCalendar files: what each kind of event excludes, and which files are refused."""

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from commandside.definitions.calendar_body import Content
from domain.refusal import Refused
from infra.ics import EVENTS_MAX, read_ics

AT: Final = 1_764_460_800_000
"""2025-11-30T00:00:00Z."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def file(*events: str, head: str = "") -> str:
    """Return a file of events, each of them lines between BEGIN and END."""
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//t//t//EN", *head.splitlines()]
    for event in events:
        lines += ["BEGIN:VEVENT", *event.splitlines(), "END:VEVENT"]
    return "\r\n".join([*lines, "END:VCALENDAR", ""])


def times(pairs: tuple[tuple[int, int], ...]) -> list[tuple[str, str]]:
    def said(seconds: int) -> str:
        return (EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S")

    return [
        (said(first).removesuffix(":00"), said(end).removesuffix(":00")) for first, end in pairs
    ]


def content(text: str, zone: str = "") -> Content:
    found = read_ics(text, zone, AT)
    assert isinstance(found, Content), found
    return found


ALL_DAY: Final = "DTSTART;VALUE=DATE:20261225"


@pytest.mark.parametrize(
    ("event", "ranges"),
    [
        (ALL_DAY, [("2026-12-25 00:00", "2026-12-26 00:00")]),
        (
            f"{ALL_DAY}\nDTEND;VALUE=DATE:20261228",
            [("2026-12-25 00:00", "2026-12-28 00:00")],
        ),
        (
            "DTSTART:20261224T120000\nDTEND:20261224T180000",
            [("2026-12-24 12:00", "2026-12-24 18:00")],
        ),
        ("DTSTART:20261224T120000\nDURATION:P1DT2H", [("2026-12-24 12:00", "2026-12-25 14:00")]),
        ("DTSTART:20261224T120000", [("2026-12-24 12:00", "2026-12-24 12:00:01")]),
        (
            f"{ALL_DAY}\nRRULE:FREQ=YEARLY;COUNT=3",
            [(f"{year}-12-25 00:00", f"{year}-12-26 00:00") for year in (2026, 2027, 2028)],
        ),
        (
            f"{ALL_DAY}\nRRULE:FREQ=DAILY;UNTIL=20261227",
            [(f"2026-12-{day} 00:00", f"2026-12-{day + 1} 00:00") for day in (25, 26, 27)],
        ),
        (
            f"{ALL_DAY}\nRRULE:FREQ=DAILY;COUNT=4\nEXDATE;VALUE=DATE:20261226,20261227",
            [(f"2026-12-{day} 00:00", f"2026-12-{day + 1} 00:00") for day in (25, 28)],
        ),
        (
            f"{ALL_DAY}\nRDATE;VALUE=DATE:20261230",
            [(f"2026-12-{day} 00:00", f"2026-12-{day + 1} 00:00") for day in (25, 30)],
        ),
        (
            "DTSTART:20261201T220000\nDTEND:20261202T020000\nRRULE:FREQ=WEEKLY;BYDAY=TU,TH;COUNT=2",
            [("2026-12-01 22:00", "2026-12-02 02:00"), ("2026-12-03 22:00", "2026-12-04 02:00")],
        ),
        (f"{ALL_DAY}\nSTATUS:CANCELLED", []),
        (f"{ALL_DAY}\nTRANSP:TRANSPARENT", [("2026-12-25 00:00", "2026-12-26 00:00")]),
    ],
)
def test_a_local_event_is_a_stretch_of_the_local_clock(
    event: str, ranges: list[tuple[str, str]]
) -> None:
    found = content(file(event))
    assert times(found.ranges) == ranges
    assert found.instants == ()
    assert found.zone == ""


def test_an_event_in_utc_is_a_stretch_of_absolute_time() -> None:
    found = content(file("DTSTART:20261224T120000Z\nDTEND:20261224T180000Z"))
    assert times(found.instants) == [("2026-12-24 12:00", "2026-12-24 18:00")]
    assert found.ranges == ()


def test_the_only_zone_of_a_file_is_that_of_the_calendar() -> None:
    berlin = "DTSTART;TZID=Europe/Berlin:20260701T120000\nDTEND;TZID=Europe/Berlin:20260701T130000"
    found = content(file(berlin))
    assert found.zone == "Europe/Berlin"
    assert times(found.ranges) == [("2026-07-01 12:00", "2026-07-01 13:00")]
    other = content(file(berlin), "UTC")
    assert other.zone == "UTC"
    assert times(other.instants) == [("2026-07-01 10:00", "2026-07-01 11:00")]
    windows = content(file(berlin.replace("Europe/Berlin", "W. Europe Standard Time")))
    assert windows.zone == "Europe/Berlin"
    assert content(file(ALL_DAY, head="X-WR-TIMEZONE:Asia/Tokyo")).zone == "Asia/Tokyo"


def test_a_rule_in_a_zone_keeps_its_local_time_over_a_clock_change() -> None:
    event = (
        "DTSTART;TZID=Europe/Berlin:20261024T090000\nDTEND;TZID=Europe/Berlin:20261024T100000\n"
        "RRULE:FREQ=DAILY;UNTIL=20261026T080000Z"
    )
    found = content(file(event), "UTC")
    assert [first for first, _ in times(found.instants)] == [
        "2026-10-24 07:00",
        "2026-10-25 08:00",
        "2026-10-26 08:00",
    ]


def test_an_occurrence_that_was_moved_is_where_it_was_moved_to() -> None:
    series = f"UID:a\n{ALL_DAY}\nRRULE:FREQ=DAILY;COUNT=3"
    moved = "UID:a\nRECURRENCE-ID;VALUE=DATE:20261226\nDTSTART;VALUE=DATE:20261231"
    found = content(file(series, moved))
    assert sorted(first[:10] for first, _ in times(found.ranges)) == [
        "2026-12-25",
        "2026-12-27",
        "2026-12-31",
    ]
    gone = f"{moved}\nSTATUS:CANCELLED"
    assert len(content(file(series, gone)).ranges) == 2


def test_a_rule_without_an_end_is_worked_out_for_some_years_and_says_so() -> None:
    found = content(file("DTSTART;VALUE=DATE:20200101\nRRULE:FREQ=YEARLY"))
    years = [int(first[:4]) for first, _ in times(found.ranges)]
    assert years == [2020, *range(2024, 2031)]
    assert times(((0, found.until // 1000),))[0][1] == "2031-01-01 00:00"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not an iCalendar file"),
        ("hello", "not an iCalendar file"),
        ("BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\n", "not an iCalendar file"),
        ("BEGIN:VEVENT\r\nDTSTART:20260101\r\nEND:VEVENT\r\n", "not an iCalendar file"),
        (file("SUMMARY:lunch"), "event 1 (lunch): DTSTART is missing"),
        (file("DTSTART:20261224T120000\nDTEND:20261224T110000"), "ends before it begins"),
        (file("DTSTART:20261224T120000\nDTEND;VALUE=DATE:20261225"), "a date and a time"),
        (file(f"{ALL_DAY}\nDTEND;VALUE=DATE:20290101"), "longer than 400 days"),
        (file("DTSTART;TZID=Mars/Base:20261224T120000"), "'Mars/Base' is no IANA time zone"),
        (file(f"{ALL_DAY}\nRRULE:FREQ=SECONDLY"), "RRULE: FREQ=SECONDLY"),
        (file(f"{ALL_DAY}\nRRULE:FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"), "RRULE: never matches"),
        (file(f"{ALL_DAY}\nRRULE:FREQ=OFTEN"), "event 1 (no SUMMARY): Expected frequency"),
        (file("DTSTART;VALUE=DATE:21050101"), "1970 to 2099"),
        (file("DTSTART;VALUE=DATE:19600101\nRRULE:FREQ=YEARLY"), "in 1970 or later"),
        (file(*[ALL_DAY] * (EVENTS_MAX + 1)), "2001 events; a calendar has at most 2000"),
        (
            file(f"{ALL_DAY}\nRECURRENCE-ID;RANGE=THISANDFUTURE;VALUE=DATE:20261226"),
            "RECURRENCE-ID with RANGE",
        ),
    ],
)
def test_a_file_that_is_refused_says_why(text: str, says: str) -> None:
    found = read_ics(text, "", AT)
    assert isinstance(found, tuple)
    (refused,) = found
    assert isinstance(refused, Refused)
    assert refused.pointer == "/ics"
    assert says in refused.detail


@pytest.mark.parametrize(
    "lines",
    [
        ["DTSTART:20261225T120000", "DURATION:PT1H", "DURATION:PT2H"],
        ["DTSTART:20261225T120000", "RECURRENCE-ID;VALUE=PERIOD:"],
        ["DTSTART;TZID=Europe/Berlin:20261225T120000", "DTEND:99991231T235959Z"],
        ["DTSTART:20261225T120000", "EXDATE:garbage"],
    ],
)
def test_a_property_that_is_broken_is_refused(lines: list[str]) -> None:
    text = "\r\n".join(
        ["BEGIN:VCALENDAR", "BEGIN:VEVENT", *lines, "END:VEVENT", "END:VCALENDAR", ""]
    )
    found = read_ics(text, "", 1_796_000_000_000)
    assert isinstance(found, tuple)
    assert found[0].pointer == "/ics"


def test_an_until_in_the_last_year_there_is_means_for_ever() -> None:
    text = (
        "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nDTSTART;TZID=Europe/Berlin:20261225T120000\r\n"
        "RRULE:FREQ=YEARLY;UNTIL={}\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
    )
    last, later = (
        read_ics(text.format(until), "", 1_796_000_000_000)
        for until in ("99991231T235959Z", "20900101T000000Z")
    )
    assert isinstance(last, Content)
    assert last == later
