"""What the parser accepts, and what it says to the rest."""

import pytest
from croniter import croniter

from domain.schedule import cron
from domain.schedule.cron import parse, read
from domain.schedule.fields import Wrong
from domain.schedule.schedule import TEXT_LIMIT, Cron, Refused, parse_cron

CANONICAL = {
    " 0\t0 12 9 * ": "0 0 12 9 *",
    "00 05 * * *": "0 5 * * *",
    "0 0 * JAN-mar Mon,wED": "0 0 * 1-3 1,3",
    "5-5 * * * *": "5 * * * *",
    "*/1 * * * *": "* * * * *",
    "0 0 * * 7": "0 0 * * 0",
    "0 0 * * 5-7": "0 0 * * 5-7",
    "0 0 * * 6,7": "0 0 * * 0,6",
    "3,1,2,9 * * * *": "1-3,9 * * * *",
    "0-59,3 * * * *": "0-59 * * * *",
    "*,3 * * * *": "* * * * *",
    "*/30,7 * * * *": "*/30,7 * * * *",
    "7,*/30 * * * *": "0,7,30 * * * *",
    "10-20/5 * * * *": "10-20/5 * * * *",
    "10-12/5 * * * *": "10 * * * *",
    "0 0 */31 * *": "0 0 */31 * *",
    "0 0 1 */12 *": "0 0 1 */12 *",
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}

REFUSED = {
    "": "expected 5 fields",
    "   ": "0 given",
    "30 6 * *": "4 given",
    "* * * * * *": "dialect asked for by name",
    "0 9 * * *\n": "plain ASCII",
    "0 9 * * \u0661": "plain ASCII",
    "0\u00a09 * * *": "plain ASCII",
    "TZ=UTC 0 9 * * *": "`timezone`",
    "@reboot": "names no time",
    "@every 1h": "interval",
    "@hourly 5": "the words are",
    "@fortnightly": "the words are",
    "60 * * * *": "minute is 0-59, not 60",
    "* 24 * * *": "hour is 0-23, not 24",
    "0 0 0 * *": "day-of-month is 1-31, not 0",
    "0 0 * 13 *": "month is 1-12, not 13",
    "0 0 * * 8": "day-of-week is 0-7, not 8",
    "0000000000000000001 * * * *": "minute is 0-59",
    "*/0 * * * *": "at least 1",
    "5-5/0 * * * *": "at least 1",
    "*/90 * * * *": "larger than the minute field (0-59)",
    "*/60 * * * *": "larger than the minute field (0-59)",
    "0 */24 * * *": "larger than the hour field (0-23)",
    "*/99999999999 * * * *": "larger than the minute field",
    "5/15 * * * *": "such as 5-59/15",
    "0 0 * * mon/2": "such as 1-6/2",
    "0 22-2 * * *": "write 22-23,0-2",
    "0 23-0 * * *": "write 23,0",
    "0 0 * * sat-sun": "write 6-7",
    "0 0 * * fri-mon": "write 5-6,0-1",
    "0 0 * * 7-2": "write 0-2",
    "0 0 1 11-2/3 *": "write 2,11",
    "1,,2 * * * *": "empty list element in minute",
    ", * * * *": "empty list element in minute",
    "*-5 * * * *": "whole range",
    "1-2-3 * * * *": "not understood",
    "-5 * * * *": "not understood",
    "*/ * * * *": "not understood",
    "+5 * * * *": "not understood",
    "1.5 * * * *": "not understood",
    "x * * * *": "not understood",
    "0 11 7 * MONDAY": "write MON; the names are SUN",
    "0 0 1 january *": "unknown month name",
    "0 0 L * *": "L (last)",
    "0 0 LW * *": "LW (last weekday)",
    "0 9 1W * *": "W (nearest weekday)",
    "0 0 * * 2#2": "# (nth weekday)",
    "0 0 ? * *": "? (no value)",
    "H * * * *": "H (hashed)",
    "0~59 * * * *": "~ (random)",
    "0 0 30 2 *": "never matches: day 30 does not exist in month 2",
    "0 0 31 4,6,9,11 *": "never matches",
    "* * 30-31 2 *": "never matches",
    "0 0 31 */13 *": "larger than the month field",
}


@pytest.mark.parametrize(("text", "canonical"), CANONICAL.items())
def test_an_accepted_text_is_stored_in_its_canonical_form_and_as_typed(
    text: str, canonical: str
) -> None:
    spec = parse_cron(text, "UTC")
    assert spec == Cron(canonical, text, "UTC")


@pytest.mark.parametrize(("text", "reason"), REFUSED.items())
def test_a_text_outside_the_dialect_is_refused_with_what_would_be_right(
    text: str, reason: str
) -> None:
    with pytest.raises(Wrong) as refusal:
        parse(text)
    assert reason in str(refusal.value)


def test_a_text_over_the_limit_is_refused_before_it_is_read() -> None:
    longest = "0 0 * * *" + " " * (TEXT_LIMIT - 9)
    assert isinstance(parse_cron(longest, "UTC"), Cron)
    assert parse_cron(longest + " ", "UTC") == Refused(
        "/schedule", "129 characters; a schedule has at most 128"
    )


def test_a_day_that_exists_only_through_the_other_day_field_is_accepted() -> None:
    assert isinstance(parse_cron("0 0 30 2 1", "UTC"), Cron)


def test_a_time_that_the_clock_always_jumps_over_is_refused() -> None:
    # 8 March, if a Sunday, is the day on which New York has no 02:30.
    refused = parse_cron("30 2 8 3 */7", "America/New_York", gap="skip")
    assert isinstance(refused, Refused)
    assert "skipped by the clock of America/New_York" in refused.detail
    assert isinstance(parse_cron("30 2 8 3 */7", "America/New_York"), Cron)


@pytest.mark.parametrize(
    ("dialect", "gap", "fold", "pointer"),
    [
        ("Quartz", "", "", "/dialect"),
        ("vixie", "x", "", "/dst/gap"),
        ("vixie", "", "x", "/dst/fold"),
    ],
)
def test_an_unknown_option_is_refused_by_its_pointer(
    dialect: str, gap: str, fold: str, pointer: str
) -> None:
    refused = parse_cron("0 9 * * *", "UTC", dialect=dialect, gap=gap, fold=fold)
    assert isinstance(refused, Refused)
    assert refused.pointer == pointer


def test_a_schedule_that_fires_more_often_than_allowed_is_refused() -> None:
    assert isinstance(parse_cron("*/5 * * * *", "UTC", min_interval_s=300), Cron)
    refused = parse_cron("*/5 * * * *", "UTC", min_interval_s=301)
    assert isinstance(refused, Refused)
    assert refused.detail.startswith("fires 300 s apart; at least 301 s are allowed: write wider")
    over_midnight = parse_cron("0 0,23 * * *", "UTC", min_interval_s=3601)
    assert isinstance(over_midnight, Refused)


def test_a_text_that_croniter_reads_differently_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("domain.schedule.cron._agreed", {})
    monkeypatch.setattr(
        "domain.schedule.cron.croniter.expand", lambda _: ([[1], [9], ["*"], ["*"], ["*"]], {})
    )
    with pytest.raises(Wrong, match="the minute is read differently"):
        parse("0 9 * * *")


def test_croniter_is_asked_once_about_each_field(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    expand = croniter.expand

    def counted(text: str) -> object:
        asked.append(text)
        return expand(text)

    monkeypatch.setattr("domain.schedule.cron._agreed", {})
    monkeypatch.setattr("domain.schedule.cron.croniter.expand", counted)
    for text in ("0 9 * * 1-5", "0 9 * * *", "15 9 * * 1-5", "9 0 * * *", "0 9 * * 1-5"):
        cron.parse(text)
    assert asked == ["0 9 * * 1-5", "15 * * * *", "9 0 * * *"]


@pytest.mark.parametrize(
    ("text", "wildcard"),
    [("0 * * * *", True), ("*/5 1 * * *", True), ("0 0-23 * * *", False), ("0,* 1 * * *", False)],
)
def test_a_wildcard_is_a_minute_or_hour_that_begins_with_a_star(text: str, wildcard: bool) -> None:
    assert read(text).wildcard is wildcard
