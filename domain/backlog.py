"""Missed slots that still fire: the one that a run was in the way of, a catch-up, a buffer (§7).

They ride on the chain's open link (`CatchUp`), so that no fire writes its job. What is left of them
is in (start, end]; every other slot up to `cursor`, which is later than the link, has its verdict.

A catch-up is open until a command settles its job: that writes a cursor that is not before its own.
"""

from typing import Final

import msgspec

from domain.instant import SECOND
from domain.job import events as je
from domain.run import events as e
from domain.schedule.schedule import COUNT_LIMIT
from domain.slots import End, Link, Slots, Span, ranges, window_ms, with_passed

CATCH_UP_MAX: Final = 1_000
"""Slots of one catch-up; those after them are a range."""
PACE_MS: Final = 1 * SECOND
"""Missed slots of a job start no closer than this."""
CAP, WINDOW, BUFFER, CLOSED = "cap", "catch_up_window", "buffer", "catch_up"
MAX_RUNS: Final = "max_runs"
"""Causes: beyond the cap; older than the window; the buffer was full; its catch-up was closed;
the job has begun as often as it may."""


class Choice(msgspec.Struct, frozen=True, gc=False):
    """What a lease that comes too late does: the slot that fires (None: none), and the others.

    `rest` are those that fire after it; `cursor` is the newest slot that has its verdict.
    """

    fires: int | None
    passed: tuple[e.Passed, ...]
    rest: e.CatchUp | None
    cursor: int


def is_empty(owed: e.CatchUp | None) -> bool:
    """Tell whether no missed slot is left to fire."""
    return owed is None or owed.start >= owed.end


def closing(slots: Slots, owed: e.CatchUp | None) -> tuple[Span, ...]:
    """Return the verdict of all that is left, when nothing of it is to fire any more."""
    if owed is None or is_empty(owed):
        return ()
    waits = slots.spec.overlap == je.BUFFER_ALL
    verdict, cause = (e.OVERLAP, BUFFER) if waits else (e.MISFIRE, CLOSED)
    return ((owed.start, owed.end, verdict, cause),)


def after_end(
    slots: Slots, cursor: int, times: tuple[int, int], owed: e.CatchUp | None, cause: str = ""
) -> Link | End:
    """Return the link after a run; `times`: its first lease, and its end.

    Slots that passed before the lease are `misfire`: the run itself started late. Those that passed
    while it ran are `overlap`. What the job's policies keep of both fires next.
    """
    first_leased, ended = times
    newest = max(slots.newest_due(ended) or cursor, cursor)
    late = min(max(slots.newest_due(first_leased) or cursor, cursor), newest)
    if slots.spec.overlap == je.BUFFER_ALL and _is_joined(owed):
        return _buffered(slots, (cursor, late, newest), times, owed)
    spans: tuple[Span, ...] = ((cursor, late, e.MISFIRE, cause),)
    steps = COUNT_LIMIT
    if late > cursor and slots.spec.misfire == je.ALL and is_empty(owed):
        owed, spans, steps = opened(slots, cursor, late, ended)
    kept = None
    if newest > late and slots.spec.overlap == je.BUFFER_ONE and is_empty(owed):
        kept = slots.plan.next_after(late)
    spans += ((late if kept is None else kept, newest, e.OVERLAP, ""),)
    gone = ranges(slots.plan, spans, steps)
    if kept is not None:
        return Link(kept, ended, gone, e.CatchUp(0, 0, newest))
    if owed is not None and not is_empty(owed):
        return next_owed(slots, owed, newest, max(ended, first_leased + PACE_MS), gone)
    return with_passed(slots.first_after(newest), gone)


def _is_joined(owed: e.CatchUp | None) -> bool:
    """Tell whether what passes now follows what is left without a slot between that was judged."""
    return owed is None or is_empty(owed) or owed.end == owed.cursor


def _buffered(
    slots: Slots, passing: tuple[int, int, int], times: tuple[int, int], owed: e.CatchUp | None
) -> Link | End:
    """`buffer_all`: all that passed while a run was in the way waits, the newest so many of it."""
    cursor, late, newest = passing
    first_leased, ended = times
    spans: tuple[Span, ...] = ()
    if owed is not None and not is_empty(owed):
        start = owed.start
    elif slots.spec.misfire == je.ALL:
        window = window_ms(slots.spec)
        start = min(max(cursor, ended - window - 1), newest) if window else cursor
        spans = ((cursor, start, e.MISFIRE, WINDOW),)
    else:
        start, spans = late, ((cursor, late, e.MISFIRE, ""),)
    if newest <= start:
        return with_passed(slots.first_after(newest), ranges(slots.plan, spans))
    oldest = _newest_of(slots, start, newest, slots.spec.overlap_limit)
    spans += ((start, oldest, e.OVERLAP, BUFFER),)
    gone = ranges(slots.plan, spans, COUNT_LIMIT - slots.spec.overlap_limit)
    rest = e.CatchUp(oldest, newest, newest)
    return next_owed(slots, rest, newest, max(ended, first_leased + PACE_MS), gone)


def _newest_of(slots: Slots, start: int, end: int, most: int) -> int:
    """Return the instant after which the newest `most` slots of (start, end] lie."""
    oldest = end
    for _ in range(most):
        before = slots.plan.last_until(oldest - 1)
        if before is None or before <= start:
            return start
        oldest = before
    return oldest


def opened(
    slots: Slots, after: int, until: int, at: int, window: int | None = None
) -> tuple[e.CatchUp | None, tuple[Span, ...], int]:
    """Return the catch-up of the slots in (after, until], those left out, and the steps left.

    `window` is the job's where it is not given, 0 for none.
    """
    window = window_ms(slots.spec) if window is None else window
    start = min(max(after, at - window - 1), until) if window else after
    end, count = start, 0
    while count < CATCH_UP_MAX:
        following = slots.plan.next_after(end)
        if following is None or following > until:
            break
        end, count = following, count + 1
    spans = ((after, start, e.MISFIRE, WINDOW), (end, until, e.MISFIRE, CAP))
    return (e.CatchUp(start, end, until) if count else None), spans, COUNT_LIMIT - count


def next_owed(
    slots: Slots, owed: e.CatchUp, cursor: int, due_at: int, gone: tuple[e.Passed, ...]
) -> Link:
    """Return the oldest of the missed slots that still fire, with the rest of them."""
    nominal = slots.plan.next_after(owed.start)
    assert nominal is not None
    assert nominal <= owed.end, "what is left ends with a slot"
    return Link(nominal, due_at, gone, e.CatchUp(nominal, owed.end, cursor))


def after_lease(slots: Slots, cursor: int, at: int, owed: e.CatchUp | None) -> Link | End:
    """Return the link after one that is leased now, where the lease plans it."""
    if owed is None or is_empty(owed):
        return slots.first_after(cursor)
    newest = max(slots.newest_due(at) or cursor, cursor)
    gone = ranges(slots.plan, ((cursor, newest, e.MISFIRE, CLOSED),))
    return next_owed(slots, owed, newest, at + PACE_MS, gone)


def after_skip(
    slots: Slots, cursor: int, times: tuple[int, int], owed: e.CatchUp | None
) -> Link | End:
    """Return the link after one that another run is in the way of: a slot after now."""
    since, at = times
    newest = max(slots.newest_due(at) or cursor, cursor)
    late = min(max(slots.newest_due(since) or cursor, cursor), newest)
    spans = (
        *closing(slots, owed),
        (cursor, late, e.MISFIRE, ""),
        (late, newest, e.OVERLAP, ""),
    )
    return with_passed(slots.first_after(newest), ranges(slots.plan, spans))


def after_expiry(slots: Slots, cursor: int, at: int, owed: e.CatchUp | None) -> Link | End:
    """Return the link after one that is too old to fire: what is left may be too old with it."""
    gone: tuple[e.Passed, ...] = ()
    cause = "max_lateness"
    if owed is not None and not is_empty(owed):
        start = min(max(owed.start, at - slots.spec.max_lateness_ms - 1), owed.end)
        gone = ranges(slots.plan, ((owed.start, start, e.EXPIRED, cause),))
        owed = msgspec.structs.replace(owed, start=start)
    return with_passed(after_end(slots, cursor, (at, at), owed, cause), gone)


def not_planned(slots: Slots, link: Link, at: int) -> End:
    """Return the end in the place of a link, where no other occurrence may begin (`max_runs`).

    What was still to fire gets its verdict, and so does every slot that has passed at `at`.
    """
    owed, judged = link.catch_up, link.nominal - 1
    spans: tuple[Span, ...] = ()
    if owed is not None and link.nominal <= owed.cursor:
        last = max(owed.end, link.nominal)
        spans, judged = ((judged, last, e.MISFIRE, MAX_RUNS),), owed.cursor
    spans += ((judged, at, e.MISFIRE, MAX_RUNS),)
    return End(link.passed + ranges(slots.plan, spans))


class Late(msgspec.Struct, frozen=True, gc=False):
    """A lease that comes too late: of which slot, when, why; and the job's cursor until then.

    `fires` is False where the limit of overlap keeps every slot from firing.
    """

    own: int
    at: int
    cursor: int
    cause: str
    fires: bool = True


def choose(slots: Slots, late: Late, owed: e.CatchUp | None) -> Choice:
    """Return which slot fires where a lease comes too late, as the job's policy says."""
    cursor = late.cursor
    newest = max(slots.newest_due(late.at) or cursor, cursor)
    window = window_ms(slots.spec)
    oldest = late.at - window if window else 0
    catches_up = late.fires and slots.spec.misfire == je.ALL
    decide = _choose_all if catches_up else _choose_latest
    return decide(slots, late, (newest, oldest), owed)


def _choose_latest(
    slots: Slots, late: Late, reach: tuple[int, int], owed: e.CatchUp | None
) -> Choice:
    own, cursor, (newest, oldest) = late.own, late.cursor, reach
    last = own
    if newest > cursor:
        last = newest
    elif owed is not None and not is_empty(owed):
        last = owed.end
    may = late.fires and slots.spec.misfire == je.LATEST
    fires = last if may and last >= oldest else None
    spans = (*closing(slots, owed), (cursor, newest, e.MISFIRE, late.cause))
    if fires is not None and fires != own:
        spans = tuple((a, min(b, fires - 1) if b >= fires else b, v, c) for a, b, v, c in spans)
    rest = e.CatchUp(0, 0, newest) if fires is not None and newest > fires else None
    return Choice(fires, ranges(slots.plan, spans), rest, newest)


def _choose_all(slots: Slots, late: Late, reach: tuple[int, int], owed: e.CatchUp | None) -> Choice:
    own, cursor, (newest, oldest) = late.own, late.cursor, reach
    if owed is not None and owed.end:
        # Its own catch-up goes on; what is missed meanwhile is not caught up, or it never ended.
        start = min(max(owed.start, oldest - 1), owed.end)
        spans: tuple[Span, ...] = (
            (owed.start, start, e.MISFIRE, WINDOW),
            (cursor, newest, e.MISFIRE, CLOSED),
        )
        rest = e.CatchUp(start, owed.end, newest)
        if own >= oldest:
            return Choice(own, ranges(slots.plan, spans), rest, newest)
        gone = ranges(slots.plan, spans)
    else:
        found, spans, steps = opened(slots, cursor, newest, late.at)
        gone = ranges(slots.plan, spans, steps)
        rest = found or e.CatchUp(0, 0, newest)
        if own >= oldest:
            return Choice(own, gone, found, newest)
    if is_empty(rest):
        return Choice(None, gone, None, newest)
    fires = slots.plan.next_after(rest.start)
    assert fires is not None
    return Choice(fires, gone, e.CatchUp(fires, rest.end, newest), newest)
