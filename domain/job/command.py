"""What every command about a job carries, and the refusals that they have in common."""

from collections.abc import Sequence

import msgspec

from domain.envelope import Command, Decision, Rejected
from domain.job import state as s
from domain.job.events import JobSpec
from domain.run.decide import MAX_OPEN_RUNS
from domain.run.state import OpenRun

Outcome = Decision | Rejected | None
"""None: there is nothing left to do, which is a success."""


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
    spec: JobSpec
    key: str = ""
    zone_data: str = ""


def absent() -> Rejected:
    """Return the refusal of a command for a job that does not exist."""
    return Rejected("absent", "there is no such job")


def wrong_state(job: s.JobState, verb: str) -> Rejected:
    """Return the refusal of a command that this state does not allow."""
    status = s.STATUS_NAMES[type(job)]
    remedy = ": resume it first" if isinstance(job, s.Paused) else ""
    return Rejected(status, f"a {status} job cannot be {verb}{remedy}")


def full(runs: Sequence[OpenRun]) -> Rejected | None:
    """Return the refusal of one more run beside the schedule, None where there may be one."""
    if len(runs) < MAX_OPEN_RUNS:
        return None
    return Rejected(
        "open_runs", f"the job has {len(runs)} open runs, at most {MAX_OPEN_RUNS} are allowed"
    )
