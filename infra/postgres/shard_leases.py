"""Which scheduler owns which shard: one row per shard with a term, one transaction per heartbeat.

Terms bound duplicate work; they are not what keeps a fire from doubling (protocol.md §11).
"""

from typing import Final

from infra.postgres.connection import Reconnecting

HANDOVER_MAX: Final = 8
"""Shards given up in one heartbeat: a join moves a thin slice, never half the cell at once."""

_ALIVE: Final = """
insert into schedulers (owner, until) values (%(owner)s, tocsin_now() + %(lease)s)
on conflict (owner) do update set until = excluded.until
"""
_COUNT: Final = "select count(*) from schedulers where until > tocsin_now()"
_BURY: Final = "delete from schedulers where until < tocsin_now() - 60000"
# A lease that ran out and was not taken is still ours: the term did not move.
_RENEW: Final = """
update shards set until = tocsin_now() + %(lease)s where owner = %(owner)s
"""
_OWNED: Final = "select shard, term from shards where owner = %(owner)s order by shard"
_TAKE: Final = """
update shards set owner = %(owner)s, term = term + 1, until = tocsin_now() + %(lease)s
where shard in (
    select shard from shards
    where (owner is null or until < tocsin_now()) and owner is distinct from %(owner)s
    order by shard limit %(room)s for update skip locked
)
"""
_YIELD: Final = """
update shards set owner = null, until = 0
where owner = %(owner)s and shard = any(%(shards)s::int[])
"""
_RELEASE: Final = "update shards set owner = null, until = 0 where owner = %(owner)s"
_LEAVE: Final = "delete from schedulers where owner = %(owner)s"


class PostgresShardLeases:
    """`commandside.ports.ShardLeases` over one connection; every call raises Unavailable."""

    def __init__(self, conninfo: str, shards: int) -> None:
        """Connect lazily."""
        self._link = Reconnecting(conninfo, "shard leases")
        self._shards = shards

    def heartbeat(self, owner: bytes, lease_ms: int) -> dict[int, int]:
        """Renew, take or hand over shards towards equal counts; return owned shard → term."""
        values: dict[str, object] = {"owner": owner.hex(), "lease": lease_ms}
        with self._link.use() as connection, connection.transaction():
            connection.execute(_ALIVE, values)
            connection.execute(_BURY)
            connection.execute(_RENEW, values)
            row = connection.execute(_COUNT).fetchone()
            assert row is not None
            share = -(-self._shards // max(1, row[0]))
            owned = dict(connection.execute(_OWNED, values).fetchall())
            if len(owned) < share:
                connection.execute(_TAKE, {**values, "room": share - len(owned)})
                owned = dict(connection.execute(_OWNED, values).fetchall())
            elif len(owned) > share:
                given = sorted(owned)[-min(HANDOVER_MAX, len(owned) - share) :]
                connection.execute(_YIELD, {**values, "shards": given})
                owned = {shard: term for shard, term in owned.items() if shard not in given}
        return owned

    def release(self, owner: bytes) -> None:
        """Give all shards back at once."""
        with self._link.use() as connection, connection.transaction():
            connection.execute(_RELEASE, {"owner": owner.hex()})
            connection.execute(_LEAVE, {"owner": owner.hex()})

    def close(self) -> None:
        """Close the connection."""
        self._link.close()
