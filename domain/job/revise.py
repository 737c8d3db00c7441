"""A change of a job's spec, and what it does to the job's open runs (protocol §3, Revise)."""

from domain import chain
from domain.draft import Draft
from domain.envelope import Decision, Rejected
from domain.instant import LAST
from domain.job import events as e
from domain.job import state as s
from domain.job.command import By, Outcome, absent
from domain.job.planning import Settled, first_link, plan_next, settle, skipped, supersede
from domain.run import events as re
from domain.run import state as rs
from domain.run.planning import again
from domain.schedule.schedule import FixedDelay, OneTime


def revise(
    job: s.JobState | None, runs: tuple[rs.OpenRun, ...], spec: e.JobSpec, zone_data: str, by: By
) -> Outcome:
    """Change the spec. A schedule change never creates a run for a slot ≤ `at`."""
    if job is None:
        return absent()
    job = chain.effective(job, runs)
    if isinstance(job, s.Cancelled):
        return Rejected(
            "cancelled", "a cancelled job cannot be changed; define it again by its key"
        )
    old = job.facts.spec
    if spec == old:
        return None
    moved = spec.schedule != old.schedule
    if moved and isinstance(spec.schedule, OneTime) and spec.schedule.run_at <= by.at:
        return Rejected("past", "run_at must be in the future when a job is changed")
    return Revision(job, runs, spec, by).decide(zone_data)


class Revision:
    """One change of a spec, while it is decided."""

    def __init__(
        self, job: s.JobState, runs: tuple[rs.OpenRun, ...], spec: e.JobSpec, by: By
    ) -> None:
        self.job, self.runs, self.spec, self.by, self.at = job, runs, spec, by, by.at
        self.draft = Draft(job.facts.job_id, job)
        self.frontier = chain.frontier(job, runs)
        self.held = chain.held(job, runs)
        self.moved = spec.slots != job.facts.spec.slots and not self._keeps()

    def decide(self, zone_data: str) -> Decision:
        """Settle what was in force, say what is, and plan every run that waits anew."""
        settled = self._settled()
        self._revised(settled, zone_data)
        if self.moved and self.held is not None:
            self._drop(self.held)
        for run in self.runs:
            if isinstance(run, rs.Ready):
                self._replan(run)
        if self._lacks_frontier():
            after = max(settled.cursor, self.at)
            plan_next(self.draft, first_link(self.draft, after, self.at), after, self.at)
        return self.draft.decision(self.runs, command=self.by.command)

    def _keeps(self) -> bool:
        """Tell whether a fixed delay that stays keeps the occurrence which it has promised.

        No schedule has its instant: counted from the edit it would be another.
        """
        old, new, run = self.job.facts.spec, self.spec, self.frontier or self.held
        delay = new.schedule
        if run is None or not isinstance(delay, FixedDelay) or delay != old.schedule:
            return False
        is_first = run.facts.nominal == max(old.starts_at, delay.anchor)
        if is_first and new.starts_at != old.starts_at:
            return False
        inside = new.starts_at <= run.facts.nominal <= (new.ends_at or LAST)
        spent = 0 < new.max_runs <= self.job.facts.begun
        return inside and not spent and run.facts.nominal > self.at

    def _settled(self) -> Settled:
        """§3: what plans anew settles the schedule that was in force; another edit does not."""
        if not self.moved and not self._lacks_frontier():
            return Settled(self.job.facts.cursor)
        settled = settle(self.job, self.runs, self.at)
        return Settled(max(settled.cursor, self.at), settled.passed)

    def _revised(self, settled: Settled, zone_data: str) -> None:
        head, spec, old = self.job.facts, self.spec, self.job.facts.spec
        same_body = (spec.payload, spec.payload_ref, spec.content_type, spec.key_template) == (
            old.payload,
            old.payload_ref,
            old.content_type,
            old.key_template,
        )
        event = e.Revised(
            self.at,
            spec,
            head.payload_version if same_body else head.version + 1,
            settled.cursor,
            self.job.held if isinstance(self.job, s.Paused) and not self.moved else b"",
            settled.passed,
            self.by.actor,
            zone_data,
            head.tenant_id,
        )
        self.draft.on_job(event)

    def _replan(self, run: rs.Ready) -> None:
        """§3: planned again under the new spec, so that no attempt starts under the old one.

        An occurrence whose instant has come, or that has begun, is not removed by an edit.
        """
        job, facts, due_at = self.draft.job, run.facts, run.facts.due_at
        assert job is not None
        if run is self.frontier and facts.nominal > self.at:
            link = self._slot_of_frontier(facts)
            if not isinstance(link, chain.Link) or link.nominal != facts.nominal:
                supersede(self.draft, run, link, self.at)
                return
            due_at = link.due_at
        event = again(job, facts, due_at, self.at, cause="revised")
        self.draft.on_run(facts.run_id, run, event)

    def _slot_of_frontier(self, facts: rs.Facts) -> chain.Link | chain.End:
        """Return the slot of the new spec in the place of a frontier that is still to come."""
        slots = chain.Chain(facts.job_id, self.spec)
        if not self.moved:
            return chain.Link(facts.nominal, slots.due(facts.nominal))
        return first_link(self.draft, self.at, self.at)

    def _drop(self, held: rs.Withheld) -> None:
        """A withheld frontier of the old schedule: its slot has passed, or no longer exists."""
        if held.facts.nominal <= self.at:
            verdict = skipped(held.facts, self.at, re.PAUSED)
            self.draft.on_run(held.facts.run_id, held, verdict)

    def _lacks_frontier(self) -> bool:
        """P12: active (again), and without the open link that this spec asks for."""
        if isinstance(self.job, s.Finished):
            return True
        if not isinstance(self.job, s.Active) or self.frontier is not None:
            return False
        return self.spec.plans_at_lease or not chain.begun_links(self.job, self.runs)
