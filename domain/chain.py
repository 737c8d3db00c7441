"""The chain of a recurring job: the next slot, and a verdict for each slot passed (protocol §7).

Work is bounded whatever the outage: a slot that passes gets no stream of its own, it is covered by
a range, and ranges come from the schedule's arithmetic. A decision about runs goes by a slot's
*due* instant (nominal + jitter); a command goes by the nominal one, since that is where a schedule
is in force or not.
"""

import msgspec

from domain.job import state as job_state
from domain.job.events import JobSpec
from domain.run import events as e
from domain.run.state import OpenRun, Ready, Withheld
from domain.schedule.jitter import due_at, jitter_ms
from domain.schedule.schedule import OneTime, Plan, ScheduleBreach, between, passed, plan


class Link(msgspec.Struct, frozen=True, gc=False):
    """The next occurrence to plan, and the verdicts that ride on its `Scheduled`."""

    nominal: int
    due_at: int
    passed: tuple[e.Passed, ...] = ()


class End(msgspec.Struct, frozen=True, gc=False):
    """No slot is left; the verdicts of those passed ride on the job's event."""

    passed: tuple[e.Passed, ...] = ()


def slots_of(spec: JobSpec) -> Plan:
    """Return the slots of a job: those of its schedule from `starts_at` to `ends_at`."""
    if spec.starts_at or spec.ends_at:
        return between(spec.schedule, spec.starts_at, spec.ends_at)
    return plan(spec.schedule)


class Chain:
    """The slots of one job under its current spec, with their due instants."""

    __slots__ = ("_jitter", "plan", "spec")

    def __init__(self, job_id: bytes, spec: JobSpec) -> None:
        """Compile (or find) the plan of the spec's schedule."""
        self.spec = spec
        self.plan: Plan = slots_of(spec)
        self._jitter = jitter_ms(job_id, spec.jitter_ms) if spec.jitter_ms else 0

    def due(self, nominal: int) -> int:
        """Return the effective instant of a slot."""
        if not self._jitter:
            return nominal
        return due_at(nominal, self.plan.next_after(nominal), self._jitter)

    def first_after(self, at: int) -> Link | End:
        """Return the first slot whose nominal instant is > `at`."""
        nominal = self.plan.next_after(at)
        return End() if nominal is None else Link(nominal, self.due(nominal))

    def newest_due(self, at: int) -> int | None:
        """Return the newest slot whose due instant is ≤ `at`."""
        nominal = self.plan.last_until(at)
        if nominal is not None and self.due(nominal) > at:
            nominal = self.plan.last_until(nominal - 1)
        return nominal

    def after_end(self, cursor: int, first_leased: int, ended: int) -> Link | End:
        """Return the link after a run first leased at one instant and ended at another.

        Slots that passed before the lease are `misfire` (the run itself started late); those that
        passed while it ran are `overlap`.
        """
        nominal = self.plan.next_after(cursor)
        if nominal is None:
            return End()
        due = self.due(nominal)
        if due > ended:
            return Link(nominal, due)
        newest = self.newest_due(ended)
        assert newest is not None
        late = self.newest_due(first_leased)
        split = cursor if late is None else min(max(late, cursor), newest)
        gone = ranges(self.plan, ((cursor, split, e.MISFIRE), (split, newest, e.OVERLAP)))
        return with_passed(self.first_after(newest), gone)

    def once(self, cursor: int, at: int) -> Link | End:
        """Return the occurrence of a one-time job unless it is settled; a past one is due now."""
        nominal = self.plan.next_after(cursor)
        return End() if nominal is None else Link(nominal, max(self.due(nominal), at))


def window_ms(spec: JobSpec) -> int:
    """Return how old a missed slot may be to fire still, 0 for no bound."""
    bounds = [ms for ms in (spec.catch_up_window_ms, spec.max_lateness_ms) if ms]
    return min(bounds, default=0)


def ranges(
    slots: Plan, spans: tuple[tuple[int, int, str], ...], cause: str = ""
) -> tuple[e.Passed, ...]:
    """Return a verdict for each non-empty span (after, until, verdict) of the schedule."""
    found = []
    for after, until, verdict in spans:
        span = passed(slots, after, until) if until > after else None
        if span is not None:
            found.append(e.Passed(span[0], span[1], span[2], verdict, cause))
    return tuple(found)


def with_passed(link: Link | End, gone: tuple[e.Passed, ...]) -> Link | End:
    """Return `link` with `gone` before its own verdicts."""
    return msgspec.structs.replace(link, passed=gone + link.passed) if gone else link


def with_cause(link: Link | End, cause: str) -> Link | End:
    """Return `link` whose verdicts name the cause, except those of overlap, which is one."""
    named = tuple(
        p if p.verdict == e.OVERLAP else msgspec.structs.replace(p, cause=cause)
        for p in link.passed
    )
    return msgspec.structs.replace(link, passed=named)


def cursor_of(job: job_state.JobState, runs: tuple[OpenRun, ...]) -> int:
    """Return the job's cursor: the head's, or the nominal instant of a later open link.

    A link that was withdrawn before it began has given its slot back.
    """
    cursor = job.facts.cursor
    for run in runs:
        facts = run.facts
        given_back = isinstance(run, Withheld) and not facts.begun
        if facts.is_link and not given_back and facts.life == job.facts.life:
            cursor = max(cursor, facts.nominal)
    return cursor


def is_alone(run: OpenRun, runs: tuple[OpenRun, ...]) -> bool:
    """Tell whether no other link of the run's chain is open: its end then plans the next."""
    facts = run.facts
    return not any(
        other.facts.is_link
        and other.facts.life == facts.life
        and other.facts.run_id != facts.run_id
        for other in runs
    )


def frontier(job: job_state.JobState, runs: tuple[OpenRun, ...]) -> Ready | None:
    """Return the one link that waits and was never leased."""
    for run in runs:
        facts = run.facts
        fresh = isinstance(run, Ready) and facts.is_link and not facts.begun
        if fresh and facts.life == job.facts.life:
            assert isinstance(run, Ready)
            return run
    return None


def held(job: job_state.JobState, runs: tuple[OpenRun, ...]) -> Withheld | None:
    """Return the frontier that a pause has withdrawn."""
    if not isinstance(job, job_state.Paused) or not job.held:
        return None
    found = next((run for run in runs if run.facts.run_id == job.held), None)
    return found if isinstance(found, Withheld) else None


def begun_links(job: job_state.JobState, runs: tuple[OpenRun, ...]) -> tuple[OpenRun, ...]:
    """Return the open links of the job's current life that have been leased at least once."""
    life = job.facts.life
    return tuple(r for r in runs if r.facts.is_link and r.facts.begun and r.facts.life == life)


def running_since(job: job_state.JobState, runs: tuple[OpenRun, ...]) -> int:
    """Return the first lease of the newest link that is begun and open, 0 if there is none."""
    return max((run.facts.first_leased_at for run in begun_links(job, runs)), default=0)


def settle(
    job: job_state.JobState, cursor: int, at: int, running_since: int, held: int | None
) -> tuple[e.Passed, ...]:
    """Return the verdicts of all slots in (cursor, at], by nominal instant.

    `running_since`: first lease of the link that is begun and open, 0 if there is none. `held`: the
    nominal instant of a withheld frontier, which gets a verdict in its own stream. There are none
    where the schedule cannot say what its slots were: its job can still be changed and cancelled.
    """
    spec = job.facts.spec
    if at <= cursor or isinstance(spec.schedule, OneTime):
        return ()
    pause = max(cursor, min(at, job.paused_at)) if isinstance(job, job_state.Paused) else at
    split = max(cursor, min(pause, running_since)) if running_since else pause
    spans = [(cursor, split, e.MISFIRE), (split, pause, e.OVERLAP)]
    if held is not None and pause < held <= at:
        spans += [(pause, held - 1, e.PAUSED), (held, at, e.PAUSED)]
    else:
        spans.append((pause, at, e.PAUSED))
    try:
        return ranges(slots_of(spec), tuple(spans))
    except ScheduleBreach:
        return ()


def effective(job: job_state.JobState, runs: tuple[OpenRun, ...]) -> job_state.JobState:
    """Return the job's state with a one-time job whose link has ended seen as finished."""
    if (
        isinstance(job, job_state.Active)
        and job.facts.spec.is_one_time
        and not any(r.facts.is_link and r.facts.life == job.facts.life for r in runs)
    ):
        return job_state.Finished(job.facts)
    return job
