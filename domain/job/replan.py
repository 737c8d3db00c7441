"""The same schedule under other zone data: what changes for a job's open occurrence (protocol §7).

A `Replan` has the rules of Revise: what has begun, or whose instant has come, stays; an occurrence
that is still to come and whose slot has moved is withdrawn and planned anew. Where nothing moves
there is no event, so it bears repetition.
"""

from typing import Final

from domain import chain
from domain.draft import Draft
from domain.envelope import Decision
from domain.job import events as e
from domain.job import state as s
from domain.job.planning import first_link, settle, supersede
from domain.run import state as rs

ZONES: Final = "zones"
"""Cause of a change that new zone data bring."""


def replan(
    job: s.JobState | None, runs: tuple[rs.OpenRun, ...], zone_data: str, at: int
) -> Decision | None:
    """Plan a job's open occurrence again under the zone data of this process, if it moves.

    Raises `ScheduleBreach` where the schedule cannot be worked out under these data.
    """
    if job is None or not isinstance(job, s.Active | s.Paused) or job.facts.spec.is_one_time:
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
