"""What a calendar excludes: stretches of dates on a local clock, instants, and a weekly pattern.

`Exclusion` is stored in jobs: append fields at the end only. Its contents are packed, since they
are read with the job's state and compared by whoever plans: pairs of unsigned 32-bit numbers, first
and end (not included), sorted and merged. So equal contents are equal bytes.
"""

from bisect import bisect_right
from collections.abc import Iterable
from datetime import date
from functools import lru_cache
from struct import pack, unpack
from typing import Final

import msgspec

from domain.instant import DAY, EPOCH_ORDINAL, SECOND
from domain.schedule import zone

WEEK_S: Final = 7 * 86_400
WEEK: Final = 7 * DAY
END_S: Final = (date(2100, 1, 1).toordinal() - EPOCH_ORDINAL) * 86_400
"""Calendars end with the year 2099, on the local clock and in UTC."""
_MONDAY: Final = 3 * DAY
"""Added to local ms since the epoch, a Thursday, they count from a Monday."""
_KEPT: Final = 1_024

Pairs = tuple[tuple[int, int], ...]


class Exclusion(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One version of a calendar. Without a `zone` it is read on the clock of the schedule.

    `ranges`: seconds of the local clock since 1970. `instants`: seconds since 1970 in UTC.
    `weekly`: seconds of the local week, from Monday 00:00.
    """

    name: str
    version: int
    zone: str = ""
    ranges: bytes = b""
    instants: bytes = b""
    weekly: bytes = b""


def packed(pairs: Iterable[tuple[int, int]]) -> bytes:
    """Return stretches (first, end) in their one form."""
    merged: list[tuple[int, int]] = []
    for first, end in sorted(pairs):
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((first, end))
    flat = [number for pair in merged for number in pair]
    return pack(f">{len(flat)}L", *flat)


def pairs_of(content: bytes) -> Pairs:
    """Return the stretches of a packed content."""
    flat = unpack(f">{len(content) // 4}L", content)
    return tuple(zip(flat[::2], flat[1::2], strict=True))


class Cover:
    """What one calendar covers, in ms of absolute time.

    An answer about a stretch may be cut where the clock of the zone jumps: who asks asks again.
    """

    __slots__ = ("_ends", "_starts", "_week_ends", "_week_starts", "_zone")

    def __init__(self, exclusion: Exclusion, clock: zone.Zone) -> None:
        self._zone = clock
        spans = [(first * SECOND, end * SECOND) for first, end in pairs_of(exclusion.instants)]
        for pair in pairs_of(exclusion.ranges):
            spans += _absolute(clock, *pair)
        spans.sort()
        self._starts: list[int] = []
        self._ends: list[int] = []
        for first, end in spans:
            if self._ends and first <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(first)
                self._ends.append(end)
        weekly = pairs_of(exclusion.weekly)
        self._week_starts = [first * SECOND for first, _ in weekly]
        self._week_ends = [end * SECOND for _, end in weekly]

    def end(self, t: int) -> int:
        """Return an instant up to which (not with) all from `t` on is covered, 0 if `t` is not."""
        i = bisect_right(self._starts, t) - 1
        found = self._ends[i] if i >= 0 and t < self._ends[i] else 0
        if self._week_starts:
            at, _, stop = self._place(t)
            i = bisect_right(self._week_starts, at) - 1
            if i >= 0 and at < self._week_ends[i]:
                found = max(found, min(t + self._week_ends[i] - at, stop))
        return found

    def start(self, t: int) -> int:
        """Return an instant from which on all up to `t`, which is covered, is."""
        i = bisect_right(self._starts, t) - 1
        found = self._starts[i] if i >= 0 and t < self._ends[i] else t
        if self._week_starts:
            at, begun, _ = self._place(t)
            i = bisect_right(self._week_starts, at) - 1
            if i >= 0 and at < self._week_ends[i]:
                found = min(found, max(t - at + self._week_starts[i], begun))
        return found

    def next_from(self, t: int) -> int | None:
        """Return the first instant from `t` on that is covered, or None."""
        i = bisect_right(self._ends, t)
        found = max(self._starts[i], t) if i < len(self._starts) else None
        while self._week_starts and (found is None or t < found):
            if self.end(t):
                return t
            at, _, stop = self._place(t)
            i = bisect_right(self._week_starts, at)
            ahead = self._week_starts[i] if i < len(self._week_starts) else WEEK
            t = min(t + ahead - at, stop)
        return found

    def last_to(self, t: int) -> int | None:
        """Return the last instant up to `t` that is covered, or None."""
        i = bisect_right(self._starts, t) - 1
        found = min(self._ends[i] - 1, t) if i >= 0 else None
        while self._week_starts and (found is None or t > found):
            if self.end(t):
                return t
            at, begun, _ = self._place(t)
            i = bisect_right(self._week_ends, at) - 1
            behind = at - self._week_ends[i] if i >= 0 else at
            t = max(t - behind, begun) - 1
        return found

    def _place(self, t: int) -> tuple[int, int, int]:
        """Return ms of the local week at `t`, and from where to where its offset holds."""
        seconds, moved = t // SECOND, 0
        if seconds >= zone.CYCLE_END_S:
            moved = ((seconds - zone.CYCLE_END_S) // zone.CYCLE_S + 1) * zone.CYCLE_S
        i = self._zone.index(seconds - moved)
        starts = self._zone.starts
        begun = (starts[i] + moved) * SECOND
        end = starts[i + 1] if i + 1 < len(starts) else zone.CYCLE_END_S
        stop = max((end + moved) * SECOND, t + 1)
        return (t + self._zone.offsets[i] * SECOND + _MONDAY) % WEEK, begun, stop


def _absolute(clock: zone.Zone, first_s: int, end_s: int) -> Iterable[tuple[int, int]]:
    """Yield the stretches of absolute time (ms) in which the local clock shows [first, end)."""
    i = clock.index(first_s - 2 * 86_400)
    while i < len(clock.starts):
        begun, offset = clock.starts[i], clock.offsets[i]
        if begun > end_s + 2 * 86_400:
            return
        stop = clock.starts[i + 1] if i + 1 < len(clock.starts) else zone.CYCLE_END_S
        start, end = max(first_s - offset, begun), min(end_s - offset, stop)
        if start < end:
            yield start * SECOND, end * SECOND
        i += 1


@lru_cache(_KEPT)
def cover(exclusion: Exclusion, zone_name: str) -> Cover:
    """Compile a calendar; `zone_name` is that of the schedule, for one that has none."""
    return Cover(exclusion, zone.load(exclusion.zone or zone_name))
