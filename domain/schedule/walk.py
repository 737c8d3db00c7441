"""The walk from an instant to the next or the newest slot of a cron schedule in a zone.

It works in local seconds ("as the wall clock shows, counted from 1970-01-01 00:00"): find the next
minute of the calendar that matches, then look whether the stretch of constant offset that we are
in holds it. The clock changes, by default as Debian has it:

- Neither minute nor hour begins with `*`: a slot in a gap runs once, at the first instant after
  the gap (`gap="next"`); a local time that repeats runs in the first pass (`fold="first"`).
- Otherwise each local minute fires as it occurs: none is made up (`gap="skip"`), both passes of
  a repeated time fire (`fold="both"`).
- Nothing is ever made up for a jump of more than three hours: that is a correction of the clock.

This relies on the jumps of a zone being further apart than they are wide, which holds for all
zone data since 1970 (a test checks it for the pinned version).
"""

from datetime import date
from typing import Final, Protocol

from domain.instant import EPOCH_ORDINAL
from domain.schedule.fields import FIRST_YEAR, SHORTEST_MONTH, Fields, month_length
from domain.schedule.zone import CYCLE_END_S, CYCLE_S, Zone

CORRECTION_S: Final = 3 * 3600
"""A wider jump of the clock is a correction: nothing is made up for it."""
GAPS: Final = ("next", "skip")
FOLDS: Final = ("first", "last", "both")
LAST_SECOND: Final = 253_402_300_799
"""9999-12-31T23:59:59Z: no slot lies beyond."""

_DAY_S: Final = 86_400
_REGULAR_FROM_MS: Final = 4_133_980_800_000  # 2101: from here on only rules are in force
_REGULAR_S: Final = 30 * 366 * _DAY_S  # until a century year every 28 years are alike
_MONTHS_LOOKED_AT: Final = 12 * 41  # 29 February on a given weekday can be 40 years away
_STRETCHES_LOOKED_AT: Final = 4_096  # backstop: two calendar cycles need under 1,700
_NEVER_S: Final = 1 << 50
_BEFORE_ALL_S: Final = -(1 << 50)
NONE_AFTER: Final = 1 << 51
NONE_BEFORE: Final = -(1 << 51)
"""Answers of a calendar that has no date there."""
_HORIZON_S: Final = 2 * CYCLE_S  # what does not occur in two calendar cycles never does
_ROWS: Final = {length: (length - SHORTEST_MONTH) * 7 for length in range(SHORTEST_MONTH, 32)}


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


class LocalCalendar(Protocol):
    """Dates and times without clock changes, in local seconds."""

    def first_from(self, local_s: int) -> int:
        """The first at or after a local second, or `NONE_AFTER`."""
        ...

    def last_to(self, local_s: int) -> int:
        """The last at or before a local second, or `NONE_BEFORE`."""
        ...


class Calendar:
    """The matching seconds of an endless calendar without clock changes, in local seconds."""

    __slots__ = ("_days", "_first", "_last", "_months", "_seconds", "_times", "_years")

    def __init__(self, fields: Fields) -> None:
        self._days = fields.days
        self._months = fields.months
        self._years = fields.years
        self._times = fields.times
        self._seconds = fields.seconds
        self._first = _lowest(self._times) * 60 + _lowest(self._seconds)
        self._last = self._times.bit_length() * 60 - 61 + self._seconds.bit_length()

    def first_from(self, local_s: int) -> int:
        """The first match at or after a local second; `NONE_AFTER` if no later year is named."""
        day, second = divmod(local_s, _DAY_S)
        today = date.fromordinal(day + EPOCH_ORDINAL)
        year, month, number = today.year, today.month, today.day
        if self._months >> month & 1 and self._has(year):
            days = self._month_days(year, month, day - number + 1)
            if days >> number & 1:
                found = self._first_in_day(second)
                if found is not None:
                    return day * _DAY_S + found
            days >>= number + 1
            if days:
                return (day + 1 + _lowest(days)) * _DAY_S + self._first
        for _ in range(_MONTHS_LOOKED_AT):
            later = self._months >> (month + 1)
            if later and self._has(year):
                month += 1 + _lowest(later)
            else:
                following = self._year_from(year + 1)
                if following is None:
                    return NONE_AFTER
                year, month = following, _lowest(self._months)
            first = date(year, month, 1).toordinal() - EPOCH_ORDINAL
            days = self._month_days(year, month, first)
            if days:
                return (first - 1 + _lowest(days)) * _DAY_S + self._first
        raise AssertionError("a parsed schedule has a date within 40 years")

    def last_to(self, local_s: int) -> int:
        """The last match at or before a local second; `NONE_BEFORE` if no earlier year is named."""
        day, second = divmod(local_s, _DAY_S)
        today = date.fromordinal(day + EPOCH_ORDINAL)
        year, month, number = today.year, today.month, today.day
        if self._months >> month & 1 and self._has(year):
            days = self._month_days(year, month, day - number + 1)
            if days >> number & 1:
                found = self._last_in_day(second)
                if found is not None:
                    return day * _DAY_S + found
            days &= (1 << number) - 1
            if days:
                back = number - (days.bit_length() - 1)
                return (day - back) * _DAY_S + self._last
        for _ in range(_MONTHS_LOOKED_AT):
            earlier = self._months & ((1 << month) - 1)
            if not earlier or not self._has(year):
                before = self._year_to(year - 1)
                if before is None:
                    return NONE_BEFORE
                year, earlier = before, self._months
            month = earlier.bit_length() - 1
            first = date(year, month, 1).toordinal() - EPOCH_ORDINAL
            days = self._month_days(year, month, first)
            if days:
                return (first + days.bit_length() - 2) * _DAY_S + self._last
        raise AssertionError("a parsed schedule has a date within 40 years")

    def _first_in_day(self, second: int) -> int | None:
        minute, second = divmod(second, 60)
        rest = self._times >> minute
        if rest & 1:
            seconds = self._seconds >> second
            if seconds:
                return minute * 60 + second + _lowest(seconds)
        rest >>= 1
        return (minute + 1 + _lowest(rest)) * 60 + self._first % 60 if rest else None

    def _last_in_day(self, second: int) -> int | None:
        minute, second = divmod(second, 60)
        if self._times >> minute & 1:
            seconds = self._seconds & ((2 << second) - 1)
            if seconds:
                return minute * 60 + seconds.bit_length() - 1
        rest = self._times & ((1 << minute) - 1)
        return (rest.bit_length() - 1) * 60 + self._last % 60 if rest else None

    def _has(self, year: int) -> bool:
        return not self._years or bool(year >= FIRST_YEAR and self._years >> year - FIRST_YEAR & 1)

    def _year_from(self, year: int) -> int | None:
        if not self._years:
            return year
        year = max(year, FIRST_YEAR)
        rest = self._years >> year - FIRST_YEAR
        return year + _lowest(rest) if rest else None

    def _year_to(self, year: int) -> int | None:
        if not self._years:
            return year
        rest = self._years & ((2 << year - FIRST_YEAR) - 1) if year >= FIRST_YEAR else 0
        return FIRST_YEAR + rest.bit_length() - 1 if rest else None

    def _month_days(self, year: int, month: int, first: int) -> int:
        return self._days[_ROWS[month_length(year, month)] + (first + 4) % 7]


def effective(fields: Fields, gap: str, fold: str) -> tuple[str, str]:
    """The rule for gaps and for folds that is in force, where "" asks for the default."""
    if fields.wildcard:
        return gap or "skip", fold or "both"
    return gap or "next", fold or "first"


class LocalPlan:
    """The slots of a calendar in a zone, in ms; see the module for the rule of clock changes.

    A calendar that does not repeat after `CYCLE_S` must be asked about no instant from the year
    2500 on.
    """

    __slots__ = ("_calendar", "_first_pass", "_last_pass", "_made_up", "_offsets", "_zone")

    def __init__(self, calendar: LocalCalendar, zone: Zone, gap: str, fold: str) -> None:
        self._calendar = calendar
        self._zone = zone
        self._offsets = zone.offsets
        self._made_up = gap == "next"
        self._first_pass = fold == "first"
        self._last_pass = fold == "last"

    def _opens(self, index: int) -> int:
        """The first local second of a stretch that may hold slots."""
        if index == 0:
            return _BEFORE_ALL_S
        start = self._zone.starts[index]
        offset, before = self._offsets[index], self._offsets[index - 1]
        return start + (before if before > offset and self._first_pass else offset)

    def _closes(self, index: int) -> int:
        """The local second after the last one of a stretch that may hold slots."""
        if index + 1 == len(self._offsets):
            return _NEVER_S
        offset, after = self._offsets[index], self._offsets[index + 1]
        end = self._zone.starts[index + 1]
        return end + (after if after < offset and self._last_pass else offset)

    def _gap(self, index: int) -> tuple[int, int]:
        """The local seconds that the clock jumped over at the start of a stretch.

        Empty if nothing is made up for them.
        """
        if not self._made_up or not 0 < index < len(self._offsets):
            return 0, 0
        start, offset, before = (
            self._zone.starts[index],
            self._offsets[index],
            self._offsets[index - 1],
        )
        if not before < offset <= before + CORRECTION_S:
            return 0, 0
        return start + before, start + offset

    def next_after(self, t: int, horizon_s: int = _HORIZON_S) -> int | None:
        """The first slot after `t`, or None if there is none in the horizon up to the year 9999."""
        instant, shift = _fold(max(t // 1000, -1), 0)
        limit = min(instant + horizon_s, LAST_SECOND - shift) + shift
        index = self._zone.index(instant)
        low = instant + 1 + self._offsets[index]
        for _ in range(_STRETCHES_LOOKED_AT):
            low = max(low, self._opens(index))
            closes = self._closes(index)
            local = self._calendar.first_from(low)
            if local < closes:
                slot = local - self._offsets[index] + shift
                return slot * 1000 if slot <= limit else None
            if local < self._gap(index + 1)[1]:
                return (self._zone.starts[index + 1] + shift) * 1000
            far = local - 2 * _DAY_S
            if far > closes and low < closes - _DAY_S:
                # Nothing matches in between, a repeated stretch included: go there at once.
                instant, shift = _fold(far, shift)
                low = instant
            else:
                instant, shift = _fold(self._zone.starts[index + 1], shift)
                low = _BEFORE_ALL_S
            if instant + shift > limit:
                return None
            index = self._zone.index(instant)
        raise AssertionError("two calendar cycles have fewer stretches")

    def last_until(self, t: int) -> int | None:
        """The newest slot up to `t` and since 1970, or None if there is none."""
        instant, shift = _fold(min(t // 1000, LAST_SECOND), 0)
        limit = max(instant + shift - _HORIZON_S, 0)
        index = self._zone.index(instant)
        high = instant + self._offsets[index]
        for _ in range(_STRETCHES_LOOKED_AT):
            if instant + shift < limit:
                return None
            high = min(high, self._closes(index) - 1)
            opens = self._opens(index)
            local = self._calendar.last_to(high)
            if local >= opens:
                slot = local - self._offsets[index] + shift
                return slot * 1000 if slot >= limit else None
            gap_start, gap_end = self._gap(index)
            if gap_start <= local < gap_end:
                return (self._zone.starts[index] + shift) * 1000
            far = local + 2 * _DAY_S
            if far < opens and high > opens + _DAY_S:
                instant, shift = _unfold(far, shift)
                high = instant
            else:
                instant, shift = _unfold(self._zone.starts[index] - 1, shift)
                high = _NEVER_S
            index = self._zone.index(instant)
        raise AssertionError("two calendar cycles have fewer stretches")


class CronPlan(LocalPlan):
    """The slots of a cron text in a zone."""

    __slots__ = ()

    def __init__(self, fields: Fields, zone: Zone, gap: str = "", fold: str = "") -> None:
        super().__init__(Calendar(fields), zone, *effective(fields, gap, fold))


class YearsPlan(CronPlan):
    """The slots of a cron text that names years: none of them is beyond `fields.LAST_YEAR`."""

    __slots__ = ("_end",)

    def __init__(self, fields: Fields, zone: Zone, gap: str = "", fold: str = "") -> None:
        super().__init__(fields, zone, gap, fold)
        over = date(FIRST_YEAR + fields.years.bit_length(), 1, 3).toordinal() - EPOCH_ORDINAL
        self._end = over * _DAY_S * 1000

    def next_after(self, t: int, horizon_s: int = _HORIZON_S) -> int | None:
        """The first slot after `t`, or None if its years are over."""
        return super().next_after(t, horizon_s) if t < self._end else None

    def last_until(self, t: int) -> int | None:
        """The newest slot up to `t` and since 1970, or None if there is none."""
        return super().last_until(min(t, self._end))


def always_skipped(fields: Fields, zone: Zone, gap: str, fold: str) -> bool:
    """Whether each local time of a parsed text lies in a gap of the zone's clock."""
    if effective(fields, gap, fold)[0] == "next":
        return False
    slots = cron_plan(fields, zone, gap, fold)
    if fields.years:
        return slots.next_after(0) is None
    return slots.next_after(_REGULAR_FROM_MS, _REGULAR_S) is None


def cron_plan(fields: Fields, zone: Zone, gap: str = "", fold: str = "") -> CronPlan:
    """The plan of a parsed text."""
    return (YearsPlan if fields.years else CronPlan)(fields, zone, gap, fold)


def _fold(instant_s: int, shift: int) -> tuple[int, int]:
    """The same point of the calendar in the years that zone tables cover, and what to add."""
    if instant_s < CYCLE_END_S:
        return instant_s, shift
    cycles = (instant_s - CYCLE_END_S) // CYCLE_S + 1
    return instant_s - cycles * CYCLE_S, shift + cycles * CYCLE_S


def _unfold(instant_s: int, shift: int) -> tuple[int, int]:
    """Undo one cycle of `_fold` when a walk back leaves the years in which rules repeat."""
    if shift and instant_s < CYCLE_END_S - CYCLE_S:
        return instant_s + CYCLE_S, shift - CYCLE_S
    return instant_s, shift
