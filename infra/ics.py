"""iCalendar files (RFC 5545) as calendars of tenants: every event is time without work.

The library `icalendar` reads the file; recurring events are worked out by our own reader of rules,
which is bounded in work. Dates and local times without a zone stay local, and so do those in the
calendar's own zone; all others become instants, by the pinned zone data.
"""

from collections.abc import Iterator
from datetime import MAXYEAR, UTC, date, datetime, timedelta
from typing import Any, Final

import icalendar
from icalendar.error import BrokenCalendarProperty
from icalendar.timezone.windows_to_olson import WINDOWS_TO_OLSON

from commandside.definitions.calendar_body import DAY_S, Content, in_bounds
from domain.refusal import Refused
from domain.schedule import zone
from domain.schedule.rrule import parse_rrule
from domain.schedule.schedule import ScheduleBreach, plan

EVENTS_MAX: Final = 2_000
YEARS_AHEAD: Final = 5
"""Recurring events are worked out to the end of the year so many years ahead."""
OCCURRENCES_MAX: Final = 10_000
_UNREADABLE: Final = (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError)
"""What the library raises over a property that is broken when it is asked for its value."""
_LONG_S: Final = 400 * DAY_S

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - local time, which has no zone of its own


class _Wrong(Exception):
    """What is wrong with a file, in a sentence."""


class _Time:
    """A DTSTART, DTEND or the like: seconds of its own clock, and which clock that is."""

    __slots__ = ("clock", "is_date", "seconds")

    def __init__(self, value: date | datetime, tzid: str) -> None:
        self.is_date = not isinstance(value, datetime)
        whole = value if isinstance(value, datetime) else datetime(*value.timetuple()[:3])  # noqa: DTZ001 - as above
        utc = isinstance(value, datetime) and value.tzinfo is not None and not tzid
        if utc:
            whole = whole.astimezone(UTC)
        self.seconds = int((whole.replace(tzinfo=None) - _EPOCH).total_seconds())
        self.clock = "UTC" if utc else tzid


def read_ics(text: str, zone_name: str, at: int) -> Content | tuple[Refused, ...]:
    """Return what a file excludes, or what is wrong with it. `zone_name`: the calendar's, or ""."""
    try:
        return _File(text, zone_name, at).content()
    except _Wrong as wrong:
        return (Refused("/ics", str(wrong)),)
    except _UNREADABLE as error:
        return (Refused("/ics", f"it cannot be read: {str(error)[:200]}"),)


class _File:
    """One file while it is read."""

    def __init__(self, text: str, zone_name: str, at: int) -> None:
        try:
            calendar = icalendar.Calendar.from_ical(text)
        except _UNREADABLE as error:
            raise _Wrong(f"not an iCalendar file: {str(error)[:200]}") from error
        if calendar.name != "VCALENDAR":
            raise _Wrong("not an iCalendar file: it begins with BEGIN:VCALENDAR")
        self.events = [event for event in calendar.walk("VEVENT") if _counts(event)]
        if len(self.events) > EVENTS_MAX:
            raise _Wrong(f"{len(self.events)} events; a calendar has at most {EVENTS_MAX}")
        self.zone = zone_name or self._own_zone(calendar)
        year = datetime.fromtimestamp(at / 1000, UTC).year
        self.first_s = _seconds(year - 1)
        self.end_s = _seconds(year + YEARS_AHEAD + 1)
        self.cut = False
        self.ranges: list[tuple[int, int]] = []
        self.instants: list[tuple[int, int]] = []

    def content(self) -> Content:
        overridden = _overridden(self.events)
        left = OCCURRENCES_MAX
        for number, event in enumerate(self.events):
            named = f"event {number + 1} ({str(event.get('SUMMARY', 'no SUMMARY'))[:40]})"
            try:
                for start, end, clock in self._occurrences(event, overridden):
                    left -= 1
                    if left < 0:
                        raise _Wrong(f"more than {OCCURRENCES_MAX} occurrences: use weekly")
                    self._add(start, end, clock)
            except _UNREADABLE as error:
                # The library's words about a value that it could not read are in the cause.
                said = error.__cause__ if isinstance(error, BrokenCalendarProperty) else error
                raise _Wrong(f"{named}: {said}") from error
            except _Wrong as wrong:
                raise _Wrong(f"{named}: {wrong}") from wrong
        until = self.end_s * 1000 if self.cut else 0
        return Content(tuple(self.ranges), tuple(self.instants), (), self.zone, until)

    def _own_zone(self, calendar: Any) -> str:
        """The file's own zone: what it says, or the only one that its events are in."""
        said = str(calendar.get("X-WR-TIMEZONE", ""))
        if said:
            return _zone(said)
        named = {_zone(tzid) for event in self.events if (tzid := _tzid(event.get("DTSTART")))}
        return named.pop() if len(named) == 1 else ""

    def _add(self, start: int, end: int, clock: str) -> None:
        in_bounds(start)
        in_bounds(end)
        if not clock or clock == self.zone:
            self.ranges.append((start, end))
        else:
            self.instants.append((_instant_s(clock, start), _instant_s(clock, end)))

    def _occurrences(
        self, event: Any, overridden: dict[str, set[int]]
    ) -> Iterator[tuple[int, int, str]]:
        """Yield start, end and clock of each occurrence of an event."""
        start = _time(event, "DTSTART")
        if start is None:
            raise _Wrong("DTSTART is missing")
        length = _length(event, start)
        if not 0 < length <= _LONG_S:
            raise _Wrong("it ends before it begins, or is longer than 400 days")
        gone = {time.seconds for time in _times(event, "EXDATE")}
        if "RECURRENCE-ID" not in event:
            gone |= overridden.get(str(event.get("UID", "")), set())
        starts = {start.seconds, *(time.seconds for time in _times(event, "RDATE"))}
        if "RRULE" in event:
            starts |= set(self._by_rule(event, start, length))
        for one in sorted(starts - gone):
            yield one, one + length, start.clock

    def _by_rule(self, event: Any, start: _Time, length: int) -> Iterator[int]:
        """Yield the starts that a rule says, on the event's own clock, up to the horizon."""
        rules = event["RRULE"]
        if isinstance(rules, list):
            raise _Wrong("it has several RRULEs: make it several events")
        text = _rule_text(rules, start)
        if start.seconds < 0:
            raise _Wrong("a recurring event begins in 1970 or later")
        anchor = f"{(_EPOCH + timedelta(seconds=start.seconds)).isoformat()}Z"
        # Read on a clock that never jumps: what it answers are local times.
        found = parse_rrule(text, anchor, "UTC")
        if isinstance(found, Refused):
            raise _Wrong(f"RRULE: {found.detail}")
        try:
            yield from self._walk(found, max(start.seconds, self.first_s - length))
        except ScheduleBreach as breach:
            raise _Wrong(f"RRULE: {breach}") from breach

    def _walk(self, rule: Any, first_s: int) -> Iterator[int]:
        slots = plan(rule)
        slot = slots.next_after(first_s * 1000 - 1)
        for _ in range(OCCURRENCES_MAX):
            if slot is None:
                return
            if slot >= self.end_s * 1000:
                self.cut = True
                return
            yield slot // 1000
            slot = slots.next_after(slot)
        raise _Wrong(f"RRULE: more than {OCCURRENCES_MAX} occurrences: use weekly")


def _counts(event: Any) -> bool:
    return str(event.get("STATUS", "")).upper() != "CANCELLED" or "RECURRENCE-ID" in event


def _overridden(events: list[Any]) -> dict[str, set[int]]:
    """Return by UID the occurrences that have an event of their own, and drop cancelled ones."""
    found: dict[str, set[int]] = {}
    for event in list(events):
        moved = _time(event, "RECURRENCE-ID")
        if moved is None:
            continue
        if str(event["RECURRENCE-ID"].params.get("RANGE", "")):
            raise _Wrong("RECURRENCE-ID with RANGE: end the event, and make another one")
        found.setdefault(str(event.get("UID", "")), set()).add(moved.seconds)
        if str(event.get("STATUS", "")).upper() == "CANCELLED":
            events.remove(event)
    return found


def _rule_text(rule: Any, start: _Time) -> str:
    """Return a rule whose UNTIL is on the event's own clock, as if that were UTC."""
    parts = {name: value for name, value in rule.items() if name != "UNTIL"}
    text = str(type(rule)(parts).to_ical().decode())
    until = rule.get("UNTIL")
    if not until:
        return text
    value = until[0] if isinstance(until, list) else until
    if value.year == MAXYEAR:
        return text  # how some programs write that it never ends
    if not isinstance(value, datetime):
        last = _EPOCH + timedelta(days=value.toordinal() - _EPOCH.toordinal(), seconds=DAY_S - 1)
    elif value.tzinfo is None or not start.clock:
        last = value.replace(tzinfo=None)
    else:
        seconds = int(value.timestamp())
        last = _EPOCH + timedelta(seconds=seconds + zone.load(start.clock).offset_s(seconds))
    return f"{text};UNTIL={last:%Y%m%dT%H%M%SZ}"


def _length(event: Any, start: _Time) -> int:
    if "DTEND" in event:
        end = _time(event, "DTEND")
        assert end is not None
        if end.is_date != start.is_date:
            raise _Wrong("DTSTART and DTEND are a date and a time")
        if end.clock == start.clock:
            seconds = end.seconds - start.seconds
        elif start.clock and end.clock:
            seconds = _instant_s(end.clock, end.seconds) - _instant_s(start.clock, start.seconds)
        else:
            raise _Wrong("one of DTSTART and DTEND has a zone")
        # A moment counts as its second: a fire at that instant is excluded.
        return 1 if seconds == 0 and not start.is_date else seconds
    if isinstance(event.get("DURATION"), list):
        raise _Wrong("DURATION is given twice")
    if "DURATION" in event:
        return int(event["DURATION"].dt.total_seconds())
    return DAY_S if start.is_date else 1


def _time(event: Any, name: str) -> _Time | None:
    value = event.get(name)
    if value is None:
        return None
    if isinstance(value, list):
        raise _Wrong(f"{name} is given twice")
    if not isinstance(value.dt, date):
        raise _Wrong(f"{name} is a date or a time")
    tzid = _tzid(value)
    return _Time(value.dt, _zone(tzid) if tzid else "")


def _times(event: Any, name: str) -> Iterator[_Time]:
    """Yield the times of EXDATE and RDATE, which may be lists of lists."""
    value = event.get(name)
    for part in value if isinstance(value, list) else [value] if value is not None else []:
        tzid = str(part.params.get("TZID", ""))
        for one in part.dts:
            if not isinstance(one.dt, date):
                raise _Wrong(f"{name} has periods: give dates or times")
            yield _Time(one.dt, _zone(tzid) if tzid else "")


def _tzid(value: Any) -> str:
    return str(value.params.get("TZID", "")) if hasattr(value, "params") else ""


def _zone(tzid: str) -> str:
    """Return the zone that a file means; raises for one that only the file itself describes."""
    plain = tzid.strip().strip('"').removeprefix("/")
    found = plain if plain in zone.NAMES else WINDOWS_TO_OLSON.get(plain, "")
    if found not in zone.NAMES:
        raise _Wrong(f"TZID {tzid[:64]!r} is no IANA time zone: write one such as Europe/Berlin")
    return found


def _instant_s(name: str, local_s: int) -> int:
    """Return the instant (s) of a local time: the first pass of a fold, and after a gap."""
    clock = zone.load(name)
    first = clock.index(local_s - 2 * DAY_S)
    last = clock.index(local_s + 2 * DAY_S)
    for i in range(first, last + 1):
        instant = local_s - clock.offsets[i]
        stop = clock.starts[i + 1] if i + 1 < len(clock.starts) else zone.CYCLE_END_S
        if max(clock.starts[i], 0) <= instant < stop:
            return instant
        if i < last and instant >= stop and local_s < stop + clock.offsets[i + 1]:
            # In a gap: as if the clock had not jumped (RFC 5545 §3.3.5).
            return instant
    return max(0, local_s - clock.offset_s(local_s))


def _seconds(year: int) -> int:
    return int((datetime(year, 1, 1, tzinfo=UTC)).timestamp())
