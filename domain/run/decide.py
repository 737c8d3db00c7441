"""Decisions about one run: its report, its lapse, and the first lease that needs a thought.

Pure: the caller brings the job's state, the run, what it knows of the job's other runs, and `at`.
A decision that looked at the job is guarded on the job's version, so that a cancel or an edit
committed meanwhile makes it decide again under the new state (protocol.md §5).
"""

from typing import Final

import msgspec

from domain import chain
from domain.draft import Draft, guard_of
from domain.envelope import BegunBeside, Decision, JobAt, SettledRun, Slice
from domain.ids import SLOT, slot_id
from domain.instant import SECOND
from domain.job import events as je
from domain.job import state as js
from domain.retry import ABANDONED_MAX, LOST_MAX, abandoned_delay_ms, delay_ms, lost_delay_ms
from domain.run import events as e
from domain.run import state as s
from domain.schedule.schedule import ScheduleBreach

MISFIRE_AFTER_MS: Final = 60 * SECOND
"""A first lease later than this after the due instant follows the misfire policy."""
SEND_DEADLINE_MS: Final = 1 * SECOND
"""No call starts later than this after its lease statement was sent."""
LEASE_MARGIN_MS: Final = 30 * SECOND
"""Added to send deadline and timeout for a run's own lease end."""
MAX_OPEN_RUNS: Final = 100


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


LOST: Final = Result(e.LOST)
ABANDONED: Final = Result(e.ABANDONED)


def lease_until(at: int, timeout_ms: int) -> int:
    """Return the end of a lease taken at `at`."""
    return at + SEND_DEADLINE_MS + timeout_ms + LEASE_MARGIN_MS


def report(  # noqa: PLR0913 - one decision, and each argument is something it must know
    job: js.JobState, run: s.OpenRun, fence: int, result: Result, at: int, *, alone: bool
) -> Decision | None:
    """Return what an attempt's result appends; None where it has nothing to say any more.

    `alone`: no other link of the job is open, so the chain ends here unless this plans the next.
    Legal while the run's last `Leased` is the reporter's (`fence`) and the run has not ended.
    """
    facts = run.facts
    if facts.fence != fence:
        return None
    in_flight = isinstance(run, s.InFlight | s.Awaiting)
    if not in_flight and result.outcome != e.OK:
        return None
    leased_at = run.leased_at if isinstance(run, s.InFlight | s.Awaiting) else facts.first_leased_at
    at = max(at, leased_at)
    then, cause, retry_at = _what_follows(job, s.counted(facts, result.outcome), result, at)
    fired = e.Fired(
        at,
        facts.job_id,
        facts.tenant_id,
        facts.kind,
        facts.nominal,
        facts.due_at,
        leased_at,
        facts.attempt,
        fence,
        result.outcome,
        then,
        result.status,
        result.error,
        result.elapsed_us,
        not in_flight,
        result.headers,
        result.body,
        result.sent_at,
        cause,
    )
    if then in (e.SUCCEEDED, e.DEAD):
        ended = s.Ended(facts.run_id, facts.version + 2, then)
        own = Slice(facts.run_id, facts.version + 1, (fired, e.Completed(at, then, cause)), ended)
        return _ended(job, run, own, at, alone=alone)
    guards = (JobAt(facts.job_id, job.facts.version), guard_of(run))
    follows: e.RunEvent
    if then == e.RETRY:
        follows = again(job, facts, retry_at, at, cause="retry")
    elif then == e.WITHDRAWN:
        follows = e.Withdrawn(at, e.PAUSED)
    else:
        follows = e.Cancelled(
            at,
            facts.job_id,
            facts.tenant_id,
            facts.nominal,
            "job cancelled",
            facts.attempt,
            facts.kind,
            facts.due_at,
        )
    after = s.evolve(facts.run_id, s.evolve(facts.run_id, run, fired), follows)
    assert not isinstance(after, s.Reported)
    return Decision(
        facts.job_id, guards, (Slice(facts.run_id, facts.version + 1, (fired, follows), after),)
    )


def _what_follows(
    job: js.JobState, facts: s.Facts, result: Result, at: int
) -> tuple[str, str, int]:
    """Return (`Fired.then`, cause of an end, instant of a retry); `facts` counts this attempt."""
    policy = job.facts.spec.retry
    if result.outcome == e.OK:
        return e.SUCCEEDED, "", 0
    if result.outcome == e.FAILED:
        if result.verdict in ("dead", "pause"):
            return e.DEAD, "gone" if result.verdict == "pause" else "status", 0
        if facts.fails >= policy.max_attempts:
            return e.DEAD, "attempts", 0
        delay = max(delay_ms(policy, facts.run_id, facts.fails), result.retry_after_ms)
    elif result.outcome == e.LOST:
        if facts.lost > LOST_MAX:
            return e.DEAD, "lost", 0
        delay = lost_delay_ms(facts.lost)
    else:
        if facts.abandoned > ABANDONED_MAX:
            return e.DEAD, "abandoned", 0
        delay = abandoned_delay_ms(facts.abandoned)
    if at + delay - facts.first_leased_at > policy.max_age_ms:
        return e.DEAD, "age", 0
    if isinstance(job, js.Cancelled) or job.facts.life != facts.life:
        return e.CANCELLED, "", 0
    if isinstance(job, js.Paused):
        return e.WITHDRAWN, "", 0
    return e.RETRY, "", at + delay


def _ended(job: js.JobState, run: s.OpenRun, own: Slice, at: int, *, alone: bool) -> Decision:
    """Return the decision of a run's end, with the next link where this end plans it."""
    facts, head = run.facts, job.facts
    guards = (JobAt(head.job_id, head.version), guard_of(run))
    plans = (
        isinstance(job, js.Active)
        and facts.kind == SLOT
        and facts.life == head.life
        and alone
        and not head.spec.plans_at_lease
        and not head.spec.is_one_time
    )
    if not plans:
        return Decision(head.job_id, guards, (own,))
    cursor = max(head.cursor, facts.nominal)
    try:
        link = chain.Chain(head.job_id, head.spec).after_end(cursor, facts.first_leased_at, at)
    except ScheduleBreach as breach:
        paused = je.Paused(
            at, cursor, cause="schedule_error", reason=str(breach), tenant_id=head.tenant_id
        )
        after = js.evolve(head.job_id, job, paused)
        return Decision(
            head.job_id, guards, (Slice(head.job_id, head.version + 1, (paused,), after), own)
        )
    if isinstance(link, chain.End):
        finished = je.Finished(at, max(cursor, at), link.passed, head.tenant_id)
        after = js.evolve(head.job_id, job, finished)
        return Decision(
            head.job_id, guards, (Slice(head.job_id, head.version + 1, (finished,), after), own)
        )
    return Decision(head.job_id, guards, (own, first_of(job, link, cursor, at)))


def first_of(job: js.JobState, link: chain.Link, after: int, at: int, *, version: int = 1) -> Slice:
    """Return the slice that plans a link whose stream does not exist yet."""
    head = job.facts
    stream = slot_id(head.job_id, head.life, link.nominal, head.spec_version)
    event = scheduled(job, link, after, at)
    state = s.evolve(stream, None, event)
    assert isinstance(state, s.Ready)
    return Slice(stream, version, (event,), state)


def scheduled(job: js.JobState, link: chain.Link, after: int, at: int) -> e.Scheduled:
    """Return the `Scheduled` of a link that no attempt has begun."""
    head = job.facts
    return e.Scheduled(
        at,
        head.job_id,
        head.tenant_id,
        head.life,
        SLOT,
        int(head.spec.exact),
        link.nominal,
        link.due_at,
        1,
        head.spec_version,
        head.payload_version,
        after,
        passed=link.passed,
    )


def again(job: js.JobState, facts: s.Facts, due_at: int, at: int, *, cause: str) -> e.Scheduled:
    """Return the `Scheduled` of a run that exists: current spec; body and key pinned once begun."""
    head = job.facts
    payload = facts.payload_version if facts.begun else head.payload_version
    return e.Scheduled(
        at,
        facts.job_id,
        facts.tenant_id,
        facts.life,
        facts.kind,
        int(head.spec.exact),
        facts.nominal,
        due_at,
        facts.attempt + 1,
        head.spec_version,
        payload,
        facts.nominal,
        cause,
        catch_up=facts.catch_up,
    )


class Grant(msgspec.Struct, frozen=True, gc=False):
    """What a process brings to a lease decided here rather than by the lease statement."""

    session: bytes
    nonce: bytes


def first_lease(
    job: js.JobState, run: s.Ready, beside: tuple[s.OpenRun, ...], at: int, grant: Grant
) -> Decision | None:
    """Return what happens to a due run that the lease statement sent back; None: try again later.

    `beside` are the job's other open runs. Covers what reads more than the due row: a job that
    plans at the lease (allow), a first lease past the misfire threshold, an occurrence past its
    `max_lateness`, and one blocked by another run in flight.
    """
    facts, spec = run.facts, job.facts.spec
    at = max(at, facts.due_at)
    begun = sum(1 for other in beside if other.facts.begun)
    lease = _Lease(job, run, beside, at, grant, begun)
    if spec.max_lateness_ms and at - facts.nominal > spec.max_lateness_ms:
        return lease.expire()
    first = facts.is_link and not facts.begun
    limit = spec.overlap_limit if spec.overlap == je.ALLOW else 1
    blocked = begun >= limit
    late = first and not spec.is_one_time and at - facts.due_at > MISFIRE_AFTER_MS
    if blocked and not (first and (spec.overlap == je.SKIP or late)):
        return None
    if blocked and spec.overlap == je.SKIP:
        return lease.skip(e.OVERLAP, "")
    if late:
        return lease.misfire("overlap_limit" if blocked else "outage", blocked=blocked)
    return lease.grant_first() if first and spec.plans_at_lease else lease.grant_only()


class _Lease:
    """The ways in which one first lease can go."""

    def __init__(  # noqa: PLR0913 - what first_lease read
        self,
        job: js.JobState,
        run: s.Ready,
        beside: tuple[s.OpenRun, ...],
        at: int,
        grant: Grant,
        begun: int,
    ) -> None:
        self.job, self.run, self.at, self.grant = job, run, at, grant
        self.chain = chain.Chain(job.facts.job_id, job.facts.spec)
        self.draft = Draft(job.facts.job_id, job)
        self.beside = beside
        self.begun = begun
        self.cursor = chain.cursor_of(job, (run, *beside))

    def expire(self) -> Decision:
        facts = self.run.facts
        if not facts.begun:
            return self.skip(e.EXPIRED, "max_lateness")
        of = e.Occurrence(
            facts.job_id, facts.tenant_id, facts.kind, facts.nominal, facts.due_at, facts.attempt
        )
        ended = e.Completed(self.at, e.DEAD, e.EXPIRED, of)
        own = self.draft.on_run(facts.run_id, self.run, ended)
        self._plan_if_last(own)
        return self._decision()

    def skip(self, verdict: str, cause: str) -> Decision:
        """The occurrence does not fire; its chain goes on with the first slot after now."""
        own = self._skip_own(verdict, cause)
        if self.run.facts.is_link:
            gone = chain.settle(self.job, self.cursor, self.at, self._running_since(), None)
            if verdict != e.OVERLAP:
                gone = tuple(msgspec.structs.replace(p, cause=cause) for p in gone)
            self._next(chain.with_passed(self.chain.first_after(max(self.cursor, self.at)), gone))
        else:
            assert isinstance(own, s.Ended)
        return self._decision()

    def misfire(self, cause: str, *, blocked: bool) -> Decision:
        """A first lease past the threshold: with `latest` the newest passed slot fires."""
        facts, spec = self.run.facts, self.job.facts.spec
        newest = self.chain.newest_due(self.at)
        newest = facts.nominal if newest is None else max(newest, facts.nominal)
        if spec.misfire == je.NONE or blocked:
            return self.skip(e.MISFIRE, cause)
        if newest == facts.nominal:
            return self.grant_first() if spec.plans_at_lease else self.grant_only()
        self._skip_own(e.MISFIRE, cause)
        gone = chain.ranges(self.chain.plan, ((self.cursor, newest - 1, e.MISFIRE),), cause)
        link = chain.Link(newest, self.chain.due(newest), gone)
        event = scheduled(self.job, link, self.cursor, self.at)
        head = self.job.facts
        stream = slot_id(head.job_id, head.life, newest, head.spec_version)
        self.draft.on_run(stream, None, event, self._leased(1))
        self.cursor = newest
        if spec.plans_at_lease:
            self._next(self.chain.first_after(newest))
        return self._decision()

    def grant_only(self) -> Decision:
        facts = self.run.facts
        self.draft.on_run(facts.run_id, self.run, self._leased(facts.attempt + 1))
        return self._decision()

    def grant_first(self) -> Decision:
        facts = self.run.facts
        self.draft.on_run(facts.run_id, self.run, self._leased(1))
        self._next(self.chain.first_after(self.cursor))
        return self._decision()

    def _leased(self, attempt: int) -> e.Leased:
        until = lease_until(self.at, self.job.facts.spec.timeout_ms)
        return e.Leased(self.grant.session, self.grant.nonce, self.at, until, attempt)

    def _skip_own(self, verdict: str, cause: str) -> SettledRun:
        facts = self.run.facts
        skipped = e.Skipped(
            self.at,
            facts.job_id,
            facts.tenant_id,
            facts.nominal,
            verdict,
            cause,
            facts.kind,
            facts.due_at,
        )
        return self.draft.on_run(facts.run_id, self.run, skipped)

    def _plan_if_last(self, own: SettledRun) -> None:
        assert isinstance(own, s.Ended)
        spec, facts = self.job.facts.spec, self.run.facts
        if not facts.is_link or spec.plans_at_lease or spec.is_one_time:
            return
        if not any(other.facts.is_link for other in self.beside):
            self._next(self.chain.after_end(self.cursor, facts.first_leased_at, self.at))

    def _next(self, link: chain.Link | chain.End) -> None:
        """Plan the next link, or finish. A one-time job finishes by its link's end alone."""
        if isinstance(link, chain.Link):
            head = self.job.facts
            stream = slot_id(head.job_id, head.life, link.nominal, head.spec_version)
            self.draft.on_run(stream, None, scheduled(self.job, link, self.cursor, self.at))
        elif not self.job.facts.spec.is_one_time:
            tenant = self.job.facts.tenant_id
            self.draft.on_job(je.Finished(self.at, max(self.cursor, self.at), link.passed, tenant))

    def _running_since(self) -> int:
        return max((o.facts.first_leased_at for o in self.beside if o.facts.begun), default=0)

    def _decision(self) -> Decision:
        facts = self.run.facts
        alone = BegunBeside(facts.job_id, facts.run_id, self.begun)
        return self.draft.decision((self.run,), beside=(alone,), not_before=facts.due_at)
