"""What a tenant's jobs will ask for, as the log and the board know it: the port behind a load.

Bounded whatever a tenant has: few jobs come one by one, many as their most used schedules with how
many jobs go by each, and one-time jobs as the instants at which they are due.
"""

from typing import Protocol

import msgspec

from domain.job.state import JobState


class Limits(msgspec.Struct, frozen=True):
    """How much of a tenant is read; the default takes a tenth of a second at the most."""

    jobs: int = 2_000
    """Recurring jobs that come one by one; of a tenant with more come groups."""
    groups: int = 2_000
    scanned: int = 200_000
    """Jobs that are grouped."""
    once: int = 20_000
    """One-time jobs that are looked at, the newest first."""


class Group(msgspec.Struct, frozen=True):
    """`jobs` active jobs of one schedule and zone; `job` is one of them and stands for all."""

    job: JobState
    jobs: int


class Demanded(msgspec.Struct, frozen=True):
    """Active jobs. `left_out`: how many more there are (at least, where that is many)."""

    jobs: list[JobState]
    """Recurring ones; empty where there are `groups`."""
    groups: list[Group]
    once: list[tuple[bytes, int]]
    """(job, due) of one-time jobs that are due in the span asked for."""
    left_out: int = 0


class Demand(Protocol):
    """Plain calls, made in a thread; raises Unavailable."""

    def of_tenant(self, tenant_id: bytes, since: int, until: int) -> Demanded:
        """Return a tenant's active jobs; of one-time ones those due in [since, until) (ms)."""
        ...
