"""What a job's streams say of an instant that is past: the answer of a command that is repeated."""

from typing import Final

from commandside.command_port import CommandLog
from domain.ids import RUN, text
from domain.job import events as e
from domain.job import state as s
from domain.run import events as re

EVENTS_PAGE: Final = 500


async def as_of(log: CommandLog, job_id: bytes, version: int) -> tuple[s.JobState, e.JobEvent]:
    """Return a job as it was at a version, and the event that led to it."""
    job: s.JobState | None = None
    last: e.JobEvent | None = None
    seen = 0
    while seen < version:
        limit = min(EVENTS_PAGE, version - seen)
        page = await log.events(job_id, job_id, seen, limit)
        for event in page:
            assert isinstance(event, e.Event), "a job's stream holds events of jobs"
            job, last = s.evolve(job_id, job, event), event
        seen += len(page)
        assert page, "a job's stream is kept whole"
    assert job is not None
    assert last is not None
    return job, last


async def in_flight_then(log: CommandLog, job_id: bytes, paused: e.Paused) -> list[str]:
    """Return the runs that were in flight when the job was paused: not withdrawn, not over."""
    found = []
    for run in paused.runs:
        events = await log.events(job_id, run, 0, EVENTS_PAGE)
        before = [event for event in events if getattr(event, "at", 0) <= paused.at]
        if before and isinstance(before[-1], re.Leased | re.Accepted | re.Extended):
            found.append(text(RUN, run))
    return found
