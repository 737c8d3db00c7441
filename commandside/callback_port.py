"""The ports of callbacks: what tenants say by default, and the log as the reactor uses it."""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from domain.callback import Callbacks
from domain.envelope import Decision, Rejected
from domain.job.events import Defined, JobSpec

OWNER: Final = b"callback defaults"
"""What header values of a tenant's default are sealed for, where a job's have its id."""


class Default(msgspec.Struct, frozen=True, gc=False):
    """One version of a tenant's default, in force for what ended after `at` (ms)."""

    version: int
    callbacks: Callbacks
    at: int
    actor: str = ""


class DefaultPut(msgspec.Struct, frozen=True, gc=False):
    """What became of a default that was put."""

    default: Default
    changed: bool = True


def refusal_of(current: Default | None, if_version: int, *, removes: bool) -> Rejected | None:
    """Return why a default is not changed, None where it may be; 0: at whatever version it is."""
    if removes and current is None:
        return Rejected("absent", "there is no default")
    version = 0 if current is None else current.version
    if if_version and if_version != version:
        what = f"the default is at version {version}" if version else "there is no default"
        return Rejected("precondition", what)
    return None


class CallbackDefaults(Protocol):
    """The defaults of tenants, in versions none of which changes. Awaits; raises Unavailable."""

    async def current(self, tenant_id: bytes) -> Default | None:
        """Return the version in force, None where there is none."""

    async def put(
        self, tenant_id: bytes, callbacks: Callbacks, actor: str, if_version: int
    ) -> DefaultPut | Rejected:
        """Make the next version, unless the current one is the same. Rejected: `precondition`."""

    async def remove(self, tenant_id: bytes, actor: str, if_version: int) -> Rejected | None:
        """End the default. Rejected: `absent`, `precondition`."""


class CallbackLog(Protocol):
    """The log as the reactor uses it. Plain calls; raises Unavailable.

    Whatever was in force when something ended is the same for every reader, whenever it asks.
    """

    def note(self, job_ids: Sequence[bytes]) -> None:
        """Keep that these jobs have, or had, callbacks of their own."""

    def in_use(self) -> bool:
        """Return whether any tenant ever had a default, or any job was noted: mostly not."""

    def concerned(
        self, tenant_ids: Sequence[bytes], job_ids: Sequence[bytes]
    ) -> tuple[set[bytes], set[bytes]]:
        """Return which of these tenants ever had a default, and which of the jobs were noted."""

    def specs(self, asked: Sequence[tuple[bytes, int]]) -> list[JobSpec]:
        """Return the specs of jobs as they were just before positions of the log."""

    def defaults(self, asked: Sequence[tuple[bytes, int]]) -> list[Default | None]:
        """Return the defaults of tenants that were in force just before instants (ms)."""

    def define(self, decisions: Sequence[Decision], expires_at: int) -> list[bool]:
        """Append definitions; return which hold. The others exist, or came too late."""

    def defined(self, job_ids: Sequence[bytes]) -> dict[bytes, Defined]:
        """Return the first event of each of these jobs that exists."""
