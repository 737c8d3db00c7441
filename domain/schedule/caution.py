"""Sentences about a cron schedule that say what its author may not expect of it."""

from collections.abc import Iterator
from typing import Final

from domain.schedule import jumps
from domain.schedule.fields import FIRST_YEAR, MONTHS, SHORTEST_MONTH, Fields, month_length
from domain.schedule.walk import Calendar, effective
from domain.schedule.zone import Zone

_WEEKDAYS: Final = (
    *("Sunday", "Monday", "Tuesday", "Wednesday"),
    *("Thursday", "Friday", "Saturday"),
)
_FEBRUARY: Final = 2
_ALL_DAYS: Final = 0xFFFFFFFE
_ALL_WEEKDAYS: Final = 0x7F
_ALL_HOURS: Final = (1 << 24) - 1
_ALL_MINUTES: Final = (1 << 60) - 1
_WEEKEND: Final = 0b1000001
_LONGEST_MONTH: Final = 31


def sentences(fields: Fields, zone: Zone, dst: tuple[str, str], at_s: int) -> Iterator[str]:
    """What to say of a schedule, its `dst` being (gap, fold) as asked for, from `at_s` on."""
    yield from _years(fields, at_s)
    yield from _days(fields)
    yield from _steps(fields)
    if jumps.ahead(zone, at_s):
        yield from _full_ranges(fields, dst[1])
    follows = fields.hours == _ALL_HOURS
    yield from jumps.sentences(Calendar(fields), zone, effective(fields, *dst), at_s, follows)


def _days(fields: Fields) -> Iterator[str]:
    asked = fields.asked
    day, weekday = asked.number_text, asked.name_text
    if asked.numbers != _ALL_DAYS and asked.names != _ALL_WEEKDAYS:
        on = weekday
        if asked.names:
            named = [name for bit, name in enumerate(_WEEKDAYS) if asked.names >> bit & 1]
            on = _listed(named, "and")
        if asked.either:
            yield (
                f"the day fields are ORed: this runs on day {day} of the month and on every {on}"
            )
            return
        why = ", as one begins with *" if "*" in day + weekday else ""
        yield f"both day fields must match{why}: day {day} of the month and {on}"
    if asked.names and not asked.names & ~_WEEKEND:
        yield "never on a weekday"
    months = [month for month in range(1, 13) if fields.months >> month & 1]
    without = [MONTHS[month - 1] for month in months if not _has_days(fields, month, leap=True)]
    if without and len(without) < len(months):
        yield f"nothing runs in {_listed(without, 'and')}: there is no day {day}"
    leap = _FEBRUARY in months and not _has_days(fields, _FEBRUARY, leap=False)
    if leap and _has_days(fields, _FEBRUARY, leap=True):
        yield "29 February exists in leap years only"


def _has_days(fields: Fields, month: int, *, leap: bool) -> bool:
    """Whether a month has a day that matches, whatever weekday it begins on."""
    row = month_length(2000 if leap else 2001, month) - SHORTEST_MONTH
    return any(fields.days[7 * row : 7 * row + 7])


def _years(fields: Fields, at_s: int) -> Iterator[str]:
    if fields.years:
        last = FIRST_YEAR + fields.years.bit_length() - 1
        if jumps.year_of(at_s) > last:
            yield f"never runs again: its last year is {last}"
        else:
            yield f"nothing runs after the year {last}"


def _steps(fields: Fields) -> Iterator[str]:
    for text, name, size in (
        (fields.minute_text, "minute", 60),
        (fields.hour_text, "hour", 24),
    ):
        step = _starred(text)
        if size % step:
            last = (size - 1) // step * step
            yield f"{text} in {name} starts again at 0: after {last} come {size - last} {name}s"
    day = fields.asked.number_text
    if (step := _starred(day)) > 1 and fields.asked.numbers != _ALL_DAYS:
        only = ": this is day 1 only" if step == _LONGEST_MONTH else ""
        yield f"{day} in day-of-month starts again at 1 in each month{only}"


def _starred(text: str) -> int:
    """The step of `*/5`, 1 for all else."""
    return int(text[2:]) if text.startswith("*/") and text[2:].isdigit() else 1


def _full_ranges(fields: Fields, fold: str) -> Iterator[str]:
    if fields.wildcard or fold:
        return
    for text, name, full in (
        (fields.minute_text, "minute", fields.minutes == _ALL_MINUTES),
        (fields.hour_text, "hour", fields.hours == _ALL_HOURS),
    ):
        if full:
            yield (
                f"{text} in {name} covers every {name} but does not begin with *: "
                "a local time that repeats runs once; write * to run in both passes"
            )


def _listed(words: list[str], last: str) -> str:
    return f" {last} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
