"""The end of an attempt where it concerns the job too: an answer, or a schedule, that pauses it.

`domain.run.report` decides over the run alone, which is all that almost every fire needs. What is
here has read all open runs of the job: a pause names them, so that its resume finds them.
"""

from typing import Final

import msgspec

from domain import chain
from domain.envelope import Decision, Slice
from domain.instant import HOUR, MINUTE
from domain.job import state as s
from domain.job.command import By
from domain.job.decide import pause
from domain.job.events import FAILURES, GONE, SCHEDULE_ERROR, BackfillMoved, Failing, JobEvent
from domain.run import events as re
from domain.run import state as rs
from domain.run.backfill import after_run
from domain.run.report import JobConcerned, Result, report
from domain.schedule.schedule import ScheduleBreach

PROBE_MS: Final = MINUTE
PROBE_MS_MAX: Final = HOUR
"""After failures a pause ends by itself, later with each failure more: the next run is the probe.
"""


def report_among(  # noqa: PLR0913 - the arguments of `report`, and the runs that a pause reads
    job: s.JobState,
    run: rs.OpenRun,
    runs: tuple[rs.OpenRun, ...],
    fence: int,
    result: Result,
    at: int,
) -> Decision | None:
    """Return what an attempt's result appends, where all open runs (`run` among them) are known.

    An answer that says "gone" pauses the job, and so does a schedule that cannot say what is next.
    A job that is not active, or has no other occurrence, is not paused: its run ends, that is all.
    """
    if result.verdict == "pause" and _can_pause(job, run):
        return _pausing(job, run, runs, (fence, result, at), GONE)
    said = fence, result, at
    try:
        try:
            return report(job, run, fence, result, at, alone=chain.is_alone(run, runs))
        except JobConcerned:
            return _counting(job, run, runs, said)
    except ScheduleBreach as breach:
        return _pausing(job, run, runs, said, SCHEDULE_ERROR, str(breach))


def _counting(
    job: s.JobState, run: rs.OpenRun, runs: tuple[rs.OpenRun, ...], said: tuple[int, Result, int]
) -> Decision | None:
    """Return the run's end, and in its job how many links in a row have ended dead with it."""
    fence, result, at = said
    head = job.facts
    failures = 0 if result.outcome == re.OK else head.failures + 1
    more = failures - head.spec.pause_after
    if more >= 0 and failures and not head.spec.is_one_time:
        wait = min(PROBE_MS << min(more, 10), PROBE_MS_MAX)
        reason = f"{failures} runs in a row ended dead"
        return _pausing(job, run, runs, said, FAILURES, reason, at + wait)
    alone = chain.is_alone(run, runs)
    own = report(job, run, fence, result, at, alone=alone, noted=True)
    if own is None:
        return None
    events: tuple[JobEvent, ...] = (Failing(at, head.cursor, failures, head.tenant_id),)
    rest = []
    for part in own.slices:
        if part.stream_id == head.job_id:
            events += tuple(event for event in part.events if isinstance(event, JobEvent))
        else:
            rest.append(part)
    after: s.JobState = job
    for event in events:
        after = s.evolve(head.job_id, after, event)
    noted = Slice(head.job_id, head.version + 1, events, after)
    return msgspec.structs.replace(own, slices=(noted, *rest))


def _can_pause(job: s.JobState, run: rs.OpenRun) -> bool:
    current = isinstance(job, s.Active) and run.facts.life == job.facts.life
    return current and not job.facts.spec.is_one_time


def _pausing(  # noqa: PLR0913 - as above
    job: s.JobState,
    run: rs.OpenRun,
    runs: tuple[rs.OpenRun, ...],
    said: tuple[int, Result, int],
    cause: str,
    reason: str = "",
    until: int = 0,
) -> Decision | None:
    """Return the run's end, which plans nothing, and the job's pause with it."""
    fence, result, at = said
    own = report(job, run, fence, result, at, alone=False, noted=True)
    if own is None:
        return None
    leased_at = run.leased_at if isinstance(run, rs.InFlight | rs.Awaiting) else 0
    paused = pause(job, runs, By(max(at, leased_at), reason=reason), cause=cause, until=until)
    assert isinstance(paused, Decision)
    if isinstance(own.slices[0].after, rs.Ended) and run.facts.is_backfill:
        paused = _with_place(paused, run, at)
    return msgspec.structs.replace(paused, slices=paused.slices + own.slices)


def _with_place(paused: Decision, run: rs.OpenRun, at: int) -> Decision:
    """Return the pause with the place where a backfill stands whose run ends with it."""
    head, *rest = paused.slices
    job = head.after
    assert isinstance(job, s.Paused)
    moved = after_run(job, run.facts, at)
    if moved is None:
        return paused
    assert isinstance(moved, BackfillMoved), "a paused job plans nothing"
    after = s.evolve(head.stream_id, job, moved)
    said = tuple(event for event in head.events if isinstance(event, JobEvent))
    place = msgspec.structs.replace(head, events=(*said, moved), after=after)
    return msgspec.structs.replace(paused, slices=(place, *rest))
