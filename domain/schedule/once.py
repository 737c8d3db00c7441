"""One instant: how it is read from a text, and the plan of a schedule that has no other."""

import re
from datetime import date
from functools import lru_cache
from typing import Final

from domain.instant import EPOCH_ORDINAL, LAST
from domain.refusal import Refused
from domain.schedule.spec import OneTime

PAST_ALLOWED_MS: Final = 60_000
"""A one-time job this far in the past still fires, at once."""

_RFC3339: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])"
    r"(?:\.([0-9]{1,3})0*)?(?:[Zz]|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))"
)
_RFC3339_LIMIT: Final = 40
_DAYS_KEPT: Final = 1_024


def parse_one_time(run_at: str, at: int) -> OneTime | Refused:
    """Read an RFC 3339 instant with its offset; `at` is now, in ms.

    Up to 60 s in the past is accepted (it fires at once); finer than a millisecond is refused,
    never cut.
    """
    try:
        instant = read_instant(run_at)
    except ValueError as error:
        return Refused("/run_at", f"{run_at[:_RFC3339_LIMIT]!r} is not accepted: {error}")
    if instant < at - PAST_ALLOWED_MS:
        return Refused(
            "/run_at", f"{run_at!r} is more than 60 s in the past: give an instant still to come"
        )
    return OneTime(instant)


def read_instant(text: str) -> int:
    """Milliseconds since the epoch; ValueError says what is wrong with the text."""
    found = _RFC3339.fullmatch(text) if len(text) <= _RFC3339_LIMIT else None
    if found is None:
        raise ValueError(
            "give RFC 3339 with an offset and at most milliseconds, such as 2027-03-01T09:00:00Z"
        )
    day, hour, minute, second, fraction, sign, offset_h, offset_m = found.groups("0")
    offset_s = int(offset_h) * 3600 + int(offset_m) * 60
    offset_s = -offset_s if sign == "-" else offset_s
    local_s = _days(day) * 86_400 + int(hour) * 3600 + int(minute) * 60 + int(second)
    instant = (local_s - offset_s) * 1000 + int(fraction.ljust(3, "0"))
    if instant > LAST:
        raise ValueError("it lies beyond the year 9999 in UTC")
    return instant


@lru_cache(_DAYS_KEPT)
def _days(text: str) -> int:
    """Days since the epoch; ValueError for a date that is in no calendar."""
    return date(int(text[:4]), int(text[5:7]), int(text[8:])).toordinal() - EPOCH_ORDINAL


class OneTimePlan:
    """The one slot of a one-time schedule."""

    __slots__ = ("_run_at",)

    def __init__(self, run_at: int) -> None:
        self._run_at = run_at

    def next_after(self, t: int) -> int | None:
        """The slot, if it is after `t`."""
        return self._run_at if self._run_at > t else None

    def last_until(self, t: int) -> int | None:
        """The slot, if it is at or before `t`."""
        return self._run_at if self._run_at <= t else None
