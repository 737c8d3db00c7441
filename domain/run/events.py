"""What can be written into a run's stream. Storage format: append fields at the end only.

Array-like with a small integer tag: about 60 bytes for an event of five fields. The stable name of
each event (`run.leased.v1`) is in `domain.catalogue`; instants are ms, ids are 16 raw bytes.
"""

from typing import Final

import msgspec

OK, FAILED, LOST, ABANDONED = "ok", "failed", "lost", "abandoned"
"""Outcomes of an attempt: 2xx; anything else; lease lapsed, unknown; leased, never sent."""

SUCCEEDED, DEAD = "succeeded", "dead"
"""Outcomes of a run that fired: at its `Completed`."""

RETRY, WITHDRAWN, CANCELLED = "retry", "withdrawn", "cancelled"
"""What may follow a `Fired` beside an outcome of the run (`Fired.then`)."""

OVERLAP, MISFIRE, EXPIRED, PAUSED, BLACKOUT = "overlap", "misfire", "expired", "paused", "blackout"
"""Verdicts of slots that did not fire."""

SUPERSEDED: Final = "superseded"


class Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Something that happened to one run."""


class Passed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A verdict for every slot of the schedule in force in [first, last] (nominal ms).

    `count` is exact up to 1,000, else None: the arithmetic of a decision is bounded.
    """

    first: int
    last: int
    count: int | None
    verdict: str
    cause: str = ""


class CatchUp(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Missed slots in (start, end] are still to fire after this link; none are where end is 0.

    Every other slot up to `cursor`, which is later than the link, has its verdict.
    """

    start: int
    end: int
    cursor: int


class Scheduled(Event, frozen=True, tag=32):
    """The run is planned (version 1), or planned again: an edit, a retry, a resume.

    `after` is the job's cursor before this event. Slots between it and `nominal` that did not get
    a run of their own are in `passed`, so that consecutive chain events prove a gapless ledger.
    """

    at: int
    job_id: bytes
    tenant_id: bytes
    life: int
    kind: int
    lane: int
    nominal: int
    due_at: int
    attempt: int
    spec_version: int
    payload_version: int
    after: int
    cause: str = ""
    passed: tuple[Passed, ...] = ()
    catch_up: CatchUp | None = None


class Leased(Event, frozen=True, tag=33):
    """Attempt `attempt` belongs to process `session` until `until`; its fence is this version.

    Built by the database under the shard's lock, so that `at` is its clock. The nonce proves, after
    a commit of unknown outcome, whose lease it is.
    """

    session: bytes
    nonce: bytes
    at: int
    until: int
    attempt: int


class Accepted(Event, frozen=True, tag=34):
    """The target took the work and will report its end by itself (asynchronous completion)."""

    at: int
    until: int


class Extended(Event, frozen=True, tag=35):
    """A heartbeat moved the end of an accepted attempt's lease."""

    at: int
    until: int


class Progressed(Event, frozen=True, tag=36):
    """The handler said how far it is (0 to 100) and a note of its own."""

    at: int
    percent: int
    note: str = ""


class Fired(Event, frozen=True, tag=37):
    """The result of one attempt. Carries what the run history needs, so a projection joins nothing.

    `then` says what the same decision does with the run: succeeded, dead, retry, withdrawn,
    cancelled. `late` marks a success reported after its lease had lapsed.
    """

    at: int
    job_id: bytes
    tenant_id: bytes
    kind: int
    nominal: int
    due_at: int
    leased_at: int
    attempt: int
    fence: int
    outcome: str
    then: str
    status: int = 0
    error: str = ""
    elapsed_us: int = 0
    late: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    sent_at: int = 0
    cause: str = ""
    """Why a run is dead that ends with this attempt, as in its `Completed`."""


class Occurrence(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Whose end it is, for an end that no `Fired` of the same decision explains."""

    job_id: bytes
    tenant_id: bytes
    kind: int
    nominal: int
    due_at: int
    attempts: int


class Completed(Event, frozen=True, tag=38):
    """End: the run fired and is over; `cause` says why a dead one is: attempts, age, lost, status.

    `of` is set where the decision has no `Fired`: a begun run that expired while it waited.
    """

    at: int
    outcome: str
    cause: str = ""
    of: Occurrence | None = None


class Withdrawn(Event, frozen=True, tag=39):
    """Not an end: the occurrence is off the due index and may be scheduled again.

    A superseded one never is: an edit took its slot away. `of` says whose it was.
    """

    at: int
    cause: str
    of: Occurrence | None = None


class Skipped(Event, frozen=True, tag=40):
    """End: the occurrence did not fire, for this reason."""

    at: int
    job_id: bytes
    tenant_id: bytes
    nominal: int
    verdict: str
    cause: str = ""
    kind: int = 0
    due_at: int = 0


class Cancelled(Event, frozen=True, tag=41):
    """End: the job was cancelled, or a newer occurrence took this one's place."""

    at: int
    job_id: bytes
    tenant_id: bytes
    nominal: int
    cause: str = ""
    attempts: int = 0
    kind: int = 0
    due_at: int = 0


RunEvent = (
    Scheduled
    | Leased
    | Accepted
    | Extended
    | Progressed
    | Fired
    | Completed
    | Withdrawn
    | Skipped
    | Cancelled
)
