"""What commands answer: all of it follows from the job's state and the command's instant.

So the same command is answered alike for ever. Where a one-time job is left as it is, what its run
had come to by that instant counts too (`commandside.commands.past`).
"""

from functools import lru_cache
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from domain import outlook
from domain.chain import Link
from domain.ids import JOB, text
from domain.instant import DAY, rfc3339
from domain.job.events import BackfillRequested
from domain.job.state import STATUS_NAMES, JobState, Paused
from domain.schedule.schedule import OneTime, ScheduleSpec, warnings

_KEPT: Final = 4_096

Instant = Annotated[str, Meta(description="RFC 3339, UTC, milliseconds")]


class BackfillReply(msgspec.Struct, kw_only=True):
    """What a backfill does: of the `slots` in the range, so many run; the others are left alone."""

    from_: Annotated[Instant, Meta(description="as asked")] = msgspec.field(name="from")
    to: Instant
    rerun: bool
    slots: Annotated[int, Meta(description="in the range, under the schedules in force then")]
    succeeded: Annotated[int, Meta(description="a run of the slot had succeeded")]
    dead: Annotated[int, Meta(description="it was sent and ended otherwise")]
    open: Annotated[int, Meta(description="its run is not over, or is still to come")]
    runs: Annotated[int, Meta(description="slots that run, one after the other")]
    first: Annotated[Instant | None, Meta(description="of those that run")]
    last: Instant | None
    dry_run: bool


class JobReply(msgspec.Struct, kw_only=True):
    """What a command made of a job."""

    job_id: str
    status: Annotated[str, Meta(description="active, paused, finished or cancelled")]
    version: Annotated[int, Meta(description="of the job's stream; the ETag")]
    at: Annotated[Instant, Meta(description="when the command took effect")]
    next_run_at: Instant | None
    next_due_at: Instant | None
    next_runs: list[Instant] | UnsetType = UNSET
    in_flight: (
        Annotated[list[str], Meta(description="runs whose attempt goes on by itself")] | UnsetType
    ) = UNSET
    until: (
        Annotated[Instant | None, Meta(description="when the pause ends by itself")] | UnsetType
    ) = UNSET
    run_id: Annotated[str, Meta(description="of the run that was asked for")] | UnsetType = UNSET
    backfill: BackfillReply | UnsetType = UNSET
    warnings: list[str] | UnsetType = UNSET
    position: Annotated[str, Meta(description="opaque; lists wait for it with ?position=")] = ""


def reply(
    job: JobState, version: int, at: int, *, runs: bool = True, link: Link | None = None
) -> JobReply:
    """Describe a job as of the command that led to `version`; with `runs`, its next ones too.

    `link`: its next occurrence, where the caller knows it.
    """
    link = link or outlook.next_link(job, at)
    found = JobReply(
        job_id=text(JOB, job.facts.job_id),
        status=STATUS_NAMES[type(job)],
        version=version,
        at=rfc3339(at),
        next_run_at=rfc3339(link.nominal) if link else None,
        next_due_at=rfc3339(link.due_at) if link else None,
    )
    if isinstance(job, Paused):
        found.until = rfc3339(job.until) if job.until else None
    if runs:
        found.next_runs = outlook.following(job.facts, link.nominal) if link else []
    return found


def backfilled(event: BackfillRequested, *, dry_run: bool = False) -> BackfillReply:
    """Say what a backfill does, or would do."""
    slots = event.slots
    return BackfillReply(
        from_=rfc3339(event.since),
        to=rfc3339(event.until),
        rerun=event.rerun,
        slots=event.found,
        succeeded=event.succeeded,
        dead=event.dead,
        open=event.open,
        runs=sum(part.count for part in slots),
        first=rfc3339(slots[0].first) if slots else None,
        last=rfc3339(slots[-1].last) if slots else None,
        dry_run=dry_run,
    )


def said_of(schedule: ScheduleSpec, at: int) -> list[str]:
    """Return what the author of a schedule may not expect of it."""
    # Sentences about a cron schedule change with the clock changes ahead: once a day is enough.
    if isinstance(schedule, OneTime):
        return list(warnings(schedule, at))
    return list(_said(schedule, at // DAY * DAY))


@lru_cache(_KEPT)
def _said(schedule: ScheduleSpec, at: int) -> tuple[str, ...]:
    return warnings(schedule, at)
