"""A past range is run: with the schedules that were in force then, slot by slot.

Which slots there were follows from the job's own events, and how each went from the last events of
its runs. Both are read from the log; the request is refused where the job has moved since.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from domain import chain
from domain.catalogue import DomainEvent
from domain.draft import Draft
from domain.envelope import Rejected
from domain.ids import backfill_id, slot_id
from domain.instant import LAST
from domain.job import events as e
from domain.job import state as s
from domain.job.command import By, Outcome, absent, full, wrong_state
from domain.run import events as re
from domain.run import state as rs
from domain.run.backfill import first_slot, is_current
from domain.slots import slots_of
from domain.stretch import instants, stretches

SLOTS_MAX: Final = 1_000
"""Slots of one request, whether they run or not."""

Told = tuple[int, e.JobEvent]
"""An event of a job's stream, with its version."""

CHANGES: Final = (
    e.Defined,
    e.Revised,
    e.Replanned,
    e.Cancelled,
    e.Finished,
    e.BackfillRequested,
)
"""What of a job's stream says which slots there were, and which runs they may have had."""


class Range(msgspec.Struct, frozen=True, gc=False):
    """What is asked for: the slots in [since, until] (ms), those that succeeded too at a rerun."""

    since: int
    until: int
    rerun: bool = False


class InForce(msgspec.Struct, frozen=True, gc=False):
    """The slots of `spec` in (after, until] were in force."""

    after: int
    until: int
    spec: e.JobSpec


class Past(msgspec.Struct, frozen=True):
    """The current life of a job, as far as its slots are concerned."""

    job_id: bytes
    life: int
    force: tuple[InForce, ...]
    versions: tuple[int, ...]
    """Of its specs: a slot was planned under one of them."""
    backfills: tuple[tuple[int, frozenset[int]], ...]
    """Generation and slots of what was asked for before."""

    def slots(self, asked: Range, most: int) -> list[int]:
        """Return the slots of a range, in order, at most `most`. Raises ScheduleBreach."""
        found: list[int] = []
        for force in self._within(asked):
            after = max(force.after, asked.since - 1)
            for nominal in _slots(force.spec, after, min(force.until, asked.until)):
                if len(found) == most:
                    return found
                found.append(nominal)
        return found

    def has_slots(self, asked: Range) -> bool:
        """Tell whether a range may have slots: a fixed delay says when to run, and misses none."""
        within = self._within(asked)
        return not within or not all(force.spec.is_fixed_delay for force in within)

    def _within(self, asked: Range) -> list[InForce]:
        return [f for f in self.force if f.after < asked.until and asked.since <= f.until]

    def streams(self, nominal: int) -> list[bytes]:
        """Return the streams in which a slot may have run."""
        job_id, life = self.job_id, self.life
        planned = [slot_id(job_id, life, nominal, version) for version in self.versions]
        return planned + [
            backfill_id(job_id, life, nominal, generation)
            for generation, slots in self.backfills
            if nominal in slots
        ]


def _slots(spec: e.JobSpec, after: int, until: int) -> Iterator[int]:
    if after >= until or spec.is_fixed_delay:
        return
    plan = slots_of(spec)
    nominal = plan.next_after(after)
    while nominal is not None and nominal <= until:
        yield nominal
        nominal = plan.next_after(nominal)


def past(job_id: bytes, told: Sequence[Told]) -> Past:
    """Read the current life of a job from its events of the kinds CHANGES, in order."""
    force: list[InForce] = []
    versions: list[int] = []
    backfills: list[tuple[int, frozenset[int]]] = []
    job: s.JobState | None = None
    for version, event in told:
        if isinstance(event, e.Defined):
            force, versions, backfills = [], [], []
        if job is not None:
            # Events in between are left out, and have nothing to do with slots.
            facts = msgspec.structs.replace(job.facts, version=version - 1)
            job = msgspec.structs.replace(job, facts=facts)
        job = s.evolve(job_id, job, event)
        if isinstance(event, e.BackfillRequested):
            backfills.append((version, frozenset(instants(event.slots))))
            continue
        if job.facts.spec_version == version:
            versions.append(version)
        at = event.cursor if isinstance(event, e.Defined) else event.at
        if force:
            force[-1] = msgspec.structs.replace(force[-1], until=min(force[-1].until, at))
        if isinstance(job, s.Active):
            force.append(InForce(at, LAST, job.facts.spec))
    life = 0 if job is None else job.facts.life
    return Past(job_id, life, tuple(force), tuple(versions), tuple(backfills))


class Sorted(msgspec.Struct, frozen=True):
    """The slots of a range, by how they went."""

    missed: tuple[int, ...] = ()
    """Never sent."""
    succeeded: tuple[int, ...] = ()
    dead: tuple[int, ...] = ()
    """Sent, and ended otherwise."""
    open: tuple[int, ...] = ()
    """Not over, still to come, or not judged yet."""

    @property
    def count(self) -> int:
        """All of them."""
        return len(self.missed) + len(self.succeeded) + len(self.dead) + len(self.open)


def sort(
    job: s.JobState,
    runs: tuple[rs.OpenRun, ...],
    at: int,
    ends: Mapping[int, Sequence[DomainEvent]],
) -> Sorted:
    """Sort slots by how they went; `ends` has the last events of the runs of each."""
    job = chain.effective(job, runs)
    settled = at if isinstance(job, s.Finished) else min(chain.cursor_of(job, runs), at)
    owed = chain.owed_now(job, runs)
    mine = {
        run.facts.nominal
        for run in runs
        if run.facts.life == job.facts.life and (run.facts.is_link or run.facts.is_afterthought)
    }
    found: dict[str, list[int]] = {"missed": [], "succeeded": [], "dead": [], "open": []}
    for nominal, last in ends.items():
        to_come = owed is not None and owed.start < nominal <= owed.end
        if nominal > settled or nominal in mine or to_come:
            found["open"].append(nominal)
        else:
            found[_end_of(last)].append(nominal)
    return Sorted(*(tuple(found[name]) for name in Sorted.__struct_fields__))


def _end_of(last: Sequence[DomainEvent]) -> str:
    """Return how a slot went that has no open run. One that is withdrawn was never sent."""
    if any(isinstance(event, re.Completed) and event.outcome == re.SUCCEEDED for event in last):
        return "succeeded"
    sent = any(
        isinstance(event, re.Completed) or (isinstance(event, re.Cancelled) and event.attempts)
        for event in last
    )
    return "dead" if sent else "missed"


def refusal(job: s.JobState | None, runs: tuple[rs.OpenRun, ...]) -> Rejected | None:
    """Return why a job takes no backfill now, None where it does."""
    if job is None:
        return absent()
    if isinstance(job, s.Paused | s.Cancelled):
        return wrong_state(job, "backfilled")
    going = next((run.facts for run in runs if is_current(job, run.facts)), None)
    if going is not None:
        left = 1 + (job.facts.backfill.left_after(going.nominal) if job.facts.backfill else 0)
        return Rejected(
            "backfilling", f"a backfill is going on, {left} of its runs are left; wait for its end"
        )
    return full(runs)


def backfill(  # noqa: PLR0913 - a command on a job, the range, and what is known of its slots
    job: s.JobState | None,
    runs: tuple[rs.OpenRun, ...],
    asked: Range,
    slots: Sorted,
    zone_data: str,
    by: By,
) -> Outcome:
    """Run the slots of a range that were never sent; all that are over at a rerun."""
    refused = refusal(job, runs)
    if refused is not None or job is None:
        return refused
    chosen = slots.missed
    if asked.rerun:
        chosen = tuple(sorted((*slots.missed, *slots.succeeded, *slots.dead)))
    head, at = job.facts, by.at
    draft = Draft(head.job_id, job)
    event = e.BackfillRequested(
        at,
        asked.since,
        asked.until,
        stretches(chosen),
        asked.rerun,
        slots.count,
        len(slots.succeeded),
        len(slots.dead),
        len(slots.open),
        zone_data,
        by.reason,
        by.actor,
        head.tenant_id,
    )
    draft.on_job(event)
    assert draft.job is not None
    asked_for = draft.job.facts.backfill
    if asked_for is not None:
        draft.on_run(*first_slot(draft.job, asked_for, at))
    return draft.decision(runs, command=by.command)
