"""The log as projections read it: all shards in one statement, events as concatenated bytes."""

import struct
from collections.abc import Mapping
from typing import Final

import msgspec

from domain.catalogue import NAMES, DomainEvent, decode
from infra.postgres.connection import Reconnecting
from projections.ports import PASSED_OVER, Recorded

# The lateral walks events_feed once per shard. Heads and bodies come back as two values: one
# decode for the whole batch instead of one row object for each event.
_READ: Final = """
with page as materialized (
    select e.* from unnest(%(shards)s::int[], %(after)s::bigint[]) s(shard, after)
    cross join lateral (
        select l.*, lead(position) over (order by position) is null as last from (
            select shard, position, stream_id, version, name, data from events e
            where e.shard = s.shard and e.position > s.after
            order by e.position limit %(limit)s
        ) l
    ) e
    where e.name <> %(passed_over)s or e.last
)
select count(*) filter (where name <> all(%(names)s::text[])),
    string_agg(uuid_send(stream_id) || int8send(position) || int4send(version) || int4send(shard),
        ''::bytea order by shard, position),
    string_agg(data, ''::bytea order by shard, position)
from page
"""
_READ_SLOWLY: Final = """
select e.* from unnest(%(shards)s::int[], %(after)s::bigint[]) s(shard, after)
cross join lateral (
    select shard, position, stream_id, version, name, data from events e
    where e.shard = s.shard and e.position > s.after
    order by e.position limit %(limit)s
) e
order by e.shard, e.position
"""
_HEAD: Final = """
select s.shard, coalesce((
    select position from events e where e.shard = s.shard order by position desc limit 1), 0)
from generate_series(0, %s - 1) s(shard)
"""
_RECORD: Final = ">16sqii"
_RECORD_BYTES: Final = 32
_DECODER: Final = msgspec.msgpack.Decoder(list[DomainEvent])


class PostgresFeed:
    """`projections.ports.Feed` over one connection; every call raises Unavailable."""

    def __init__(self, conninfo: str, shards: int) -> None:
        """Connect lazily."""
        self._link = Reconnecting(conninfo, "projector")
        self.shards = shards
        self._names = list(NAMES.values())

    def read(self, after: Mapping[int, int], limit: int) -> list[Recorded]:
        """Return up to `limit` events of each shard whose position is > `after[shard]`."""
        values = {
            "shards": list(after),
            "after": list(after.values()),
            "limit": limit,
            "names": self._names,
            "passed_over": PASSED_OVER,
        }
        with self._link.use() as connection:
            row = connection.execute(_READ, values, prepare=True, binary=True).fetchone()
            assert row is not None
            unknown, heads, bodies = row
            if heads is None:
                return []
            if not unknown:
                try:
                    return _together(heads, bodies)
                except msgspec.DecodeError:
                    pass  # which event it is, the slow way finds out
            found = connection.execute(_READ_SLOWLY, values).fetchall()
        return [
            Recorded(shard, position, stream.bytes, version, _readable(name, data), name)
            for shard, position, stream, version, name, data in found
        ]

    def head(self) -> dict[int, int]:
        """Return the last position of each shard, 0 for an empty one."""
        with self._link.use() as connection:
            return dict(connection.execute(_HEAD, (self.shards,)).fetchall())

    def close(self) -> None:
        """Close the connection."""
        self._link.close()


def _together(heads: bytes, bodies: bytes) -> list[Recorded]:
    count = len(heads) // _RECORD_BYTES
    events = _DECODER.decode(b"\xdd" + count.to_bytes(4, "big") + bodies)
    return [
        Recorded(shard, position, stream, version, event)
        for (stream, position, version, shard), event in zip(
            struct.iter_unpack(_RECORD, heads), events, strict=True
        )
    ]


def _readable(name: str, data: bytes) -> DomainEvent | None:
    """Return the event, None where this version cannot read it: the view parks its stream."""
    try:
        return decode(name, data)
    except msgspec.DecodeError:
        return None
