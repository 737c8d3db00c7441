"""Decisions about a job: what each command of a client appends to the job and to its open runs.

Every function takes the job's state, its open runs (withheld ones too) and `at`, and returns a
Decision, a Rejected, or None where there is nothing left to do. Runs in flight are read, hence
guarded, and never appended to: their report meets the job's new version (protocol.md §3).
"""

import msgspec

from domain import chain
from domain.draft import Draft
from domain.envelope import Command, Decision, Rejected
from domain.ids import MANUAL, run_id, slot_id
from domain.job import events as e
from domain.job import state as s
from domain.run import events as re
from domain.run import state as rs
from domain.run.decide import MAX_OPEN_RUNS, Result, again, report, scheduled
from domain.schedule.schedule import OneTime

Outcome = Decision | Rejected | None


class By(msgspec.Struct, frozen=True, gc=False):
    """Who commands, when, why, and under which command id. `actor` is a key id, never a secret."""

    at: int
    actor: str = ""
    reason: str = ""
    command: Command | None = None


class NewJob(msgspec.Struct, frozen=True, gc=False):
    """A definition. `key` is the client's own name for the job, empty for none."""

    job_id: bytes
    tenant_id: bytes
    spec: e.JobSpec
    key: str = ""
    zone_data: str = ""


def define(new: NewJob, job: s.JobState | None, by: By) -> Outcome:
    """Define a job that does not exist, or one that was cancelled (its next life)."""
    if job is not None and not isinstance(job, s.Cancelled):
        return Rejected("exists", "a job with this key exists already")
    at, spec = by.at, new.spec
    cursor = max(at, job.facts.cursor) if job is not None else at
    if isinstance(spec.schedule, OneTime):
        cursor = min(cursor, spec.schedule.run_at - 1)
    life = 1 if job is None else job.facts.life + 1
    draft = Draft(new.job_id, job)
    draft.on_job(e.Defined(at, new.tenant_id, life, spec, cursor, new.key, by.actor, new.zone_data))
    _plan(draft, chain.Chain(new.job_id, spec).first_after(cursor), cursor, at)
    return draft.decision(command=by.command)


def revise(
    job: s.JobState | None, runs: tuple[rs.OpenRun, ...], spec: e.JobSpec, zone_data: str, by: By
) -> Outcome:
    """Change the spec. A schedule change never creates a run for a slot ≤ `at`."""
    if job is None:
        return _absent()
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
    return _Revision(job, runs, spec, zone_data, by).decide()


class _Revision:
    """One change of a job's spec, and what it does to the job's open runs."""

    def __init__(
        self, job: s.JobState, runs: tuple[rs.OpenRun, ...], spec: e.JobSpec, zone_data: str, by: By
    ) -> None:
        self.job, self.runs, self.spec, self.zone_data, self.by = job, runs, spec, zone_data, by
        self.at = by.at
        self.draft = Draft(job.facts.job_id, job)
        self.chain = chain.Chain(job.facts.job_id, spec)
        self.moved = spec.schedule != job.facts.spec.schedule
        self.frontier = _frontier(job, runs)
        self.held = _held(job, runs)

    def decide(self) -> Decision:
        at, head = self.at, self.job.facts
        cursor = chain.cursor_of(self.job, self.runs)
        gone: tuple[re.Passed, ...] = ()
        if self.moved:
            if not isinstance(self.job, s.Finished):
                since = _running_since(self.job, self.runs)
                gone = chain.settle(
                    self.job, cursor, at, since, self.held.facts.nominal if self.held else None
                )
            cursor = at if self.frontier or self.held else max(cursor, at)
        self._revised(cursor if self.moved else head.cursor, gone)
        if self.moved and self.held is not None:
            self._drop(self.held)
        planned = self._replan_runs(cursor)
        if self._needs_frontier() and not planned:
            self._plan_first(max(cursor, at))
        return self.draft.decision(self.runs, command=self.by.command)

    def _revised(self, cursor: int, gone: tuple[re.Passed, ...]) -> None:
        head, spec, old = self.job.facts, self.spec, self.job.facts.spec
        same_body = (spec.payload, spec.content_type, spec.key_template) == (
            old.payload,
            old.content_type,
            old.key_template,
        )
        payload_version = head.payload_version if same_body else head.version + 1
        held = self.job.held if isinstance(self.job, s.Paused) and not self.moved else b""
        self.draft.on_job(
            e.Revised(
                self.at,
                spec,
                payload_version,
                cursor,
                held,
                gone,
                self.by.actor,
                self.zone_data,
                head.tenant_id,
            )
        )

    def _replan_runs(self, cursor: int) -> bool:
        """Re-append every run that waits; True where a frontier is planned when this is done."""
        planned = False
        job = self.draft.job
        assert job is not None
        for run in self.runs:
            if not isinstance(run, rs.Ready):
                continue
            facts = run.facts
            if run is self.frontier and self.moved and facts.nominal > self.at:
                planned = self._move_frontier(run, cursor)
                continue
            due = facts.due_at
            if run is self.frontier and facts.nominal > self.at:
                due = self.chain.due(facts.nominal)
            self.draft.on_run(facts.run_id, run, again(job, facts, due, self.at, cause="revised"))
            planned = planned or run is self.frontier
        return planned

    def _move_frontier(self, run: rs.Ready, cursor: int) -> bool:
        facts = run.facts
        job = self.draft.job
        assert job is not None
        link = self.chain.first_after(self.at)
        if isinstance(link, chain.Link) and link.nominal == facts.nominal:
            self.draft.on_run(
                facts.run_id, run, again(job, facts, link.due_at, self.at, cause="revised")
            )
            return True
        self.draft.on_run(facts.run_id, run, re.Withdrawn(self.at, re.SUPERSEDED))
        _plan(self.draft, link, cursor, self.at, known=self.runs)
        return True

    def _drop(self, held: rs.OpenRun) -> None:
        """A withheld frontier of the old schedule: its slot has passed, or no longer exists."""
        facts = held.facts
        if facts.nominal <= self.at:
            verdict = re.Skipped(
                self.at,
                facts.job_id,
                facts.tenant_id,
                facts.nominal,
                re.PAUSED,
                due_at=facts.due_at,
            )
            self.draft.on_run(facts.run_id, held, verdict)

    def _needs_frontier(self) -> bool:
        """Active again, or planning at the lease from now on, without a frontier (P12)."""
        if isinstance(self.job, s.Finished):
            return self.moved
        if not isinstance(self.job, s.Active) or self.spec.is_one_time:
            return False
        open_link = any(r.facts.is_link and not isinstance(r, rs.Withheld) for r in self.runs)
        return self.frontier is None and (self.spec.plans_at_lease or not open_link)

    def _plan_first(self, after: int) -> None:
        _plan(self.draft, self.chain.first_after(after), after, self.at, known=self.runs)


def pause(
    job: s.JobState | None, runs: tuple[rs.OpenRun, ...], by: By, *, cause: str = "request"
) -> Outcome:
    """Stop planning and leasing; runs that wait are withdrawn, those in flight go on."""
    if job is None:
        return _absent()
    job = chain.effective(job, runs)
    if isinstance(job, s.Paused):
        return None
    if not isinstance(job, s.Active):
        return _ended(job, "paused")
    at, head = by.at, job.facts
    frontier = _frontier(job, runs)
    cursor = chain.cursor_of(job, runs)
    gone: tuple[re.Passed, ...] = ()
    if frontier is None:
        gone = chain.settle(job, cursor, at, _running_since(job, runs), None)
        cursor = max(cursor, at)
    else:
        cursor = min(cursor, at)
    draft = Draft(head.job_id, job)
    held = frontier.facts.run_id if frontier else b""
    kept = tuple(r.facts.run_id for r in runs)
    draft.on_job(e.Paused(at, cursor, held, kept, cause, by.reason, gone, by.actor, head.tenant_id))
    for run in runs:
        if isinstance(run, rs.Ready):
            draft.on_run(run.facts.run_id, run, re.Withdrawn(at, re.PAUSED))
    return draft.decision(runs, command=by.command)


def report_gone(  # noqa: PLR0913 - the arguments of `report`, and the runs that a pause reads
    job: s.JobState,
    run: rs.OpenRun,
    runs: tuple[rs.OpenRun, ...],
    fence: int,
    result: Result,
    at: int,
) -> Decision | None:
    """Return what an answer that says "gone" appends: the run's end, and the job's pause.

    `runs` are all open runs of the job, `run` among them. A job that is not active, or has no other
    occurrence, is not paused: its run ends as a dead letter, that is all.
    """
    own = report(job, run, fence, result, at, alone=chain.is_alone(run, runs))
    current = isinstance(job, s.Active) and run.facts.life == job.facts.life
    if own is None or not current or job.facts.spec.is_one_time:
        return own
    paused = pause(job, runs, By(max(at, _leased_at(run))), cause="gone")
    assert isinstance(paused, Decision)
    ends = tuple(part for part in own.slices if part.stream_id == run.facts.run_id)
    return msgspec.structs.replace(paused, slices=paused.slices + ends)


def resume(job: s.JobState | None, runs: tuple[rs.OpenRun, ...], by: By) -> Outcome:
    """Run again from `at`: withdrawn runs that had begun are due now, the chain goes on later."""
    if job is None:
        return _absent()
    if isinstance(job, s.Active):
        return None
    if not isinstance(job, s.Paused):
        return _ended(job, "resumed")
    at, head = by.at, job.facts
    held = _held(job, runs)
    cursor = chain.cursor_of(job, tuple(r for r in runs if r is not held))
    gone = chain.settle(
        job, cursor, at, _running_since(job, runs), held.facts.nominal if held else None
    )
    cursor = max(cursor, at)
    draft = Draft(head.job_id, job)
    draft.on_job(e.Resumed(at, cursor, by.reason, gone, None, by.actor, head.tenant_id))
    active = draft.job
    assert active is not None
    for run in runs:
        if (
            isinstance(run, rs.Withheld)
            and run is not held
            and (run.facts.begun or not run.facts.is_link)
        ):
            draft.on_run(run.facts.run_id, run, again(active, run.facts, at, at, cause="resumed"))
    one_time = head.spec.is_one_time
    if held is not None and (held.facts.nominal > at or one_time):
        due = chain.Chain(head.job_id, head.spec).due(held.facts.nominal)
        event = again(active, held.facts, max(due, at), at, cause="resumed")
        draft.on_run(held.facts.run_id, held, event)
        return draft.decision(runs, command=by.command)
    if held is not None:
        skipped = re.Skipped(
            at,
            head.job_id,
            head.tenant_id,
            held.facts.nominal,
            re.PAUSED,
            due_at=held.facts.due_at,
        )
        draft.on_run(held.facts.run_id, held, skipped)
    begun_link = any(r.facts.is_link and r.facts.begun and r.facts.life == head.life for r in runs)
    if not one_time and (head.spec.plans_at_lease or not begun_link):
        _plan(
            draft, chain.Chain(head.job_id, head.spec).first_after(cursor), cursor, at, known=runs
        )
    return draft.decision(runs, command=by.command)


def cancel(job: s.JobState | None, runs: tuple[rs.OpenRun, ...], by: By) -> Outcome:
    """Tombstone: every run that is not in flight ends; those in flight are named in the event."""
    if job is None:
        return _absent()
    if isinstance(job, s.Cancelled):
        return None
    job = chain.effective(job, runs)
    at, head = by.at, job.facts
    held, frontier = _held(job, runs), _frontier(job, runs)
    gone: tuple[re.Passed, ...] = ()
    cursor = chain.cursor_of(job, runs)
    if not isinstance(job, s.Finished):
        gone = chain.settle(
            job, cursor, at, _running_since(job, runs), held.facts.nominal if held else None
        )
    cursor = at if frontier or held else max(cursor, at)
    in_flight = tuple(r.facts.run_id for r in runs if isinstance(r, rs.InFlight | rs.Awaiting))
    draft = Draft(head.job_id, job)
    draft.on_job(e.Cancelled(at, cursor, by.reason, gone, in_flight, by.actor, head.tenant_id))
    for run in runs:
        facts = run.facts
        superseded = (
            isinstance(run, rs.Withheld) and facts.is_link and not facts.begun and run is not held
        )
        if isinstance(run, rs.Ready | rs.Withheld) and not superseded:
            event = re.Cancelled(
                at,
                facts.job_id,
                facts.tenant_id,
                facts.nominal,
                "job cancelled",
                facts.attempt,
                facts.kind,
                facts.due_at,
            )
            draft.on_run(facts.run_id, run, event)
    return draft.decision(runs, command=by.command)


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
        return _absent()
    if isinstance(job, s.Paused | s.Cancelled):
        return _ended(job, "triggered")
    if len(runs) >= MAX_OPEN_RUNS:
        return Rejected(
            "open_runs", f"the job has {len(runs)} open runs, at most {MAX_OPEN_RUNS} are allowed"
        )
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
        scheduled(job, chain.Link(at, at), head.cursor, at), kind=MANUAL, cause="trigger"
    )
    draft.on_run(stream, None, event)
    return draft.decision(runs, command=by.command)


def _plan(
    draft: Draft,
    link: chain.Link | chain.End,
    after: int,
    at: int,
    known: tuple[rs.OpenRun, ...] = (),
) -> None:
    """Append the first `Scheduled` of a link (or again, if it was withdrawn), or finish the job."""
    job = draft.job
    assert job is not None
    if isinstance(link, chain.End):
        if not job.facts.spec.is_one_time:
            draft.on_job(e.Finished(at, max(after, at), link.passed, job.facts.tenant_id))
        return
    due = max(link.due_at, at) if job.facts.spec.is_one_time else link.due_at
    planned = msgspec.structs.replace(link, due_at=due)
    stream = slot_id(job.facts.job_id, job.facts.life, link.nominal, job.facts.spec_version)
    withheld = next((r for r in known if r.facts.run_id == stream), None)
    draft.on_run(stream, withheld, scheduled(job, planned, after, at))


def _frontier(job: s.JobState, runs: tuple[rs.OpenRun, ...]) -> rs.Ready | None:
    """Return the one link that waits and was never leased."""
    for run in runs:
        facts = run.facts
        if (
            isinstance(run, rs.Ready)
            and facts.is_link
            and not facts.begun
            and facts.life == job.facts.life
        ):
            return run
    return None


def _held(job: s.JobState, runs: tuple[rs.OpenRun, ...]) -> rs.OpenRun | None:
    if not isinstance(job, s.Paused) or not job.held:
        return None
    return next((r for r in runs if r.facts.run_id == job.held), None)


def _running_since(job: s.JobState, runs: tuple[rs.OpenRun, ...]) -> int:
    """Return the first lease of the newest link that is begun and open, 0 if there is none."""
    mine = (r.facts for r in runs if r.facts.is_link and r.facts.life == job.facts.life)
    return max((f.first_leased_at for f in mine), default=0)


def _leased_at(run: rs.OpenRun) -> int:
    return run.leased_at if isinstance(run, rs.InFlight | rs.Awaiting) else 0


def _absent() -> Rejected:
    return Rejected("absent", "there is no such job")


def _ended(job: s.JobState, verb: str) -> Rejected:
    status = s.STATUS_NAMES[type(job)]
    return Rejected(status, f"a {status} job cannot be {verb}")
