"""The lease: which of these runs may start now, and `Leased` for them, in one statement.

Runs after `append.LOCK` in the same transaction. A run is leased iff its due row is ready at the
wanted version, its due instant has come by the database's clock, no other run of its job is in the
way, and the session has 2 s left. What needs a decision (overlap, misfire, expiry, a job that plans
at the lease, a slot of a backfill, a redrive) is handed back; the row is touched for nothing else.
Rows are written by their place, as in `append`.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from commandside.ports import SESSION_LEFT_MS, Granted, LeaseReply, Want
from domain.ids import BACKFILL, REDRIVE, REDRIVE_OWN, RERUN
from domain.run.decide import LEASE_MARGIN_MS, SEND_DEADLINE_MS
from domain.run.state import InFlight
from infra.postgres import arrays
from infra.postgres.rows import Fields, due_rows, jobs, record_of
from projections.due_index import ACTIVE, FINISHED, LEASED, READY, run_of

GONE, EARLY, DECIDE, GRANTED = 0, 1, 2, 3

LEASE: Final = rf"""
with clock as materialized (select tocsin_now() as now),
gate as materialized (
    select now, now <= $6::int8 as in_time, coalesce((
        select not ended and until - (select now from clock) >= {SESSION_LEFT_MS}
        from sessions where session_id = $4::uuid), false) as live,
        $5::bytea || '\xcf'::bytea || int8send(now) as stem
    from clock
),
wanted as materialized (
    select want.n, want.run_id, want.job_id, d.place, d.due_at, h.timeout_ms, h.state,
        not o.linked as alone,
        case
            when d.version is distinct from want.version or d.phase <> {READY}
                or d.job_id <> want.job_id or h.status is null
                or h.status not in ({ACTIVE}, {FINISHED}) then {GONE}
            when d.due_at > (select now from clock) then {EARLY}
            when d.kind = 0 and d.attempt = 0 and (h.plans_at_lease or h.misfire_after_ms > 0
                    and (select now from clock) - d.due_at > h.misfire_after_ms)
                or h.max_lateness_ms > 0
                    and (select now from clock) - d.nominal > h.max_lateness_ms
                or d.kind in ({BACKFILL}, {RERUN}, {REDRIVE}, {REDRIVE_OWN}) and d.attempt = 0
                or o.begun >= h.overlap_limit then {DECIDE}
            else {GRANTED}
        end as class
    from unnest($1::uuid[], $2::int4[], $3::uuid[]) with ordinality
        as want(run_id, version, job_id, n)
    left join lateral (
        select i.ctid as place, i.version, i.phase, i.job_id, i.due_at, i.nominal, i.kind,
            i.attempt, i.life
        from due_index i where i.run_id = want.run_id offset 0) d on true
    left join lateral (
        select j.status, j.plans_at_lease, j.misfire_after_ms, j.max_lateness_ms, j.overlap_limit,
            j.timeout_ms, j.state
        from job_heads j where j.job_id = want.job_id offset 0) h on true
    left join lateral (
        select count(*) filter (where i.attempt > 0) as begun,
            coalesce(bool_or(i.kind = 0 and i.life = d.life), false) as linked
        from due_index i where i.job_id = want.job_id and i.run_id <> want.run_id offset 0) o
        on true
    where (select in_time and live from gate)
),
leased as (
    update due_index d set phase = {LEASED}, version = d.version + 1, fence = d.version + 1,
        attempt = d.attempt + 1, owner = $4::uuid, nonce = $7::bytea, leased_at = gate.now,
        until = gate.now + {SEND_DEADLINE_MS + LEASE_MARGIN_MS} + wanted.timeout_ms,
        first_leased_at =
            case when d.first_leased_at = 0 then gate.now else d.first_leased_at end
    from wanted, gate
    where d.ctid = wanted.place and wanted.class = {GRANTED}
    returning wanted.n, wanted.alone, wanted.state,
        d.run_id, d.version, d.shard, d.until, d.attempt,
        {record_of("d")} as record
),
appended as (
    insert into events (stream_id, version, shard, position, name, data)
    select run_id, version, shard, nextval('event_position'), 'run.leased.v1',
        (select stem from gate) || '\xcf'::bytea || int8send(until)
            || case when attempt < 128 then set_byte('\x00'::bytea, 0, attempt)
                else '\xce'::bytea || int4send(attempt) end
    from leased
)
select gate.now, gate.in_time, gate.live, g.granted, g.records, g.alone, g.states,
    w.gone, w.early, w.waits, w.decide,
    case when g.granted <> w.due then tocsin_alarm('a due row was written without its lock') end
from gate,
    (select count(*)::int4 as granted, string_agg(record, ''::bytea) as records,
        string_agg(boolsend(alone), ''::bytea) as alone, string_agg(state, ''::bytea) as states
        from leased) g,
    (select count(*) filter (where class = {GRANTED}) as due,
        array_agg(n::int4) filter (where class = {GONE}) as gone,
        array_agg(n::int4) filter (where class = {EARLY}) as early,
        array_agg(due_at - (select now from clock)) filter (where class = {EARLY}) as waits,
        array_agg(n::int4) filter (where class = {DECIDE}) as decide from wanted) w
"""  # noqa: S608 - the parts are constants of this program
"""Parameters: `parameters`. Result: one row for `result`. Numbers of wants count from 1."""

PREFIX: Final = b"\x96\x21\xc4\x10%b\xc4\x08%b"
"""A `Leased` in msgpack up to its instants: an array of six, tag 33, session, nonce."""


def parameters(wants: Sequence[Want], session: bytes, nonce: bytes, expires_at: int) -> list[bytes]:
    """Return the parameters of `LEASE`, in binary; at most one want for each job."""
    return [
        arrays.uuids([want.run_id for want in wants]),
        arrays.int4s([want.version for want in wants]),
        arrays.uuids([want.job_id for want in wants]),
        session,
        PREFIX % (session, nonce),
        arrays.int8(expires_at),
        nonce,
    ]


class Leases(msgspec.Struct, frozen=True):
    """What `LEASE` did. `in_time`: before its expiry; else nothing was done."""

    in_time: bool
    reply: LeaseReply


def result(row: Fields, ticket: int, wants: Sequence[Want]) -> Leases:
    """Read the row that `LEASE` returned for these wants."""
    at, in_time, live, count, records, alone, states, gone, early, waits, decide, _ = row
    assert at is not None
    reply = LeaseReply(
        ticket,
        int.from_bytes(at, "big"),
        granted=tuple(_granted(int.from_bytes(count or b"", "big"), records, alone, states)),
        early=tuple(
            (wants[n - 1].run_id, wait)
            for n, wait in zip(arrays.read_int4s(early), arrays.read_int8s(waits), strict=True)
        ),
        decide=[wants[n - 1].run_id for n in arrays.read_int4s(decide)],
        gone=[wants[n - 1].run_id for n in arrays.read_int4s(gone)],
        session_ended=live != b"\1",
    )
    return Leases(in_time == b"\1", reply)


def _granted(
    count: int, records: bytes | None, alone: bytes | None, states: bytes | None
) -> Iterator[Granted]:
    if records is None or alone is None or states is None:
        return
    for row, job, only in zip(due_rows(records), jobs(count, states), alone, strict=True):
        run = run_of(row)
        assert isinstance(run, InFlight)
        yield Granted(run, job, only == 1)
