"""Which slots a schedule has (O), worked out without the product's engine.

A walk over the pinned zone data finds where the local clock of a zone jumps; between two jumps the
local minutes of the matching days are looked up one by one. `tests/properties/minute_walk.py` looks
at every minute, and is what this is tested against. What is not here (rules, days and months of
`every`, other dialects, calendars) is unknown, unless the input O says it.
"""

from bisect import bisect_left, bisect_right
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from domain.job.events import JobSpec
from domain.schedule.schedule import Cron, Every, FixedDelay, OneTime, ScheduleSpec, Union
from tests.checker.track import Case, Job
from tests.properties.minute_walk import Expression, zone_info

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
DAY: Final = 1_440
"""In minutes, as all that is called `…_min`."""
CHUNK_MIN: Final = 16 * DAY
MARGIN_MIN: Final = 2 * DAY
CHUNKS_MAX: Final = 400
LAST_CHUNK: Final = (datetime(9000, 1, 1, tzinfo=UTC) - EPOCH).days * DAY // CHUNK_MIN
"""What is longer, or later, is unknown."""
CORRECTION_MIN: Final = 180
"""A jump of more than three hours is a correction: nothing is made up for it."""
MINUTE_MS: Final = 60_000
STEPS_MAX: Final = 2_000_000
"""Slots of one interval schedule that are listed; more is unknown."""

Stretches = tuple[tuple[int, int, int], ...]
"""From minute, to minute (not included), offset of the local clock in minutes."""


def slots(case: Case, job: Job, spec: JobSpec, after: int, until: int) -> list[int] | None:
    """Return the slots of a spec in (after, until], None where nobody can say."""
    if until <= after:
        return []
    for given in case.oracle:
        same = job.specs.get(given.spec_version)
        if same is not None and same == spec and given.since <= after + 1 and until <= given.until:
            listed = given.slots
            return list(listed[bisect_right(listed, after) : bisect_right(listed, until)])
    if spec.exclusions:
        return None
    after = max(after, spec.starts_at - 1)
    until = min(until, spec.ends_at) if spec.ends_at else until
    return of_schedule(spec.schedule, after, until) if until > after else []


def spread(spec: JobSpec) -> int:
    """Return how far a fire may be moved from its slot at most (ms)."""
    return max(spec.jitter_ms, spec.spread_ms, 0)


def of_schedule(schedule: ScheduleSpec, after: int, until: int) -> list[int] | None:
    """Return the slots of a schedule in (after, until], None where they are unknown."""
    match schedule:
        case OneTime(run_at):
            return [run_at] if after < run_at <= until else []
        case Every(step_ms=step, anchor=anchor) if step:
            first = max(0, (after - anchor) // step + 1)
            last = (until - anchor) // step
            if last - first > STEPS_MAX:
                return None
            return [anchor + n * step for n in range(first, last + 1)]
        case Cron():
            return _of_cron(schedule, after, until)
        case Union(parts):
            found: set[int] = set()
            for part in parts:
                some = of_schedule(part, after, until)
                if some is None:
                    return None
                found.update(some)
            return sorted(found)
        case FixedDelay():
            return None
        case _:
            return None


def _of_cron(schedule: Cron, after: int, until: int) -> list[int] | None:
    if schedule.dialect != "vixie" or not _plain(schedule.text):
        return None
    first, last = after // MINUTE_MS // CHUNK_MIN, until // MINUTE_MS // CHUNK_MIN
    if first < 0 or last > LAST_CHUNK or last - first > CHUNKS_MAX:
        return None
    found: list[int] = []
    for chunk in range(first, last + 1):
        some = _chunk(schedule.text, schedule.zone, schedule.gap, schedule.fold, chunk)
        if some is None:
            return None
        if chunk in (first, last):
            some = some[bisect_right(some, after) : bisect_right(some, until)]
        found += some
    return found


def _plain(text: str) -> bool:
    """Tell whether a text is five fields of numbers."""
    return len(text.split()) == 5 and not set(text) - set("0123456789*,-/ ")


@lru_cache(65_536)
def _chunk(text: str, zone: str, gap: str, fold: str, chunk: int) -> list[int] | None:
    """Return the slots of a cron text within one chunk of absolute time."""
    expression = Expression(text)
    gap = gap or ("skip" if expression.wildcard else "next")
    fold = fold or ("both" if expression.wildcard else "first")
    minutes = sorted(h * 60 + m for h in expression.hours for m in expression.minutes)
    stretches = _stretches(zone, chunk)
    if stretches is None:
        return None
    found: set[int] = set()
    before: tuple[int, int, int] | None = None
    for place, (start, end, offset) in enumerate(stretches):
        # Local minutes that are kept of this stretch: a repeated hour belongs to one or both.
        low, high = start + offset, end + offset
        if before is not None:
            jump = offset - before[2]
            if jump < 0 and fold == "first":
                low = min(high, low - jump)
            if gap == "next" and 0 < jump <= CORRECTION_MIN:
                lost = _local(expression, minutes, start + before[2], start + offset)
                if lost:
                    found.add(start)
        if place + 1 < len(stretches):
            ahead = stretches[place + 1][2] - offset
            if ahead < 0 and fold == "last":
                high = max(low, high + ahead)
        found.update(local - offset for local in _local(expression, minutes, low, high))
        before = (start, end, offset)
    begin = chunk * CHUNK_MIN
    return sorted(at * MINUTE_MS for at in found if begin <= at < begin + CHUNK_MIN)


def _local(expression: Expression, minutes: list[int], low: int, high: int) -> list[int]:
    """Return the local minutes in [low, high) that an expression matches."""
    found: list[int] = []
    for day in range(low // DAY, (high - 1) // DAY + 1):
        if low >= high or not expression.matches_day(EPOCH + timedelta(days=day)):
            continue
        begun = day * DAY
        first = bisect_left(minutes, low - begun)
        last = bisect_left(minutes, high - begun)
        found += [begun + minute for minute in minutes[first:last]]
    return found


@lru_cache(4_096)
def _stretches(zone: str, chunk: int) -> Stretches | None:
    """Walk the clock of a zone: where its offset changes, to the minute."""
    start = chunk * CHUNK_MIN - MARGIN_MIN
    end = (chunk + 1) * CHUNK_MIN + MARGIN_MIN
    info = zone_info(zone)
    found: list[tuple[int, int, int]] = []

    def offset_at(minute: int) -> float:
        local = (EPOCH + timedelta(minutes=minute)).astimezone(info).utcoffset()
        assert local is not None
        return local.total_seconds() / 60

    begun, now = start, offset_at(start)
    for hour in range(start + 60, end + 60, 60):
        if offset_at(hour) == now:
            continue
        # One jump in an hour, to the minute.
        for minute in range(hour - 59, hour + 1):
            offset = offset_at(minute)
            if offset != now:
                found.append((begun, minute, int(now)))
                begun, now = minute, offset
    found.append((begun, end, int(now)))
    if any(offset_at(first) != offset for first, _, offset in found):
        return None
    return tuple(found)
