"""What a dispatcher reads, and what it changes without an event: defer, read back, sessions."""

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Final

from commandside.ports import SESSION_MS, Granted, Standing, Want
from domain.catalogue import decode
from domain.job.events import Defined, JobSpec, Revised
from domain.run.state import InFlight, OpenRun
from infra.postgres import arrays
from infra.postgres.rows import Fields, due_rows, entry_of, jobs, record_of
from projections.due_index import LEASED, READY, run_of

READ: Final = f"""
with head as materialized (
    select h.state from unnest($1::uuid[]) as job(id)
    cross join lateral (select j.state from job_heads j where j.job_id = job.id offset 0) h
),
due as materialized (
    select d.record from unnest($1::uuid[]) as job(id)
    cross join lateral (
        select {record_of("i")} as record
        from due_index i where i.job_id = job.id offset 0) d
)
select tocsin_now(), (select count(*) from head)::int4,
    (select string_agg(state, ''::bytea) from head),
    (select string_agg(record, ''::bytea) from due)
"""  # noqa: S608 - the parts are constants of this program
"""Heads and due rows of jobs, of one snapshot."""

SPECS: Final = """
with found as materialized (
    select v.n, e.revised, e.data
    from unnest($1::uuid[], $2::int4[]) with ordinality as v(job_id, version, n)
    cross join lateral (
        select (events.name = 'job.revised.v1')::int4 as revised, events.data from events
        where events.stream_id = v.job_id and events.version = v.version offset 0) e
)
select tocsin_now(), (select string_agg(
    int4send(n::int4) || int4send(revised) || int4send(length(data)) || data, ''::bytea)
    from found)
"""
"""The events that carry the specs of jobs, as of versions of their streams."""

DUE: Final = f"""
select tocsin_now(), (
    select string_agg({entry_of("d")}, ''::bytea) from (
        select i.run_id, i.job_id, i.tenant_id, i.version, i.due_at from due_index i
        where i.shard = any($1::int4[]) and i.phase = {READY}
            and i.wake_at <= (select tocsin_now()) + $2::int8
        order by i.wake_at limit $3::int8
    ) d)
"""  # noqa: S608 - the parts are constants of this program
"""The earliest ready rows of shards, whether they were handed off or not, as entries."""

DEFER: Final = f"""
with late as materialized (
    select d.place, row.wake_at
    from unnest($1::uuid[], $2::int4[], $3::int8[]) as row(run_id, version, wake_at)
    cross join lateral (
        select i.ctid as place from due_index i
        where i.run_id = row.run_id and i.version = row.version and i.phase = {READY} offset 0) d
),
moved as (
    update due_index d set wake_at = late.wake_at, handed_off_at = null,
        handed_off_partition = null, handed_off_offset = null, handed_off_topic = null
    from late where d.ctid = late.place
    returning 1
)
select tocsin_now(), (select count(*) from moved)::int4
"""  # noqa: S608 - the parts are constants of this program
"""Runs after `append.LOCK`: rows that moved on are left alone."""

READ_BACK: Final = f"""
with clock as materialized (select tocsin_now() as now),
mine as materialized (
    select d.record, h.state, not o.linked as alone
    from unnest($1::uuid[], $2::int4[]) as want(run_id, version)
    cross join lateral (
        select {record_of("i")} as record, i.job_id, i.life from due_index i
        where i.run_id = want.run_id and i.version = want.version + 1
            and i.phase = {LEASED} and i.nonce = $3::bytea offset 0) d
    cross join lateral (select j.state from job_heads j where j.job_id = d.job_id offset 0) h
    left join lateral (
        select coalesce(bool_or(i.kind = 0 and i.life = d.life), false) as linked
        from due_index i where i.job_id = d.job_id and i.run_id <> want.run_id offset 0) o on true
)
select now, now > $4::int8, (select count(*) from mine)::int4,
    (select string_agg(record, ''::bytea) from mine),
    (select string_agg(boolsend(alone), ''::bytea) from mine),
    (select string_agg(state, ''::bytea) from mine)
from clock
"""  # noqa: S608 - the parts are constants of this program
"""Runs after `append.LOCK`, which waits for a transaction of before that still runs. The row at the
next version, with the nonce, is what that lease wrote; a lease that lapsed meanwhile is no longer
anybody's, and not found."""

_DONE: Final = "select tocsin_now(), (select count(*) from done)::int4"
START: Final = f"""
with done as (
    insert into sessions as s (session_id, until) values ($1::uuid, tocsin_now() + {SESSION_MS})
    on conflict (session_id) do update set until = excluded.until where not s.ended
    returning 1
) {_DONE}
"""  # noqa: S608 - the parts are constants of this program
RENEW: Final = f"""
with done as (
    update sessions set until = tocsin_now() + {SESSION_MS}
    where session_id = $1::uuid and not ended returning 1
) {_DONE}
"""  # noqa: S608 - the parts are constants of this program
END: Final = f"""
with done as (
    update sessions set ended = true where session_id = $1::uuid and not ended returning 1
) {_DONE}
"""  # noqa: S608 - the parts are constants of this program
"""Single-row statements; their count is 0 for a session that has ended, or never was."""


def standings(row: Fields) -> dict[bytes, Standing]:
    """Read the row of `READ`."""
    _, count, states, records = row
    if states is None or count is None:
        return {}
    runs: dict[bytes, list[OpenRun]] = {}
    for due in due_rows(records or b""):
        runs.setdefault(due.job_id, []).append(run_of(due))
    return {
        job.facts.job_id: Standing(job, tuple(runs.get(job.facts.job_id, ())))
        for job in jobs(int.from_bytes(count, "big"), states)
    }


def standing_parameters(job_ids: Iterable[bytes]) -> list[bytes]:
    """Return the parameters of `READ`; a job named twice is read once."""
    return [arrays.uuids(tuple(dict.fromkeys(job_ids)))]


def due_parameters(shards: Sequence[int], ahead_ms: int, limit: int) -> list[bytes]:
    """Return the parameters of `DUE`."""
    return [arrays.int4s(shards), arrays.int8(ahead_ms), arrays.int8(limit)]


def specs_parameters(wants: Sequence[tuple[bytes, int]]) -> list[bytes]:
    """Return the parameters of `SPECS`: (job, version)."""
    return [
        arrays.uuids([job_id for job_id, _ in wants]),
        arrays.int4s([version for _, version in wants]),
    ]


_SPEC: Final = Struct(">iii")
_SPEC_NAMES: Final = ("job.defined.v1", "job.revised.v1")


def specs(
    row: Fields, wants: Sequence[tuple[bytes, int]]
) -> Iterator[tuple[tuple[bytes, int], JobSpec]]:
    """Read the row of `SPECS` for these wants."""
    data, offset = row[1] or b"", 0
    while offset < len(data):
        n, revised, size = _SPEC.unpack_from(data, offset)
        offset += _SPEC.size
        event = decode(_SPEC_NAMES[revised], data[offset : offset + size])
        assert isinstance(event, Defined | Revised)
        yield wants[n - 1], event.spec
        offset += size


def defer_parameters(rows: Sequence[tuple[bytes, int, int]]) -> list[bytes]:
    """Return the parameters of `DEFER`: (run, version, wake_at)."""
    return [
        arrays.uuids([run_id for run_id, _, _ in rows]),
        arrays.int4s([version for _, version, _ in rows]),
        arrays.int8s([wake_at for _, _, wake_at in rows]),
    ]


def read_back_parameters(wants: Sequence[Want], nonce: bytes, expires_at: int) -> list[bytes]:
    """Return the parameters of `READ_BACK`."""
    return [
        arrays.uuids([want.run_id for want in wants]),
        arrays.int4s([want.version for want in wants]),
        nonce,
        arrays.int8(expires_at),
    ]


def ours(row: Fields) -> Iterator[Granted]:
    """Read the leases of the row of `READ_BACK`."""
    _, _, count, records, alone, states = row
    if records is None or alone is None or states is None or count is None:
        return
    heads = jobs(int.from_bytes(count, "big"), states)
    for due, job, only in zip(due_rows(records), heads, alone, strict=True):
        run = run_of(due)
        assert isinstance(run, InFlight)
        yield Granted(run, job, only == 1)
