"""The verdicts of excluded slots: ranges `blackout`, with the calendar's name as cause (§7).

Excluded slots are not in a job's plan, so that no other rule of the chain meets them: they are not
missed, nor overlapped, nor caught up. They have their verdict once they have passed, with the step
that moves the chain past them: how far they have it follows from the open link alone (`reach`), so
that no fire has to write it down. A range is of the slots that its calendar excludes in it.
"""

import msgspec

from domain.run import events as e
from domain.run.state import Facts
from domain.schedule.excluding import excluded
from domain.schedule.schedule import ScheduleBreach, between
from domain.slots import End, Link, Slots


def reach(slots: Slots, cursor: int, nominal: int, owed: e.CatchUp | None) -> int:
    """Return up to which instant excluded slots have their verdict while a link is open.

    `cursor` is the one in the job's head. It is the slot before the link, whatever planned it, or
    what a command or a catch-up has settled.
    """
    latest = max(cursor, owed.cursor if owed is not None else 0)
    if latest > nominal:
        return latest
    return max(cursor, slots.plan.last_until(nominal - 1) or 0)


def verdicts(slots: Slots, after: int, until: int) -> tuple[e.Passed, ...]:
    """Return the ranges of the excluded slots in (after, until]."""
    spec = slots.spec
    if not spec.exclusions or until <= after:
        return ()
    inner = between(spec.schedule, spec.starts_at, spec.ends_at)
    return tuple(
        e.Passed(*span, e.BLACKOUT, name)
        for name, span in excluded(inner, spec.schedule, spec.exclusions, after, until)
    )


def onto(slots: Slots, link: Link | End, since: int, cursor: int, at: int) -> Link | End:
    """Return a link, or the end at `at`, with the verdicts of the excluded slots passed by then.

    Those up to `since` have theirs. `cursor` is the one in the job's head.
    """
    until = at
    if isinstance(link, Link):
        until = reach(slots, cursor, link.nominal, link.catch_up)
    gone = verdicts(slots, since, until)
    return msgspec.structs.replace(link, passed=link.passed + gone) if gone else link


def settled(slots: Slots, link: Facts | None, cursor: int, until: int) -> tuple[e.Passed, ...]:
    """Return the verdicts up to `until` as a command gives them; `link` is the open one, if any.

    There are none where the schedule cannot say what its slots were.
    """
    try:
        since = cursor if link is None else reach(slots, cursor, link.nominal, link.catch_up)
        return verdicts(slots, since, until)
    except ScheduleBreach:
        return ()
