"""Which days of a month match, as a bit set by the weekday it begins on and by its length.

A text is compiled once into a table of the 28 kinds of month; the walk then only looks them up.
Weekdays count from Sunday, 0; bit n is day n.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeAlias

from domain.schedule.fields import SHORTEST_MONTH

Table: TypeAlias = tuple[int, ...]
"""The bit sets of days in the order of `Fields.days`."""

_LENGTHS: Final = range(SHORTEST_MONTH, 32)
_FIVE_WEEKS: Final = sum(1 << 7 * week for week in range(6))  # and the one a month begins in
_SATURDAY: Final = 6
_KEPT: Final = 1_024  # tables kept; one takes about a kilobyte


@lru_cache(_KEPT)
def numbers(bits: int) -> Table:
    """Days by number; what a month does not have is not there."""
    return tuple(days for length in _LENGTHS for days in [bits & _days(length)] * 7)


@lru_cache(_KEPT)
def weekdays(bits: int) -> Table:
    """Every day of the named weekdays."""
    weeks = [bits * _FIVE_WEEKS >> first << 1 for first in range(7)]
    return tuple(week & _days(length) for length in _LENGTHS for week in weeks)


@lru_cache(_KEPT)
def from_end(bits: int) -> Table:
    """Days counted back from the end of the month: bit 1 is the last one."""
    return _table(
        lambda _first, length: sum(
            1 << length + 1 - back for back in range(1, length + 1) if bits >> back & 1
        )
    )


@lru_cache(_KEPT)
def last(before: int) -> Table:
    """The day that many days before the last."""
    return from_end(2 << before)


@lru_cache(_KEPT)
def nearest(day: int) -> Table:
    """The weekday (Monday to Friday) nearest to a day, without leaving the month."""
    return _table(lambda first, length: 1 << _nearest(day, first, length) if day <= length else 0)


@lru_cache(_KEPT)
def last_nearest(before: int) -> Table:
    """The weekday nearest to the day that many days before the last."""

    def rule(first: int, length: int) -> int:
        return 1 << _nearest(length - before, first, length) if length > before else 0

    return _table(rule)


@lru_cache(_KEPT)
def nth(weekday: int, count: int) -> Table:
    """The first, second … fifth of a weekday in the month."""

    def rule(first: int, length: int) -> int:
        day = 1 + (weekday - first) % 7 + 7 * (count - 1)
        return 1 << day if day <= length else 0

    return _table(rule)


@lru_cache(_KEPT)
def last_weekday(weekday: int) -> Table:
    """The last of a weekday in the month."""
    return _table(lambda first, length: 1 << length - (first + length - 1 - weekday) % 7)


def either(*tables: Table) -> Table:
    """The days that any of the tables has."""
    found = tables[0]
    for other in tables[1:]:
        found = tuple(one | two for one, two in zip(found, other, strict=True))
    return found


def both(one: Table, other: Table) -> Table:
    """The days that both tables have."""
    return tuple(left & right for left, right in zip(one, other, strict=True))


def _table(rule: Callable[[int, int], int]) -> Table:
    return tuple(rule(first, length) for length in _LENGTHS for first in range(7))


def _days(length: int) -> int:
    return (2 << length) - 2


def _nearest(day: int, first: int, length: int) -> int:
    weekday = (first + day - 1) % 7
    if weekday == _SATURDAY:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day
