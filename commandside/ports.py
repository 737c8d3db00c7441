"""The ports of the command side's roles.

A port belongs to the ring that calls it, and is batch-shaped.

Two shapes. The dispatcher's log is *submit and poll*: nothing blocks, one loop holds many
transactions and calls in flight. The scheduler's and the auditor's ports are plain calls, bounded
by the adapter's statement timeout. Every port has a memory and a real adapter under one contract
suite.

Errors of every port: `Unavailable` (nothing is known to have happened; try again later) and, for
appends, an unknown outcome, which is a reply of its own because it must be read back first.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

import msgspec

import domain.ports
from domain.envelope import Decision
from domain.job.events import JobSpec
from domain.job.state import JobState
from domain.run.state import InFlight, OpenRun

SESSION_MS: Final = 10_000
SESSION_RENEW_MS: Final = 3_000
SESSION_LEFT_MS: Final = 2_000
"""What a session must have left to lease: the send deadline and as much again."""
BATCH_MAX: Final = 250
"""Slices or leases of one transaction."""


class Unavailable(domain.ports.Unavailable):
    """The engine behind a port cannot be reached; nothing is known to have happened."""


class Resting(Unavailable):
    """This process decides nothing just now; why is for whoever asks, and names no engine."""


class Tick(msgspec.Struct, frozen=True, gc=False):
    """The time a role is run with.

    `at`: ms of the database clock as this node estimates it; `mono_us`: microseconds of the node's
    own monotonic clock.
    """

    at: int
    mono_us: int


class FaultPoint(Protocol):
    """A named crash point between two durable steps; costs nothing while not armed."""

    def hit(self, name: str) -> None:
        """Return, or, when armed with this name and this hit number, kill the process."""


class Telemetry(Protocol):
    """Counters and histograms of a role; the names are listed in the telemetry catalogue."""

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter."""

    def observe(self, name: str, values: Sequence[int]) -> None:
        """Add values to a histogram; the unit is the last word of the name."""

    def gauge(self, name: str, value: int) -> None:
        """Set a figure that goes up and down."""

    def alarm(self, name: str, detail: str) -> None:
        """Say that something happened which should not; a person should look."""


NewId = Callable[[int], bytes]
"""Returns that many fresh random bytes."""


class Want(msgspec.Struct, frozen=True, gc=False):
    """A run that a dispatcher wants to lease, at the version it was handed off."""

    run_id: bytes
    version: int
    job_id: bytes


class Lease(msgspec.Struct, frozen=True, gc=False):
    """Lease these runs for `session`. All of one stripe, at most one run per job, ≤ BATCH_MAX."""

    session: bytes
    nonce: bytes
    wants: Sequence[Want]
    expires_at: int


class Append(msgspec.Struct, frozen=True, gc=False):
    """Append these decisions. All of one stripe, at most one per job, ≤ BATCH_MAX slices.

    With `session`, the append is refused unless that session has 2 s left (it carries leases).
    """

    decisions: Sequence[Decision]
    expires_at: int
    session: bytes = b""


class Read(msgspec.Struct, frozen=True, gc=False):
    """Read the heads and the open runs of these jobs, fresh."""

    job_ids: Sequence[bytes]


class ReadDue(msgspec.Struct, frozen=True, gc=False):
    """Read the earliest ready rows of these shards that wake within `ahead_ms`, handed off or not.

    All of one stripe.
    """

    shards: Sequence[int]
    ahead_ms: int
    limit: int


class Defer(msgspec.Struct, frozen=True, gc=False):
    """Move `wake_at` of ready rows and forget their hand-off: (run, version, wake_at), no event."""

    rows: Sequence[tuple[bytes, int, int]]


class ReadBack(msgspec.Struct, frozen=True, gc=False):
    """After an unknown commit and its expiry: which of these leases carry our nonce?

    With `expires_at`, that of the lease, a read-back that comes too soon fails.
    """

    nonce: bytes
    wants: Sequence[Want]
    expires_at: int = 0


class ReadSpecs(msgspec.Struct, frozen=True, gc=False):
    """Read the specs of jobs as of a version of their stream: (job, version).

    Body and key of a run are those of its `payload_version`; only a retry that was begun before an
    edit carries one that is not the job's current.
    """

    wants: Sequence[tuple[bytes, int]]


class Renew(msgspec.Struct, frozen=True, gc=False):
    """Start or renew a session for SESSION_MS; refused once it has been ended."""

    session: bytes
    starts: bool = False


class End(msgspec.Struct, frozen=True, gc=False):
    """End a session: its leases may lapse at once."""

    session: bytes


LogRequest = Lease | Append | Read | ReadSpecs | ReadDue | Defer | ReadBack | Renew | End


class Granted(msgspec.Struct, frozen=True, gc=False):
    """A lease that is committed. `alone`: no other link of the job was open under the lock."""

    run: InFlight
    job: JobState
    alone: bool


class LeaseReply(msgspec.Struct, gc=False):
    """What became of each wanted run; `gone` rows are missing, newer, or in another's hands.

    `decide`: due, but first_lease must decide (overlap, misfire, expiry, allow).
    """

    ticket: int
    at: int
    granted: Sequence[Granted] = ()
    early: Sequence[tuple[bytes, int]] = ()
    """(run, ms to wait)"""
    decide: Sequence[bytes] = ()
    gone: Sequence[bytes] = ()
    session_ended: bool = False


class AppendReply(msgspec.Struct, gc=False):
    """Indices of decisions whose guard failed (the rest is in); `expired`: none committed."""

    ticket: int
    at: int
    refused: Sequence[int] = ()
    expired: bool = False
    positions: Sequence[int] = ()
    """Log position of each decision's last event, 0 where refused; same order as the decisions."""


class Standing(msgspec.Struct, frozen=True, gc=False):
    """A job as it stands: its head and its open runs that have a due row."""

    job: JobState
    runs: tuple[OpenRun, ...]


class ReadReply(msgspec.Struct, gc=False):
    """The jobs that exist, by id."""

    ticket: int
    at: int
    jobs: dict[bytes, Standing]


class SpecsReply(msgspec.Struct, gc=False):
    """The specs asked for; the event of a version is never missing while its job is kept."""

    ticket: int
    at: int
    specs: dict[tuple[bytes, int], JobSpec]


class DueReply(msgspec.Struct, gc=False):
    """Ready rows as a concatenation of ENTRY records, the earliest first."""

    ticket: int
    at: int
    entries: bytes


class DoneReply(msgspec.Struct, gc=False):
    """A Defer, End or Renew is done; `ok` is false for a session that had ended."""

    ticket: int
    at: int
    ok: bool = True


class ReadBackReply(msgspec.Struct, gc=False):
    """The leases that are ours after all, with their jobs."""

    ticket: int
    at: int
    ours: Sequence[Granted]


class Failed(msgspec.Struct, gc=False):
    """The request failed. `unknown`: its commit may have happened and must be read back."""

    ticket: int
    unknown: bool
    detail: str


LogReply = (
    LeaseReply
    | AppendReply
    | ReadReply
    | SpecsReply
    | DueReply
    | DoneReply
    | ReadBackReply
    | Failed
)


class FireLog(Protocol):
    """The event log as a dispatcher uses it: one request in flight per stripe, nothing blocks.

    Stripe `stripes` (one past the last) is the session's own connection: Renew and End go there, so
    that a slow batch never costs a session.
    """

    stripes: int
    shards: int

    def idle(self, stripe: int) -> bool:
        """Return whether the stripe takes a request now (connected, nothing outstanding)."""

    def submit(self, stripe: int, request: LogRequest) -> int:
        """Send a request and return its ticket. The stripe must be idle."""

    def poll(self) -> list[LogReply]:
        """Return the replies that have come, never waiting."""

    def close(self) -> None:
        """Close the connections; what is outstanding has an unknown outcome."""


class Chunk(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Ready rows of one shard, one second of due time and one lane. Ids only, and only hints.

    `entries` is a concatenation of ENTRY records, in due order.
    """

    format: int
    incarnation: bytes
    shard: int
    term: int
    second: int
    lane: int
    entries: bytes


ENTRY: Final = ">16s16s16siq"
"""struct of one entry: run id, job id, tenant id, version, due_at; 60 bytes."""
ENTRY_BYTES: Final = 60


class Ref(msgspec.Struct, frozen=True, gc=False):
    """Where a published chunk is: topic, partition, offset.

    In a confirmation the topic is followed by `#` and a name of the broker's incarnation, since a
    place means nothing to a broker that was wiped since.
    """

    topic: str
    partition: int
    offset: int


class Published(msgspec.Struct, frozen=True, gc=False):
    """A chunk that the broker has confirmed."""

    chunk: Chunk
    ref: Ref


class Overdue(msgspec.Struct, frozen=True, gc=False):
    """Figures of the audit: what a healthy system keeps at zero."""

    broken_chains: int
    overdue_runs: int
    oldest_overdue_ms: int
    looked_at: int = 0
    """How many heads the chains were checked for."""


class DueIndex(Protocol):
    """The due rows as scheduler and auditor see them. `terms` maps owned shards to terms."""

    def window(self, terms: dict[int, int], after: int, until: int, limit: int) -> list[Chunk]:
        """Return unmarked ready rows with after < wake_at ≤ until as chunks, in due order."""

    def mark(self, published: Sequence[Published]) -> int:
        """Set `handed_off_at` where row version and shard term still match; return how many."""

    def stale(
        self, shards: Sequence[int], committed: Callable[[Ref], bool] | None, limit: int
    ) -> list[Chunk]:
        """Return rows ready for re-hand-off: 5 s past `wake_at`, never leased, spaced per row.

        `committed` tells whether the group has passed a reference (None: a new incarnation, all).
        """

    def lapsed(
        self, shards: Sequence[int], limit: int, *, accepted: bool = True
    ) -> list[tuple[Standing, OpenRun]]:
        """Return leases that are over: `until` has passed, or the owner's session has ended.

        Those of `accepted` attempts have no owner, and may be left out.
        """

    def to_resume(self, shards: Sequence[int], limit: int) -> list[Standing]:
        """Return paused jobs whose pause ends by itself and is over, with their withheld runs."""

    def append(self, decisions: Sequence[Decision], expires_at: int) -> list[bool]:
        """Append decisions (lapses) and return which hold."""

    def reap(self) -> int:
        """End sessions whose `until` has passed; return how many."""

    def unmark(self, shards: Sequence[int], before: int, limit: int) -> int:
        """Take back marks older than `before` of rows that wake within 60 s; return how many.

        For messages that are lost for certain: the next windows show these rows again.
        """

    def health(self, shards: Sequence[int], part: int = 0, parts: int = 1) -> Overdue:
        """Return the liveness figures of these shards.

        Chains are checked for one of `parts` equal parts of all job ids: there are too many jobs
        to look at all of them at once.
        """


class ShardLeases(Protocol):
    """Who owns which shard. Traffic is one statement per node and heartbeat."""

    def heartbeat(self, owner: bytes, lease_ms: int) -> dict[int, int]:
        """Renew, take or hand over shards towards equal counts; return owned shard → term."""

    def release(self, owner: bytes) -> None:
        """Give all shards back at once (drain)."""


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """A chunk that arrived, and where it was."""

    chunk: Chunk
    ref: Ref


class ReadyQueue(Protocol):
    """Due buckets on their way to dispatchers. A hint: all may be lost, doubled, reordered."""

    partitions: int

    def publish(self, chunks: Sequence[Chunk], *, near: bool) -> None:
        """Hand chunks to the broker; `near`: due within 2 s. Raises Unavailable when full."""

    def confirmed(self) -> list[Published]:
        """Return chunks that the broker has confirmed (acks=all) since the last call."""

    def beat(self) -> None:
        """Send the canary through the topics."""

    def take(self, limit: int) -> list[Delivery]:
        """Return arrived chunks of the assigned partitions, never waiting."""

    def done(self, refs: Sequence[Ref]) -> None:
        """Commit offsets up to these (each partition in order); asynchronous."""

    def revoked(self) -> list[int]:
        """Return partitions lost since the last call: forget what came from them."""

    def held(self) -> Collection[int]:
        """Return the partitions that this client held last; all, where it never held any."""

    def committed(self, ref: Ref) -> bool:
        """Tell whether the group has passed this place.

        True where that is not known, and for a place of another incarnation. Moves on with
        `confirmed` and `take`.
        """

    def pause(self, *, paused: bool) -> None:
        """Stop or resume fetching what is due later (topic `ahead` only)."""

    def silent_ms(self, mono_us: int) -> int:
        """Return how long no canary has come through, ms."""

    def incarnation(self) -> bytes:
        """Return the broker's incarnation as last seen in a canary, empty before the first."""

    def rebuild(self) -> None:
        """Throw the clients away and make new ones (they can be stuck without an error)."""

    def close(self) -> None:
        """Leave the group and close."""


class KeyGone(Exception):
    """The tenant's key has been destroyed, or the bytes are not its ciphertext of this job."""


class Vault(Protocol):
    """Envelope encryption: AES-256-GCM under the tenant's key, bound to tenant and job."""

    def seal(self, tenant_id: bytes, job_id: bytes, plain: bytes) -> bytes:
        """Return ciphertext that names its key; 30 bytes or so longer than `plain`."""

    def open(self, tenant_id: bytes, job_id: bytes, sealed: bytes) -> bytes:
        """Return the plain bytes; raises KeyGone."""

    def knows(self, tenant_id: bytes) -> bool:
        """Tell whether the next calls for this tenant wait for nothing."""

    def fetch(self, tenant_id: bytes) -> None:
        """Wait for what they would wait for, where there is any; raises Unavailable."""
