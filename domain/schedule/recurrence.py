"""The dates of a recurrence rule (RFC 5545), as bit sets of the days of a year.

A year's days depend on little: its length, its first weekday and the length of the year before. So
each kind of year is worked out once, and a year in which nothing matches costs a microsecond: that
bounds the work for rules that are rare, or that never match at all.
"""

from collections.abc import Iterator
from datetime import date
from typing import Final, NamedTuple

from domain.instant import EPOCH_ORDINAL
from domain.schedule.fields import month_length
from domain.schedule.walk import NONE_AFTER, NONE_BEFORE

YEARLY, MONTHLY, WEEKLY, DAILY, HOURLY, MINUTELY = range(6)
LAST_YEAR: Final = 2499
"""No date lies beyond: see `domain.schedule.every.END_MS`."""
DAYS_LOOKED_AT: Final = 4_096
"""Days whose times a search goes through, for rules of hours and minutes."""
PERIODS_LOOKED_AT: Final = 400
"""Weeks, months or years that a search goes through for BYSETPOS."""

_DAY_S: Final = 86_400
_HOUR: Final = 60
_DAY_MINUTES: Final = 1_440
_WEEK: Final = 0x7F
_SAME_WEEKDAY: Final = sum(1 << day for day in range(0, 366, 7))
_WHOLE_YEAR: Final = (1 << 366) - 1
_EVERY_MINUTE: Final = (1 << _DAY_MINUTES) - 1
_WEEK_HAS: Final = 4  # days of a year's first week


class TooRare(Exception):
    """A search ended at its bound: the rule names nothing near enough."""


class Rule(NamedTuple):
    """A rule with all that its text leaves to the anchor filled in.

    Months, weekdays (Monday is bit 0), hours and minutes are bit sets; numbers that may be negative
    count from the end.
    """

    freq: int
    interval: int = 1
    months: int = 0
    month_days: tuple[int, ...] = ()
    year_days: tuple[int, ...] = ()
    weeks: tuple[int, ...] = ()
    weekdays: int = 0
    nth: tuple[tuple[int, int], ...] = ()
    """(n, weekday): the n-th of the month, or of the year where months are not named."""
    hours: int = 0
    minutes: int = 0
    second: int = 0
    positions: tuple[int, ...] = ()
    week_start: int = 0


def bits(number: int) -> Iterator[int]:
    """Yield the places of the bits that are set, lowest first."""
    while number:
        low = number & -number
        yield low.bit_length() - 1
        number ^= low


def _ordinal(year: int) -> int:
    """Days from 1970-01-01 to the first of a year."""
    return date(year, 1, 1).toordinal() - EPOCH_ORDINAL


def _is_leap(year: int) -> bool:
    return month_length(year, 2) == 29  # noqa: PLR2004 - a leap day


class Recurrence:
    """The dates and times of a rule from an anchor on (see `walk.LocalCalendar`)."""

    __slots__ = (
        *("_anchor", "_by_first", "_day", "_kinds", "_listed", "_minutes", "_rule", "_steps"),
        *("_times", "_year"),
    )

    def __init__(self, rule: Rule, anchor_local_s: int) -> None:
        self._rule = rule
        self._anchor = anchor_local_s
        self._day = anchor_local_s // _DAY_S
        self._year = date.fromordinal(self._day + EPOCH_ORDINAL).year
        self._kinds: dict[tuple[int, bool, bool], int] = {}
        step = rule.interval * (7 if rule.freq == WEEKLY else 1)
        block = _WEEK if rule.freq == WEEKLY else 1
        span = _DAY_MINUTES if rule.freq == MINUTELY else 380
        self._steps = sum(block << at for at in range(0, span, step))
        minutes = sum(rule.minutes << _HOUR * hour for hour in bits(rule.hours))
        times = list(bits(minutes))
        if rule.positions and rule.freq == DAILY:
            kept = {times[at] for at in _places(rule.positions, len(times))}
            minutes = sum(1 << time for time in kept)
        self._times = minutes
        self._minutes = tuple(bits(minutes))
        self._listed: dict[int, tuple[int, ...]] = {}
        """Days of a year or month by their bit set, which few years and months differ in."""
        # For a rule of hours: the minutes of a day by the first hour of it that is in step.
        self._by_first = [
            sum(
                rule.minutes << _HOUR * hour
                for hour in range(first, 24, rule.interval)
                if rule.hours >> hour & 1
            )
            for first in range(rule.interval if rule.freq == HOURLY else 0)
        ]

    # ------------------------------------------------------------ the calendar

    def first_from(self, local_s: int) -> int:
        """The first date and time at or after a local second; raises `TooRare`."""
        local_s = max(local_s, self._anchor)
        if self._by_position:
            return self._first_position(local_s)
        # The rule's second of the minute: what is asked about becomes a whole minute.
        day, minute = divmod(-(-(local_s - self._rule.second) // 60), _DAY_MINUTES)
        looked = 0
        for start, days in self._years_from(day):
            for place in bits(days):
                times = self._times_of(start + place)
                if start + place == day:
                    times = times >> minute << minute
                if times:
                    found = (start + place) * _DAY_MINUTES + (times & -times).bit_length() - 1
                    return found * 60 + self._rule.second
                looked += 1
                if looked == DAYS_LOOKED_AT:
                    raise TooRare(f"nothing on {looked} days")
        return NONE_AFTER

    def last_to(self, local_s: int) -> int:
        """The last date and time at or before a local second; raises `TooRare`."""
        if local_s < self._anchor:
            return NONE_BEFORE
        found = self._last_position(local_s) if self._by_position else self._last_time(local_s)
        return found if found >= self._anchor else NONE_BEFORE

    def _last_time(self, local_s: int) -> int:
        day, minute = divmod((local_s - self._rule.second) // 60, _DAY_MINUTES)
        looked = 0
        for start, days in self._years_to(day):
            left = days
            while left:
                place = left.bit_length() - 1
                left ^= 1 << place
                times = self._times_of(start + place)
                if start + place == day:
                    times &= (2 << minute) - 1
                if times:
                    found = (start + place) * _DAY_MINUTES + times.bit_length() - 1
                    return found * 60 + self._rule.second
                looked += 1
                if looked == DAYS_LOOKED_AT:
                    raise TooRare(f"nothing on {looked} days")
        return NONE_BEFORE

    # ------------------------------------------------------------ times of a day

    def _times_of(self, day: int) -> int:
        """The minutes of a day that match, as a bit set; the day is counted from 1970."""
        rule = self._rule
        if rule.freq < HOURLY:
            return self._times
        if rule.freq == HOURLY:
            return self._by_first[(self._anchor // 3600 - day * 24) % rule.interval]
        first = (self._anchor // 60 - day * _DAY_MINUTES) % rule.interval
        return self._steps << first & self._times & _EVERY_MINUTE

    # ------------------------------------------------------------ days of a year

    def _years_from(self, day: int) -> Iterator[tuple[int, int]]:
        """Yield (first day, days that match) of each year, the days before `day` left out."""
        year = date.fromordinal(day + EPOCH_ORDINAL).year
        left_out = day - _ordinal(year)
        while year <= LAST_YEAR:
            days = self._in_step(year, self._days_of(year))
            yield _ordinal(year), days >> left_out << left_out
            year, left_out = year + 1, 0

    def _years_to(self, day: int) -> Iterator[tuple[int, int]]:
        """Yield as `_years_from`, backwards and without the days after `day`."""
        year = date.fromordinal(day + EPOCH_ORDINAL).year
        kept = (2 << (day - _ordinal(year))) - 1
        while year >= self._year:
            yield _ordinal(year), self._in_step(year, self._days_of(year)) & kept
            year, kept = year - 1, _WHOLE_YEAR

    def _in_step(self, year: int, days: int) -> int:
        """Keep the days of periods that the interval names."""
        rule = self._rule
        if not days or (rule.interval == 1 and rule.freq != WEEKLY) or rule.freq >= HOURLY:
            return days
        if rule.freq == YEARLY:
            return days if (year - self._year) % rule.interval == 0 else 0
        start = _ordinal(year)
        if rule.freq == DAILY:
            return days & self._steps << (self._day - start) % rule.interval
        if rule.freq == WEEKLY:
            step = 7 * rule.interval
            # The first week in step that reaches into the year may begin up to six days before.
            early = (self._week_of(self._day) - start + 6) % step - 6
            return days & (self._steps << early if early >= 0 else self._steps >> -early)
        anchor = date.fromordinal(self._day + EPOCH_ORDINAL)
        months = 12 * (year - anchor.year) - anchor.month
        named = [month for month in range(1, 13) if (months + month) % rule.interval == 0]
        return days & sum(_month_bits(year, month) for month in named)

    def _week_of(self, day: int) -> int:
        """The day on which the week of a day begins."""
        return day - (day + 3 - self._rule.week_start) % 7

    def _days_of(self, year: int) -> int:
        """The days of a year that match, whatever the interval, as a bit set."""
        key = ((_ordinal(year) + 3) % 7, _is_leap(year), _is_leap(year - 1))
        found = self._kinds.get(key)
        if found is None:
            found = self._kinds[key] = self._worked_out(year)
        return found

    def _worked_out(self, year: int) -> int:
        rule, start = self._rule, _ordinal(year)
        length = 365 + _is_leap(year)
        days = (1 << length) - 1
        if rule.months:
            days &= sum(_month_bits(year, month) for month in bits(rule.months))
        if rule.month_days:
            days &= _month_days(year, rule.month_days)
        if rule.year_days:
            days &= sum({1 << at for at in _places(rule.year_days, length)})
        if rule.weeks:
            days &= self._weeks(year)
        if rule.weekdays or rule.nth:
            named = self._nth(year)
            for weekday in bits(rule.weekdays):
                named |= _SAME_WEEKDAY << (weekday - start - 3) % 7
            days &= named
        return days

    def _nth(self, year: int) -> int:
        """The n-th weekdays: of the year, or of each month where the rule goes by months."""
        rule, start, found = self._rule, _ordinal(year), 0
        length = 365 + _is_leap(year)
        spans = [(0, length)]
        if rule.freq == MONTHLY or rule.months:
            firsts = [date(year, month, 1).toordinal() - EPOCH_ORDINAL for month in range(1, 13)]
            spans = [
                (first - start, first - start + month_length(year, month))
                for month, first in enumerate(firsts, 1)
            ]
        for low, high in spans:
            for number, weekday in rule.nth:
                first = low + (weekday - (start + low + 3)) % 7
                dates = range(first, high, 7)
                for at in _places((number,), len(dates)):
                    found |= 1 << dates[at]
        return found

    def _weeks(self, year: int) -> int:
        """The days whose week has one of the numbers, from the start or from the end."""
        start, found = _ordinal(year), 0
        for of in (year - 1, year, year + 1):
            first, following = self._first_week(of), self._first_week(of + 1)
            for at in _places(self._rule.weeks, (following - first) // 7):
                early = first + 7 * at - start
                found |= _WEEK << early if early >= 0 else _WEEK >> -early
        return found & _WHOLE_YEAR

    def _first_week(self, year: int) -> int:
        """The day on which week 1 of a year begins: the first week that has four days of it."""
        return self._week_of(_ordinal(year) + _WEEK_HAS - 1)

    # ------------------------------------------------------------ BYSETPOS

    @property
    def _by_position(self) -> bool:
        return bool(self._rule.positions) and self._rule.freq < DAILY

    def _first_position(self, local_s: int) -> int:
        for looked, period in enumerate(self._periods(local_s, 1)):
            found = [at for at in self._positions(*period) if at >= local_s]
            if found:
                return min(found)
            if looked == PERIODS_LOOKED_AT:
                raise TooRare(f"nothing in {looked} periods")
        return NONE_AFTER

    def last_of(self, count: int) -> int:
        """The last of the first `count` dates, or of all if they are fewer; raises `TooRare`."""
        last, empty = NONE_BEFORE, 0
        if not self._by_position:
            for _ in range(count):
                found = self.first_from(last + 1)
                if found == NONE_AFTER:
                    break
                last = found
            return last
        for period in self._periods(self._anchor, 1):
            dates = [at for at in self._positions(*period) if at >= self._anchor]
            if len(dates) >= count:
                return dates[count - 1]
            last, count = dates[-1] if dates else last, count - len(dates)
            empty = 0 if dates else empty + 1
            if empty > PERIODS_LOOKED_AT:
                raise TooRare(f"nothing in {PERIODS_LOOKED_AT} periods")
        return last

    def _last_position(self, local_s: int) -> int:
        for looked, period in enumerate(self._periods(local_s, -1)):
            found = [at for at in self._positions(*period) if at <= local_s]
            if found:
                return max(found)
            if looked == PERIODS_LOOKED_AT:
                raise TooRare(f"nothing in {looked} periods")
        return NONE_BEFORE

    def _positions(self, first: int, length: int) -> list[int]:
        """The local seconds that BYSETPOS keeps of a period: `length` days from `first` on."""
        days, times = self._between(first, length), self._minutes
        return [
            (first + days[at // len(times)]) * _DAY_S
            + times[at % len(times)] * 60
            + self._rule.second
            for at in _places(self._rule.positions, len(days) * len(times))
        ]

    def _between(self, first: int, length: int) -> tuple[int, ...]:
        """The days that match of `length` days from `first` on, counted from there."""
        found = 0
        year = date.fromordinal(first + EPOCH_ORDINAL).year
        while (start := _ordinal(year)) < first + length:
            days, offset = self._days_of(year), first - start
            cut = days >> offset if offset >= 0 else days << -offset
            found |= cut & ((1 << length) - 1)
            year += 1
        listed = self._listed.get(found)
        if listed is None:
            listed = self._listed[found] = tuple(bits(found))
        return listed

    def _periods(self, local_s: int, way: int) -> Iterator[tuple[int, int]]:
        """Yield (first day, days) of the periods in step, from the one of a second on or back."""
        rule, day = self._rule, local_s // _DAY_S
        if rule.freq == WEEKLY:
            start, step = self._week_of(self._day), 7 * rule.interval
            week = start + (day - start) // step * step
            while start <= week <= _ordinal(LAST_YEAR):
                yield week, 7
                week += way * step
            return
        anchor, now = (date.fromordinal(at + EPOCH_ORDINAL) for at in (self._day, day))
        unit = 12 if rule.freq == YEARLY else 1
        step = rule.interval * unit
        since = 12 * anchor.year + (anchor.month - 1 if unit == 1 else 0)
        month = since + (12 * now.year + now.month - 1 - since) // step * step
        named = rule.months if unit == 1 and rule.months else -1
        while since <= month < 12 * (LAST_YEAR + 1):
            if named >> (month % 12 + 1) & 1:
                first = date(month // 12, month % 12 + 1, 1)
                last = date((month + unit) // 12, (month + unit) % 12 + 1, 1)
                yield first.toordinal() - EPOCH_ORDINAL, (last - first).days
            month += way * step


def _places(numbers: tuple[int, ...], length: int) -> list[int]:
    """Return places from 0 of numbers that count from 1, or from the end where negative."""
    places = (number - 1 if number > 0 else length + number for number in numbers)
    return sorted({place for place in places if 0 <= place < length})


def _month_bits(year: int, month: int) -> int:
    first = date(year, month, 1).toordinal() - EPOCH_ORDINAL - _ordinal(year)
    return (1 << month_length(year, month)) - 1 << first


def _month_days(year: int, numbers: tuple[int, ...]) -> int:
    found = 0
    for month in range(1, 13):
        first = date(year, month, 1).toordinal() - EPOCH_ORDINAL - _ordinal(year)
        for at in _places(numbers, month_length(year, month)):
            found |= 1 << first + at
    return found
