"""Rows of the views, as plain structs: what a projection returns and an adapter writes."""

import msgspec


class AttemptRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One call of a target. Instants in ms; `position` decides which of two equal keys stays."""

    tenant_id: bytes
    job_id: bytes
    nominal: int
    run_id: bytes
    attempt: int
    kind: int
    due_at: int
    leased_at: int
    ended_at: int
    lateness_ms: int
    """When the call began (the lease, where none did) minus due; never below 0."""
    elapsed_us: int
    outcome: str
    then: str
    status: int
    error: str
    late: bool
    fence: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    position: int


class RunRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One occurrence, or a range of slots that did not fire (`count` slots up to `last`).

    `count` is 1 for an occurrence with a stream of its own, 0 for a range too long to be counted.
    `due_at` is the latest one, 0 for a range. `fired_at` is when the latest call began, 0 where the
    run ended without another: skipped, expired, or cancelled while it waited.
    """

    tenant_id: bytes
    job_id: bytes
    nominal: int
    run_id: bytes
    kind: int
    last: int
    count: int
    due_at: int
    status: str
    verdict: str
    cause: str
    attempts: int
    fired_at: int
    ended_at: int
    position: int


class BoardRow(msgspec.Struct, frozen=True, gc=False):
    """One job on the board: what lists show and filter, but for its open runs."""

    job_id: bytes
    tenant_id: bytes
    version: int
    status: str
    one_time: bool
    name: str
    schedule: str
    timezone: str
    target: str
    host: str
    labels: tuple[tuple[str, str], ...]
    defined_at: int
    changed_at: int
    key: str = ""
    """Its client's name for it; empty too in the row of a change, which leaves it."""


class BoardStatus(msgspec.Struct, frozen=True, gc=False):
    """A change of a job that is on the board already; an empty status and a 0 change nothing."""

    job_id: bytes
    version: int
    status: str
    changed_at: int


BoardChange = BoardRow | BoardStatus
