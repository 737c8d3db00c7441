"""The due index and the job heads: pure functions of the states that a decision leads to.

They are projections - rebuildable from the log, equal to its fold at every instant - but applied
in the append's own transaction, since the fire path needs strong consistency. One row of
`due_index` for each open run that is Ready, InFlight or Awaiting; one row of `job_heads` for each
job, for ever.
"""

from typing import Final, assert_never

import msgspec

from domain.envelope import SettledRun
from domain.job import state as js
from domain.job.events import ALLOW, JobSpec
from domain.run import state as rs
from domain.run.decide import MISFIRE_AFTER_MS
from domain.run.events import CatchUp

READY, LEASED, ACCEPTED = 0, 1, 2
"""Phases of a due row; READY is to be handed off, the others are watched."""

ACTIVE, PAUSED, FINISHED, CANCELLED = 1, 2, 3, 4


class DueRow(msgspec.Struct, frozen=True, gc=False):
    """The columns of `due_index` that come from the log; volatile ones belong to the adapters."""

    run_id: bytes
    job_id: bytes
    tenant_id: bytes
    life: int
    kind: int
    lane: int
    phase: int
    version: int
    nominal: int
    due_at: int
    attempt: int
    fence: int
    fails: int
    lost: int
    abandoned: int
    first_leased_at: int
    spec_version: int
    payload_version: int
    owner: bytes
    """Session of the lease, empty unless LEASED."""
    nonce: bytes
    leased_at: int
    until: int
    catch_start: int
    catch_end: int
    catch_cursor: int


class HeadRow(msgspec.Struct, frozen=True, gc=False):
    """The columns of `job_heads`: `state` is the whole JobState, the rest is what SQL tests."""

    job_id: bytes
    tenant_id: bytes
    version: int
    status: int
    overlap_limit: int
    plans_at_lease: bool
    misfire_after_ms: int
    """0: a first lease is never too late (one-time jobs)."""
    max_lateness_ms: int
    timeout_ms: int
    payload_version: int
    resume_at: int
    """When a pause ends by itself, 0 for never."""
    state: bytes


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(js.JobState)
decode_job: Final = _DECODER.decode
"""Return the JobState of a head's `state` bytes."""


def due_row(state: SettledRun) -> DueRow | None:
    """Return the row that a run's state asks for, None where it has none."""
    match state:
        case rs.Ready(facts):
            return _row(facts, READY, b"", b"", 0, 0)
        case rs.InFlight(facts, owner, nonce, leased_at, until):
            return _row(facts, LEASED, owner, nonce, leased_at, until)
        case rs.Awaiting(facts, leased_at, until):
            return _row(facts, ACCEPTED, b"", b"", leased_at, until)
        case rs.Withheld() | rs.Ended():
            return None
        case _:
            assert_never(state)


def run_of(row: DueRow) -> rs.Ready | rs.InFlight | rs.Awaiting:
    """Return the state that a row stands for; the inverse of `due_row`."""
    catch_up = None
    if row.catch_cursor:
        catch_up = CatchUp(row.catch_start, row.catch_end, row.catch_cursor)
    facts = rs.Facts(
        row.run_id,
        row.job_id,
        row.tenant_id,
        row.life,
        row.kind,
        row.lane,
        row.nominal,
        row.due_at,
        row.version,
        row.attempt,
        row.fence,
        row.fails,
        row.lost,
        row.abandoned,
        row.first_leased_at,
        row.spec_version,
        row.payload_version,
        catch_up,
    )
    if row.phase == READY:
        return rs.Ready(facts)
    if row.phase == LEASED:
        return rs.InFlight(facts, row.owner, row.nonce, row.leased_at, row.until)
    return rs.Awaiting(facts, row.leased_at, row.until)


def _row(  # noqa: PLR0913 - the columns that depend on the phase
    f: rs.Facts, phase: int, owner: bytes, nonce: bytes, leased_at: int, until: int
) -> DueRow:
    catch = f.catch_up
    return DueRow(
        f.run_id,
        f.job_id,
        f.tenant_id,
        f.life,
        f.kind,
        f.lane,
        phase,
        f.version,
        f.nominal,
        f.due_at,
        f.attempt,
        f.fence,
        f.fails,
        f.lost,
        f.abandoned,
        f.first_leased_at,
        f.spec_version,
        f.payload_version,
        owner,
        nonce,
        leased_at,
        until,
        catch.start if catch else 0,
        catch.end if catch else 0,
        catch.cursor if catch else 0,
    )


_STATUS: Final = {
    js.Active: ACTIVE,
    js.Paused: PAUSED,
    js.Finished: FINISHED,
    js.Cancelled: CANCELLED,
}


def _begun_max(spec: JobSpec) -> int:
    """How many runs may be begun for the lease statement to grant one more by itself.

    None at all where occurrences are counted: each first lease is decided, and counted with it.
    """
    if spec.max_runs:
        return 0
    return spec.overlap_limit if spec.overlap == ALLOW else 1


def head_row(state: js.JobState) -> HeadRow:
    """Return the head of a job's state."""
    facts = state.facts
    spec = facts.spec
    return HeadRow(
        facts.job_id,
        facts.tenant_id,
        facts.version,
        _STATUS[type(state)],
        _begun_max(spec),
        spec.plans_at_lease,
        0 if spec.is_one_time else MISFIRE_AFTER_MS,
        spec.max_lateness_ms,
        spec.timeout_ms,
        facts.payload_version,
        state.until if isinstance(state, js.Paused) else 0,
        _ENCODER.encode(state),
    )
