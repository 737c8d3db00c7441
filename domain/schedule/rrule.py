"""`rrule`: a recurrence rule of RFC 5545, as calendars write it, from an anchor on (DTSTART).

A strict parser, bounded in length and in work; `python-dateutil` reads every accepted text as a
second opinion. The dates are worked out in `domain.schedule.recurrence`. What the RFC leaves open,
or programs read differently, is refused with what would be clear. The rule is read on the local
clock; clock changes follow the rule of all schedules here (`domain.schedule.walk`), rules by the
hour or minute that of a `*`.
"""

import re
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

from dateutil.rrule import rrulestr

from domain.refusal import Refused
from domain.schedule import jumps, walk, zone
from domain.schedule import recurrence as r
from domain.schedule.clock import FINER, refuse_clock
from domain.schedule.every import END_MS, Ended, read_anchor
from domain.schedule.fields import Wrong
from domain.schedule.once import read_instant
from domain.schedule.plan import Plan
from domain.schedule.spec import RRule
from domain.schedule.window import Window

RRULE_LIMIT: Final = 256
"""Characters of a rule, as typed."""
COUNT_MAX: Final = 366
"""Counted out when a rule is compiled; `max_runs` and `ends_at` have no such bound."""
INTERVAL_MAX: Final = 1_000

_FREQS: Final = ("YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY")
_WEEKDAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_PARTS: Final = frozenset(
    {
        *("FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYMONTH", "BYMONTHDAY", "BYYEARDAY"),
        *("BYWEEKNO", "BYDAY", "BYHOUR", "BYMINUTE", "BYSECOND", "BYSETPOS"),
    }
)
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,3}")
_WHOLE: Final = re.compile(r"[0-9]{1,9}")
_NTH: Final = re.compile(r"([+-]?[0-9]{1,2})?([A-Z]{2})")
_UNTIL: Final = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})T([0-9]{2})([0-9]{2})([0-9]{2})Z")
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - local time, which has no zone of its own
_EVERY_HOUR: Final = (1 << 24) - 1
_EVERY_MINUTE: Final = (1 << 60) - 1
_WORST: Final = "more exactly: this is too rare to be planned"
_PARSED: Final = 4_096
_KEPT: Final = 256
"""Compiled rules kept, for as long as one request needs them; a plan keeps its own."""


class _Parsed:
    """A rule's parts, and what of its text is not part of its dates."""

    def __init__(self, parts: dict[str, str]) -> None:
        self.parts = parts
        freq = parts.get("FREQ", "")
        if freq == "SECONDLY":
            raise Wrong('FREQ=SECONDLY: for steps of seconds use {"every": "PT30S"}')
        if freq not in _FREQS:
            raise Wrong(f"FREQ is one of {', '.join(_FREQS)}")
        self.freq = _FREQS.index(freq)
        self.count = self.number("COUNT", 0, COUNT_MAX)
        self.until = _until(parts["UNTIL"]) if "UNTIL" in parts else 0
        if self.count and self.until:
            raise Wrong("COUNT and UNTIL exclude each other")
        most = {r.HOURLY: 24, r.MINUTELY: 1440}.get(self.freq, INTERVAL_MAX)
        self.interval = self.number("INTERVAL", 1, most)

    def number(self, name: str, default: int, high: int) -> int:
        """Return a number from 1 to `high`."""
        if name not in self.parts:
            return default
        text = self.parts[name]
        if not _WHOLE.fullmatch(text) or not 1 <= int(text) <= high:
            raise Wrong(f"{name} is a whole number from 1 to {high}")
        return int(text)

    def numbers(self, name: str, low: int, high: int) -> tuple[int, ...]:
        """Return a list of numbers; with `low` 1 they may count from the end, as negatives."""
        if name not in self.parts:
            return ()
        found = []
        for text in self.parts[name].split(","):
            number = int(text) if _NUMBER.fullmatch(text) else -1000
            if not low <= abs(number) <= high or (low == 0 and number < 0):
                signed = f", or -{high} to -1 from the end" if low else ""
                raise Wrong(f"{name} has numbers from {low} to {high}{signed}, not {text!r}")
            found.append(number)
        return tuple(sorted(set(found)))


def parse_rrule(  # noqa: PLR0913 - each is a field of the define body
    rrule: str,
    anchor: str | None,
    timezone: str,
    *,
    gap: str = "",
    fold: str = "",
    min_interval_s: int = 60,
) -> RRule | Refused:
    """Read a rule and its anchor (RFC 3339; None: 2001-01-01 00:00 in the zone).

    `gap`, `fold` and `min_interval_s` as for cron.
    """
    refused = refuse_clock(timezone, gap, fold)
    if refused is not None:
        return refused
    start = read_anchor(anchor, timezone, whole_s=True)
    if isinstance(start, Refused):
        return start
    try:
        parsed = _parse(rrule)
        if parsed.count and anchor is None:
            return Refused("/anchor", "required: COUNT counts from it")
        spec = RRule(_canonical(parsed.parts), rrule, start, timezone, gap, fold)
        rule = _rule(parsed, _local_s(spec))
        shortest_s = _shortest_s(rule)
        if shortest_s < min_interval_s:
            raise Wrong(
                f"fires {shortest_s} s apart; at least {min_interval_s} s are allowed: {FINER}"
            )
        _ask_dateutil(parsed, spec)
        if rrule_plan(spec).next_after(start - 1) is None:
            raise Wrong("never matches: there is no such date from the anchor on")
    except Wrong as wrong:
        return Refused("/rrule", str(wrong))
    except r.TooRare as rare:
        return Refused("/rrule", f"{rare} from the anchor on: name the dates {_WORST}")
    return spec


@lru_cache(_PARSED)
def _parse(text: str) -> _Parsed:
    if len(text) > RRULE_LIMIT:
        raise Wrong(f"{len(text)} characters; a rule has at most {RRULE_LIMIT}")
    if not text.isascii() or not text.isprintable():
        raise Wrong("one line of plain ASCII text, such as FREQ=MONTHLY;BYDAY=-1FR")
    body = text.strip().upper().removeprefix("RRULE:")
    parts: dict[str, str] = {}
    for part in body.split(";"):
        name, equals, value = part.partition("=")
        if name.startswith(("DTSTART", "EXDATE", "RDATE", "EXRULE")):
            raise Wrong(f"{name[:8]!r} is no part of a rule: the start is `anchor`")
        if name not in _PARTS or not equals or not value:
            raise Wrong(
                f"{part[:40]!r} is not understood: give parts such as FREQ=WEEKLY;BYDAY=MO,WE"
            )
        if name in parts:
            raise Wrong(f"{name} is given twice")
        parts[name] = value
    return _Parsed(parts)


def _canonical(parts: dict[str, str]) -> str:
    names = ["FREQ", *sorted(name for name in parts if name != "FREQ")]
    return ";".join(f"{name}={parts[name]}" for name in names)


def _until(text: str) -> int:
    found = _UNTIL.fullmatch(text)
    if found is None:
        raise Wrong("UNTIL is an instant in UTC, such as 20271231T235959Z")
    year, month, day, hour, minute, second = found.groups()
    try:
        return read_instant(f"{year}-{month}-{day}T{hour}:{minute}:{second}Z")
    except ValueError as error:
        raise Wrong(f"UNTIL={text}: there is no such instant") from error


def _rule(parsed: _Parsed, anchor_local_s: int) -> r.Rule:
    """Fill in from the anchor what the text leaves to it."""
    freq, parts = parsed.freq, parsed.parts
    _refuse_mixes(parsed)
    start = _EPOCH + timedelta(seconds=anchor_local_s)
    months = sum(1 << month for month in _plain(parsed, "BYMONTH", 12))
    month_days = parsed.numbers("BYMONTHDAY", 1, 31)
    year_days = parsed.numbers("BYYEARDAY", 1, 366)
    weeks = parsed.numbers("BYWEEKNO", 1, 53)
    weekdays, nth = _by_day(parsed)
    if not (month_days or year_days or weeks or weekdays or nth):
        if freq == r.YEARLY and not months:
            months = 1 << start.month
        if freq in (r.YEARLY, r.MONTHLY):
            month_days = (start.day,)
        elif freq == r.WEEKLY:
            weekdays = 1 << start.weekday()
    seconds = parsed.numbers("BYSECOND", 0, 59) or (start.second,)
    if len(seconds) > 1:
        raise Wrong("BYSECOND has one number: fires are at least a minute apart")
    hours, minutes = parsed.numbers("BYHOUR", 0, 23), parsed.numbers("BYMINUTE", 0, 59)
    every_hour = _EVERY_HOUR if freq >= r.HOURLY else 1 << start.hour
    every_minute = _EVERY_MINUTE if freq >= r.MINUTELY else 1 << start.minute
    return r.Rule(
        freq,
        parsed.interval,
        months,
        month_days,
        year_days,
        weeks,
        weekdays,
        nth,
        sum(1 << hour for hour in hours) or every_hour,
        sum(1 << minute for minute in minutes) or every_minute,
        seconds[0],
        parsed.numbers("BYSETPOS", 1, 366),
        _weekday(parts.get("WKST", "MO")),
    )


def _plain(parsed: _Parsed, name: str, high: int) -> tuple[int, ...]:
    found = parsed.numbers(name, 1, high)
    if found and found[0] < 0:
        raise Wrong(f"{name} has numbers from 1 to {high}")
    return found


def _refuse_mixes(parsed: _Parsed) -> None:
    """Refuse what RFC 5545 §3.3.10 forbids, and what it leaves without a meaning."""
    freq, parts = parsed.freq, parsed.parts
    name = _FREQS[freq]
    if "BYWEEKNO" in parts and freq != r.YEARLY:
        raise Wrong("BYWEEKNO goes with FREQ=YEARLY only")
    if "BYYEARDAY" in parts and freq in (r.MONTHLY, r.WEEKLY, r.DAILY):
        raise Wrong(f"BYYEARDAY does not go with FREQ={name}: use FREQ=YEARLY")
    if "BYMONTHDAY" in parts and freq == r.WEEKLY:
        raise Wrong("BYMONTHDAY does not go with FREQ=WEEKLY: use FREQ=DAILY or MONTHLY")
    if "BYSETPOS" not in parts:
        return
    if freq >= r.HOURLY:
        raise Wrong(f"BYSETPOS does not go with FREQ={name}")
    if not any(part.startswith("BY") and part != "BYSETPOS" for part in parts):
        raise Wrong("BYSETPOS chooses among what another BY part names: give one")


def _by_day(parsed: _Parsed) -> tuple[int, tuple[tuple[int, int], ...]]:
    weekdays, nth = 0, []
    for text in parsed.parts["BYDAY"].split(",") if "BYDAY" in parsed.parts else ():
        found = _NTH.fullmatch(text)
        if found is None or found[2] not in _WEEKDAYS:
            raise Wrong(f"BYDAY has {', '.join(_WEEKDAYS)}, or such as 2TU or -1FR, not {text!r}")
        weekday = _weekday(found[2])
        if found[1] is None:
            weekdays |= 1 << weekday
            continue
        number = int(found[1])
        by_month = parsed.freq == r.MONTHLY or "BYMONTH" in parsed.parts
        if parsed.freq not in (r.YEARLY, r.MONTHLY) or "BYWEEKNO" in parsed.parts:
            raise Wrong(f"{text} counts weekdays: with FREQ=MONTHLY or YEARLY and no BYWEEKNO only")
        if not 1 <= abs(number) <= (5 if by_month else 53):
            raise Wrong(
                f"{text}: there is no such weekday in any {'month' if by_month else 'year'}"
            )
        nth.append((number, weekday))
    return weekdays, tuple(sorted(set(nth)))


def _weekday(text: str) -> int:
    if text not in _WEEKDAYS:
        raise Wrong(f"{text!r} is not one of {', '.join(_WEEKDAYS)}")
    return _WEEKDAYS.index(text)


def _shortest_s(rule: r.Rule) -> int:
    """The least distance of two fires, at most."""
    if rule.freq == r.MINUTELY:
        return rule.interval * 60
    minutes = list(r.bits(rule.minutes))
    if rule.freq == r.HOURLY:
        places, after = minutes, minutes[0] + 60 * rule.interval
    else:
        hours = r.bits(rule.hours)
        places = [60 * hour + minute for hour in hours for minute in minutes]
        after = places[0] + 1440
    ahead = (*places[1:], after)
    return 60 * min(later - place for place, later in zip(places, ahead, strict=True))


def _ask_dateutil(parsed: _Parsed, spec: RRule) -> None:
    parts = {name: value for name, value in parsed.parts.items() if name != "UNTIL"}
    start = _EPOCH + timedelta(seconds=_local_s(spec))
    try:
        rrulestr(_canonical(parts), dtstart=start)
    except ValueError as error:
        raise Wrong(f"read differently by a second parser, so refused: {error}") from error


def _local_s(spec: RRule) -> int:
    anchor_s = spec.anchor // 1000
    return anchor_s + zone.load(spec.zone).offset_s(anchor_s)


class _Counted:
    """The first dates of a recurrence, up to one of them."""

    __slots__ = ("_inner", "_last")

    def __init__(self, inner: r.Recurrence, count: int) -> None:
        self._inner, self._last = inner, inner.last_of(count)

    def first_from(self, local_s: int) -> int:
        found = self._inner.first_from(local_s) if local_s <= self._last else walk.NONE_AFTER
        return found if found <= self._last else walk.NONE_AFTER

    def last_to(self, local_s: int) -> int:
        return self._inner.last_to(min(local_s, self._last))


def said_of_rrule(spec: RRule, at: int) -> tuple[str, ...]:
    """What a person may not expect of a rule; `at` is now, in ms."""
    parsed = _parse(spec.text)
    rule = _rule(parsed, _local_s(spec))
    said = []
    first = min(rule.month_days, default=0)
    if first > 28:  # noqa: PLR2004 - days of the shortest month
        said.append(
            f"a month without day {first} is left out; BYMONTHDAY=-1 is the last day of each"
        )
    follows = parsed.freq >= r.HOURLY and rule.hours == _EVERY_HOUR
    clock, rules = zone.load(spec.zone), _rules(spec, parsed)
    try:
        said += jumps.sentences(_dates(spec), clock, rules, at // 1000, follows)
    except r.TooRare:
        return tuple(said)  # nothing near enough to be moved
    return tuple(said)


def rrule_plan(spec: RRule) -> Plan:
    """Compile a rule."""
    parsed = _parse(spec.text)
    clock, rules = zone.load(spec.zone), _rules(spec, parsed)
    found = Ended(walk.LocalPlan(_dates(spec), clock, *rules))
    return Window(found, 0, min(parsed.until or END_MS, END_MS))


@lru_cache(_KEPT)
def _dates(spec: RRule) -> walk.LocalCalendar:
    """Compile the dates of a rule once, for the answer to a definition and for its plan."""
    parsed = _parse(spec.text)
    anchor_local_s = _local_s(spec)
    dates: walk.LocalCalendar = r.Recurrence(_rule(parsed, anchor_local_s), anchor_local_s)
    if parsed.count:
        assert isinstance(dates, r.Recurrence)
        dates = _Counted(dates, parsed.count)
    return dates


def _rules(spec: RRule, parsed: _Parsed) -> tuple[str, str]:
    """The rules for gaps and folds that are in force."""
    follows = parsed.freq >= r.HOURLY
    return spec.gap or ("skip" if follows else "next"), spec.fold or (
        "both" if follows else "first"
    )
