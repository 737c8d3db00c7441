"""A calendar as JSON, read into what it excludes, with every refusal named by its pointer."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any, Final

import msgspec

from commandside.definitions.given import with_values
from domain.instant import EPOCH_ORDINAL
from domain.problem import Reason, invalid
from domain.refusal import Refused, token
from domain.schedule.clock import refuse_clock
from domain.schedule.exclusion import END_S, WEEK_S, Exclusion, packed, pairs_of
from domain.schedule.once import read_instant

NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
NAME_SAYS: Final = "1 to 64 letters, digits, '.', '_', '-', such as holidays"
EXCLUDE_MAX: Final = 16
"""Calendars of one job."""
RANGES_MAX: Final = 1_000
"""Stretches of one calendar, as merged."""
GIVEN_MAX: Final = 10_000
"""Entries of one list that are looked at."""
WEEKLY_MAX: Final = 100
ICS_CHARACTERS_MAX: Final = 512 * 1024
FIELDS: Final = ("dates", "ranges", "weekly", "timezone", "ics")
DAY_S: Final = 86_400
DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_LONG: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_LOCAL: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([01][0-9]|2[0-4]):([0-5][0-9])(?::([0-5][0-9]))?"
)
_WEEKLY: Final = re.compile(r"([A-Za-z]{3,9})[ T]+([01][0-9]|2[0-4]):([0-5][0-9])")
_DATE_SAYS: Final = "a date from 1970 to 2099 such as 2026-12-25"
_TIME_SAYS: Final = (
    "a date, a local time such as 2026-12-24T12:00, or an instant such as 2026-12-24T11:00:00Z"
)
_WEEKLY_SAYS: Final = "a day and a time of the week such as sat 00:00"


class Content(msgspec.Struct, frozen=True):
    """What a file or a body excludes. `until`: where recurring events were cut (ms), or 0."""

    ranges: tuple[tuple[int, int], ...] = ()
    instants: tuple[tuple[int, int], ...] = ()
    weekly: tuple[tuple[int, int], ...] = ()
    zone: str = ""
    until: int = 0


IcsReader = Callable[[str, str, int], Content | tuple[Refused, ...]]
"""(text, zone or "", now in ms) → what an iCalendar file excludes, or what is wrong with it."""


def read_calendar(
    name: str, body: Mapping[str, Any], ics: IcsReader, at: int
) -> tuple[Exclusion, int]:
    """Return the content of a calendar, and until when its recurring events are worked out.

    Raises Problem.
    """
    reader = _Reader(body)
    reader.strangers()
    zone = reader.zone()
    reader.dates()
    reader.ranges()
    reader.weekly()
    until = 0
    if "ics" in body and not reader.wrong:
        zone, until = reader.file(ics, zone, at)
    if reader.wrong:
        raise invalid(with_values(reader.wrong, body))
    exclusion = Exclusion(
        name, 0, zone, packed(reader.local), packed(reader.instants), packed(reader.week)
    )
    stretches = (len(exclusion.ranges) + len(exclusion.instants)) // 8
    if stretches > RANGES_MAX:
        pointer = "/ics" if "ics" in body else "/ranges" if "ranges" in body else "/dates"
        detail = f"{stretches} stretches of time; a calendar has at most {RANGES_MAX}"
        raise invalid((Refused(pointer, f"{detail}: use weekly for what comes every week"),))
    if pairs_of(exclusion.weekly) == ((0, WEEK_S),):
        raise invalid((Refused("/weekly", "covers the whole week: no job would ever run"),))
    return exclusion, until


def local_s(day: str, hour: int = 0, minute: int = 0, second: int = 0) -> int:
    """Return seconds of the local clock since 1970; ValueError for a date that there is not."""
    found = _DATE.fullmatch(day)
    if found is None:
        raise ValueError(_DATE_SAYS)
    try:
        days = date(int(found[1]), int(found[2]), int(found[3])).toordinal() - EPOCH_ORDINAL
    except ValueError:
        raise ValueError(f"there is no {day}: {_DATE_SAYS}") from None
    return in_bounds(days * DAY_S + hour * 3600 + minute * 60 + second)


def in_bounds(seconds: int) -> int:
    """Return `seconds` since 1970; ValueError beyond what calendars hold."""
    if not 0 <= seconds <= END_S:
        raise ValueError("calendars hold the years 1970 to 2099")
    return seconds


class _Reader:
    """Reads one body, collecting every refusal."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.body = body
        self.wrong: list[Reason] = []
        self.local: list[tuple[int, int]] = []
        self.instants: list[tuple[int, int]] = []
        self.week: list[tuple[int, int]] = []

    def refuse(self, pointer: str, detail: str) -> None:
        self.wrong.append(Refused(pointer, detail))

    def strangers(self) -> None:
        for field in self.body:
            if field not in FIELDS:
                known = ", ".join(FIELDS)
                self.refuse(f"/{token(field[:64])}", f"unknown field; one of {known}")
        if not self.wrong and not any(
            field in self.body for field in FIELDS if field != "timezone"
        ):
            self.refuse("", "one of dates, ranges, weekly, ics is required")

    def zone(self) -> str:
        zone = self.body.get("timezone", "")
        if "timezone" not in self.body:
            return ""
        if not isinstance(zone, str):
            self.refuse("/timezone", "a string, such as Europe/Berlin")
            return ""
        refused = refuse_clock(zone, "", "")
        if refused is not None:
            self.wrong.append(refused)
        return zone

    def items(self, field: str, most: int) -> Sequence[Any]:
        given = self.body.get(field, [])
        if isinstance(given, list) and len(given) <= most:
            return given
        self.refuse(f"/{field}", f"a list of at most {most}")
        return []

    def dates(self) -> None:
        for number, day in enumerate(self.items("dates", GIVEN_MAX)):
            try:
                first = local_s(day) if isinstance(day, str) else -1
                if first < 0:
                    raise ValueError(_DATE_SAYS)
                self.local.append((first, in_bounds(first + DAY_S)))
            except ValueError as error:
                self.refuse(f"/dates/{number}", str(error))

    def ranges(self) -> None:
        for number, item in enumerate(self.items("ranges", GIVEN_MAX)):
            pointer = f"/ranges/{number}"
            ends = self.ends(item, pointer)
            if ends is None:
                continue
            found = []
            for name, text in zip(("from", "until"), ends, strict=True):
                try:
                    found.append(_moment(text, last=name == "until"))
                except ValueError as error:
                    self.refuse(f"{pointer}/{name}", str(error))
            if len(found) < len(ends):
                continue
            (first, absolute), (end, other) = found
            if absolute != other:
                self.refuse(f"{pointer}/until", "both local times, or both instants with an offset")
            elif first >= end:
                self.refuse(f"{pointer}/until", "not after from")
            else:
                (self.instants if absolute else self.local).append((first, end))

    def weekly(self) -> None:
        for number, item in enumerate(self.items("weekly", WEEKLY_MAX)):
            pointer = f"/weekly/{number}"
            ends = self.ends(item, pointer)
            if ends is None:
                continue
            found = []
            for name, text in zip(("from", "until"), ends, strict=True):
                try:
                    found.append(_of_week(text))
                except ValueError as error:
                    self.refuse(f"{pointer}/{name}", str(error))
            if len(found) < len(ends):
                continue
            first, end = found[0] % WEEK_S, found[1] % WEEK_S or WEEK_S
            if first == end % WEEK_S:
                self.refuse(f"{pointer}/until", "the same as from: a window is not a whole week")
            elif first < end:
                self.week.append((first, end))
            else:
                self.week += [(first, WEEK_S), (0, end)]

    def ends(self, item: Any, pointer: str) -> tuple[str, str] | None:
        if not isinstance(item, dict):
            self.refuse(pointer, "an object with from and until")
            return None
        for name in item:
            if name not in ("from", "until"):
                self.refuse(f"{pointer}/{token(name[:64])}", "unknown field; from, until")
        first, end = item.get("from"), item.get("until")
        if isinstance(first, str) and isinstance(end, str):
            return first, end
        for name, value in (("from", first), ("until", end)):
            if not isinstance(value, str):
                self.refuse(f"{pointer}/{name}", "a string" if name in item else "required")
        return None

    def file(self, read: IcsReader, zone: str, at: int) -> tuple[str, int]:
        text = self.body["ics"]
        if not isinstance(text, str) or len(text) > ICS_CHARACTERS_MAX:
            detail = f"the text of an iCalendar file of at most {ICS_CHARACTERS_MAX} characters"
            self.refuse("/ics", detail)
            return zone, 0
        found = read(text, zone, at)
        if not isinstance(found, Content):
            self.wrong.extend(found)
            return zone, 0
        self.local += found.ranges
        self.instants += found.instants
        return found.zone or zone, found.until


def _moment(text: str, *, last: bool) -> tuple[int, bool]:
    """Return an end of a range in seconds, and whether it is absolute. A last date is included."""
    if len(text) <= len("2026-12-25"):
        return in_bounds(local_s(text) + (DAY_S if last else 0)), False
    found = _LOCAL.fullmatch(text)
    if found is not None:
        return local_s(found[1], int(found[2]), int(found[3]), int(found[4] or 0)), False
    try:
        instant = read_instant(text)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not {_TIME_SAYS}") from None
    if instant % 1000:
        raise ValueError("calendars go by whole seconds")
    return in_bounds(instant // 1000), True


def _of_week(text: str) -> int:
    found = _WEEKLY.fullmatch(text.strip())
    day = found[1].lower() if found else ""
    if found is None or day not in (*DAYS, *_LONG) or (found[2] == "24" and found[3] != "00"):
        raise ValueError(f"{text[:40]!r} is not {_WEEKLY_SAYS}")
    number = DAYS.index(day[:3])
    return number * DAY_S + int(found[2]) * 3600 + int(found[3]) * 60
