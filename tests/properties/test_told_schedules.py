"""What is said of a schedule, in whatever language, is true of it."""

import re
from datetime import date, timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.schedule import cron
from domain.schedule.fields import FIRST_YEAR, Fields
from domain.schedule.schedule import Cron, OneTime, Union, parse_cron
from infra.languages.descriptor import CronTeller
from tests.properties.dialect_texts import DIALECTS, draw
from tests.properties.told_words import ORDINALS, Told, read

TELLER = CronTeller()
YEAR = [date(2028, 1, 1) + timedelta(days) for days in range(366)]
ZONE = ", in UTC"
_NUMBER = re.compile(r"[0-9]+(?:[:-][0-9]{2})*")


def told(text: str, dialect: str, language: str = "en") -> str | None:
    spec = parse_cron(text, "UTC", dialect=dialect, min_interval_s=1)
    return TELLER.tell(spec, language) if isinstance(spec, Cron) else None


def same(said: Told, fields: Fields) -> None:
    """Compare with the bit sets that the walk goes by."""
    assert said.seconds == {at for at in range(60) if fields.seconds >> at & 1}
    assert said.times == {at for at in range(1440) if fields.times >> at & 1}
    for day in YEAR:
        length, first = _month(day)
        bits = fields.days[(length - 28) * 7 + first]
        year = not fields.years or fields.years >> (day.year - FIRST_YEAR) & 1
        matches = bool(year and fields.months >> day.month & 1 and bits >> day.day & 1)
        assert said.days(day) == matches, day


def _month(day: date) -> tuple[int, int]:
    first = day.replace(day=1)
    length = ((first + timedelta(32)).replace(day=1) - first).days
    return length, (first.weekday() + 1) % 7


@settings(max_examples=600)
@given(st.randoms(use_true_random=False), st.sampled_from(DIALECTS))
def test_what_a_sentence_says_is_what_was_asked(random: Random, dialect: str) -> None:
    asked = draw(random, dialect)
    said = told(asked.text, dialect)
    if said is None:
        return
    meant = read(said.removesuffix(ZONE))
    assert meant.seconds == asked.seconds
    assert meant.times == {60 * hour + minute for hour in asked.hours for minute in asked.minutes}
    assert [meant.days(day) for day in YEAR] == [asked.matches_day(day) for day in YEAR]


EXAMPLES = [
    *(("vixie", text) for text in ("0 9 * * 1-5", "0 0 1 * 0", "0 0 1-31 * 1", "0 0 */2 * 1")),
    *(("vixie", text) for text in ("*/7 * * * *", "0 */5 * * *", "*/5 */2 * * *", "1 9-17 * 2 *")),
    *(("quartz", text) for text in ("0 0 9 ? * 1", "0 0 9 ? * 6#3", "0 0 9 L-3 * ?")),
    *(("quartz", text) for text in ("0/10 * * * * ?", "0 0 9 LW * ? 2028", "0 0 0 ? * 7L 2027")),
    *(("aws", text) for text in ("0 9 ? * 1 *", "0 9 ? * 2#1 2028-2030", "0 9 3W * ? *")),
    *(("spring", text) for text in ("0 0 9 * * 7", "0 0 9 13 * FRI", "0 0 9 ? * 5#2")),
    ("systemd", "Mon..Fri *-*-* 9..17:00/15"),
]


@pytest.mark.parametrize(("dialect", "text"), EXAMPLES)
def test_texts_that_are_told_wrongly_elsewhere_are_told_truly_or_not_at_all(
    dialect: str, text: str
) -> None:
    said = told(text, dialect)
    if said is not None:
        same(read(said.removesuffix(ZONE)), cron.read(text, dialect))


@settings(max_examples=300)
@given(st.randoms(use_true_random=False), st.sampled_from(DIALECTS))
def test_every_language_says_all_numbers_or_nothing(random: Random, dialect: str) -> None:
    text = draw(random, dialect).text
    english = told(text, dialect)
    for language in TELLER.languages:
        said = told(text, dialect, language)
        if english is None:
            assert said is None
        elif said is not None and not any(f" {word} " in english for word in ORDINALS[1:]):
            missing = set(_NUMBER.findall(english)) - set(_NUMBER.findall(said))
            assert not missing, (english, said)


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("en", "At 09:00, Monday through Friday, only in March, in Europe/Berlin"),
        ("de", "Um 09:00, Montag bis Freitag, nur im März (Europe/Berlin)"),
        ("fr", "À 09:00, de lundi à vendredi, uniquement en mars (Europe/Berlin)"),
        ("zh", "在 09:00, 星期一 到 星期五, 仅在 三月 (Europe/Berlin)"),
    ],
)
def test_names_are_those_of_the_language(language: str, said: str) -> None:
    spec = parse_cron("0 9 * 3 1-5", "Europe/Berlin")
    assert isinstance(spec, Cron)
    assert TELLER.tell(spec, language) == said


def test_no_language_leaves_english_names_in_a_sentence() -> None:
    for language in TELLER.languages:
        for month in range(1, 13):
            said = told(f"0 9 * {month} {month % 7}", "vixie", language)
            assert said is not None
            english = re.search("[a-z]+day|January|February|March|June|July|October", said)
            assert (english is not None) == (language == "en"), said


def test_a_phrase_that_a_language_lacks_is_not_left_out() -> None:
    assert told("0 0 9 L-3 * ?", "quartz", "de") is None
    assert told("0 0 9 L-3 * ?", "quartz", "en") is not None


def test_other_kinds_are_not_told() -> None:
    assert TELLER.tell(OneTime(0), "de") is None
    assert TELLER.tell(Union(()), "de") is None
