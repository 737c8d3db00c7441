"""`every`: durations as they are typed, and slots counted from the anchor."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.schedule.schedule import Every, Plan, Refused, parse_every, plan, warnings
from tests.domain.schedule.instants import ms, texts
from tests.properties.minute_walk import zone_info


def every(
    text: str, anchor: str | None = None, zone: str = "UTC", gap: str = "", fold: str = ""
) -> Every:
    """Parse what must be right."""
    found = parse_every(text, anchor, zone, gap=gap, fold=fold)
    assert isinstance(found, Every), found
    return found


def slots(spec: Every, after: str, count: int = 3) -> list[str]:
    """Return the slots after an instant."""
    return texts(plan(spec), ms(after), count)


def test_an_exact_interval_is_counted_on_absolute_time() -> None:
    spec = every("PT90M", "2026-03-08T00:00:00-05:00", "America/New_York")
    found = slots(spec, "2026-03-08T05:00:00Z", 4)
    assert found == [
        "2026-03-08T06:30:00Z",
        "2026-03-08T08:00:00Z",
        "2026-03-08T09:30:00Z",
        "2026-03-08T11:00:00Z",
    ]


def test_a_day_keeps_its_local_time_over_a_clock_change() -> None:
    spec = every("P1D", "2026-03-06T09:00:00-05:00", "America/New_York")
    assert slots(spec, "2026-03-07T00:00:00Z") == [
        "2026-03-07T14:00:00Z",
        "2026-03-08T13:00:00Z",
        "2026-03-09T13:00:00Z",
    ]


def test_a_day_in_a_gap_runs_at_the_first_instant_after_it_or_is_skipped_as_asked() -> None:
    anchor = "2026-03-07T02:30:00-05:00"
    made_up = every("P1D", anchor, "America/New_York")
    skipped = every("P1D", anchor, "America/New_York", gap="skip")
    assert slots(made_up, anchor, 2) == ["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"]
    assert slots(skipped, anchor, 2) == ["2026-03-09T06:30:00Z", "2026-03-10T06:30:00Z"]


def test_a_repeated_local_time_runs_in_the_first_pass_or_in_both_as_asked() -> None:
    anchor = "2026-10-31T01:30:00-04:00"
    once = every("P1D", anchor, "America/New_York")
    both = every("P1D", anchor, "America/New_York", fold="both")
    assert slots(once, anchor, 2) == ["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"]
    assert slots(both, anchor, 2) == ["2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z"]


def test_a_month_that_is_too_short_runs_on_its_last_day_and_does_not_move_the_others() -> None:
    spec = every("P1M", "2026-12-31T09:00:00Z")
    assert slots(spec, "2027-01-01T00:00:00Z", 4) == [
        "2027-01-31T09:00:00Z",
        "2027-02-28T09:00:00Z",
        "2027-03-31T09:00:00Z",
        "2027-04-30T09:00:00Z",
    ]
    assert warnings(spec, ms("2027-01-01T00:00:00Z")) == (
        "a month without day 31 runs on its last day",
    )


def test_a_leap_day_runs_every_year() -> None:
    spec = every("P1Y", "2028-02-29T00:00:00Z")
    assert slots(spec, "2031-01-01T00:00:00Z", 2) == [
        "2031-02-28T00:00:00Z",
        "2032-02-29T00:00:00Z",
    ]


def test_the_anchor_is_the_first_slot() -> None:
    for text in ("PT90M", "P1D", "P1M"):
        slots = plan(every(text, "2026-05-01T00:00:00Z"))
        assert slots.next_after(0) == ms("2026-05-01T00:00:00Z")
        assert slots.last_until(ms("2026-05-01T00:00:00Z") - 1) is None


def test_without_an_anchor_slots_are_counted_from_a_monday_the_first_of_a_year() -> None:
    assert slots(every("P1W", zone="Europe/Berlin"), "2026-11-30T00:00:00Z", 1) == [
        "2026-12-06T23:00:00Z"
    ]
    assert slots(every("PT15M"), "2026-11-30T10:07:00Z", 1) == ["2026-11-30T10:15:00Z"]


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("90m", "write PT90M"),
        ("90 minutes", "write PT90M"),
        ("pt90m", "write PT90M"),
        ("2w", "write P2W"),
        ("PT", "ISO 8601 duration"),
        ("P", "ISO 8601 duration"),
        ("", "ISO 8601 duration"),
        ("P1DT", "ISO 8601 duration"),
        ("PT1.5H", "ISO 8601 duration"),
        ("-PT1H", "ISO 8601 duration"),
        ("P" + "1" * 100 + "D", "ISO 8601 duration"),
        ("PT0S", "at least PT1M"),
        ("P0D", "at least PT1M"),
        ("P1DT12H", "not mixed"),
        ("P1M1D", "not mixed"),
        ("PT59S", "give at least PT60S"),
        ("P101Y", "at most P100Y"),
        ("PT999999999H", "at most P100Y"),
        ("\u0661", "ISO 8601 duration"),
    ],
)
def test_a_duration_that_is_refused_comes_with_what_is_right(text: str, right: str) -> None:
    found = parse_every(text, None, "UTC")
    assert isinstance(found, Refused)
    assert found.pointer == "/every"
    assert right in found.detail


@pytest.mark.parametrize(
    ("anchor", "right"),
    [
        ("2026-12-01", "RFC 3339"),
        ("2026-12-01T09:00:00", "offset"),
        ("1960-01-01T00:00:00Z", "1970"),
        ("2600-01-01T00:00:00Z", "2500"),
        ("2026-12-01T09:00:00.5Z", "whole seconds"),
    ],
)
def test_an_anchor_that_is_refused_comes_with_what_is_right(anchor: str, right: str) -> None:
    found = parse_every("P1D", anchor, "UTC")
    assert isinstance(found, Refused)
    assert found.pointer == "/anchor"
    assert right in found.detail


def test_an_operator_may_grant_less_than_a_minute() -> None:
    found = parse_every("PT1.5S", "2026-12-01T00:00:00.250Z", "UTC", min_interval_s=1)
    assert isinstance(found, Every)
    assert found.step_ms == 1_500


def test_clock_rules_are_refused_where_no_hour_is_ever_missing() -> None:
    found = parse_every("PT2H", None, "Europe/Berlin", gap="skip")
    assert isinstance(found, Refused)
    assert found.pointer == "/dst"


def test_what_may_surprise_is_said() -> None:
    at = ms("2026-11-30T00:00:00Z")
    assert "P1D keeps it" in warnings(every("PT24H", zone="Europe/Berlin"), at)[0]
    assert warnings(every("PT24H"), at) == ()
    assert "for minutes write PT90M" in warnings(every("P90M"), at)[0]


def test_calendar_steps_end_with_the_year_2499() -> None:
    found = plan(every("P1D", "2026-01-01T00:00:00Z"))
    assert found.next_after(ms("2499-12-31T00:00:00Z")) is None
    assert found.last_until(ms("9999-01-01T00:00:00Z")) == ms("2499-12-31T00:00:00Z")


ZONES = ("UTC", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca")


@settings(deadline=None)
@given(
    st.sampled_from(["PT60S", "PT7H", "P1D", "P3D", "P2W", "P1M", "P5M", "P1Y"]),
    st.sampled_from(ZONES),
    st.integers(0, 2_000_000_000),
    st.integers(0, 1_000_000_000),
    st.sampled_from([("", ""), ("skip", "last"), ("next", "both")]),
)
def test_slots_go_forward_and_back_over_the_same_instants(
    text: str, zone: str, anchor_s: int, ahead_s: int, dst: tuple[str, str]
) -> None:
    anchor = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=anchor_s)).isoformat()
    rules = {} if "T" in text else {"gap": dst[0], "fold": dst[1]}
    found = plan(every(text, anchor, zone, **rules))
    assert_laws(found, (anchor_s + ahead_s) * 1000 + 1)


def assert_laws(found: Plan, t: int) -> None:
    """Check that next and previous answer each other."""
    for _ in range(4):
        following = found.next_after(t)
        if following is None:
            assert found.next_after(t + 1) is None
            return
        assert following > t
        assert found.last_until(following) == following
        before = found.last_until(following - 1)
        assert before is None or (before <= t and found.next_after(before) == following)
        t = following


@settings(deadline=None)
@given(
    st.integers(1, 40), st.integers(0, 1_000_000_000), st.integers(0, 900), st.sampled_from(ZONES)
)
def test_days_are_where_the_calendar_has_them(
    days: int, anchor_s: int, step: int, zone: str
) -> None:
    """In zones of any kind the local date of step n is n · days after the anchor's."""
    anchor_s -= anchor_s % 86_400
    start = datetime.fromtimestamp(anchor_s, UTC).astimezone(zone_info(zone))
    wanted = start.replace(tzinfo=None) + timedelta(days=days * step)
    wanted_utc = wanted.replace(tzinfo=zone_info(zone)).astimezone(UTC)
    exists = wanted_utc.astimezone(zone_info(zone)).replace(tzinfo=None) == wanted
    found = plan(every(f"P{days}D", start.isoformat(), zone))
    at = int(wanted_utc.timestamp()) * 1000
    assert not exists or found.last_until(at) == at


def test_a_step_of_days_that_meets_a_clock_change_is_said() -> None:
    at = ms("2026-01-01T00:00:00Z")
    gap = every("P1D", "2026-01-01T02:30:00-05:00", "America/New_York")
    fold = every("P1D", "2026-01-01T01:30:00-05:00", "America/New_York", fold="both")
    assert warnings(gap, at) == (
        "runs at 03:00 on 8 March 2026 since 02:30 does not exist in America/New_York",
    )
    assert warnings(fold, at) == (
        "01:30 on 1 November 2026 occurs twice in America/New_York: this runs both times",
    )
    assert warnings(every("P1D", "2026-01-01T09:00:00-05:00", "America/New_York"), at) == ()
