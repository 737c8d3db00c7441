"""Reads an English sentence about a schedule, word by word, back into what it says.

It shares nothing with what made the sentence: what it cannot read to the end is an error.
"""

import re
from calendar import day_name, month_name, monthrange
from collections.abc import Callable
from datetime import date
from typing import Final, NamedTuple

Days = Callable[[date], bool]
WEEKDAYS: Final = list(day_name)
MONTHS: Final = list(month_name)
ORDINALS: Final = ["", "first", "second", "third", "fourth", "fifth"]
_DAY: Final = "|".join(WEEKDAYS)
_MONTH: Final = "|".join(MONTHS[1:])


class Told(NamedTuple):
    """Seconds, minutes of the day, and the dates that a sentence names."""

    seconds: set[int]
    times: set[int]
    days: Days


class _Words:
    def __init__(self, text: str) -> None:
        self.rest = text

    def take(self, pattern: str) -> tuple[str, ...] | None:
        found = re.match(pattern, self.rest)
        if found is None:
            return None
        self.rest = self.rest[found.end() :]
        return found.groups() or ("",)


def read(sentence: str) -> Told:
    """Return what a sentence without its zone says."""
    words = _Words(sentence)
    seconds, times = _time(words)
    days = _days(words)
    months = _months(words)
    years = _years(words)
    assert not words.rest, f"not understood: {words.rest!r} of {sentence!r}"
    return Told(seconds, times, lambda day: day.year in years and day.month in months and days(day))


def _list(item: str) -> str:
    return f"((?:{item})(?:, (?:{item}))*(?:,? and (?:{item}))?)"


def _items(text: str) -> list[str]:
    return [one for one in re.split(r",? and |, ", text) if one]


def _clock(text: str) -> int:
    hour, minute = text.split(":")
    return 60 * int(hour) + int(minute)


def _time(words: _Words) -> tuple[set[int], set[int]]:
    if found := words.take(r"At (\d\d:\d\d):(\d\d)"):
        return {int(found[1])}, {_clock(found[0])}
    if found := words.take(r"Every second|Every (\d+) seconds"):
        return set(range(0, 60, int(found[0] or 1))), set(range(1440))
    if found := words.take(r"Every minute between (\d\d:\d\d) and (\d\d:\d\d)"):
        return {0}, set(range(_clock(found[0]), _clock(found[1]) + 1))
    if found := words.take(f"At {_list(r'[0-9]{2}:[0-9]{2}')}"):
        return {0}, {_clock(one) for one in _items(found[0])}
    minutes = _minutes(words)
    hours = set(range(24))
    if found := words.take(r", every (\d+) hours"):
        hours = set(range(0, 24, int(found[0])))
    elif found := words.take(r", between (\d\d):00 and (\d\d):59"):
        hours = set(range(int(found[0]), int(found[1]) + 1))
    return {0}, {60 * hour + minute for hour in hours for minute in minutes} & _hours_said(words)


def _minutes(words: _Words) -> set[int]:
    if found := words.take(r"Every minute|Every (\d+) minutes"):
        return set(range(0, 60, int(found[0] or 1)))
    if words.take("Every hour"):
        return {0}
    if found := words.take(r"Every (\d+) hours"):
        words.rest = f"/{found[0]}/{words.rest}"
        return {0}
    if found := words.take(r"Minutes (\d+) through (\d+) past the hour"):
        return set(range(int(found[0]), int(found[1]) + 1))
    found = words.take(f"At {_list('[0-9]+')} minutes past the hour")
    assert found is not None, words.rest
    return {int(one) for one in _items(found[0])}


def _hours_said(words: _Words) -> set[int]:
    """Minutes of the day of a sentence that began with "every n hours"."""
    found = words.take(r"/(\d+)/")
    step = int(found[0]) if found else 1
    return {minute for minute in range(1440) if minute // 60 % step == 0}


def _days(words: _Words) -> Days:
    by_number = _numbers(words)
    if found := words.take(f", or on {_list(_DAY)}"):
        listed = {WEEKDAYS.index(one) for one in _items(found[0])}
        assert by_number is not None
        return lambda day: by_number(day) or day.weekday() in listed
    by_name = _names(words)
    return lambda day: (by_number is None or by_number(day)) and (by_name is None or by_name(day))


def _numbers(words: _Words) -> Days | None:
    if found := words.take(r", between day (\d+) and (\d+) of the month"):
        low, high = int(found[0]), int(found[1])
        return lambda day: low <= day.day <= high
    if found := words.take(f", on day {_list('[0-9]+')} of the month"):
        listed = {int(one) for one in _items(found[0])}
        return lambda day: day.day in listed
    if words.take(", on the last day of the month"):
        return lambda day: day.day == _length(day)
    if words.take(", on the last weekday of the month"):
        return lambda day: day.day == _nearest(day, _length(day))
    if words.take(", on the first weekday of the month"):
        return lambda day: day.day == _nearest(day, 1)
    if found := words.take(r", (\d+) days before the last day of the month"):
        before = int(found[0])
        return lambda day: day.day == _length(day) - before
    if found := words.take(r", on the weekday nearest day (\d+) of the month"):
        near = int(found[0])
        return lambda day: near <= _length(day) and day.day == _nearest(day, near)
    return None


def _names(words: _Words) -> Days | None:
    if found := words.take(f", on the last ({_DAY}) of the month"):
        name = found[0]
        return lambda day: WEEKDAYS[day.weekday()] == name and day.day > _length(day) - 7
    if found := words.take(rf", on the (\w+) ({_DAY}) of the month"):
        nth, name = ORDINALS.index(found[0]), found[1]
        return lambda day: WEEKDAYS[day.weekday()] == name and (day.day + 6) // 7 == nth
    if found := words.take(f", only on {_list(_DAY)}"):
        listed = {WEEKDAYS.index(one) for one in _items(found[0])}
        return lambda day: day.weekday() in listed
    if found := words.take(f", ({_DAY}) through ({_DAY})"):
        first, last = (WEEKDAYS.index(one) for one in found)
        span = {(first + step) % 7 for step in range((last - first) % 7 + 1)}
        return lambda day: day.weekday() in span
    return None


def _months(words: _Words) -> set[int]:
    if found := words.take(f", only in {_list(_MONTH)}"):
        return {MONTHS.index(one) for one in _items(found[0])}
    if found := words.take(f", ({_MONTH}) through ({_MONTH})"):
        return set(range(MONTHS.index(found[0]), MONTHS.index(found[1]) + 1))
    return set(range(1, 13))


def _years(words: _Words) -> set[int]:
    if found := words.take(f", only in {_list('[0-9]{4}')}"):
        return {int(one) for one in _items(found[0])}
    if found := words.take(r", (\d{4}) through (\d{4})"):
        return set(range(int(found[0]), int(found[1]) + 1))
    return set(range(1970, 2200))


def _length(day: date) -> int:
    return monthrange(day.year, day.month)[1]


def _nearest(day: date, wanted: int) -> int:
    for away in range(7):
        for near in (wanted - away, wanted + away):
            if 1 <= near <= _length(day) and day.replace(day=near).weekday() < 5:
                return near
    raise AssertionError
