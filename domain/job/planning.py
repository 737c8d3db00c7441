"""Links and verdicts as commands plan them: by nominal instant (protocol §7)."""

import msgspec

from domain import blackout, chain
from domain.draft import Draft
from domain.job import events as e
from domain.job import state as s
from domain.run import events as re
from domain.run import state as rs
from domain.run.planning import scheduled, stream_of


class Settled(msgspec.Struct, frozen=True, gc=False):
    """§3, settle(at): every slot ≤ `cursor` has a run or a verdict; `passed` are the new ones."""

    cursor: int
    passed: tuple[re.Passed, ...] = ()


def settle(job: s.JobState, runs: tuple[rs.OpenRun, ...], at: int) -> Settled:
    """Close the book of the schedule in force up to `at`.

    The occurrence of a one-time job never passes, so its cursor is left behind it. Withdrawing or
    cancelling a future frontier takes the cursor back to `at`: its slot has no verdict any more.
    A catch-up is closed, which its cursor not being after the job's says from then on.
    """
    cursor = chain.cursor_of(job, runs)
    if isinstance(job, s.Finished):
        return Settled(max(cursor, at))
    settled = _settled(job, runs, cursor, at)
    gone = excluded(job, runs, settled.cursor)
    return Settled(settled.cursor, settled.passed + gone)


def _settled(job: s.JobState, runs: tuple[rs.OpenRun, ...], cursor: int, at: int) -> Settled:
    held = chain.held(job, runs)
    waits = held or chain.frontier(job, runs)
    if job.facts.spec.is_one_time:
        return Settled(min(cursor, at) if waits else cursor)
    since, owed = chain.running_since(job, runs), chain.owed_now(job, runs)
    spans = chain.settle(job, cursor, at, since, held.facts.nominal if held else None)
    least = owed.cursor if owed else at
    return Settled(max(at, least) if waits else max(cursor, at), chain.judged(job, spans, owed))


def excluded(job: s.JobState, runs: tuple[rs.OpenRun, ...], until: int) -> tuple[re.Passed, ...]:
    """Return the verdicts of the excluded slots up to `until` that have none yet."""
    head = job.facts
    if not head.spec.exclusions:
        return ()
    slots = chain.Chain(head.job_id, head.spec)
    open_link: rs.OpenRun | None = chain.held(job, runs) or chain.frontier(job, runs)
    if open_link is None and not head.spec.plans_at_lease:
        begun = chain.begun_links(job, runs)
        open_link = max(begun, key=lambda run: run.facts.nominal, default=None)
    facts = None if open_link is None else open_link.facts
    return blackout.settled(slots, facts, head.cursor, until)


def plan_next(draft: Draft, link: chain.Link | chain.End, after: int, at: int) -> None:
    """Append the first `Scheduled` of a link, or finish the job.

    A one-time job finishes without an event, by having no open link.
    """
    job = draft.job
    assert job is not None
    if isinstance(link, chain.Link) and job.facts.is_exhausted:
        link = chain.End(link.passed)
    head = job.facts
    if head.spec.exclusions:
        slots = chain.Chain(head.job_id, head.spec)
        link = blackout.onto(slots, link, head.cursor, head.cursor, max(after, at))
    if isinstance(link, chain.Link):
        event = scheduled(job, link, after, at)
        draft.on_run(stream_of(job, link.nominal), None, event)
    elif not job.facts.spec.is_one_time:
        draft.on_job(e.Finished(at, max(after, at), link.passed, job.facts.tenant_id))


def first_link(draft: Draft, after: int, at: int) -> chain.Link | chain.End:
    """Return the first slot > `after`; the one of a one-time job is due now where it is past."""
    job = draft.job
    assert job is not None
    if job.facts.is_exhausted:
        return chain.End()
    slots = chain.Chain(job.facts.job_id, job.facts.spec)
    return slots.once(after, at) if job.facts.spec.is_one_time else slots.first_after(after)


def supersede(draft: Draft, run: rs.Ready, link: chain.Link | chain.End, at: int) -> None:
    """Withdraw an occurrence still to come whose slot is another now, and plan that one."""
    facts = run.facts
    of = re.Occurrence(facts.job_id, facts.tenant_id, facts.kind, facts.nominal, facts.due_at, 0)
    draft.on_run(facts.run_id, run, re.Withdrawn(at, re.SUPERSEDED, of))
    plan_next(draft, link, at, at)


def skipped(facts: rs.Facts, at: int, verdict: str) -> re.Skipped:
    """Return the verdict of an occurrence that has a stream of its own."""
    return re.Skipped(
        at,
        facts.job_id,
        facts.tenant_id,
        facts.nominal,
        verdict,
        kind=facts.kind,
        due_at=facts.due_at,
    )
