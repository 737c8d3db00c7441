"""Sentences about the clock changes ahead: which slots of a schedule they move, drop or repeat."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from domain.schedule.fields import MONTHS
from domain.schedule.walk import CORRECTION_S, LocalCalendar
from domain.schedule.zone import Zone

_AHEAD_S: Final = 400 * 86_400  # each kind of clock change occurs once in this time
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - local time, which has no zone of its own


def year_of(local_s: int) -> int:
    """Return the year of a local second."""
    return (_EPOCH + timedelta(seconds=local_s)).year


def ahead(zone: Zone, at_s: int) -> list[int]:
    """Return the stretches of the zone that begin in the next 400 days."""
    found = range(zone.index(at_s) + 1, len(zone.starts))
    return [index for index in found if zone.starts[index] <= at_s + _AHEAD_S]


def sentences(
    calendar: LocalCalendar,
    zone: Zone,
    rules: tuple[str, str],
    at_s: int,
    follows: bool,  # noqa: FBT001 - what the calendar is like
) -> Iterator[str]:
    """Say what the next clock change of each kind does, `rules` being (gap, fold) in force.

    `follows`: the schedule runs in every hour, so nobody expects another number of runs in a day
    of 23 or 25 hours.
    """
    seen = set()
    for index in ahead(zone, at_s):
        forward = zone.offsets[index] > zone.offsets[index - 1]
        said = (
            _gap(calendar, zone, index, rules[0], follows=follows)
            if forward
            else _fold(calendar, zone, index, rules[1], follows=follows)
        )
        if said is not None and forward not in seen:
            seen.add(forward)
            yield said


def _gap(calendar: LocalCalendar, zone: Zone, index: int, gap: str, *, follows: bool) -> str | None:
    before, after, start = zone.offsets[index - 1], zone.offsets[index], zone.starts[index]
    lost = calendar.first_from(start + before)
    if lost >= start + after:
        return None
    if gap == "next" and after - before <= CORRECTION_S:
        return (
            f"runs at {_time(start + after)} on {_date(start + after)} since {_time(lost)} "
            f"does not exist in {zone.name}"
        )
    if follows:
        return None
    return f"no run at {_time(lost)} on {_date(lost)}, which does not exist in {zone.name}"


def _fold(
    calendar: LocalCalendar, zone: Zone, index: int, fold: str, *, follows: bool
) -> str | None:
    before, after, start = zone.offsets[index - 1], zone.offsets[index], zone.starts[index]
    twice = calendar.first_from(start + after)
    if twice >= start + before or (fold == "both" and follows):
        return None
    how = "both times" if fold == "both" else f"the {fold} time only"
    return f"{_time(twice)} on {_date(twice)} occurs twice in {zone.name}: this runs {how}"


def _time(local_s: int) -> str:
    form = "%H:%M:%S" if local_s % 60 else "%H:%M"
    return (_EPOCH + timedelta(seconds=local_s)).strftime(form)


def _date(local_s: int) -> str:
    day = _EPOCH + timedelta(seconds=local_s)
    return f"{day.day} {MONTHS[day.month - 1]} {day.year}"
