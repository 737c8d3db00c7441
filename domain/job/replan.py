"""The same schedule under other zone data, or another version of its calendars (protocol §7).

A `Replan` has the rules of Revise: what has begun, or whose instant has come, stays; an occurrence
that is still to come and whose slot has moved is withdrawn and planned anew. Where nothing moves
there is no event, so it bears repetition.
"""

from typing import Final

import msgspec

from domain import chain
from domain.draft import Draft
from domain.envelope import Decision
from domain.job import events as e
from domain.job import state as s
from domain.job.command import By
from domain.job.planning import Settled, first_link, settle, supersede
from domain.job.revise import Revision
from domain.run import events as re
from domain.run import state as rs
from domain.schedule.exclusion import Exclusion
from domain.schedule.plan import ScheduleBreach

ZONES: Final = "zones"
"""Cause of a change that new zone data bring."""
CALENDAR: Final = "calendar"
"""Cause of a change that a new version of a calendar brings."""


def replan(
    job: s.JobState | None, runs: tuple[rs.OpenRun, ...], zone_data: str, at: int
) -> Decision | None:
    """Plan a job's open occurrence again under the zone data of this process, if it moves.

    Raises `ScheduleBreach` where the schedule cannot be worked out under these data.
    """
    if job is None or not isinstance(job, s.Active | s.Paused):
        return None
    if job.facts.spec.is_one_time or job.facts.spec.is_fixed_delay:
        return None
    waits, held = chain.frontier(job, runs), chain.held(job, runs)
    run = waits or held
    if run is None or run.facts.nominal <= at:
        return None
    draft = Draft(job.facts.job_id, job)
    link = first_link(draft, at, at)
    if isinstance(link, chain.Link) and _same(link, run.facts, waits):
        return None
    if waits is not None and _has_passed(job, waits.facts, link, at):
        return None
    settled = settle(job, runs, at)
    draft.on_job(
        e.Replanned(
            at,
            max(settled.cursor, at),
            zone_data,
            ZONES,
            settled.passed,
            job.facts.tenant_id,
        )
    )
    if waits is not None:
        supersede(draft, waits, link, at)
    return draft.decision(runs)


def _has_passed(job: s.JobState, facts: rs.Facts, link: chain.Link | chain.End, at: int) -> bool:
    """Tell whether the slot that this occurrence stands for, the nearest, lies in the past by now.

    Planned anew it would be lost, so it stays and fires at the instant that it was promised for.
    """
    slot = chain.Chain(facts.job_id, job.facts.spec).plan.last_until(at)
    if slot is None:
        return False
    return isinstance(link, chain.End) or facts.nominal - slot <= abs(link.nominal - facts.nominal)


def _same(link: chain.Link, facts: rs.Facts, waits: rs.Ready | None) -> bool:
    """Tell whether the occurrence stays; one that a pause holds has no due instant to keep."""
    return link.nominal == facts.nominal and (waits is None or link.due_at == facts.due_at)


def exclude(
    job: s.JobState | None, runs: tuple[rs.OpenRun, ...], exclusion: Exclusion, by: By
) -> Decision | None:
    """Put a newer version of a calendar in force; None where the job has no older one.

    Every slot up to now has its verdict under the version that was in force. A job whose slots are
    all excluded by now, as far as anyone can see, is paused: nobody could say what is next.
    """
    if job is None or isinstance(job, s.Cancelled):
        return None
    job = chain.effective(job, runs)
    spec = job.facts.spec
    if not any(
        old.name == exclusion.name and old.version < exclusion.version for old in spec.exclusions
    ):
        return None
    now = tuple(exclusion if old.name == exclusion.name else old for old in spec.exclusions)
    new = msgspec.structs.replace(spec, exclusions=now)
    revision = _Exclusion(job, runs, new, by)
    try:
        return revision.decide(job.facts.zone_data)
    except ScheduleBreach as breach:
        return _Exclusion(job, runs, new, by).park(str(breach))


def moved(job: s.JobState | None, runs: tuple[rs.OpenRun, ...], decision: Decision | None) -> bool:
    """Tell whether a decision puts another occurrence, or none, in the place of the open one."""
    if job is None or decision is None:
        return False
    was = chain.held(job, runs) or chain.frontier(job, runs)
    events = [event for part in decision.slices for event in part.events]
    planned = [event.nominal for event in events if isinstance(event, re.Scheduled)]
    if was is None:
        return bool(planned) and isinstance(job, s.Finished)
    if isinstance(was, rs.Ready):
        return any(isinstance(event, re.Withdrawn) for event in events)
    after = next(part.after for part in decision.slices if part.stream_id == job.facts.job_id)
    assert isinstance(after, s.Paused | s.Active | s.Finished)
    slots = chain.Chain(job.facts.job_id, after.facts.spec)
    try:
        link = slots.first_after(was.facts.nominal - 1)
    except ScheduleBreach:
        return True
    return not isinstance(link, chain.Link) or link.nominal != was.facts.nominal


class _Exclusion(Revision):
    """A change of what the calendars exclude: the rest of the spec is not written again."""

    def _revised(self, settled: Settled, zone_data: str) -> None:
        head = self.job.facts
        self.draft.on_job(
            e.Replanned(
                self.at,
                settled.cursor,
                zone_data,
                CALENDAR,
                settled.passed,
                head.tenant_id,
                self.spec.exclusions,
            )
        )

    def park(self, error: str) -> Decision:
        """Pause a job that has no next slot any more; what waits is withdrawn."""
        settled = settle(self.job, self.runs, self.at)
        cursor = max(settled.cursor, self.at)
        self._revised(Settled(cursor, settled.passed), self.job.facts.zone_data)
        if isinstance(self.draft.job, s.Active):
            runs = tuple(run.facts.run_id for run in self.runs)
            paused = e.Paused(self.at, cursor, b"", runs, e.SCHEDULE_ERROR, error)
            self.draft.on_job(msgspec.structs.replace(paused, tenant_id=self.job.facts.tenant_id))
            for run in self.runs:
                if isinstance(run, rs.Ready):
                    self.draft.on_run(run.facts.run_id, run, re.Withdrawn(self.at, re.PAUSED))
        return self.draft.decision(self.runs)
