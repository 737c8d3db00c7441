"""What is next for a job: status, next occurrence and the ones after, as shown to its owner.

A command's answer goes by the job's state alone, so that a repeat of the command can be given the
same answer for ever; a query goes by the job's open runs too. A schedule that cannot answer has no
occurrences to show: its job can still be looked at, changed and cancelled.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Final

from domain import chain
from domain.ids import RUN, text
from domain.instant import rfc3339
from domain.job import state as s
from domain.run import state as rs
from domain.run.backfill import is_current
from domain.schedule.excluding import without
from domain.schedule.exclusion import Exclusion
from domain.schedule.schedule import OneTime, Plan, ScheduleBreach, ScheduleSpec, between

SHOWN: Final = 5
"""Occurrences listed."""
_KEPT: Final = 4_096


def status(job: s.JobState, runs: tuple[rs.OpenRun, ...]) -> str:
    """Return active, paused, finished or cancelled."""
    return s.STATUS_NAMES[type(chain.effective(job, runs))]


def next_link(job: s.JobState, at: int) -> chain.Link | None:
    """Return the next occurrence that follows from the job's state alone, None for none."""
    if not isinstance(job, s.Active):
        return None
    facts = job.facts
    schedule = facts.spec.schedule
    if facts.is_exhausted:
        return None
    if isinstance(schedule, OneTime):
        run_at = schedule.run_at
        if facts.cursor >= run_at:
            return None
        due_at = chain.Chain(facts.job_id, facts.spec).due(run_at)
        return chain.Link(run_at, max(due_at, at))
    if facts.spec.is_fixed_delay:
        return _after_definition(facts, at)
    return _first_after(facts, max(facts.cursor, at))


def _after_definition(facts: s.Facts, at: int) -> chain.Link | None:
    """Return the first occurrence of a fixed delay; the state does not say what the others are."""
    defined = facts.version == facts.spec_version and facts.cursor >= facts.changed_at
    found = _first_after(facts, facts.cursor) if defined else None
    return found if found and found.nominal > at else None


def next_open(job: s.JobState, runs: tuple[rs.OpenRun, ...], at: int) -> chain.Link | None:
    """Return the next occurrence: the one that is planned, or what will follow those in flight."""
    if not isinstance(job, s.Active):
        return None
    mine = [r.facts for r in runs if r.facts.is_link and r.facts.life == job.facts.life]
    waiting = [facts for facts in mine if not facts.begun]
    if waiting:
        first = min(waiting, key=lambda facts: facts.nominal)
        return chain.Link(first.nominal, first.due_at)
    spec = job.facts.spec
    if spec.is_one_time or spec.is_fixed_delay or job.facts.is_exhausted:
        return None
    return _first_after(job.facts, max(chain.cursor_of(job, runs), at))


def _first_after(facts: s.Facts, at: int) -> chain.Link | None:
    try:
        found = chain.Chain(facts.job_id, facts.spec).first_after(at)
    except ScheduleBreach:
        return None
    return found if isinstance(found, chain.Link) else None


def following(facts: s.Facts, first: int) -> list[str]:
    """Return up to SHOWN occurrences of a job from `first` on (nominal, ms), as text."""
    spec = facts.spec
    if spec.is_fixed_delay:
        return [rfc3339(first)]
    try:
        found = list(_following(spec.schedule, first, spec.ends_at, spec.exclusions))
    except ScheduleBreach:
        return []
    return found[: spec.max_runs - facts.begun] if spec.max_runs else found


@lru_cache(_KEPT)
def _following(
    schedule: ScheduleSpec, first: int, ends_at: int, exclusions: tuple[Exclusion, ...]
) -> tuple[str, ...]:
    slots = (
        without(schedule, first, ends_at, exclusions)
        if exclusions
        else between(schedule, first, ends_at)
    )
    return tuple(map(rfc3339, islice(_slots(slots, first), SHOWN)))


def _slots(slots: Plan, first: int) -> Iterator[int]:
    slot: int | None = first
    while slot is not None:
        yield slot
        slot = slots.next_after(slot)


def in_flight(runs: tuple[rs.OpenRun, ...]) -> list[str]:
    """Return the ids of the runs that one process or target works on now."""
    return [
        text(RUN, run.facts.run_id) for run in runs if isinstance(run, rs.InFlight | rs.Awaiting)
    ]


def backfill(job: s.JobState, runs: tuple[rs.OpenRun, ...]) -> tuple[int, int, int] | None:
    """Return how many runs of a backfill are left, the slot that is next, and the range's end."""
    going = job.facts.backfill
    if going is None:
        return None
    place = max(
        (r.facts.nominal - 1 for r in runs if is_current(job, r.facts)), default=going.after
    )
    nominal = going.next_after(place)
    return None if nominal is None else (going.left_after(place), nominal, going.until)
