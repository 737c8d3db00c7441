"""Ports of the query side: the truth of one job, the board, the run history, how fresh they are.

`Truth` awaits; the others are plain calls, bounded by the adapter's timeouts, that the API makes in
a thread. Every call takes the tenant, and another tenant's rows are as absent as rows that never
were. Pages go by key, never by offset, and always come newest first.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

import domain.ports
from domain.catalogue import DomainEvent
from domain.job.state import JobState
from domain.payload import PayloadRef
from domain.run.events import Event as RunEvent
from domain.run.state import OpenRun
from projections.dead_letters import DeadFilter, DeadPlace
from projections.rows import AttemptRow, BoardRow, RunRow

Kind = TypeVar("Kind", bound=RunEvent)

PAGE_MAX: Final = 200
"""Rows of a page; adapters are asked for one more, which tells whether another page follows."""
ATTEMPTS_SHOWN: Final = 100
"""Attempts of a run in a page, the newest; a policy allows as many."""


class Unavailable(domain.ports.Unavailable):
    """The engine behind a port cannot be reached, or did not answer in time."""


Reveal = Callable[[bytes, bytes, bytes], bytes | None]
"""(tenant, job, ciphertext) → plain bytes, None where the tenant's key was destroyed."""


Fetch = Callable[[bytes, bytes, PayloadRef], Awaitable[bytes | str]]
"""(tenant, job, object) → its ciphertext, or why there is none (`domain.payload`)."""


class Standing(Protocol):
    """A job as it stands: its head and its open runs, withheld ones too."""

    @property
    def job(self) -> JobState:
        """The fold of the job's stream."""

    @property
    def runs(self) -> tuple[OpenRun, ...]:
        """Every run that has not ended."""


class Truth(Protocol):
    """What the log says of one job, read from the log itself. Awaits; raises Unavailable."""

    shards: int

    async def standing(self, job_id: bytes) -> Standing | None:
        """Return the job as it stands now, of whichever tenant: the caller compares."""

    async def events(
        self, job_id: bytes, stream_id: bytes, after: int, limit: int
    ) -> list[DomainEvent]:
        """Return events of a stream of this job (its own, or a run's), from version `after` + 1."""

    async def told(
        self, stream_id: bytes, kinds: Sequence[type[DomainEvent]], limit: int
    ) -> list[tuple[int, DomainEvent]]:
        """Return the newest `limit` events of these kinds in a stream, in order, with versions."""

    async def last_events(self, stream_ids: Sequence[bytes]) -> dict[bytes, DomainEvent]:
        """Return the last event of each stream that exists, of up to 5,000."""

    async def latest(self, run_ids: Sequence[bytes], kind: type[Kind]) -> dict[bytes, Kind]:
        """Return the newest event of one kind in each of these runs' streams, where there is one.

        It reads back to that event: ask for kinds that a stream has, or of short streams.
        """


class JobFilter(msgspec.Struct, frozen=True, gc=False):
    """Which jobs are asked for; an empty field asks for any. Labels must all match.

    `status` is active, paused, finished or cancelled. A one-time job whose run has ended is
    finished, although no event says so (domain.chain.effective).
    """

    status: str = ""
    name_prefix: str = ""
    host: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    job_id: bytes = b""


class JobPlace(msgspec.Struct, frozen=True, gc=False):
    """A job's place in the order of lists: `defined_at` falling, then `job_id` rising."""

    defined_at: int
    job_id: bytes


class JobLine(msgspec.Struct, frozen=True, gc=False):
    """A job in a list. `next_run_at`, `next_due_at`: of its earliest link that was never leased."""

    row: BoardRow
    next_run_at: int | None
    next_due_at: int | None
    in_flight: int
    """Runs of the job that are leased or accepted now."""


class JobBoard(Protocol):
    """Lists of a tenant's jobs. Raises Unavailable."""

    def page(
        self,
        tenant_id: bytes,
        wanted: JobFilter,
        edge: JobPlace | None,
        limit: int,
        *,
        newer: bool = False,
    ) -> list[JobLine]:
        """Return up to `limit` jobs next to `edge` (None: from the newest), in the order of lists.

        Those that follow `edge`, or with `newer` those right before it; `edge` itself never.
        """

    def labelled(
        self, tenant_id: bytes, job_ids: Sequence[bytes], labels: Sequence[tuple[str, str]]
    ) -> list[bytes]:
        """Return those of these jobs that have all these labels."""


class RunPlace(msgspec.Struct, frozen=True, gc=False):
    """A row's place in a history: `nominal` falling, then `run_id` falling (bytes)."""

    nominal: int
    run_id: bytes


class RunLine(msgspec.Struct, frozen=True, gc=False):
    """A run, or a range of slots that did not fire, with its attempts, oldest first."""

    run: RunRow
    attempts: tuple[AttemptRow, ...] = ()


class RunHistory(Protocol):
    """What became of a job's occurrences. Raises Unavailable.

    A row written twice is one row (the higher position). Runs that never fired nor ended are not
    here yet.
    """

    def page(
        self,
        tenant_id: bytes,
        job_id: bytes,
        edge: RunPlace | None,
        limit: int,
        *,
        newer: bool = False,
    ) -> list[RunLine]:
        """Return up to `limit` rows next to `edge` (None: from the newest), newest first.

        Those that follow `edge`, or with `newer` those right before it; `edge` itself never. Each
        run has at most ATTEMPTS_SHOWN attempts, the newest.
        """

    def dead(
        self,
        tenant_id: bytes,
        wanted: DeadFilter,
        edge: DeadPlace | None,
        limit: int,
        *,
        newer: bool = False,
    ) -> list[RunLine]:
        """Return up to `limit` dead runs next to `edge`, as `page` does, by when they ended."""

    def dead_rows(
        self,
        tenant_id: bytes,
        wanted: DeadFilter,
        edge: DeadPlace | None,
        limit: int,
        *,
        newer: bool = False,
    ) -> list[RunRow]:
        """Return the same without attempts."""

    def dead_jobs(self, tenant_id: bytes, wanted: DeadFilter, limit: int) -> list[bytes]:
        """Return up to `limit` of the jobs that have dead runs of this filter."""


class Freshness(Protocol):
    """How far the views have read. Raises Unavailable."""

    def reached(self, view: str, shard: int) -> int:
        """Return the log position up to which a view (projections' VIEW name) holds a shard."""
