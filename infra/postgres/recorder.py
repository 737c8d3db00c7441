"""The `eventsourcing` library's recorder over our `events` table.

The library's persistence contract is the way in for everything that is not the fire path: tools,
tests, rebuilds. Two things differ from its own Postgres recorder, and both were measured. Writers
take an advisory lock per shard instead of locking the table (a table lock and a NOTIFY serialise
every commit of the cell), and positions are therefore in commit order within a shard only, so a
recorder reads the notifications of one shard. The fire path appends through `append.py`.
"""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from eventsourcing.persistence import Notification, ProgrammingError, StoredEvent, Subscription
from eventsourcing.postgres import PostgresApplicationRecorder, PostgresDatastore
from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import SQL, Composed

from domain.sharding import shard_of

LOCK_CLASS: Final = 7
"""First key of every shard's advisory lock; `append.py` takes the same."""
POOL_SIZE: Final = 2

_LOCK: Final = "select pg_advisory_xact_lock(%s, s) from unnest(%s::int[]) s"
_INSERT: Final = """
insert into events (stream_id, version, shard, position, name, data)
select e.id, e.version, e.shard, nextval('event_position'), e.name, e.data
from (
    select * from unnest(%s::uuid[], %s::int[], %s::int[], %s::text[], %s::bytea[])
    with ordinality as t(id, version, shard, name, data, place) order by place
) e
returning position
"""
_SELECT: Final = SQL("""
select * from (
    select stream_id as originator_id, version as originator_version, name as topic, data as state
    from events
) e where originator_id = %s
""")
_NOTIFICATIONS: Final = """
select position, stream_id, version, name, data from events
where shard = %s and position >= %s and position <= %s and (%s::text[] = '{}' or name = any(%s))
order by position limit %s
"""
_MAX: Final = "select max(position) as top from events where shard = %s"
_LAST: Final = 2**63 - 1


class ShardRecorder(PostgresApplicationRecorder):
    """Reads and writes the log; `shard` is the one whose notifications this recorder follows."""

    def __init__(self, datastore: PostgresDatastore, *, shards: int = 1, shard: int = 0) -> None:
        """Use tables that the migrations made; with one shard the order is global."""
        super().__init__(datastore)
        self.select_events_statement = Composed([_SELECT])
        self.sql_create_statements.clear()
        self._shards = shards
        self._shard = shard

    def insert_events(self, stored_events: Sequence[StoredEvent], **_: Any) -> Sequence[int] | None:
        """Append all or nothing and return the positions, in order.

        Raises IntegrityError where a version exists. Never retried: an unknown commit must be read
        back by its caller.
        """
        if not stored_events:
            return None
        ids = [_uuid(event.originator_id) for event in stored_events]
        shards = [shard_of(i.bytes, self._shards) for i in ids]
        with self.datastore.get_connection() as connection, connection.transaction():
            connection.execute(_LOCK, (LOCK_CLASS, sorted(set(shards))))
            rows = connection.execute(
                _INSERT,
                (
                    ids,
                    [event.originator_version for event in stored_events],
                    shards,
                    [event.topic for event in stored_events],
                    [event.state for event in stored_events],
                ),
                binary=True,
            ).fetchall()
        if len(rows) != len(stored_events):
            raise ProgrammingError(f"{len(rows)} of {len(stored_events)} events were written")
        return [row["position"] for row in rows]

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        """Return events of this recorder's shard in commit order, from `start` to `stop`."""
        first = 0 if start is None else start + (not inclusive_of_start)
        names = list(topics)
        values = (self._shard, first, _LAST if stop is None else stop, names, names, limit)
        with self.datastore.get_connection() as connection:
            rows = connection.execute(_NOTIFICATIONS, values).fetchall()
        return [
            Notification(
                row["stream_id"], row["version"], row["name"], bytes(row["data"]), row["position"]
            )
            for row in rows
        ]

    def max_notification_id(self) -> int | None:
        """Return the last position of this recorder's shard, None for an empty one."""
        with self.datastore.get_connection() as connection:
            row = connection.execute(_MAX, (self._shard,)).fetchone()
        return None if row is None else row["top"]

    def subscribe(self, gt: int | None = None, topics: Sequence[str] = ()) -> Subscription[Any]:
        """Refuse: readers poll by shard and position, nothing is notified inside an append."""
        raise NotImplementedError("follow a shard with select_notifications")


def datastore(conninfo: str) -> PostgresDatastore:
    """Return the library's connection pool for a libpq connection string; close it after use."""
    parts = conninfo_to_dict(conninfo)
    return PostgresDatastore(
        dbname=str(parts.get("dbname", "")),
        host=str(parts.get("host", "")),
        port=str(parts.get("port", "")),
        user=str(parts.get("user", "")),
        password=str(parts.get("password", "")),
        pool_size=POOL_SIZE,
        max_overflow=POOL_SIZE,
        idle_in_transaction_session_timeout=10,
    )


def _uuid(value: UUID | str) -> UUID:
    return value if isinstance(value, UUID) else UUID(value)
