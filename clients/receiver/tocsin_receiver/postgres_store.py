"""Records in one table of Postgres, through the connection that the service has."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any, Final

from tocsin_receiver.record import Record

DDL: Final = """\
create table if not exists tocsin_deliveries (
    key text primary key,
    record text not null,
    forget_at timestamptz not null
);
create index if not exists tocsin_deliveries_forget_at on tocsin_deliveries (forget_at);
"""
"""Run it once, by your migrations or by hand."""

_LOAD: Final = "select record from tocsin_deliveries where key = %s and forget_at > now()"

# What was there is forgotten or nothing: else no row changes, and none is counted.
_INSERT: Final = """\
insert into tocsin_deliveries as d (key, record, forget_at)
values (%s, %s, now() + %s * interval '1 millisecond')
on conflict (key) do update set record = excluded.record, forget_at = excluded.forget_at
where d.forget_at <= now()"""

_REPLACE: Final = """\
update tocsin_deliveries set record = %s, forget_at = now() + %s * interval '1 millisecond'
where key = %s and record = %s"""

_PURGE: Final = """\
delete from tocsin_deliveries where key in (
    select key from tocsin_deliveries where forget_at <= now()
    order by forget_at limit %s for update skip locked
)"""

PURGE_MAX: Final = 10_000

Connections = Callable[[], AbstractContextManager[Any]]
"""Gives a connection for one transaction, committed where the block ends well, as psycopg's
`pool.connection` does."""


def one_connection(connection: Any) -> Connections:
    """Share one DB-API connection among threads, a transaction at a time."""
    lock = threading.Lock()

    @contextmanager
    def connections() -> Iterator[Any]:
        with lock:
            try:
                yield connection
                connection.commit()
            except BaseException:
                connection.rollback()
                raise

    return connections


class PostgresStore:
    """Keeps records in the table of `DDL`; the driver is yours (parameters written `%s`).

    Each call is one statement in a transaction of its own, at `read committed`.
    """

    blocks = True

    def __init__(self, connections: Connections) -> None:
        """Take `pool.connection`, or `one_connection(connection)`."""
        self._connections = connections

    def load(self, key: str) -> Record | None:
        """Return the record of a key, or None."""
        with self._connections() as connection, closing(connection.cursor()) as cursor:
            cursor.execute(_LOAD, (key,))
            row = cursor.fetchone()
        return Record.from_text(row[0]) if row else None

    def swap(self, key: str, old: Record | None, new: Record, keep_ms: int) -> bool:
        """Put `new` in the place of `old` in one statement."""
        if old is None:
            return self._changes(_INSERT, (key, new.to_text(), keep_ms)) == 1
        return self._changes(_REPLACE, (new.to_text(), keep_ms, key, old.to_text())) == 1

    def purge(self, limit: int = PURGE_MAX) -> int:
        """Delete up to `limit` keys that are forgotten, and return how many: call it now and then.

        Nothing but disk space depends on it.
        """
        return self._changes(_PURGE, (limit,))

    def _changes(self, statement: str, values: tuple[Any, ...]) -> int:
        with self._connections() as connection, closing(connection.cursor()) as cursor:
            cursor.execute(statement, values)
            return int(cursor.rowcount)
