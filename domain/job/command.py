"""What every command about a job carries, and the refusals that they have in common."""

import msgspec

from domain.envelope import Command, Decision, Rejected
from domain.job import state as s
from domain.job.events import JobSpec

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
