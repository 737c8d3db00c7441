"""What an attempt's result appends: the run's end and the chain's next link, or a retry.

Pure: the caller brings the job's state, the run, whether another link is open, and `at`. The
decision looks at the job, so it is guarded on the job's version: a cancel or an edit committed
meanwhile makes it decide again under the new state (protocol §5).
"""

from typing import Final

import msgspec

from domain import backlog, blackout, chain
from domain.draft import guard_of
from domain.envelope import Decision, Guard, JobAt, Slice
from domain.job import events as je
from domain.job import state as js
from domain.retry import ABANDONED_MAX, LOST_MAX, abandoned_delay_ms, delay_ms, lost_delay_ms
from domain.run import events as e
from domain.run import state as s
from domain.run.backfill import after_run
from domain.run.planning import again, first_of
from domain.schedule.schedule import OneTime


class JobConcerned(Exception):
    """The end of this run is also written down in its job, for which its other runs are read."""


class Result(msgspec.Struct, frozen=True, gc=False):
    """How one attempt went. `verdict`: ok, retry, dead or pause, as the retry policy says."""

    outcome: str
    verdict: str = "retry"
    status: int = 0
    error: str = ""
    elapsed_us: int = 0
    retry_after_ms: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    sent_at: int = 0
    cause: str = "status"
    """Why the run is dead if `verdict` says so."""


LOST: Final = Result(e.LOST)
ABANDONED: Final = Result(e.ABANDONED)


class _Next(msgspec.Struct, frozen=True, gc=False):
    """What follows a `Fired`: `then` as in the event, why an end is dead, when a retry is due."""

    then: str
    cause: str = ""
    retry_at: int = 0


def report(  # noqa: PLR0913 - one decision, and each argument is something it must know
    job: js.JobState,
    run: s.OpenRun,
    fence: int,
    result: Result,
    at: int,
    *,
    alone: bool,
    noted: bool = False,
) -> Decision | None:
    """Return what an attempt's result appends; None where it has nothing to say any more.

    `alone`: no other link of the job is open, so the chain ends here unless this plans the next.
    Raises ScheduleBreach where the schedule cannot say what is next: the job is paused then, for
    which its other runs must be known (`domain.job.ending`). Raises JobConcerned, unless it is
    `noted`, where the job counts its failures and the count changes.
    """
    facts = run.facts
    if not _is_legal(run, fence, result):
        return None
    leased_at = run.leased_at if isinstance(run, s.InFlight | s.Awaiting) else facts.first_leased_at
    at = max(at, leased_at)
    follows = _what_follows(job, s.counted(facts, result.outcome), result, at)
    if job.facts.spec.pause_after and not noted and _is_counted(job, facts, follows):
        raise JobConcerned
    fired = _fired(run, result, follows, (leased_at, at))
    if follows.then in (e.SUCCEEDED, e.DEAD):
        ended = s.Ended(facts.run_id, facts.version + 2, follows.then)
        completed = e.Completed(at, follows.then, follows.cause)
        own = Slice(facts.run_id, facts.version + 1, (fired, completed), ended)
        if facts.is_backfill and not noted:
            return _ended_in_backfill(job, run, own, at)
        return _ended(job, run, own, at, alone=alone)
    event = _second(job, facts, follows, at)
    after = s.evolve(facts.run_id, s.evolve(facts.run_id, run, fired), event)
    assert not isinstance(after, s.Reported)
    own = Slice(facts.run_id, facts.version + 1, (fired, event), after)
    return Decision(facts.job_id, _guards(job, run), (own,))


def _is_legal(run: s.OpenRun, fence: int, result: Result) -> bool:
    """§8: while the reporter's `Leased` is the run's last; after a lapse, a success only."""
    if run.facts.fence != fence:
        return False
    return isinstance(run, s.InFlight | s.Awaiting) or result.outcome == e.OK


def _is_counted(job: js.JobState, facts: s.Facts, follows: _Next) -> bool:
    """Tell whether this end changes how many links in a row have ended dead."""
    if not facts.is_link or facts.life != job.facts.life or not isinstance(job, js.Active):
        return False
    return follows.then == e.DEAD or (follows.then == e.SUCCEEDED and job.facts.failures > 0)


def _what_follows(job: js.JobState, facts: s.Facts, result: Result, at: int) -> _Next:
    """§4: the table of `Fired + next`. `facts` counts this attempt."""
    if result.outcome == e.OK:
        return _Next(e.SUCCEEDED)
    cause, delay = _counters(job.facts.spec.retry.max_attempts, job, facts, result)
    if not cause and at + delay - facts.first_leased_at > job.facts.spec.retry.max_age_ms:
        cause = "age"
    if cause:
        return _Next(e.DEAD, cause)
    if isinstance(job, js.Cancelled) or job.facts.life != facts.life:
        return _Next(e.CANCELLED)
    if isinstance(job, js.Paused):
        return _Next(e.WITHDRAWN)
    return _Next(e.RETRY, retry_at=at + delay)


def _counters(
    max_attempts: int, job: js.JobState, facts: s.Facts, result: Result
) -> tuple[str, int]:
    """§4, counters: why no attempt is left (empty: one is), and the delay before the next."""
    if result.outcome == e.LOST:
        return "lost" if facts.lost > LOST_MAX else "", lost_delay_ms(facts.lost)
    if result.outcome == e.ABANDONED:
        exhausted = facts.abandoned > ABANDONED_MAX
        return "abandoned" if exhausted else "", abandoned_delay_ms(facts.abandoned)
    if result.verdict == "pause":
        return "gone", 0
    if result.verdict == "dead":
        return result.cause, 0
    if facts.fails >= max_attempts:
        return "attempts", 0
    delay = delay_ms(job.facts.spec.retry, facts.run_id, facts.fails)
    return "", max(delay, result.retry_after_ms)


def _fired(run: s.OpenRun, result: Result, follows: _Next, times: tuple[int, int]) -> e.Fired:
    facts = run.facts
    leased_at, at = times
    return e.Fired(
        at,
        facts.job_id,
        facts.tenant_id,
        facts.kind,
        facts.nominal,
        facts.due_at,
        leased_at,
        facts.attempt,
        facts.fence,
        result.outcome,
        follows.then,
        result.status,
        result.error,
        result.elapsed_us,
        not isinstance(run, s.InFlight | s.Awaiting),
        result.headers,
        result.body,
        result.sent_at,
        follows.cause,
    )


def _second(
    job: js.JobState, facts: s.Facts, follows: _Next, at: int
) -> e.Scheduled | e.Withdrawn | e.Cancelled:
    """Return the event beside a `Fired` that does not end the run by itself."""
    if follows.then == e.RETRY:
        return again(job, facts, follows.retry_at, at, cause="retry")
    if follows.then == e.WITHDRAWN:
        return e.Withdrawn(at, e.PAUSED)
    return e.Cancelled(
        at,
        facts.job_id,
        facts.tenant_id,
        facts.nominal,
        "job cancelled",
        facts.attempt,
        facts.kind,
        facts.due_at,
    )


def _ended(job: js.JobState, run: s.OpenRun, own: Slice, at: int, *, alone: bool) -> Decision:
    """§7, "at the end of run k": its slice, and the next link where this end plans it."""
    guards, head = _guards(job, run), job.facts
    cursor, owed = max(head.cursor, run.facts.nominal), chain.owed_after(job, run.facts)
    if owed is not None:
        cursor = max(cursor, owed.cursor)
    if not plans_at_end(job, run.facts, alone=alone):
        return Decision(head.job_id, guards, (own,))
    if head.spec.is_fixed_delay:
        cursor = max(cursor, at)
    link = next_link(job, cursor, (run.facts.first_leased_at, at), owed)
    if isinstance(link, chain.Link) and head.is_exhausted:
        link = backlog.not_planned(chain.Chain(head.job_id, head.spec), link, at)
    if head.spec.exclusions:
        slots = chain.Chain(head.job_id, head.spec)
        since = blackout.reach(slots, head.cursor, run.facts.nominal, run.facts.catch_up)
        link = blackout.onto(slots, link, since, head.cursor, max(cursor, at))
    if isinstance(link, chain.Link):
        return Decision(head.job_id, guards, (own, first_of(job, link, cursor, at)))
    if head.spec.is_one_time:
        return Decision(head.job_id, guards, (own,))
    event = je.Finished(at, max(cursor, at), link.passed, head.tenant_id)
    return Decision(head.job_id, guards, (_of_job(job, event), own))


def _ended_in_backfill(job: js.JobState, run: s.OpenRun, own: Slice, at: int) -> Decision:
    """Return the run's end and the next slot of its backfill, or the place where that stands."""
    guards, head = _guards(job, run), job.facts
    follows = after_run(job, run.facts, at)
    if follows is None:
        return Decision(head.job_id, guards, (own,))
    if isinstance(follows, Slice):
        return Decision(head.job_id, guards, (own, follows))
    return Decision(head.job_id, guards, (_of_job(job, follows), own))


def plans_at_end(job: js.JobState, facts: s.Facts, *, alone: bool) -> bool:
    """§7, "who plans": the end of a link of an active job's current life, when no other is open."""
    head = job.facts
    if not facts.is_link or not isinstance(job, js.Active) or facts.life != head.life:
        return False
    if isinstance(head.spec.schedule, OneTime) and head.spec.schedule.run_at <= facts.nominal:
        return False
    return alone and not head.spec.plans_at_lease


def next_link(
    job: js.JobState, cursor: int, times: tuple[int, int], owed: e.CatchUp | None = None
) -> chain.Link | chain.End:
    """Return the link after a run (`times`: first lease, end) that has `owed` missed slots left.

    The occurrence of a one-time job never passes.
    """
    slots = chain.Chain(job.facts.job_id, job.facts.spec)
    first_leased, ended = times
    if job.facts.spec.is_one_time:
        return slots.once(cursor, ended)
    return slots.after_end(cursor, first_leased, ended, owed)


def _guards(job: js.JobState, run: s.OpenRun) -> tuple[Guard, ...]:
    return (JobAt(job.facts.job_id, job.facts.version), guard_of(run))


def _of_job(job: js.JobState, event: je.JobEvent) -> Slice:
    after = js.evolve(job.facts.job_id, job, event)
    return Slice(job.facts.job_id, job.facts.version + 1, (event,), after)
