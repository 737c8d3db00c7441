"""The end of an attempt where it concerns the job too: an answer, or a schedule, that pauses it.

`domain.run.report` decides over the run alone, which is all that almost every fire needs. What is
here has read all open runs of the job: a pause names them, so that its resume finds them.
"""

import msgspec

from domain import chain
from domain.envelope import Decision
from domain.job import state as s
from domain.job.command import By
from domain.job.decide import pause
from domain.run import state as rs
from domain.run.report import Result, report
from domain.schedule.schedule import ScheduleBreach

GONE = "gone"
SCHEDULE_ERROR = "schedule_error"
"""Causes of a `Paused` that no client asked for."""


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
    try:
        return report(job, run, fence, result, at, alone=chain.is_alone(run, runs))
    except ScheduleBreach as breach:
        return _pausing(job, run, runs, (fence, result, at), SCHEDULE_ERROR, str(breach))


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
) -> Decision | None:
    """Return the run's end, which plans nothing, and the job's pause with it."""
    fence, result, at = said
    own = report(job, run, fence, result, at, alone=False)
    if own is None:
        return None
    leased_at = run.leased_at if isinstance(run, rs.InFlight | rs.Awaiting) else 0
    paused = pause(job, runs, By(max(at, leased_at), reason=reason), cause=cause)
    assert isinstance(paused, Decision)
    return msgspec.structs.replace(paused, slices=paused.slices + own.slices)
