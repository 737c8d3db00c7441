"""A log of one job that applies decisions as the real one does: guards, slices, due rows, heads.

It knows only what the real log knows: runs come from due rows, and withheld ones from the list in
the job's `Paused`. Every commit is checked against the fold of its stream.
"""

from typing import Final

import msgspec

from domain.draft import guard_of
from domain.envelope import BegunBeside, Decision, Guard, JobAt, Rejected, RunAt, Slice, StreamAt
from domain.ids import SLOT
from domain.job import decide as job_decide
from domain.job import events as je
from domain.job import state as js
from domain.job.backfill import CHANGES, SLOTS_MAX, Range, backfill, past, refusal, sort
from domain.job.decide import By, NewJob
from domain.job.ending import report_among
from domain.job.redrive import TELLING, TELLING_MAX, redrive, tell
from domain.retry import RetryPolicy
from domain.run import events as re
from domain.run import state as rs
from domain.run.decide import (
    LOST,
    Grant,
    Result,
    first_lease,
    lease_until,
)
from domain.schedule.schedule import Cron, OneTime, ScheduleSpec, parse_cron
from domain.target import HttpTarget
from projections.due_index import decode_job, due_row, head_row, run_of

JOB: Final = bytes(12) + b"job1"
TENANT: Final = bytes(15) + b"\x07"
SESSION: Final = bytes(15) + b"\x01"
START: Final = 1_800_000_000_000
"""On a whole minute, hour and day of UTC minus some: 2027-01-15T08:00:00Z."""
SECOND: Final = 1_000
MINUTE: Final = 60_000
TIMEOUT_MS: Final = 30_000
TARGET: Final = HttpTarget(
    "https", "hooks.example.com", 443, "/v1", "POST", (), "https://hooks.example.com/v1"
)
POLICY: Final = RetryPolicy(3, "fixed", 5_000, 60_000, jitter="none")
OK: Final = Result(re.OK, "ok", 200)
FAILED: Final = Result(re.FAILED, "retry", 500)
GONE: Final = Result(re.FAILED, "pause", 410)


def cron(text: str) -> Cron:
    """Return a schedule in UTC."""
    found = parse_cron(text, "UTC")
    assert isinstance(found, Cron)
    return found


MINUTELY: Final = cron("* * * * *")


def spec(schedule: ScheduleSpec = MINUTELY, **fields: object) -> je.JobSpec:
    """Return a spec with what the test does not care about filled in."""
    plain = je.JobSpec(schedule, TARGET, POLICY, TIMEOUT_MS, "{job_id}-{scheduled_ts}", b"body")
    return msgspec.structs.replace(plain, **fields)


def allow(schedule: ScheduleSpec = MINUTELY, limit: int = 100) -> je.JobSpec:
    """Return the spec of a job whose runs may overlap."""
    return spec(schedule, overlap=je.ALLOW, overlap_limit=limit)


def once(at: int, **fields: object) -> je.JobSpec:
    """Return the spec of a one-time job."""
    return spec(OneTime(at), **fields)


class Desk:
    """The job, its runs, and everything that was ever appended; `now` is the database clock."""

    def __init__(self, at: int = START) -> None:
        self.now = at
        self.job: js.JobState | None = None
        self.due: dict[bytes, rs.Ready | rs.InFlight | rs.Awaiting] = {}
        self.streams: dict[bytes, list[re.RunEvent]] = {}
        self.states: dict[bytes, rs.RunState] = {}
        self.job_events: list[je.JobEvent] = []
        self.log: list[je.JobEvent | re.RunEvent] = []
        self.commits: list[Decision] = []
        self._commands = 0

    def runs(self) -> tuple[rs.OpenRun, ...]:
        """Return the open runs as a command reads them: due rows, and those the pause names."""
        found: dict[bytes, rs.OpenRun] = dict(self.due)
        if isinstance(self.job, js.Paused):
            for run_id in self.job.runs:
                state = self.states[run_id]
                if isinstance(state, rs.Withheld):
                    found[run_id] = state
        return tuple(found[run_id] for run_id in sorted(found))

    def head(self) -> js.JobState:
        """Return the job, which exists."""
        assert self.job is not None
        return self.job

    def links(self) -> list[rs.OpenRun]:
        """Return the open links of the job's current life that have a due row."""
        life = self.head().facts.life
        return [r for r in self.due.values() if r.facts.is_link and r.facts.life == life]

    def frontier(self) -> rs.Ready:
        """Return the link that waits and was never leased."""
        (found,) = [r for r in self.links() if isinstance(r, rs.Ready) and not r.facts.begun]
        return found

    def only(self) -> rs.OpenRun:
        """Return the one open run."""
        (found,) = self.due.values()
        return found

    def passed(self) -> list[re.Passed]:
        """Return every range verdict, in order."""
        return [p for event in self.log for p in getattr(event, "passed", ())]

    def last(self, run_id: bytes) -> list[str]:
        """Return the names of a run's events."""
        return [type(event).__name__ for event in self.streams[run_id]]

    def holds(self, guard: Guard) -> bool:
        """Tell whether a guard holds under the lock."""
        match guard:
            case JobAt(_, version):
                return version == (0 if self.job is None else self.job.facts.version)
            case RunAt(run_id, version):
                row = self.due.get(run_id)
                return row is not None and row.facts.version == version
            case StreamAt(stream_id, version):
                return len(self.streams.get(stream_id, ())) == version
            case BegunBeside(_, run_id, count):
                others = [r for r in self.due.values() if r.facts.run_id != run_id]
                return sum(r.facts.begun for r in others) == count

    def commit(self, decision: Decision) -> bool:
        """Apply a decision whole, or not at all."""
        if self.now < decision.not_before or not all(map(self.holds, decision.guards)):
            return False
        for part in decision.slices:
            self._apply(part)
        self.commits.append(decision)
        return True

    def _apply(self, part: Slice) -> None:
        if part.stream_id == JOB:
            for job_event in part.events:
                assert isinstance(job_event, je.JobEvent)
                self.job_events.append(job_event)
                self.log.append(job_event)
            folded: js.JobState | None = None
            for job_event in self.job_events:
                folded = js.evolve(JOB, folded, job_event)
            assert folded == part.after, "the slice's after-state is the fold of its stream"
            assert part.version + len(part.events) - 1 == folded.facts.version
            self.job = decode_job(head_row(folded).state)
            assert self.job == folded, "a head holds the whole state"
            return
        stream = self.streams.setdefault(part.stream_id, [])
        assert part.version == len(stream) + 1, "an insert at the next version"
        for event in part.events:
            assert isinstance(event, re.RunEvent)
            stream.append(event)
            self.log.append(event)
        self._fold(part)

    def _fold(self, part: Slice) -> None:
        state: rs.RunState | None = None
        for event in self.streams[part.stream_id]:
            state = rs.evolve(part.stream_id, state, event)
        assert state == part.after, "the slice's after-state is the fold of its stream"
        assert not isinstance(state, rs.Reported | None)
        self.states[part.stream_id] = state
        self.due.pop(part.stream_id, None)
        row = due_row(state)
        if row is not None:
            self.due[part.stream_id] = run_of(row)
            assert self.due[part.stream_id] == state, "a due row holds the whole state"

    def _command(self, outcome: Decision | Rejected | None) -> Decision | Rejected | None:
        if isinstance(outcome, Decision):
            assert self.commit(outcome), "a command decides inside the lock"
        return outcome

    def by(self) -> By:
        """Return the author of a command at this instant."""
        return By(self.now)

    def define(self, new: je.JobSpec) -> Decision | Rejected | None:
        """Define the job, or define it again."""
        return self._command(job_decide.define(NewJob(JOB, TENANT, new), self.job, self.by()))

    def revise(self, new: je.JobSpec) -> Decision | Rejected | None:
        """Change the job's spec."""
        return self._command(job_decide.revise(self.job, self.runs(), new, "", self.by()))

    def pause(self) -> Decision | Rejected | None:
        """Pause the job."""
        return self._command(job_decide.pause(self.job, self.runs(), self.by()))

    def resume(self, catch_up: str = "") -> Decision | Rejected | None:
        """Resume the job."""
        outcome = job_decide.resume(self.job, self.runs(), self.by(), catch_up=catch_up)
        return self._command(outcome)

    def cancel(self) -> Decision | Rejected | None:
        """Cancel the job."""
        return self._command(job_decide.cancel(self.job, self.runs(), self.by()))

    def trigger(self, *, allow_overlap: bool = False) -> Decision | Rejected | None:
        """Ask for a manual run."""
        self._commands += 1
        outcome = job_decide.trigger(
            self.job,
            self.runs(),
            self._commands.to_bytes(16, "big"),
            self.by(),
            allow_overlap=allow_overlap,
        )
        return self._command(outcome)

    def backfill(
        self, since: int, until: int, *, rerun: bool = False
    ) -> Decision | Rejected | None:
        """Ask for the slots of a past range."""
        refused = refusal(self.job, self.runs())
        if refused is not None or self.job is None:
            return refused
        events = enumerate(self.job_events, 1)
        lived = past(JOB, [(n, event) for n, event in events if isinstance(event, CHANGES)])
        asked = Range(since, until, rerun)
        ends = {
            slot: [self.streams[run][-1] for run in lived.streams(slot) if run in self.streams]
            for slot in lived.slots(asked, SLOTS_MAX)
        }
        slots = sort(self.job, self.runs(), self.now, ends)
        return self._command(backfill(self.job, self.runs(), asked, slots, "", self.by()))

    def redrive(self, *dead: bytes, per_second: int = 0) -> Decision | Rejected | None:
        """Ask for dead runs again."""
        known = []
        for run in dead:
            events = enumerate(self.streams[run], 1)
            told = [(n, event) for n, event in events if isinstance(event, TELLING)]
            found = tell(run, told[-TELLING_MAX:])
            assert found is not None
            known.append(found)
        streams = [each.redrive_id for each in known]
        redriven = {run: self.streams[run][-1] for run in streams if run in self.streams}
        by = self.by()
        outcome = redrive(self.job, self.runs(), known, redriven, by, per_second=per_second)
        return self._command(outcome)

    def dead(self) -> list[bytes]:
        """Return the runs that ended dead."""
        ends = {run: events[-1] for run, events in self.streams.items()}
        return [
            run
            for run, end in ends.items()
            if isinstance(end, re.Completed) and end.outcome == re.DEAD
        ]

    def lease(self, run: rs.OpenRun) -> rs.InFlight | None:
        """Lease a run as the statement and `first_lease` do; None where nothing is leased."""
        decision = self.decide_lease(run)
        if decision is None or not self.commit(decision):
            return None
        leased = [p.after for p in decision.slices if isinstance(p.after, rs.InFlight)]
        return leased[0] if leased else None

    def decide_lease(self, run: rs.OpenRun) -> Decision | None:
        """Return what a lease appends, by the statement's own rules or decided."""
        job, facts = self.head(), run.facts
        current = self.due.get(facts.run_id)
        if current != run or not isinstance(run, rs.Ready) or facts.due_at > self.now:
            return None
        if not isinstance(job, js.Active | js.Finished):
            return None
        beside = tuple(r for r in self.due.values() if r is not current)
        if self._needs_a_thought(facts, sum(r.facts.begun for r in beside)):
            return first_lease(job, run, beside, self.now, Grant(SESSION, bytes(8)))
        until = lease_until(self.now, job.facts.spec.timeout_ms)
        event = re.Leased(SESSION, bytes(8), self.now, until, facts.attempt + 1)
        after = rs.evolve(facts.run_id, run, event)
        assert isinstance(after, rs.InFlight)
        return Decision(
            JOB, (guard_of(run),), (Slice(facts.run_id, facts.version + 1, (event,), after),)
        )

    def _needs_a_thought(self, facts: rs.Facts, begun: int) -> bool:
        head = head_row(self.head())
        late = head.misfire_after_ms > 0 and self.now - facts.due_at > head.misfire_after_ms
        first = facts.kind == SLOT and not facts.begun
        old = head.max_lateness_ms > 0 and self.now - facts.nominal > head.max_lateness_ms
        asked_for = facts.is_afterthought and not facts.begun
        return (
            (first and (late or head.plans_at_lease))
            or asked_for
            or old
            or begun >= head.overlap_limit
        )

    def decide_report(self, run: rs.OpenRun, result: Result) -> Decision | None:
        """Return what a result appends, as the run and its job are now."""
        mine = self.due.get(run.facts.run_id) or self.states[run.facts.run_id]
        if isinstance(mine, rs.Ended | rs.Reported):
            return None
        job, runs, fence = self.head(), self.runs(), run.facts.fence
        return report_among(job, mine, runs, fence, result, self.now)

    def report(self, run: rs.OpenRun, result: Result = OK) -> Decision | None:
        """Report a result at once."""
        decision = self.decide_report(run, result)
        if decision is not None:
            assert self.commit(decision)
        return decision

    def lapse(self, run: rs.InFlight) -> Decision | None:
        """Append the lapse of a lease that is over."""
        assert self.now >= run.until
        return self.report(run, LOST)

    def lease_when_due(self) -> rs.InFlight:
        """Lease the one open run at its due instant."""
        run = self.only()
        self.now = max(self.now, run.facts.due_at)
        leased = self.lease(run)
        assert leased is not None
        return leased

    def fire(self, result: Result = OK) -> rs.InFlight:
        """Lease the frontier and report its result; the clock goes to its due instant if early."""
        run = self.frontier()
        self.now = max(self.now, run.facts.due_at)
        leased = self.lease(run)
        assert leased is not None
        self.report(leased, result)
        return leased

    def begin(self) -> rs.InFlight:
        """Lease the frontier at its due instant, or now if that is past."""
        run = self.frontier()
        self.now = max(self.now, run.facts.due_at)
        leased = self.lease(run)
        assert leased is not None
        return leased
