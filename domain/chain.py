"""The chain of a recurring job: the next slot, and a verdict for each slot passed (protocol §7).

Work is bounded whatever the outage: a slot that passes gets no stream of its own, it is covered by
a range, and ranges come from the schedule's arithmetic. A decision about runs goes by a slot's
*due* instant (nominal + jitter); a command goes by the nominal one, since that is where a schedule
is in force or not.
"""

from domain import backlog
from domain.job import state as job_state
from domain.run import events as e
from domain.run.state import Facts, OpenRun, Ready, Withheld
from domain.schedule.schedule import FixedDelay, OneTime, ScheduleBreach
from domain.slots import End, Link, Slots, Span, ranges, with_passed

__all__ = ["Chain", "End", "Link", "with_passed"]


class Chain(Slots):
    """The slots of one job under its current spec, and what follows a link that has ended."""

    __slots__ = ()

    def after_end(
        self, cursor: int, first_leased: int, ended: int, owed: e.CatchUp | None = None
    ) -> Link | End:
        """Return the link after a run first leased at one instant and ended at another."""
        if owed is None:
            # Almost always: nothing has passed, and no other slot is looked at.
            nominal = self.plan.next_after(cursor)
            if nominal is None:
                return End()
            due = self.due(nominal)
            if due > ended:
                return Link(nominal, due)
        return backlog.after_end(self, cursor, (first_leased, ended), owed)


def owed_after(job: job_state.JobState, facts: Facts) -> e.CatchUp | None:
    """Return the missed slots that fire after this link, unless a command has settled them."""
    cursor, owed = job.facts.cursor, facts.catch_up
    if owed is not None and owed.cursor > cursor:
        return owed
    if isinstance(job, job_state.Active) and job.catch_up is not None:
        # What a resume keeps waits in the head for the end of the link that was in flight then.
        owed = job.catch_up
        if 0 < facts.first_leased_at <= owed.cursor and owed.cursor > cursor:
            return owed
    return None


def owed_now(job: job_state.JobState, runs: tuple[OpenRun, ...]) -> e.CatchUp | None:
    """Return the missed slots that are still to fire, as a command sees them."""
    waits = frontier(job, runs)
    if waits is not None:
        return owed_after(job, waits.facts)
    if job.facts.spec.plans_at_lease:
        return None
    found = [owed_after(job, run.facts) for run in begun_links(job, runs)]
    return next((owed for owed in found if owed is not None), None)


def cursor_of(job: job_state.JobState, runs: tuple[OpenRun, ...]) -> int:
    """Return the job's cursor: the head's, or the nominal instant of a later open link.

    A link that was withdrawn before it began has given its slot back.
    """
    cursor = job.facts.cursor
    if isinstance(job, job_state.Active) and job.catch_up is not None:
        cursor = max(cursor, job.catch_up.cursor)
    for run in runs:
        facts = run.facts
        given_back = isinstance(run, Withheld) and not facts.begun
        if facts.is_link and not given_back and facts.life == job.facts.life:
            cursor = max(cursor, facts.nominal)
            if facts.catch_up is not None:
                cursor = max(cursor, facts.catch_up.cursor)
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
) -> tuple[Span, ...]:
    """Return the verdicts of all slots in (cursor, at], by nominal instant.

    `running_since`: first lease of the link that is begun and open, 0 if there is none. `held`: the
    nominal instant of a withheld frontier, which gets a verdict in its own stream.
    """
    if at <= cursor or isinstance(job.facts.spec.schedule, OneTime | FixedDelay):
        return ()
    pause = max(cursor, min(at, job.paused_at)) if isinstance(job, job_state.Paused) else at
    split = max(cursor, min(pause, running_since)) if running_since else pause
    spans = [(cursor, split, e.MISFIRE, ""), (split, pause, e.OVERLAP, "")]
    if held is not None and pause < held <= at:
        spans += [(pause, held - 1, e.PAUSED, ""), (held, at, e.PAUSED, "")]
    else:
        spans.append((pause, at, e.PAUSED, ""))
    return tuple(spans)


def judged(
    job: job_state.JobState, spans: tuple[Span, ...], owed: e.CatchUp | None = None
) -> tuple[e.Passed, ...]:
    """Return the ranges of these spans, after what is left of a catch-up that is closed.

    There are none where the schedule cannot say what its slots were: its job can still be changed
    and cancelled.
    """
    if job.facts.spec.is_one_time or not (spans or owed):
        return ()
    try:
        slots = Slots(job.facts.job_id, job.facts.spec)
        return ranges(slots.plan, (*backlog.closing(slots, owed), *spans))
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
