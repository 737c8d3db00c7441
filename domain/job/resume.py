"""A paused job runs again, and what of the pause still fires (protocol §3, Resume)."""

from typing import Final

import msgspec

from domain import backlog, blackout, chain
from domain.draft import Draft
from domain.envelope import Decision
from domain.job import events as e
from domain.job import state as s
from domain.job.command import By, Outcome, absent, wrong_state
from domain.job.planning import Settled, excluded, first_link, plan_next, settle, skipped
from domain.run import events as re
from domain.run import state as rs
from domain.run.backfill import first_slot, is_current
from domain.run.planning import again
from domain.slots import Slots, Span

USUAL, NONE, LATEST, ALL = "", "none", "latest", "all"
CATCH_UPS: Final = (NONE, LATEST, ALL)
"""What of the slots of a pause fires. A one-time job fires, unless it is asked not to."""


def resume(
    job: s.JobState | None, runs: tuple[rs.OpenRun, ...], by: By, *, catch_up: str = USUAL
) -> Outcome:
    """Run again from `at`: begun runs that were withdrawn are due now, the chain goes on."""
    if job is None:
        return absent()
    job = chain.effective(job, runs)
    if isinstance(job, s.Active):
        return None
    if not isinstance(job, s.Paused):
        return wrong_state(job, "resumed")
    return _Resume(job, runs, by, catch_up).decide()


class _Kept(msgspec.Struct, frozen=True, gc=False):
    """What fires of the slots that passed: the withheld frontier, or a slot; and what follows it.

    `settled` has the verdicts of the others.
    """

    settled: Settled
    held: bool = False
    nominal: int = 0
    rest: re.CatchUp | None = None


class _Resume:
    """One resume, while it is decided."""

    def __init__(self, job: s.Paused, runs: tuple[rs.OpenRun, ...], by: By, catch_up: str) -> None:
        self.job, self.runs, self.by, self.at = job, runs, by, by.at
        self.catch_up = catch_up
        self.draft = Draft(job.facts.job_id, job)
        self.held = chain.held(job, runs)

    def decide(self) -> Decision:
        kept = self._kept()
        head, at, held = self.job.facts, self.at, self.held
        free = head.spec.plans_at_lease or not chain.begun_links(self.job, self.runs)
        # Without a link to ride on, what is caught up waits in the head for the run in flight.
        waits = kept.rest if not free and not kept.held else None
        settled = kept.settled
        event = e.Resumed(
            at,
            settled.cursor,
            self.by.reason,
            settled.passed,
            waits,
            self.by.actor,
            head.tenant_id,
        )
        self.draft.on_job(event)
        for run in self.runs:
            if isinstance(run, rs.Withheld) and (run.facts.begun or not run.facts.is_link):
                self._schedule_again(run, at, None)
        if held is not None and kept.held:
            self._schedule_again(held, max(self._due(held.facts), at), kept.rest)
        elif held is not None:
            verdict = skipped(held.facts, at, re.PAUSED)
            self.draft.on_run(held.facts.run_id, held, verdict)
        if free and not kept.held:
            self._plan(kept)
        if not any(is_current(self.job, run.facts) for run in self.runs):
            self._go_on_backfilling()
        return self.draft.decision(self.runs, command=self.by.command)

    def _plan(self, kept: _Kept) -> None:
        cursor = kept.settled.cursor
        link: chain.Link | chain.End
        if kept.nominal:
            rest = kept.rest
            if rest is not None:
                rest = msgspec.structs.replace(rest, start=kept.nominal)
            link = chain.Link(kept.nominal, self.at, (), rest)
        else:
            link = first_link(self.draft, cursor, self.at)
        plan_next(self.draft, link, cursor, self.at)

    def _go_on_backfilling(self) -> None:
        """The run of a backfill that was in flight at the pause has ended meanwhile."""
        job = self.draft.job
        assert job is not None
        if job.facts.backfill is not None:
            self.draft.on_run(*first_slot(job, job.facts.backfill, self.at))

    def _kept(self) -> _Kept:
        held, settled = self.held, settle(self.job, self.runs, self.at)
        if held is not None and self._still_fires(held.facts):
            return _Kept(settled, held=True)
        if held is not None:
            cursor = max(settled.cursor, held.facts.nominal)
            settled = msgspec.structs.replace(settled, cursor=cursor)
        if self.catch_up not in (LATEST, ALL) or self.job.facts.spec.is_one_time:
            return _Kept(settled)
        base = max(chain.cursor_of(self.job, self.runs), self.job.paused_at)
        if held is not None:
            base = max(base, held.facts.nominal)
        slots = Slots(self.job.facts.job_id, self.job.facts.spec)
        newest = slots.plan.last_until(self.at) if self.at > base else None
        if newest is None or newest <= base:
            # Nothing passed but the withheld frontier itself.
            return _Kept(settled, held=held is not None)
        if self.catch_up == LATEST:
            return self._latest(base, newest)
        return self._all(slots, base)

    def _latest(self, base: int, newest: int) -> _Kept:
        """The newest slot that passed fires; a run in flight is followed by it."""
        before = self._before(base)
        spans = (*before, (base, newest - 1, re.PAUSED, ""))
        settled = self._settled(newest - 1, spans)
        return _Kept(settled, nominal=newest, rest=re.CatchUp(newest - 1, newest, self.at))

    def _all(self, slots: Slots, base: int) -> _Kept:
        """All that passed fires, from the withheld frontier or the oldest slot on."""
        before = self._before(base)
        owed, left, _ = backlog.opened(slots, base, self.at, self.at, window=0)
        gone = tuple((after, until, re.PAUSED, cause) for after, until, _, cause in left)
        settled = self._settled(base, (*before, *gone))
        if self.held is not None:
            return _Kept(settled, held=True, rest=owed)
        assert owed is not None, "a slot has passed"
        oldest = slots.plan.next_after(base)
        assert oldest is not None
        return _Kept(settled, nominal=oldest, rest=owed)

    def _settled(self, cursor: int, spans: tuple[Span, ...]) -> Settled:
        gone = chain.judged(self.job, spans) + excluded(self.job, self.runs, cursor)
        return Settled(cursor, gone)

    def _before(self, base: int) -> tuple[Span, ...]:
        """Return the verdicts of the slots up to `base`, but for the withheld frontier's."""
        cursor = chain.cursor_of(self.job, self.runs)
        since = chain.running_since(self.job, self.runs)
        own = self.held.facts.nominal if self.held is not None else None
        return chain.settle(self.job, cursor, base, since, own)

    def _still_fires(self, facts: rs.Facts) -> bool:
        """A withheld frontier whose slot has passed is skipped.

        The occurrence of a one-time job does not pass, unless its `max_lateness` has.
        """
        spec = self.job.facts.spec
        limit = spec.max_lateness_ms
        late = limit > 0 and self.at - facts.nominal > limit
        waited = spec.is_one_time and not late and self.catch_up != NONE
        return facts.nominal > self.at or waited

    def _due(self, facts: rs.Facts) -> int:
        return chain.Chain(facts.job_id, self.job.facts.spec).due(facts.nominal)

    def _schedule_again(self, run: rs.Withheld, due_at: int, rest: re.CatchUp | None) -> None:
        job = self.draft.job
        assert job is not None
        event = again(job, run.facts, due_at, self.at, cause="resumed")
        if rest is not None:
            link = chain.Link(run.facts.nominal, due_at, (), rest)
            if job.facts.spec.exclusions:
                slots = Slots(job.facts.job_id, job.facts.spec)
                cursor = job.facts.cursor
                blacked = blackout.onto(slots, link, cursor, cursor, self.at)
                event = msgspec.structs.replace(event, passed=blacked.passed)
            event = msgspec.structs.replace(event, catch_up=rest)
        self.draft.on_run(run.facts.run_id, run, event)
