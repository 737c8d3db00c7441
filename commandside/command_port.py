"""The ports of the write API: the log as commands use it, and the store of API keys."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from commandside.ports import Standing
from domain.catalogue import DomainEvent
from domain.envelope import Decision, Rejected
from domain.job.state import JobState
from domain.run.events import Event as RunEvent
from domain.run.state import OpenRun
from domain.tenant import KeyRecord

Kind = TypeVar("Kind", bound=RunEvent)
WINDOW_ROWS_MAX: Final = 100_000
LAST_EVENTS_MAX: Final = 5_000


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """A command's effect: `job` and its `runs` now, `version` of the job's stream that the command
    led to (or left as it was), log `position`, `at`.

    `at` is the one the decision was made with: for a definition, that of its `Defined`. `replayed`:
    the same command id had committed before, with these `version`, `position` and `at`.
    """

    job: JobState
    runs: tuple[OpenRun, ...]
    version: int
    position: int
    at: int
    replayed: bool = False


class BodyDiffers(msgspec.Struct, frozen=True, gc=False):
    """The command id was used before with another body (422)."""


Answer = Accepted | BodyDiffers | Rejected
"""What became of a command."""

Decide = Callable[[JobState | None, tuple[OpenRun, ...], int], Decision | Rejected | None]
"""(job, open runs with withheld ones, at) → what to do; called under the shard's lock."""


class CommandLog(Protocol):
    """The event log as the write API uses it. Awaits; raises Unavailable (503)."""

    shards: int

    async def define(self, decision: Decision) -> Answer:
        """Append a definition, grouped with others (≤ 10 ms or BATCH_MAX). Rejected: `exists`."""

    async def define_all(self, decisions: Sequence[Decision]) -> list[Answer | Exception]:
        """Append definitions side by side; return for each what `define` returns or raises."""

    async def command(
        self, job_id: bytes, command_id: bytes, body_hash: bytes, decide: Decide
    ) -> Answer:
        """Decide inside the lock and append; None from `decide` answers the state as it is.

        An empty `command_id` means the client gave none. One that is given is recorded whenever
        `decide` does not refuse, also when there was nothing to append: its repeat must find the
        same version, whatever happened to the job since.
        """

    async def standing(self, job_id: bytes) -> Standing | None:
        """Return the job as it stands, withheld runs included."""

    async def due_per_second(self, windows: Sequence[tuple[int, int]]) -> dict[int, int]:
        """Return second → open runs of the whole log that wake in it, in windows [low, high) (ms).

        Of a window with more than WINDOW_ROWS_MAX runs those of some shards are counted.
        """

    async def events(
        self, job_id: bytes, stream_id: bytes, after: int, limit: int
    ) -> list[DomainEvent]:
        """Return events of a stream of this job (its own, or a run's), from version `after` + 1."""

    async def told(
        self, stream_id: bytes, kinds: Sequence[type[DomainEvent]], limit: int
    ) -> list[tuple[int, DomainEvent]]:
        """Return the newest `limit` events of these kinds in a job's or run's stream, in order.

        Each with its version; of whichever tenant: the caller compares.
        """

    async def last_events(self, stream_ids: Sequence[bytes]) -> dict[bytes, DomainEvent]:
        """Return the last event of each stream that exists; at most LAST_EVENTS_MAX are asked."""

    async def latest(self, run_ids: Sequence[bytes], kind: type[Kind]) -> dict[bytes, Kind]:
        """Return the newest event of one kind in each of these runs' streams, where there is one.

        It reads back to that event: ask for kinds that a stream has, or of short streams.
        """


class Keys(Protocol):
    """The store of API keys. Awaits; raises Unavailable, and then nobody is let in."""

    async def find(self, kid: str) -> KeyRecord | None:
        """Return the key as it is stored, revoked and expired ones too."""
