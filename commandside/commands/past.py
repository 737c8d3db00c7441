"""What a job's streams say of an instant that is past: the answer of a command that is repeated."""

from typing import Final

import msgspec

from commandside.command_port import CommandLog
from domain.ids import RUN, slot_id, text
from domain.job import events as e
from domain.job import state as s
from domain.run import events as re
from domain.run import state as rs
from domain.schedule.schedule import OneTime

EVENTS_PAGE: Final = 500
EDITS_MAX: Final = 64
"""Newest edits of a one-time job among which the plan of its run is looked for."""
PLANNING: Final = (e.Defined, e.Revised, e.Replanned)


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


async def one_time_then(log: CommandLog, job: s.JobState, at: int) -> s.JobState:
    """Return a job; one of one time whose run had begun by an instant, as that run left it.

    The job's own stream does not say so: by it, the run is for ever still to come.
    """
    facts = job.facts
    schedule = facts.spec.schedule
    if not isinstance(job, s.Active) or not isinstance(schedule, OneTime) or schedule.run_at > at:
        return job
    run_at = schedule.run_at
    told = await log.told(facts.job_id, PLANNING, EDITS_MAX)
    versions = [version for version, _ in told if version <= facts.version]
    planned = [slot_id(facts.job_id, facts.life, run_at, version) for version in versions]
    known = await log.last_events(planned)
    for stream in reversed(planned):
        if stream in known:
            return _left_by(await _run_then(log, facts.job_id, stream, at), job, run_at)
    return job


async def _run_then(log: CommandLog, job_id: bytes, stream: bytes, at: int) -> rs.RunState | None:
    run: rs.RunState | None = None
    for event in await log.events(job_id, stream, 0, EVENTS_PAGE):
        assert isinstance(event, re.RunEvent), "a run's stream holds events of runs"
        if event.at > at:
            break
        run = rs.evolve(stream, run, event)
    return run


def _left_by(run: rs.RunState | None, job: s.Active, run_at: int) -> s.JobState:
    if isinstance(run, rs.Ended):
        return s.Finished(job.facts)
    if run is None or not run.facts.begun:
        return job
    facts = msgspec.structs.replace(job.facts, cursor=run_at)
    return msgspec.structs.replace(job, facts=facts)
