"""The first lease that needs a thought: what the lease statement sends back to be decided (§7).

That is a job that plans at the lease (allow), a first lease past the misfire threshold, an
occurrence past its `max_lateness`, and one that another run in flight stands in the way of.
"""

from typing import Final

import msgspec

from domain import chain
from domain.draft import Draft
from domain.envelope import BegunBeside, Decision, SettledRun
from domain.instant import SECOND
from domain.job import events as je
from domain.job import state as js
from domain.run import events as e
from domain.run import state as s
from domain.run.planning import scheduled, stream_of
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
        self.begun = sum(1 for other in beside if other.facts.begun)
        self.first = facts.is_link and not facts.begun

    def decide(self) -> Decision | None:
        """§5 (lease) and §7: lateness decides before age, and age before overlap."""
        skips = self.job.facts.spec.overlap == je.SKIP
        if self._is_misfire() and not (self._is_blocked() and skips):
            return self._misfire()
        if self._is_expired():
            return self._expire()
        if self._is_blocked():
            # Not begun and in the way of nobody yet: a frontier is skipped, the rest waits.
            return self._skip(e.OVERLAP, "") if self.first and skips else None
        return self._grant()

    def _is_misfire(self) -> bool:
        """§7: chain runs only, at their first lease only."""
        late = self.at - self.run.facts.due_at > MISFIRE_AFTER_MS
        return late and self.first and not self.job.facts.spec.is_one_time

    def _is_expired(self) -> bool:
        limit = self.job.facts.spec.max_lateness_ms
        return limit > 0 and self.at - self.run.facts.nominal > limit

    def _is_blocked(self) -> bool:
        """§7, the limit on runs begun and not ended. A begun run is within it for ever.

        Counting it again would let two runs in back-off wait for each other after the limit fell.
        """
        spec = self.job.facts.spec
        limit = spec.overlap_limit if spec.overlap == je.ALLOW else 1
        return not self.run.facts.begun and self.begun >= limit

    def _grant(self) -> Decision:
        """The run starts; a job that plans at the lease plans its next link."""
        self._lease(self.run.facts.run_id, self.run)
        if self.first and self.job.facts.spec.plans_at_lease and isinstance(self.job, js.Active):
            one_time, slots = self.job.facts.spec.is_one_time, self._slots()
            after = slots.once(self.cursor, self.at) if one_time else slots.first_after(self.cursor)
            self._plan(after)
        return self._decision()

    def _misfire(self) -> Decision:
        """§7, late lease, `latest` and `skip`: the newest passed slot inside the window fires."""
        spec, own = self.job.facts.spec, self.run.facts.nominal
        blocked = self._is_blocked()
        cause = "overlap_limit" if blocked else "outage"
        # A command may have settled slots after this one: those have their verdict.
        newest = self._slots().newest_due(self.at)
        newest = own if newest is None or newest <= self.cursor else newest
        window = chain.window_ms(spec)
        inside = not window or self.at - newest <= window
        if spec.misfire == je.NONE or blocked or not inside:
            return self._skip(e.EXPIRED if self._is_expired() else e.MISFIRE, cause)
        if newest == own:
            return self._grant()
        self._skip_own(e.MISFIRE, cause)
        self._switch_to(newest, cause)
        return self._decision()

    def _switch_to(self, newest: int, cause: str) -> None:
        """Plan and lease in one append: in two steps a system that stays late would never fire."""
        slots = self._slots()
        gone = chain.ranges(slots.plan, ((self.cursor, newest - 1, e.MISFIRE),), cause)
        link = chain.Link(newest, slots.due(newest), gone)
        planned = scheduled(self.job, link, self.cursor, self.at)
        self._lease(stream_of(self.job, newest), None, planned)
        self.cursor = newest
        if self.job.facts.spec.plans_at_lease:
            self._plan(slots.first_after(newest))

    def _skip(self, verdict: str, cause: str) -> Decision:
        """The occurrence does not fire; its chain goes on with the first slot after now."""
        self._skip_own(verdict, cause)
        if self.run.facts.is_link:
            since = chain.running_since(self.job, self.beside)
            link = next_link(self.job, self.cursor, since or self.at, self.at)
            self._plan(chain.with_cause(link, cause))
        return self._decision()

    def _expire(self) -> Decision:
        """§5: not begun is skipped, begun is dead."""
        facts = self.run.facts
        if not facts.begun:
            return self._skip(e.EXPIRED, "max_lateness")
        of = e.Occurrence(
            facts.job_id, facts.tenant_id, facts.kind, facts.nominal, facts.due_at, facts.attempt
        )
        self.draft.on_run(facts.run_id, self.run, e.Completed(self.at, e.DEAD, e.EXPIRED, of))
        if plans_at_end(self.job, facts, alone=chain.is_alone(self.run, self.beside)):
            self._plan(next_link(self.job, self.cursor, facts.first_leased_at, self.at))
        return self._decision()

    def park(self, error: str) -> Decision | None:
        """A schedule that cannot answer: the run goes on, nothing follows it, the job is paused."""
        if self._is_blocked():
            return None
        facts = self.run.facts
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
        self.draft.on_run(stream, state, *planned, leased)

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
        if isinstance(link, chain.Link):
            event = scheduled(self.job, link, self.cursor, self.at)
            self.draft.on_run(stream_of(self.job, link.nominal), None, event)
        elif not self.job.facts.spec.is_one_time:
            tenant_id = self.job.facts.tenant_id
            cursor = max(self.cursor, self.at)
            self.draft.on_job(je.Finished(self.at, cursor, link.passed, tenant_id))

    def _decision(self, *read: s.OpenRun) -> Decision:
        facts = self.run.facts
        alone = BegunBeside(facts.job_id, facts.run_id, self.begun)
        return self.draft.decision((self.run, *read), beside=(alone,), not_before=facts.due_at)
