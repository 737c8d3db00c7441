"""A parsed cron text as bit sets, the same whatever dialect it was written in."""

from collections.abc import Iterator
from datetime import date
from itertools import pairwise
from typing import Final, NamedTuple

FIRST_YEAR: Final = 1970
"""Bit 0 of a set of years."""
LAST_YEAR: Final = 2199
"""The last one that any dialect can name."""
SHORTEST_MONTH: Final = 28
MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)

_DAY_MINUTES: Final = 1_440
_FEBRUARY: Final = 2
_LENGTHS: Final = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class Wrong(Exception):
    """A text that is not accepted; the message says what would be right."""


def month_length(year: int, month: int) -> int:
    """The days of a month."""
    if month == _FEBRUARY and year % 4 == 0 and (year % 100 or year % 400 == 0):
        return 29
    return _LENGTHS[month]


class DayFields(NamedTuple):
    """What was asked of the days, for sentences about it."""

    number_text: str
    name_text: str
    numbers: int
    """The bit set of days of the month; 0 if they are counted from the end or by weekdays."""
    names: int
    """The bit set of weekdays (Sunday is bit 0); 0 if they are counted within the month."""
    either: bool
    """Whether one of the two is enough."""


class Fields(NamedTuple):
    """A parsed text: its canonical form, and the bit set of each field.

    `days` has the bit set of matching days for each kind of month, at
    `(length - 28) * 7 + weekday of the first`, Sunday being 0. `years` counts from 1970; 0 is
    every year.
    """

    text: str
    seconds: int
    minutes: int
    hours: int
    months: int
    days: tuple[int, ...]
    years: int
    minute_text: str
    hour_text: str
    asked: DayFields

    @property
    def wildcard(self) -> bool:
        """Whether minute or hour begins with `*`, so that it follows the clock as it runs."""
        return self.minute_text.startswith("*") or self.hour_text.startswith("*")

    @property
    def times(self) -> int:
        """The bit set of matching minutes of the day, 0 to 1439."""
        return sum(self.minutes << 60 * hour for hour in range(24) if self.hours >> hour & 1)

    @property
    def finest_s(self) -> int:
        """A distance that two slots cannot be under, without looking: a minute, or a second."""
        return 1 if self.seconds & (self.seconds - 1) else 60

    @property
    def shortest_s(self) -> int:
        """The least distance of two slots within a day, or from one day into the next."""
        times = self.times
        minutes = [minute for minute in range(_DAY_MINUTES) if times >> minute & 1]
        minutes.append(minutes[0] + _DAY_MINUTES)
        seconds = [second for second in range(60) if self.seconds >> second & 1]
        apart = 60 * min(after - before for before, after in pairwise(minutes))
        across = apart - seconds[-1] + seconds[0]
        return min([across, *(after - before for before, after in pairwise(seconds))])

    def has_a_date(self) -> bool:
        """Whether any day of any year matches."""
        if self.years:
            return any(self._matches(year, month) for year, month in self._named_months())
        # Every month, 29 days of February included, begins on each weekday in some year.
        return any(
            self.months >> month & 1 and any(self.days[(length - SHORTEST_MONTH) * 7 :][:7])
            for month in range(1, 13)
            for length in {month_length(2000, month), month_length(2001, month)}
        )

    def _named_months(self) -> Iterator[tuple[int, int]]:
        for year in range(self.years.bit_length()):
            if self.years >> year & 1:
                yield from (
                    (FIRST_YEAR + year, month) for month in range(1, 13) if self.months >> month & 1
                )

    def _matches(self, year: int, month: int) -> int:
        first = date(year, month, 1).toordinal() % 7
        return self.days[(month_length(year, month) - SHORTEST_MONTH) * 7 + first]
