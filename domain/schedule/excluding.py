"""A schedule without the slots that calendars exclude, and those slots, for their verdict.

Work is bounded by the stretches that are excluded, not by the slots in them: a year without a job
of every second is one step.
"""

from functools import lru_cache
from typing import Final

from domain.schedule.exclusion import Cover, Exclusion, cover
from domain.schedule.plan import COUNT_LIMIT, Forward, Plan
from domain.schedule.schedule import between
from domain.schedule.spec import OneTime, ScheduleSpec, Union

SKIPS_MAX: Final = 2_000
"""Excluded stretches that are stepped over in search of a slot: five years of one a day."""
_TRIES: Final = 4 * COUNT_LIMIT
"""Steps of the search for excluded slots, in one decision and calendar."""
_KEPT: Final = 1_024

Span = tuple[int, int, int | None]
"""First and last slot, and how many there are; None: not counted."""


class NeverRuns(Exception):
    """Nothing but excluded slots was found within the bounds of the search."""


class Excluding:
    """The slots of a plan that no calendar covers."""

    __slots__ = ("_covers", "_inner")

    def __init__(self, inner: Plan, covers: tuple[Cover, ...]) -> None:
        self._inner = inner
        self._covers = covers

    def next_after(self, t: int) -> int | None:
        """The first slot after `t` that is not excluded, or None."""
        for _ in range(SKIPS_MAX):
            slot = self._inner.next_after(t)
            if slot is None:
                return None
            end = max(cover.end(slot) for cover in self._covers)
            if not end:
                return slot
            t = end - 1
        raise NeverRuns(f"{SKIPS_MAX} excluded stretches in a row hold all slots")

    def last_until(self, t: int) -> int | None:
        """The newest slot at or before `t` that is not excluded, or None."""
        for _ in range(SKIPS_MAX):
            slot = self._inner.last_until(t)
            if slot is None:
                return None
            covering = [cover for cover in self._covers if cover.end(slot)]
            if not covering:
                return slot
            t = min(cover.start(slot) for cover in covering) - 1
        raise NeverRuns(f"{SKIPS_MAX} excluded stretches in a row hold all slots")


class _Spent(Exception):
    """The search for excluded slots has taken its steps."""


class _Excluded:
    """The slots of a plan that one calendar covers, and none of those before it."""

    __slots__ = ("_before", "_cover", "_inner", "_left")

    def __init__(self, inner: Plan, covering: Cover, before: tuple[Cover, ...]) -> None:
        self._inner = inner
        self._cover = covering
        self._before = before
        self._left = _TRIES

    def next_after(self, t: int, until: int) -> int | None:
        """The first one in (t, until], or None."""
        while True:
            self._step()
            first = self._cover.next_from(t + 1)
            if first is None or first > until:
                return None
            slot = self._inner.next_after(max(t, first - 1))
            if slot is None or slot > until:
                return None
            if not self._cover.end(slot):
                t = slot
                continue
            other = max((cover.end(slot) for cover in self._before), default=0)
            if not other:
                return slot
            t = other - 1

    def last_until(self, t: int, after: int) -> int | None:
        """The newest one in (after, t], or None."""
        while True:
            self._step()
            last = self._cover.last_to(t)
            if last is None or last <= after:
                return None
            slot = self._inner.last_until(min(t, last))
            if slot is None or slot <= after:
                return None
            if not self._cover.end(slot):
                t = slot - 1
                continue
            others = [cover.start(slot) for cover in self._before if cover.end(slot)]
            if not others:
                return slot
            t = min(others) - 1

    def span(self, after: int, until: int, limit: int) -> Span | None:
        """Those in (after, until], None if there is none.

        Where too many steps would be needed to find the first and the last, the answer is all of
        the stretch, not counted: it holds no excluded slot but those.
        """
        try:
            first = self.next_after(after, until)
            if first is None:
                return None
            last = self.last_until(until, after)
            assert last is not None, "there is one, and it is not after the newest"
        except _Spent:
            return after + 1, until, None
        try:
            slot: int | None = first
            count = 1
            while slot is not None and slot < last:
                if count >= limit:
                    return first, last, None
                slot = self.next_after(slot, last)
                count += 1
        except _Spent:
            return first, last, None
        return first, last, count

    def _step(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise _Spent


def zone_of(schedule: ScheduleSpec) -> str:
    """Return the zone of a schedule, that of the first where there are several."""
    if isinstance(schedule, OneTime):
        return "UTC"
    return schedule.parts[0].zone if isinstance(schedule, Union) else schedule.zone


@lru_cache(_KEPT)
def without(
    schedule: ScheduleSpec, starts_at: int, ends_at: int, exclusions: tuple[Exclusion, ...]
) -> Plan:
    """Compile a schedule within its span, without what the calendars exclude."""
    inner = between(schedule, starts_at, ends_at)
    return Forward(Excluding(inner, _covers(schedule, exclusions)))


def excluded(
    inner: Plan, schedule: ScheduleSpec, exclusions: tuple[Exclusion, ...], after: int, until: int
) -> list[tuple[str, Span]]:
    """Return what each calendar excludes of the slots of `inner` in (after, until].

    A slot that several exclude is the first one's. Counts are exact up to COUNT_LIMIT in all.
    """
    covers = _covers(schedule, exclusions)
    found, left = [], COUNT_LIMIT
    for number, exclusion in enumerate(exclusions):
        one = _Excluded(inner, covers[number], covers[:number])
        span = one.span(after, until, left)
        if span is not None:
            found.append((exclusion.name, span))
            left = max(1, left - (span[2] or left))
    return found


def _covers(schedule: ScheduleSpec, exclusions: tuple[Exclusion, ...]) -> tuple[Cover, ...]:
    name = zone_of(schedule)
    return tuple(cover(exclusion, name) for exclusion in exclusions)
