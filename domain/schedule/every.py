"""`every`: an ISO 8601 duration counted from an anchor (fixed rate).

Hours, minutes and seconds are counted on absolute time: their slots are equally far apart whatever
the clock does. Years, months, weeks and days are counted on the calendar of the zone, always from
the anchor: the local time stays, and a month that is too short runs on its last day without moving
the months after it. The two are not mixed: `P1DT12H` could mean either.
"""

import re
from datetime import date
from typing import Final

from domain.instant import EPOCH_ORDINAL, LAST
from domain.refusal import Refused
from domain.schedule import jumps, walk, zone
from domain.schedule.clock import FINER, refuse_clock
from domain.schedule.fields import month_length
from domain.schedule.once import read_instant
from domain.schedule.spec import Every

DURATION_LIMIT: Final = 32
"""Characters of a duration, as typed."""
LONGEST_YEARS: Final = 100
END_MS: Final = zone.CYCLE_END_S * 1000
"""The year 2500: schedules that count steps of the calendar end there, as zone tables do."""

_SHAPE: Final = re.compile(
    r"P(?:([0-9]{1,9})Y)?(?:([0-9]{1,9})M)?(?:([0-9]{1,9})W)?(?:([0-9]{1,9})D)?"
    r"(T(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,9})(?:[.,]([0-9]{1,3})0*)?S)?)?"
)
_ANCHOR_YEAR: Final = date(2001, 1, 1)  # a Monday: weeks begin there, and so do months and years
_DAY_S: Final = 86_400
_JUMP_S: Final = walk.CORRECTION_S  # two slots are nearer by this much where a clock goes forward
_LONGEST_MS: Final = LONGEST_YEARS * 365 * _DAY_S * 1000


def parse_every(  # noqa: PLR0913 - each is a field of the define body
    every: str,
    anchor: str | None,
    timezone: str,
    *,
    gap: str = "",
    fold: str = "",
    min_interval_s: int = 60,
) -> Every | Refused:
    """Read a duration and its anchor (RFC 3339; None: 2001-01-01 00:00 in the zone).

    `gap` and `fold` as for cron; `min_interval_s` is the least distance of two slots.
    """
    refused = refuse_clock(timezone, gap, fold)
    if refused is not None:
        return refused
    try:
        months, days, step_ms = read_duration(every)
    except ValueError as error:
        return Refused("/every", f"{every[:DURATION_LIMIT]!r} is not accepted: {error}")
    shortest_ms = step_ms or (months * 28 + days) * _DAY_S * 1000 - _JUMP_S * 1000
    if shortest_ms < min_interval_s * 1000:
        return Refused(
            "/every",
            f"{every!r} is less than {min_interval_s} s, the least distance of two fires here: "
            f"give at least PT{min_interval_s}S, or {FINER}",
        )
    if step_ms and (gap or fold):
        return Refused("/dst", f"{every!r} is counted on absolute time, where no hour is missing")
    start = read_anchor(anchor, timezone, whole_s=not step_ms)
    if isinstance(start, Refused):
        return start
    return Every(every, start, timezone, step_ms, days, months, gap, fold)


def read_anchor(anchor: str | None, timezone: str, *, whole_s: bool) -> int | Refused:
    """Return the instant that slots are counted from, in ms."""
    if anchor is None:
        clock = zone.load(timezone)
        local_s = (_ANCHOR_YEAR.toordinal() - EPOCH_ORDINAL) * _DAY_S
        return (local_s - clock.offset_s(local_s - clock.offset_s(local_s))) * 1000
    try:
        start = read_instant(anchor)
    except ValueError as error:
        return Refused("/anchor", f"{anchor[:40]!r} is not accepted: {error}")
    if not 0 <= start < END_MS:
        return Refused("/anchor", f"{anchor!r} is not between the years 1970 and 2500")
    if whole_s and start % 1000:
        return Refused("/anchor", f"{anchor!r} has a part of a second: give whole seconds")
    return start


def read_duration(text: str) -> tuple[int, int, int]:
    """Return months, days and ms, two of them 0; ValueError says what would be right."""
    found = _SHAPE.fullmatch(text) if len(text) <= DURATION_LIMIT else None
    if found is None or text in ("P", "") or found[5] == "T":
        raise ValueError(_shaped(text))
    years, months, weeks, days = (int(found[i] or 0) for i in (1, 2, 3, 4))
    hours, minutes, seconds = (int(found[i] or 0) for i in (6, 7, 8))
    months, days = 12 * years + months, 7 * weeks + days
    ms = ((hours * 60 + minutes) * 60 + seconds) * 1000 + int((found[9] or "").ljust(3, "0"))
    if not (months or days or ms):
        raise ValueError("a step of nothing would fire without end: give at least PT1M")
    if bool(months) + bool(days) + bool(ms) > 1:
        raise ValueError(
            "give years and months, or weeks and days, or hours, minutes and seconds; "
            "they are not mixed, since a day is not always 24 hours nor a month 30 days"
        )
    if (months * 31 + days) * _DAY_S * 1000 + ms > _LONGEST_MS:
        raise ValueError(f"at most P{LONGEST_YEARS}Y")
    return months, days, ms


def _shaped(text: str) -> str:
    """Say what a text that is no duration probably meant."""
    upper = text.strip().upper()
    guesses = [upper]
    if short := re.fullmatch(r"([0-9]{1,9})\s*(S|M|H|D|W)[A-Z]*", upper):
        unit = short[2]
        guesses.append(f"{'P' if unit in 'DW' else 'PT'}{short[1]}{unit}")
    for guess in guesses:
        found = _SHAPE.fullmatch(guess)
        if found and guess != text and guess not in ("P", "") and found[5] != "T":
            return f"write {guess}"
    return "give an ISO 8601 duration in whole units, such as PT90M, P1D, P2W or P1M"


class Steps:
    """The calendar of a step of days or months, in local seconds (see `walk.LocalCalendar`)."""

    __slots__ = ("_anchor", "_day", "_days_s", "_month", "_months", "_time")

    def __init__(self, anchor_local_s: int, days: int, months: int) -> None:
        self._anchor = anchor_local_s
        self._days_s = days * _DAY_S
        self._months = months
        day, self._time = divmod(anchor_local_s, _DAY_S)
        first = date.fromordinal(day + EPOCH_ORDINAL)
        self._month, self._day = 12 * first.year + first.month - 1, first.day

    def first_from(self, local_s: int) -> int:
        """The first step at or after a local second."""
        if local_s <= self._anchor:
            return self._anchor
        if self._days_s:
            return self._anchor - (self._anchor - local_s) // self._days_s * self._days_s
        step = self._step_of(local_s)
        found = self._month_step(step)
        return found if found >= local_s else self._month_step(step + 1)

    def last_to(self, local_s: int) -> int:
        """The last step at or before a local second."""
        if local_s < self._anchor:
            return walk.NONE_BEFORE
        if self._days_s:
            return self._anchor + (local_s - self._anchor) // self._days_s * self._days_s
        step = self._step_of(local_s)
        found = self._month_step(step)
        return found if found <= local_s else self._month_step(step - 1)

    def _step_of(self, local_s: int) -> int:
        """The newest step that begins in the month of a local second, or before."""
        day = date.fromordinal(local_s // _DAY_S + EPOCH_ORDINAL)
        return (12 * day.year + day.month - 1 - self._month) // self._months

    def _month_step(self, step: int) -> int:
        year, month = divmod(self._month + step * self._months, 12)
        number = min(self._day, month_length(year, month + 1))
        day = date(year, month + 1, number).toordinal() - EPOCH_ORDINAL
        return day * _DAY_S + self._time


class _Exact:
    """Steps on absolute time."""

    __slots__ = ("_anchor", "_step")

    def __init__(self, anchor: int, step_ms: int) -> None:
        self._anchor = anchor
        self._step = step_ms

    def next_after(self, t: int) -> int | None:
        if t < self._anchor:
            return self._anchor
        slot = t - (t - self._anchor) % self._step + self._step
        return slot if slot <= LAST else None

    def last_until(self, t: int) -> int | None:
        if t < self._anchor:
            return None
        t = min(t, LAST)
        return t - (t - self._anchor) % self._step


class Ended:
    """A plan of the local clock that ends with the year 2499."""

    __slots__ = ("_inner",)

    def __init__(self, inner: walk.LocalPlan) -> None:
        self._inner = inner

    def next_after(self, t: int) -> int | None:
        """The first slot after `t` and before the end."""
        slot = self._inner.next_after(t) if t < END_MS else None
        return slot if slot is not None and slot < END_MS else None

    def last_until(self, t: int) -> int | None:
        """The newest slot at or before `t` and before the end."""
        return self._inner.last_until(min(t, END_MS - 1))


def every_plan(spec: Every) -> _Exact | Ended:
    """Compile an interval."""
    if spec.step_ms:
        return _Exact(spec.anchor, spec.step_ms)
    return Ended(walk.LocalPlan(_steps(spec), zone.load(spec.zone), *_rules(spec)))


def _steps(spec: Every) -> Steps:
    anchor_s = spec.anchor // 1000
    local_s = anchor_s + zone.load(spec.zone).offset_s(anchor_s)
    return Steps(local_s, spec.days, spec.months)


def _rules(spec: Every) -> tuple[str, str]:
    """The rules for gaps and folds that are in force."""
    return spec.gap or "next", spec.fold or "first"


def said_of_every(spec: Every, at: int) -> tuple[str, ...]:
    """What a person may not expect of an interval; `at` is now, in ms."""
    clock = zone.load(spec.zone)
    anchor_s = spec.anchor // 1000
    said = []
    if spec.step_ms:
        now = clock.index(min(at // 1000, zone.CYCLE_END_S - 1))
        if spec.step_ms % (_DAY_S * 1000) == 0 and now + 1 < len(clock.starts):
            days = spec.step_ms // (_DAY_S * 1000)
            said.append(
                f"{spec.typed} is absolute time: its local time moves when the clock of "
                f"{spec.zone} changes; P{days}D keeps it"
            )
        return tuple(said)
    day = date.fromordinal((anchor_s + clock.offset_s(anchor_s)) // _DAY_S + EPOCH_ORDINAL).day
    if spec.months and day > 28:  # noqa: PLR2004 - days of the shortest month
        said.append(f"a month without day {day} runs on its last day")
    minutes = re.fullmatch(r"P([0-9]+)M", spec.typed)
    if minutes and spec.months % 12 and spec.months > 12:  # noqa: PLR2004 - months of a year
        said.append(f"{spec.typed} is {spec.months} months; for minutes write PT{minutes[1]}M")
    follows = False
    said += jumps.sentences(_steps(spec), clock, _rules(spec), at // 1000, follows)
    return tuple(said)
