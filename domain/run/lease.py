"""The first lease that needs a thought: what the lease statement sends back to be decided (§7).

That is a job that plans at the lease (allow), a first lease past the misfire threshold, an
occurrence past its `max_lateness`, and one that another run in flight stands in the way of.
"""

from typing import Final

import msgspec

from domain import backlog, blackout, chain
from domain.draft import Draft
from domain.envelope import BegunBeside, Decision, SettledRun
from domain.ids import BESIDE
from domain.instant import SECOND
from domain.job import events as je
from domain.job import state as js
from domain.run import events as e
from domain.run import state as s
from domain.run.planning import again, scheduled, stream_of
from domain.run.report import next_link, plans_at_end
from domain.schedule.schedule import ScheduleBreach

MISFIRE_AFTER_MS: Final = 60 * SECOND
"""A first lease later than this after the due instant follows the misfire policy."""
SEND_DEADLINE_MS: Final = 1 * SECOND
"""No call starts later than this after its lease statement was sent."""
LEASE_MARGIN_MS: Final = 30 * SECOND
"""Added to send deadline and timeout for a run's own lease end."""


class Grant(msgspec.Struct, frozen=True, gc=False):
    """What a process brings to a lease decided here rather than by the lease statement."""

    session: bytes
    nonce: bytes


def lease_until(at: int, timeout_ms: int) -> int:
    """Return the end of a lease taken at `at`."""
    return at + SEND_DEADLINE_MS + timeout_ms + LEASE_MARGIN_MS


def first_lease(
    job: js.JobState, run: s.Ready, beside: tuple[s.OpenRun, ...], at: int, grant: Grant
) -> Decision | None:
    """Return what happens to a due run that the lease statement sent back; None: try again later.

    `beside` are the job's other open runs.
    """
    if isinstance(job, js.Paused | js.Cancelled):
        return None
    lease = _Lease(job, run, beside, at, grant)
    try:
        return lease.decide()
    except ScheduleBreach as breach:
        return _Lease(job, run, beside, at, grant).park(str(breach))


class _Lease:
    """One decision about one due run, and the ways in which it can go."""

    def __init__(
        self, job: js.JobState, run: s.Ready, beside: tuple[s.OpenRun, ...], at: int, grant: Grant
    ) -> None:
        facts = run.facts
        self.job, self.run, self.beside, self.offer = job, run, beside, grant
        self.at = max(at, facts.due_at)
        self.draft = Draft(facts.job_id, job)
        self.cursor = chain.cursor_of(job, (run, *beside))
        self.owed = chain.owed_after(job, facts)
        self.begun = tuple(other for other in beside if other.facts.begun)
        if job.facts.spec.is_fixed_delay:
            # An occurrence that ends here is followed as one that ran.
            self.cursor = max(self.cursor, self.at)
        self.first = facts.is_link and not facts.begun
        self.read: tuple[s.OpenRun, ...] = ()
        """Runs beside this one that the decision appends to."""
        self.passing: tuple[int, e.CatchUp | None] = facts.nominal, facts.catch_up
        """The link whose turn it is, as far as excluded slots go (`domain.blackout`)."""

    def decide(self) -> Decision | None:
        """§5 (lease) and §7: lateness decides before age, and age before overlap."""
        overlap, blocked = self.job.facts.spec.overlap, self._is_blocked()
        if self._is_misfire() and not (blocked and overlap != je.ALLOW):
            return self._misfire()
        if self._is_expired():
            return self._expire()
        if blocked:
            # In the way of nobody yet: a frontier is skipped, or waits where it is buffered.
            skips = self.first and overlap == je.SKIP and not self._is_behind_afterthought()
            return self._overlap() if skips else None
        return self._grant()

    def _is_misfire(self) -> bool:
        """§7: chain runs only, at their first lease only; what has no clock fires however late."""
        late, spec = self.at - self.run.facts.due_at > MISFIRE_AFTER_MS, self.job.facts.spec
        return late and self.first and not (spec.is_one_time or spec.is_fixed_delay)

    def _is_expired(self) -> bool:
        """What was asked for afterwards is late because it was."""
        limit = self.job.facts.spec.max_lateness_ms
        return (
            limit > 0
            and not self.run.facts.is_afterthought
            and self.at - self.run.facts.nominal > limit
        )

    def _is_blocked(self) -> bool:
        """§7, the limit on runs begun and not ended. A begun run is within it for ever.

        Counting it again would let two runs in back-off wait for each other after the limit fell.
        """
        spec = self.job.facts.spec
        if self.run.facts.begun or self.run.facts.kind == BESIDE:
            return False
        if self.first and spec.overlap == je.CANCEL_OTHER:
            # A backfill or redrive is waited for: nothing comes in its place.
            return any(other.facts.is_afterthought for other in self.begun)
        limit = spec.overlap_limit if spec.overlap == je.ALLOW else 1
        ahead = len(self.begun)
        if self.run.facts.is_afterthought:
            ahead += sum(map(self._goes_first, self.beside))
        return ahead >= limit

    def _goes_first(self, other: s.OpenRun) -> bool:
        """Tell whether an afterthought lets this run pass: without it, one would follow the other
        at once, and the chain would wait for the last.
        """
        facts = other.facts
        waits = isinstance(other, s.Ready) and not facts.begun and not facts.is_afterthought
        return waits and facts.due_at <= self.at

    def _is_behind_afterthought(self) -> bool:
        """Tell whether only a backfill or redrive is in the way: that is no reason to skip."""
        return all(other.facts.is_afterthought for other in self.begun)

    def _grant(self) -> Decision:
        """The run starts; a job that plans at the lease plans its next link."""
        self._supersede()
        self._lease(self.run.facts.run_id, self.run)
        if self.first and self.job.facts.spec.plans_at_lease and isinstance(self.job, js.Active):
            slots = self._slots()
            one_time = self.job.facts.spec.is_one_time
            self._plan(
                slots.once(self.cursor, self.at)
                if one_time
                else backlog.after_lease(slots, self.cursor, self.at, self.owed)
            )
        return self._decision()

    def _supersede(self) -> None:
        """§7, cancel_other: what is in flight ends where a newer occurrence starts."""
        if not self.first or self.job.facts.spec.overlap != je.CANCEL_OTHER:
            return
        self.read += self.begun
        for other in self.begun:
            facts = other.facts
            cancelled = e.Cancelled(
                self.at,
                facts.job_id,
                facts.tenant_id,
                facts.nominal,
                e.SUPERSEDED,
                facts.attempt,
                facts.kind,
                facts.due_at,
            )
            self.draft.on_run(facts.run_id, other, cancelled)

    def _misfire(self) -> Decision:
        """§7, late lease: the policy says which of the missed slots fires, if any.

        Planned and leased in one append: in two steps a system that stays late would never fire.
        """
        facts, slots = self.run.facts, self._slots()
        blocked = self._is_blocked()
        cause = "overlap_limit" if blocked else "outage"
        late = backlog.Late(facts.nominal, self.at, self.cursor, cause, fires=not blocked)
        choice = backlog.choose(slots, late, self.owed)
        if choice.fires is None:
            self._skip_own(e.EXPIRED if self._is_expired() else e.MISFIRE, cause)
            self._plan(chain.with_passed(slots.first_after(choice.cursor), choice.passed))
            return self._decision()
        if choice.fires == facts.nominal and not choice.passed and choice.rest is None:
            return self._grant()
        self._supersede()
        due_at = facts.due_at
        if choice.fires != facts.nominal:
            self._skip_own(e.MISFIRE, cause)
            due_at = slots.due(choice.fires)
        link = chain.Link(choice.fires, due_at, choice.passed, choice.rest)
        self._switch_to(link, choice)
        return self._decision()

    def _switch_to(self, link: chain.Link, choice: backlog.Choice) -> None:
        """Plan a link and lease it; the frontier itself is planned again with what follows it."""
        facts, slots = self.run.facts, self._slots()
        passed = self._past_excluded(slots, link).passed
        if link.nominal == facts.nominal:
            planned = again(self.job, facts, link.due_at, self.at, cause="catch_up")
            planned = msgspec.structs.replace(
                planned, after=self.cursor, passed=passed, catch_up=link.catch_up
            )
            self._lease(facts.run_id, self.run, planned)
        else:
            planned = scheduled(self.job, link, self.cursor, self.at)
            planned = msgspec.structs.replace(planned, passed=passed)
            self._lease(stream_of(self.job, link.nominal), None, planned)
        self.cursor = choice.cursor
        if self.job.facts.spec.plans_at_lease:
            self._plan(backlog.after_lease(slots, self.cursor, self.at, choice.rest))

    def _overlap(self) -> Decision:
        """The occurrence does not fire, another run is in its way; the chain goes on after now."""
        self._skip_own(e.OVERLAP, "")
        since = chain.running_since(self.job, self.beside) or self.at
        slots = self._slots()
        if self.job.facts.spec.is_one_time:
            self._plan(slots.once(self.cursor, self.at))
        else:
            self._plan(backlog.after_skip(slots, self.cursor, (since, self.at), self.owed))
        return self._decision()

    def _expire(self) -> Decision:
        """§5: not begun is skipped, begun is dead."""
        facts = self.run.facts
        if not facts.begun:
            self._skip_own(e.EXPIRED, "max_lateness")
            if facts.is_link:
                self._plan(self._after_expiry())
            return self._decision()
        of = e.Occurrence(
            facts.job_id, facts.tenant_id, facts.kind, facts.nominal, facts.due_at, facts.attempt
        )
        self.draft.on_run(facts.run_id, self.run, e.Completed(self.at, e.DEAD, e.EXPIRED, of))
        if plans_at_end(self.job, facts, alone=chain.is_alone(self.run, self.beside)):
            times = facts.first_leased_at, self.at
            self._plan(next_link(self.job, self.cursor, times, self.owed))
        return self._decision()

    def _after_expiry(self) -> chain.Link | chain.End:
        slots = self._slots()
        if self.job.facts.spec.is_one_time:
            return slots.once(self.cursor, self.at)
        return backlog.after_expiry(slots, self.cursor, self.at, self.owed)

    def park(self, error: str) -> Decision | None:
        """A schedule that cannot answer: the run goes on, nothing follows it, the job is paused."""
        if self._is_blocked():
            return None
        facts = self.run.facts
        self._supersede()
        self._lease(facts.run_id, self.run)
        for other in self.beside:
            if isinstance(other, s.Ready):
                gone = e.Withdrawn(self.at, e.PAUSED)
                self.draft.on_run(other.facts.run_id, other, gone)
        runs = (facts.run_id, *(other.facts.run_id for other in self.beside))
        tenant_id, cause = facts.tenant_id, "schedule_error"
        self.draft.on_job(
            je.Paused(self.at, self.cursor, b"", runs, cause, error, tenant_id=tenant_id)
        )
        decision = self._decision(*self.beside)
        # P6: no `Leased` of a job has a position after its `Paused`.
        return msgspec.structs.replace(decision, slices=decision.slices[1:] + decision.slices[:1])

    def _slots(self) -> chain.Chain:
        return chain.Chain(self.job.facts.job_id, self.job.facts.spec)

    def _lease(self, stream: bytes, state: s.Ready | None, *planned: e.Scheduled) -> None:
        until = lease_until(self.at, self.job.facts.spec.timeout_ms)
        attempt = 1 if state is None else state.facts.attempt + 1
        leased = e.Leased(self.offer.session, self.offer.nonce, self.at, until, attempt)
        self._count()
        self.draft.on_run(stream, state, *planned, leased)

    def _count(self) -> None:
        """§7, max_runs: an occurrence counts when it begins, whoever plans the next."""
        head = self.job.facts
        if self.first and head.spec.max_runs and self.run.facts.life == head.life:
            begun = head.begun + 1
            self.draft.on_job(je.Counted(self.at, head.cursor, begun, head.tenant_id))

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

    def _plan(self, link: chain.Link | chain.End) -> None:
        """Plan the next link, or finish. A one-time job finishes by its link's end alone."""
        job = self.draft.job
        assert job is not None
        if isinstance(link, chain.Link) and job.facts.is_exhausted:
            link = backlog.not_planned(self._slots(), link, self.at)
        link = self._past_excluded(self._slots(), link)
        if isinstance(link, chain.Link):
            event = scheduled(self.job, link, self.cursor, self.at)
            self.draft.on_run(stream_of(self.job, link.nominal), None, event)
        elif not self.job.facts.spec.is_one_time:
            tenant_id = self.job.facts.tenant_id
            cursor = max(self.cursor, self.at)
            self.draft.on_job(je.Finished(self.at, cursor, link.passed, tenant_id))

    def _past_excluded(
        self, slots: chain.Chain, link: chain.Link | chain.End
    ) -> chain.Link | chain.End:
        """Return `link` with the verdicts of the excluded slots that the chain moves past."""
        if not slots.spec.exclusions:
            return link
        cursor = self.job.facts.cursor
        since = blackout.reach(slots, cursor, *self.passing)
        if isinstance(link, chain.Link):
            self.passing = link.nominal, link.catch_up
        return blackout.onto(slots, link, since, cursor, max(self.cursor, self.at))

    def _decision(self, *read: s.OpenRun) -> Decision:
        facts = self.run.facts
        alone = BegunBeside(facts.job_id, facts.run_id, len(self.begun))
        read = (self.run, *self.read, *read)
        return self.draft.decision(read, beside=(alone,), not_before=facts.due_at)
