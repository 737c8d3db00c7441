"""Schedules in plain words."""

import pytest

from domain.instant import LAST, rfc3339
from domain.schedule.schedule import Cron, Every, OneTime, parse_cron, parse_every
from domain.schedule.telling import description, local_text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("* * * * *", "every minute, every day, in UTC"),
        ("*/15 * * * *", "every 15 minutes, every day, in UTC"),
        ("5 * * * *", "at minute 5 of every hour, every day, in UTC"),
        ("0 9,17 * * mon-fri", "at 09:00 and 17:00, on Monday to Friday, in UTC"),
        ("*/5 8-17 * 6 *", "every 5 minutes of hour 8 to 17, every day, in June, in UTC"),
        ("0 0 1,15 * *", "at 00:00, on day 1 and 15 of the month, in UTC"),
        ("0 0 1 * 0", "at 00:00, on day 1 of the month and on Sunday, in UTC"),
        ("0 0 */2 * 1", "at 00:00, on every 2. day of the month if it is on Monday, in UTC"),
        ("1-59/2 * * * *", "at minute every 2. of 1 to 59 of every hour, every day, in UTC"),
    ],
)
def test_a_cron_text_is_said_in_words(text: str, said: str) -> None:
    spec = parse_cron(text, "UTC")
    assert isinstance(spec, Cron)
    assert description(spec) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("PT90M", "every 90 minutes, counted from 2001-01-01T00:00:00.000Z"),
        ("PT1H30M", "every hour and 30 minutes, counted from 2001-01-01T00:00:00.000Z"),
        ("P1M", "every month, counted from 2001-01-01T00:00:00.000Z, in UTC"),
    ],
)
def test_an_interval_is_said_in_words(text: str, said: str) -> None:
    spec = parse_every(text, None, "UTC")
    assert isinstance(spec, Every)
    assert description(spec) == said


def test_one_instant_is_said_in_words() -> None:
    assert description(OneTime(0)) == "once, at 1970-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    ("dialect", "text", "said"),
    [
        ("quartz", "0 0 9 ? * MON-FRI", "at 09:00, on Monday to Friday, in UTC"),
        ("quartz", "0 0/15 * ? * 1,7 *", "every 15 minutes, on Sunday and Saturday, in UTC"),
        ("quartz", "0 0 9 ? * 2-7/2", "at 09:00, on every 2. of Monday to Saturday, in UTC"),
        ("aws", "cron(30 9 1 JAN ? *)", "at 09:30, on day 1 of the month, in January, in UTC"),
        ("aws", "0 9 ? * 2 *", "at 09:00, on Monday, in UTC"),
        ("spring", "0 0 9 * * 1", "at 09:00, on Monday, in UTC"),
        ("k8s", "0/20 9 ? * 0", "every 20 minutes of hour 9, on Sunday, in UTC"),
    ],
)
def test_a_text_of_another_dialect_that_five_fields_could_say_is_said_in_words(
    dialect: str, text: str, said: str
) -> None:
    spec = parse_cron(text, "UTC", dialect=dialect)
    assert isinstance(spec, Cron)
    assert description(spec) == said


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("quartz", "30 0 9 ? * 2"),
        ("quartz", "0 0 9 ? * 2 2030"),
        ("aws", "0 9 ? * 2 2030"),
        ("aws", "0 9 ? * 2#1 *"),
        ("spring", "0 0 9 1 * 1"),
    ],
)
def test_what_five_fields_cannot_say_is_shown_as_it_was_typed(dialect: str, text: str) -> None:
    spec = parse_cron(text, "UTC", dialect=dialect)
    assert isinstance(spec, Cron)
    assert description(spec) == f"{dialect} cron {text!r}, in UTC"


def test_a_text_of_another_dialect_is_said_as_it_is() -> None:
    assert description(Cron("0 0 9 ? * 2L", "0 0 9 ? * 2L", "UTC", "quartz")) == (
        "quartz cron '0 0 9 ? * 2L', in UTC"
    )


def test_an_instant_is_shown_as_the_clock_of_the_zone_shows_it() -> None:
    spec = Cron("", "", "America/St_Johns")
    assert local_text(spec, 1_767_225_600_500) == "2025-12-31T20:30:00.500-03:30"


def test_an_instant_whose_clock_shows_the_year_10000_is_said_in_utc() -> None:
    every = parse_every("PT1M", None, "Pacific/Apia")
    assert isinstance(every, Every)
    assert local_text(every, LAST) == "9999-12-31T23:59:59.999+00:00"
    assert rfc3339(LAST + 1) == rfc3339(LAST)
