"""The tenants' default callbacks in Postgres. Nothing of it is on the path of a fire."""

import asyncio
from typing import Any, Final

import msgspec
import psycopg

from commandside.callback_port import Default, DefaultPut, refusal_of
from domain.callback import Callbacks
from domain.envelope import Rejected
from infra.postgres.connection import translated
from infra.postgres.pools import lazy_pool

CONNECTIONS_MAX: Final = 2

# Whoever reads what was in force at an instant holds it shared: then no version of before that
# instant is still on its way.
ALONE: Final = "select pg_advisory_xact_lock(8, 0)"
SHARED: Final = "select pg_advisory_xact_lock_shared(8, 0)"
_CURRENT: Final = """
select version, content, at, actor from callback_defaults
where tenant_id = %s order by version desc limit 1
"""
_ADD: Final = """
insert into callback_defaults (tenant_id, version, content, at, actor)
values (%s, %s, %s, tocsin_now(), %s) returning at
"""

Row = tuple[int, bytes | None, int, str]
_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final = msgspec.msgpack.Decoder(Callbacks).decode


class PostgresCallbackDefaults:
    """`commandside.callback_port.CallbackDefaults`, on threads of the running loop."""

    def __init__(self, conninfo: str) -> None:
        """Connect with the first question."""
        self._pool = lazy_pool(conninfo, "callback defaults", CONNECTIONS_MAX)

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()

    async def current(self, tenant_id: bytes) -> Default | None:
        """Return the version in force."""
        return await asyncio.to_thread(self._current, tenant_id)

    def _current(self, tenant_id: bytes) -> Default | None:
        with translated():
            self._pool.open()
            with self._pool.connection() as connection:
                row = _latest(connection, tenant_id)
        return None if row is None else default_of(row)

    async def put(
        self, tenant_id: bytes, callbacks: Callbacks, actor: str, if_version: int
    ) -> DefaultPut | Rejected:
        """Make the next version, unless the current one is the same."""
        return await asyncio.to_thread(self._put, tenant_id, callbacks, actor, if_version)

    async def remove(self, tenant_id: bytes, actor: str, if_version: int) -> Rejected | None:
        """End the default."""
        made = await asyncio.to_thread(self._put, tenant_id, None, actor, if_version)
        return made if isinstance(made, Rejected) else None

    def _put(
        self, tenant_id: bytes, callbacks: Callbacks | None, actor: str, if_version: int
    ) -> DefaultPut | Rejected:
        with translated():
            self._pool.open()
            with self._pool.connection() as connection, connection.transaction():
                connection.execute(ALONE)
                row = _latest(connection, tenant_id)
                current = None if row is None else default_of(row)
                refused = refusal_of(current, if_version, removes=callbacks is None)
                if refused is not None:
                    return refused
                if current is not None and callbacks == current.callbacks:
                    return DefaultPut(current, changed=False)
                version = 1 if row is None else row[0] + 1
                content = None if callbacks is None else _ENCODE(callbacks)
                values: tuple[Any, ...] = (tenant_id.hex(), version, content, actor)
                added = connection.execute(_ADD, values).fetchone()
        assert added is not None
        return DefaultPut(Default(version, callbacks or Callbacks(), added[0], actor))


def _latest(connection: psycopg.Connection, tenant_id: bytes) -> Row | None:
    row: Row | None = connection.execute(_CURRENT, (tenant_id.hex(),)).fetchone()
    return row


def default_of(row: Row) -> Default | None:
    """Read a version; None where it ends the default."""
    version, content, at, actor = row
    return None if content is None else Default(version, _DECODE(content), at, actor)
