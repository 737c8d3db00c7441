"""The hand-off's statements: which rows are due soon, as chunks; and that they were published.

What writes due rows runs after `append.LOCK` for their shards, like everything that does: leases
write rows by the place where they found them. So marks come, and go, in lots of one share of them,
each lot a transaction of its own, lest one holds every lock of the cell.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from struct import Struct
from typing import Final

from commandside.firing.chunks import CHUNK_ENTRIES, FORMAT
from commandside.ports import ENTRY_BYTES, Chunk, Published
from infra.postgres import arrays
from infra.postgres.rows import Fields, entry_of
from projections.due_index import READY

LOT_ROWS: Final = 1_000
"""Rows marked in one transaction, so that leases wait for some milliseconds at most."""
SHARES: Final = 4
"""Shares of the shards (shard mod SHARES): no lot has rows of two."""

# Rows already handed off are stepped over, so the caller scans edges and not the whole window.
# Entries are concatenated in the database: the bytes go to the broker as they are.
WINDOW: Final = f"""
with picked as materialized (
    select d.shard, d.due_at / 1000 as second, d.lane::int4 as lane, d.wake_at,
        {entry_of("d")} as entry
    from due_index d
    where d.shard = any($1::int4[]) and d.phase = {READY} and d.handed_off_at is null
        and d.wake_at > $2::int8 and d.wake_at <= $3::int8
    order by d.wake_at limit $4::int8
),
lots as (
    select shard, second, lane, min(wake_at) as soonest,
        string_agg(entry, ''::bytea order by wake_at) as entries
    from picked group by shard, second, lane
)
select string_agg(int4send(shard) || int8send(second) || int4send(lane)
    || int4send(length(entries)) || entries, ''::bytea order by soonest) from lots
"""  # noqa: S608 - the parts are constants of this program

MARK: Final = f"""
with clock as materialized (select tocsin_now() as now),
owned as materialized (
    select array_agg(coalesce(s.term = chunk.term, false) order by chunk.n) as list
    from unnest($4::int4[], $5::int8[]) with ordinality as chunk(shard, term, n)
    left join lateral (select x.term from shards x where x.shard = chunk.shard offset 0) s on true
),
published as materialized (
    select d.place, row.chunk
    from unnest($1::uuid[], $2::int4[], $3::int4[]) as row(run_id, version, chunk)
    cross join lateral (
        select i.ctid as place from due_index i
        where i.run_id = row.run_id and i.version = row.version and i.phase = {READY} offset 0) d
    where (select list from owned)[row.chunk]
),
marked as (
    update due_index d set handed_off_at = (select now from clock),
        handed_off_topic = ($6::text[])[published.chunk],
        handed_off_partition = ($7::int4[])[published.chunk],
        handed_off_offset = ($8::int8[])[published.chunk],
        hand_offs = least(d.hand_offs + 1, 1000)
    from published where d.ctid = published.place
    returning 1
)
select (select count(*) from marked)::int4
"""  # noqa: S608 - the parts are constants of this program

UNMARK: Final = f"""
with lost as materialized (
    select i.ctid as place from due_index i
    where i.shard = any($1::int4[]) and i.phase = {READY} and i.handed_off_at < $2::int8
        and i.wake_at <= (select tocsin_now()) + $3::int8
    order by i.wake_at limit $4::int8
),
unmarked as (
    update due_index d set handed_off_at = null, handed_off_topic = null,
        handed_off_partition = null, handed_off_offset = null
    from lost where d.ctid = lost.place
    returning 1
)
select (select count(*) from unmarked)::int4
"""  # noqa: S608 - the parts are constants of this program

_LOT: Final = Struct(">iqii")
_ROW: Final = Struct(">16s32xi8x")
"""Run and version of an entry."""
assert _ROW.size == ENTRY_BYTES


def window_parameters(shards: Sequence[int], after: int, until: int, limit: int) -> list[bytes]:
    """Return the parameters of `WINDOW`."""
    return [arrays.int4s(shards), *map(arrays.int8, (after, until, limit))]


def chunks(row: Fields, terms: dict[int, int]) -> Iterator[Chunk]:
    """Read the row of `WINDOW`, in due order; `terms` are those of the shards asked for."""
    data, offset = row[0] or b"", 0
    part = CHUNK_ENTRIES * ENTRY_BYTES
    while offset < len(data):
        shard, second, lane, size = _LOT.unpack_from(data, offset)
        offset += _LOT.size
        end = offset + size
        for start in range(offset, end, part):
            entries = data[start : min(start + part, end)]
            yield Chunk(FORMAT, b"", shard, terms[shard], second, lane, entries)
        offset = end


def shares(shards: Sequence[int]) -> list[list[int]]:
    """Return the shards by share, those shares that have any."""
    found = ([shard for shard in shards if shard % SHARES == share] for share in range(SHARES))
    return [share for share in found if share]


def lots(published: Sequence[Published]) -> Iterator[list[Published]]:
    """Return what was published in lots for `MARK`: of one share, at most LOT_ROWS or one chunk."""
    shares: list[list[Published]] = [[] for _ in range(SHARES)]
    for done in published:
        shares[done.chunk.shard % SHARES].append(done)
    for share in shares:
        lot: list[Published] = []
        rows = 0
        for done in share:
            size = len(done.chunk.entries) // ENTRY_BYTES
            if lot and rows + size > LOT_ROWS:
                yield lot
                lot, rows = [], 0
            lot.append(done)
            rows += size
        if lot:
            yield lot


def mark_parameters(lot: Sequence[Published]) -> list[bytes]:
    """Return the parameters of `MARK`."""
    rows = list(chain.from_iterable(_ROW.iter_unpack(done.chunk.entries) for done in lot))
    sizes = (len(done.chunk.entries) // ENTRY_BYTES for done in lot)
    return [
        arrays.uuids([run_id for run_id, _ in rows]),
        arrays.int4s([version for _, version in rows]),
        arrays.int4s(list(chain.from_iterable(map(repeat, range(1, len(lot) + 1), sizes)))),
        arrays.int4s([done.chunk.shard for done in lot]),
        arrays.int8s([done.chunk.term for done in lot]),
        arrays.texts([done.ref.topic.encode() for done in lot]),
        arrays.int4s([done.ref.partition for done in lot]),
        arrays.int8s([done.ref.offset for done in lot]),
    ]


def unmark_parameters(shards: Sequence[int], before: int, ahead: int, limit: int) -> list[bytes]:
    """Return the parameters of `UNMARK`; `ahead` is how far from now, ms."""
    return [arrays.int4s(shards), *map(arrays.int8, (before, ahead, limit))]


def count(row: Fields) -> int:
    """Read the row of `MARK` or `UNMARK`: how many rows were written."""
    assert row[0] is not None
    return int.from_bytes(row[0], "big")
