"""One-time schedules: the texts that are read, and the single slot."""

import pytest

from domain.instant import LAST
from domain.schedule.schedule import (
    OneTime,
    Refused,
    parse_one_time,
    passed,
    plan,
    warnings,
)

AT = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-11-01T01:30:00Z", 1_793_496_600_000),
        ("2026-11-01t01:30:00z", 1_793_496_600_000),
        ("2026-11-01T01:30:00-00:00", 1_793_496_600_000),
        ("2026-10-31T21:30:00-04:00", 1_793_496_600_000),
        ("2026-11-01T07:15:00+05:45", 1_793_496_600_000),
        ("2026-11-01T01:30:00.5Z", 1_793_496_600_500),
        ("2026-11-01T01:30:00.123Z", 1_793_496_600_123),
        ("2026-11-01T01:30:00.123000Z", 1_793_496_600_123),
        ("9999-12-31T23:59:59.999Z", LAST),
    ],
)
def test_an_instant_with_an_offset_is_read_to_the_millisecond(text: str, instant: int) -> None:
    assert parse_one_time(text, AT) == OneTime(instant)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tomorrow",
        "1793496600",
        "2026-11-01",
        "2026-11-01T01:30:00",
        "2026-11-01 01:30:00Z",
        "2026-11-01T01:30Z",
        "2026-11-01T01:30:00,5Z",
        "2026-11-01T01:30:00.Z",
        "2026-11-01T01:30:00.1234Z",
        "2026-11-01T01:30:00.123456789Z",
        "2026-11-01T01:30:00+0100",
        "2026-11-01T01:30:00+01",
        "2026-11-01T01:30:00+24:00",
        "2026-11-01T01:30:00+01:60",
        "2026-11-01T24:00:00Z",
        "2026-11-01T01:60:00Z",
        "2026-06-30T23:59:60Z",
        "2026-02-29T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "2026-W44-7",
        "20261101T013000Z",
        "9999-12-31T23:59:59-12:00",
        "2026-11-01T01:30:00Z\n",
        " 2026-11-01T01:30:00Z",
        "\u0662026-11-01T01:30:00Z",
        "2026-11-01T01:30:00Z" * 500,
    ],
)
def test_any_other_text_is_refused_at_its_field(text: str) -> None:
    refused = parse_one_time(text, AT)
    assert isinstance(refused, Refused)
    assert refused.pointer == "/run_at"


def test_an_instant_up_to_a_minute_past_is_accepted_and_said_to_fire_at_once() -> None:
    spec = parse_one_time("2023-11-14T22:12:20Z", AT)
    assert spec == OneTime(AT - 60_000)
    assert warnings(OneTime(AT - 60_000), AT) == ("this instant is past: it fires at once",)


def test_an_instant_more_than_a_minute_past_is_refused() -> None:
    refused = parse_one_time("2023-11-14T22:12:19.999Z", AT)
    assert isinstance(refused, Refused)
    assert "more than 60 s in the past" in refused.detail


def test_there_is_one_slot() -> None:
    slots = plan(OneTime(AT))
    assert slots.next_after(AT - 1) == AT
    assert slots.next_after(AT) is None
    assert slots.last_until(AT) == AT
    assert slots.last_until(AT - 1) is None
    assert passed(slots, AT - 1, AT) == (AT, AT, 1)
    assert passed(slots, AT, AT + 1) is None
