"""Parsed cron fields as a plain text that `cron-descriptor` reads as we do, or None.

The rule goes by what is meant, not by what was typed. A step is one only where it never starts
anew early (`*/7` of the hours is not "every 7 hours"), hours are a list only beside one minute
("every 5 minutes, at 09:00" would be false), and weekdays that are ORed with days of the month are
never a range, of which the library says no "or".
"""

import re
from typing import Final

from domain.schedule.dialects.grammar import GRAMMARS
from domain.schedule.fields import FIRST_YEAR, DayFields, Fields

LIST_MAX: Final = 12
"""Values of a list; of days of the month all."""
DAYS_MAX: Final = 31
_RANGE_MIN: Final = 3
_MINUTES: Final = (1 << 60) - 1
_HOURS: Final = (1 << 24) - 1
_DAYS: Final = 0xFFFFFFFE
_MONTHS: Final = 0x1FFE
_WEEKDAYS: Final = 0x7F
_DAY_MARK: Final = re.compile(r"L|LW|L-[0-9]{1,2}|[0-9]{1,2}W")
_WEEKDAY_MARK: Final = re.compile(r"([0-9])(L|#[1-5])")


def plain_text(fields: Fields, dialect: str) -> str | None:
    """Return second to year with blanks between them, where the library tells them truly."""
    time = _time(fields)
    days = _days(fields.asked, dialect)
    month = _values(fields.months, _MONTHS)
    year = "*" if not fields.years else _values(fields.years << FIRST_YEAR, 0)
    if time is None or days is None or month is None or year is None:
        return None
    return f"{time} {days[0]} {month} {days[1]} {year}"


def _time(fields: Fields) -> str | None:
    seconds, minutes, hours = fields.seconds, fields.minutes, fields.hours
    if seconds != 1:
        return _seconds(seconds, minutes, hours)
    minute, one_minute = _values(minutes, _MINUTES, 60), _is_one(minutes)
    if minute is None:
        return None
    if hours == _HOURS:
        return f"0 {minute} *"
    if one_minute:
        hour = _values(hours, _HOURS, 24)
        return None if hour is None else f"0 {minute} {hour}"
    # "between 09:00 and 09:59" is said of a range only.
    low, high = _ends(hours)
    if minute[0].isdigit() and "-" in minute and low == high:
        return f"0 {minute} {low}"
    return f"0 {minute} {low}-{high}" if _is_range(hours) else None


def _seconds(seconds: int, minutes: int, hours: int) -> str | None:
    if _is_one(seconds) and _is_one(minutes) and _is_one(hours):
        return f"{_ends(seconds)[0]} {_ends(minutes)[0]} {_ends(hours)[0]}"
    second = _values(seconds, _MINUTES, 60)
    if second is None or not second.startswith("*") or minutes != _MINUTES or hours != _HOURS:
        return None
    return f"{second} * *"


def _days(asked: DayFields, dialect: str) -> tuple[str, str] | None:
    """Return day of the month and weekday; Sunday is 0."""
    day = _values(asked.numbers, _DAYS, most=DAYS_MAX) if asked.numbers else None
    weekday = _values(asked.names, _WEEKDAYS) if asked.names else None
    if day is None and _DAY_MARK.fullmatch(asked.number_text):
        day = asked.number_text
    mark = _WEEKDAY_MARK.fullmatch(asked.name_text)
    if weekday is None and mark is not None and dialect in GRAMMARS:
        sunday = GRAMMARS[dialect].sunday
        weekday = f"{(int(mark[1]) - sunday) % 7}{mark[2]}"
    if day is None or weekday is None:
        return None
    if "*" in (day, weekday):
        return ("*", "*") if asked.either else (day, weekday)
    # Of both together only "or" can be said, and of listed weekdays alone.
    return (day, _list(asked.names)) if asked.either and asked.names else None


def _values(bits: int, full: int, size: int = 0, most: int = LIST_MAX) -> str | None:
    """Return a set as `*`, a step of the whole, a range, or a short list; None for a long one."""
    if bits == full:
        return "*"
    step = next(
        (n for n in range(2, size // 2 + 1) if size % n == 0 and bits == _every(n, size)), 0
    )
    if step:
        return f"*/{step}"
    low, high = _ends(bits)
    if _is_range(bits) and high - low + 1 >= _RANGE_MIN:
        return f"{low}-{high}"
    return _list(bits) if bits.bit_count() <= most else None


def _every(step: int, size: int) -> int:
    return sum(1 << at for at in range(0, size, step))


def _list(bits: int) -> str:
    return ",".join(str(at) for at in range(bits.bit_length()) if bits >> at & 1)


def _ends(bits: int) -> tuple[int, int]:
    return (bits & -bits).bit_length() - 1, bits.bit_length() - 1


def _is_range(bits: int) -> bool:
    low, high = _ends(bits)
    return bits == (2 << high) - (1 << low)


def _is_one(bits: int) -> bool:
    return bits.bit_count() == 1
