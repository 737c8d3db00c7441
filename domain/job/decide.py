"""Decisions about a job: what each command of a client appends to the job and to its open runs.

Every function takes the job's state, its open runs (withheld ones too) and `at`, and returns a
Decision, a Rejected, or None where there is nothing left to do. Runs in flight are read, hence
guarded, and never appended to: their report meets the job's new version (protocol §3).
"""

import msgspec

from domain import chain
from domain.draft import Draft
from domain.envelope import Rejected
from domain.ids import BESIDE, MANUAL, run_id
from domain.instant import rfc3339
from domain.job import events as e
from domain.job import state as s
from domain.job.command import By, NewJob, Outcome, absent, full, wrong_state
from domain.job.planning import first_link, plan_next, settle
from domain.job.replan import exclude, replan
from domain.job.resume import resume
from domain.job.revise import revise
from domain.run import events as re
from domain.run import state as rs
from domain.run.planning import scheduled
from domain.schedule.schedule import OneTime

__all__ = [
    "By",
    "NewJob",
    "Outcome",
    "cancel",
    "define",
    "exclude",
    "pause",
    "replan",
    "resume",
    "revise",
    "trigger",
]


def define(new: NewJob, job: s.JobState | None, by: By) -> Outcome:
    """Define a job that does not exist, or one that was cancelled (its next life)."""
    if job is not None and not isinstance(job, s.Cancelled):
        return Rejected("exists", "a job with this key exists already")
    at, spec = by.at, new.spec
    cursor = at if job is None else max(at, job.facts.cursor)
    if isinstance(spec.schedule, OneTime):
        # Up to 60 s past still fires: asked for in this very command, so in every life.
        cursor = min(cursor, spec.schedule.run_at - 1)
    life = 1 if job is None else job.facts.life + 1
    draft = Draft(new.job_id, job)
    draft.on_job(e.Defined(at, new.tenant_id, life, spec, cursor, new.key, by.actor, new.zone_data))
    plan_next(draft, first_link(draft, cursor, at), cursor, at)
    return draft.decision(command=by.command)


def pause(
    job: s.JobState | None,
    runs: tuple[rs.OpenRun, ...],
    by: By,
    *,
    cause: str = "request",
    until: int = 0,
) -> Outcome:
    """Stop planning and leasing; runs that wait are withdrawn, those in flight go on.

    The pause ends by itself at `until`, if that is given.
    """
    if job is None:
        return absent()
    job = chain.effective(job, runs)
    if isinstance(job, s.Paused):
        if until == job.until:
            return None
        # A pause that was answered 200 must not end otherwise than was asked for.
        ends = f"until {rfc3339(job.until)}" if job.until else "without an end"
        return Rejected("paused", f"the job is paused {ends}: resume it, then pause it anew")
    if not isinstance(job, s.Active):
        return wrong_state(job, "paused")
    if until and until <= by.at:
        return Rejected("past_until", "a pause ends in the future")
    at, head = by.at, job.facts
    frontier = chain.frontier(job, runs)
    settled = settle(job, runs, at)
    draft = Draft(head.job_id, job)
    event = e.Paused(
        at,
        settled.cursor,
        frontier.facts.run_id if frontier else b"",
        tuple(run.facts.run_id for run in runs),
        cause,
        by.reason,
        settled.passed,
        by.actor,
        head.tenant_id,
        until,
    )
    draft.on_job(event)
    for run in runs:
        if isinstance(run, rs.Ready):
            draft.on_run(run.facts.run_id, run, re.Withdrawn(at, re.PAUSED))
    return draft.decision(runs, command=by.command)


def cancel(job: s.JobState | None, runs: tuple[rs.OpenRun, ...], by: By) -> Outcome:
    """Tombstone: every run that is not in flight ends; those in flight are named in the event."""
    if job is None:
        return absent()
    if isinstance(job, s.Cancelled):
        return None
    job = chain.effective(job, runs)
    at, head, held = by.at, job.facts, chain.held(job, runs)
    settled = settle(job, runs, at)
    in_flight = tuple(r.facts.run_id for r in runs if isinstance(r, rs.InFlight | rs.Awaiting))
    draft = Draft(head.job_id, job)
    event = e.Cancelled(
        at, settled.cursor, by.reason, settled.passed, in_flight, by.actor, head.tenant_id
    )
    draft.on_job(event)
    for run in runs:
        superseded = run.facts.is_link and not run.facts.begun and run is not held
        if isinstance(run, rs.Ready) or (isinstance(run, rs.Withheld) and not superseded):
            draft.on_run(run.facts.run_id, run, _cancelled(run.facts, at))
    return draft.decision(runs, command=by.command)


def _cancelled(facts: rs.Facts, at: int) -> re.Cancelled:
    return re.Cancelled(
        at,
        facts.job_id,
        facts.tenant_id,
        facts.nominal,
        "job cancelled",
        facts.attempt,
        facts.kind,
        facts.due_at,
    )


def trigger(
    job: s.JobState | None,
    runs: tuple[rs.OpenRun, ...],
    command_id: bytes,
    by: By,
    *,
    allow_overlap: bool = False,
) -> Outcome:
    """Ask for a manual run, due now. Its id comes from the command, so a repeat meets it."""
    if job is None:
        return absent()
    if isinstance(job, s.Paused | s.Cancelled):
        return wrong_state(job, "triggered")
    refused = full(runs)
    if refused is not None:
        return refused
    head, at = job.facts, by.at
    if head.spec.overlap != e.ALLOW and not allow_overlap and any(r.facts.begun for r in runs):
        return Rejected(
            "in_flight", 'a run is in flight; wait for its end, or ask with "overlap": "allow"'
        )
    stream = run_id(head.job_id, head.life, at, MANUAL, command_id)
    draft = Draft(head.job_id, job)
    draft.on_job(e.RunRequested(at, stream, at, command_id, by.reason, by.actor))
    job = draft.job
    assert job is not None
    event = msgspec.structs.replace(
        scheduled(job, chain.Link(at, at), head.cursor, at),
        kind=BESIDE if allow_overlap else MANUAL,
        cause="trigger",
    )
    draft.on_run(stream, None, event)
    return draft.decision(runs, command=by.command)
