"""The port of the store of calendars: their versions, and which jobs may use them.

A job's use of a calendar is written before the job is (`claim`), under a lock that an edit takes
too. So an edit knows every job that can have read the version before it, and a use is behind until
somebody has seen the job follow the calendar (`applied`). Whatever ends half-way is found by that.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from domain.envelope import Rejected
from domain.schedule.exclusion import Exclusion

CALENDARS_MAX: Final = 1_000
"""Calendars of one tenant."""
ANY_VERSION: Final = 0


class Calendar(msgspec.Struct, frozen=True, gc=False):
    """One version of a calendar. `expanded_until`: where its recurring events were cut, or 0."""

    exclusion: Exclusion
    expanded_until: int
    at: int
    actor: str


class Put(msgspec.Struct, frozen=True, gc=False):
    """What became of a calendar that was put."""

    calendar: Calendar
    created: bool = False
    changed: bool = True


class Use(msgspec.Struct, frozen=True, gc=False):
    """A job that may use a calendar, since `at` (ms)."""

    tenant_id: bytes
    name: str
    job_id: bytes
    at: int


class Calendars(Protocol):
    """The store of calendars. Awaits; raises Unavailable."""

    async def put(self, tenant_id: bytes, new: Calendar, if_version: int) -> Put | Rejected:
        """Make the next version, unless the current one has the same content.

        The version in `new` does not count. All jobs that use the calendar are behind then.
        Rejected: `precondition`, `too_many`.
        """

    async def find(self, tenant_id: bytes, name: str, version: int = 0) -> Calendar | None:
        """Return a version of a calendar, the current one for 0; None for one that is deleted."""

    async def page(self, tenant_id: bytes, after: str, limit: int) -> list[Calendar]:
        """Return calendars by name."""

    async def remove(self, tenant_id: bytes, name: str, if_version: int) -> Rejected | None:
        """Delete a calendar that no job uses. Rejected: `absent`, `in_use`, `precondition`."""

    async def claim(
        self, tenant_id: bytes, jobs: Sequence[tuple[bytes, tuple[str, ...]]], at: int
    ) -> dict[str, Exclusion]:
        """Note that jobs are about to use calendars; return those that exist, as they are now."""

    async def current(self, tenant_id: bytes, names: Sequence[str]) -> dict[str, Exclusion]:
        """Return those calendars that exist, as they are now."""

    async def applied(self, tenant_id: bytes, jobs: Sequence[tuple[bytes, str, int]]) -> list[Use]:
        """Note that jobs follow a version of a calendar; return those that are behind even so."""

    async def behind(
        self, after: bytes, limit: int, tenant_id: bytes = b"", name: str = ""
    ) -> list[Use]:
        """Return uses that are behind, by job id, of one calendar or of all."""

    async def users(self, tenant_id: bytes, name: str, limit: int) -> list[Use]:
        """Return some of the uses of a calendar, the oldest first."""

    async def count(self, tenant_id: bytes, name: str) -> int:
        """Return how many jobs may use a calendar."""

    async def drop(self, use: Use) -> None:
        """Forget a use, unless it was claimed again since."""
