"""What commands answer: all of it follows from the job's state and the command's instant.

So the same command is answered alike for ever.
"""

from functools import lru_cache
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from domain import outlook
from domain.chain import Link
from domain.ids import JOB, text
from domain.instant import DAY, rfc3339
from domain.job.state import STATUS_NAMES, JobState
from domain.schedule.schedule import OneTime, ScheduleSpec, warnings

_KEPT: Final = 4_096

Instant = Annotated[str, Meta(description="RFC 3339, UTC, milliseconds")]


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
    run_id: Annotated[str, Meta(description="of the run that was asked for")] | UnsetType = UNSET
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
    if runs:
        found.next_runs = outlook.following(job.facts, link.nominal) if link else []
    return found


def said_of(schedule: ScheduleSpec, at: int) -> list[str]:
    """Return what the author of a schedule may not expect of it."""
    # Sentences about a cron schedule change with the clock changes ahead: once a day is enough.
    if isinstance(schedule, OneTime):
        return list(warnings(schedule, at))
    return list(_said(schedule, at // DAY * DAY))


@lru_cache(_KEPT)
def _said(schedule: ScheduleSpec, at: int) -> tuple[str, ...]:
    return warnings(schedule, at)
