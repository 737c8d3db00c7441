"""What the write API reads of the log: a job, a command's effect, streams, a read-back."""

from collections.abc import Sequence
from struct import unpack
from typing import Final

import msgspec

from commandside.ports import Standing
from domain.catalogue import DomainEvent, encode
from domain.envelope import Decision
from domain.job import state as js
from domain.job.events import JobEvent
from domain.run import events as re
from domain.run import state as rs
from infra.postgres import append, arrays, reads

COMMAND: Final = """
select tocsin_now(), c.body_hash, c.version, c.position, c.at
from (select) one left join commands c on c.job_id = $1::uuid and c.command_id = $2::uuid
"""
"""A command's recorded effect, nulls where there is none."""

STREAMS: Final = """
select coalesce(array_agg(count order by n), '{}'::int4[]),
    string_agg(bodies, ''::bytea order by n)
from unnest($1::uuid[]) with ordinality as s(id, n)
cross join lateral (
    select count(*)::int4 as count,
        string_agg(e.data, ''::bytea order by e.version) as bodies
    from events e where e.stream_id = s.id) found
"""
"""All events of streams, in the order asked: how many each has, and their bytes joined."""

PAGE: Final = """
select (select e.data from events e where e.stream_id = $1::uuid and e.version = 1),
    count(*)::int4, string_agg(page.data, ''::bytea order by page.version)
from (
    select e.version, e.data from events e where e.stream_id = $1::uuid and e.version > $2::int4
    order by e.version limit $3::int4
) page
"""
"""The first event of a stream, and a page of it."""

TOLD: Final = """
select count(*)::int4, string_agg(int4send(version), ''::bytea order by version),
    string_agg(data, ''::bytea order by version)
from (
    select e.version, e.data from events e
    where e.stream_id = $1::uuid and e.name = any($2::text[])
    order by e.version desc limit $3::int4
) newest
"""
"""The newest events of some names in a stream: versions and bodies, each joined."""

LAST: Final = """
select count(*)::int4, string_agg(int4send(n), ''::bytea order by n),
    string_agg(data, ''::bytea order by n)
from (
    select s.n::int4 as n, e.data
    from unnest($1::uuid[]) with ordinality as s(id, n)
    cross join lateral (
        select events.data from events where events.stream_id = s.id
        order by events.version desc limit 1) e
) last
"""
"""The last event of each stream that exists: its place among those asked (from 1), its body."""

LATEST: Final = """
select count(*)::int4, string_agg(int4send(n), ''::bytea order by n),
    string_agg(data, ''::bytea order by n)
from (
    select s.n::int4 as n, e.data
    from unnest($1::uuid[]) with ordinality as s(id, n)
    cross join lateral (
        select events.data from events where events.stream_id = s.id and events.name = $2::text
        order by events.version desc limit 1) e
) newest
"""
"""The newest event of one name in each of these streams, as `LAST`."""

HAPPENED: Final = """
select tocsin_now(), array_agg(coalesce((
    select e.position from events e
    where e.stream_id = sent.id and e.version = sent.version and e.data = sent.data), 0)
    order by n)
from unnest($1::uuid[], $2::int4[], $3::bytea[]) with ordinality as sent(id, version, data, n)
"""
"""Runs after `append.LOCK`: positions of the events that hold what was sent, 0 elsewhere."""

REMEMBER: Final = """
insert into commands (shard, job_id, command_id, body_hash, version, position, at)
select $1::int4, h.job_id, $3::uuid, $4::bytea, h.version, 0, $6::int8
from job_heads h where h.job_id = $2::uuid and h.version = $5::int4
returning version
"""
"""Runs after `append.LOCK`: a command that changed nothing; a repeat violates the key."""

SECONDS: Final = """
select coalesce(array_agg(f.second order by f.second), '{}'::int8[]),
    coalesce(array_agg(f.count order by f.second), '{}'::int8[])
from (
    select woken.wake_at / 1000 as second, count(*)::int8 as count
    from unnest($1::int8[], $2::int8[]) as w(low, high)
    cross join lateral (
        select d.wake_at from unnest($3::int4[]) as s(shard)
        cross join lateral (
            select d.wake_at from due_index d
            where d.shard = s.shard and d.wake_at >= w.low and d.wake_at < w.high offset 0) d
        limit $4::int4) woken
    group by 1) f
"""
"""Seconds in windows [low, high), and how many due rows wake in each: from the index alone."""

STATEMENTS: Final = {
    "lock": append.LOCK,
    "read": reads.READ,
    "command": COMMAND,
    "streams": STREAMS,
    "page": PAGE,
    "seconds": SECONDS,
    "told": TOLD,
    "last": LAST,
    "latest": LATEST,
    "happened": HAPPENED,
    "remember": REMEMBER,
}

Row = Sequence[bytes | None]

_EVENTS: Final = msgspec.msgpack.Decoder(list[DomainEvent])
_ARRAY32: Final = b"\xdd"


class Effect(msgspec.Struct, frozen=True, gc=False):
    """What a command id stands for."""

    body_hash: bytes
    version: int
    position: int
    at: int


def effect(row: Row) -> Effect | None:
    """Read the row of `COMMAND`."""
    _, body_hash, version, position, at = row
    if body_hash is None:
        return None
    return Effect(body_hash, number(version), number(position), number(at))


def number(value: bytes | None) -> int:
    """Read an int4 or int8."""
    assert value is not None
    return int.from_bytes(value, "big", signed=True)


def page(row: Row, job_id: bytes, stream_id: bytes) -> list[DomainEvent]:
    """Read the row of `PAGE`; a run's stream belongs to the job that its first event names."""
    first, count, bodies = row
    if first is None or bodies is None:
        return []
    if stream_id != job_id:
        (scheduled,) = decoded(1, first)
        if not isinstance(scheduled, re.Scheduled) or scheduled.job_id != job_id:
            return []
    return decoded(number(count), bodies)


def decoded(count: int, bodies: bytes) -> list[DomainEvent]:
    """Return `count` events of their joined bytes."""
    return _EVENTS.decode(_ARRAY32 + count.to_bytes(4, "big") + bodies)


def numbered(row: Row) -> list[tuple[int, DomainEvent]]:
    """Read the row of `TOLD` or `LAST`: each event with its number."""
    count, numbers, bodies = row
    if numbers is None or bodies is None:
        return []
    found = decoded(number(count), bodies)
    return list(zip(unpack(f">{len(found)}i", numbers), found, strict=True))


def without_row(job: js.JobState, runs: Sequence[rs.OpenRun]) -> list[bytes]:
    """Return the streams that may be withheld runs: named by a paused job, without a due row."""
    if not isinstance(job, js.Paused):
        return []
    rows = {run.facts.run_id for run in runs}
    return [run_id for run_id in job.runs if run_id not in rows]


def withheld(row: Row, run_ids: Sequence[bytes]) -> list[rs.Withheld]:
    """Read the row of `STREAMS` for these runs: those that are withheld now."""
    counts, bodies = row
    events = iter(decoded(sum(arrays.read_int4s(counts)), bodies or b""))
    found = []
    for run_id, count in zip(run_ids, arrays.read_int4s(counts), strict=True):
        state: rs.RunState | None = None
        for _ in range(count):
            event = next(events)
            assert not isinstance(event, JobEvent)
            state = rs.evolve(run_id, state, event)
        if isinstance(state, rs.Withheld):
            found.append(state)
    return found


def happened_parameters(decisions: Sequence[Decision]) -> list[bytes]:
    """Return the parameters of `HAPPENED`: the last event of each decision."""
    last = [
        (piece.stream_id, piece.version + len(piece.events) - 1, encode(piece.events[-1]))
        for piece in (decision.slices[-1] for decision in decisions)
    ]
    return [
        arrays.uuids([stream for stream, _, _ in last]),
        arrays.int4s([version for _, version, _ in last]),
        arrays.byteas([data for _, _, data in last]),
    ]


def standing(row: Row, job_id: bytes) -> Standing | None:
    """Read the row of `READ` for one job."""
    return reads.standings(row).get(job_id)
