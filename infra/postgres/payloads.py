"""The list of large payloads in Postgres. Nothing of it is on the path of a fire."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import psycopg

from commandside.payload_port import AGAIN_MS, GRACE_MS, LOOKED_AT_MS, PayloadObject, Taken
from domain.payload import PayloadRef
from infra.postgres.connection import translated
from infra.postgres.pools import lazy_pool

CONNECTIONS_MAX: Final = 2

# An object that is noted again begins its grace again. It cannot have been deleted meanwhile: no
# two definitions have the same, and one that is in the list is noted before it is written.
_NOTE: Final = f"""
with clock as materialized (select tocsin_now() as now), noted as (
    insert into payload_objects (sha256, tenant_id, job_id, size, noted_at, look_at)
    select o.sha256, o.tenant_id, o.job_id, o.size, clock.now, clock.now + {GRACE_MS}
    from clock, unnest(%(sha256)s::bytea[], %(tenants)s::uuid[], %(jobs)s::uuid[], %(sizes)s::int[])
        as o(sha256, tenant_id, job_id, size)
    on conflict (sha256) do update
        set noted_at = excluded.noted_at, look_at = excluded.look_at, unnamed_since = 0
        where payload_objects.job_id = excluded.job_id
    returning 1
)
select now, (select count(*) from noted) from clock
"""  # noqa: S608 - constants of this program
_TAKE: Final = f"""
with clock as materialized (select tocsin_now() as now), due as materialized (
    select sha256 from payload_objects where look_at <= (select now from clock)
    order by look_at limit %(limit)s for update skip locked
)
update payload_objects o set look_at = clock.now + {LOOKED_AT_MS}
from due, clock where o.sha256 = due.sha256
returning o.tenant_id, o.job_id, o.sha256, o.size, o.unnamed_since
"""  # noqa: S608 - as above
_NAMED: Final = f"""
update payload_objects set look_at = tocsin_now() + {AGAIN_MS}, unnamed_since = 0
where sha256 = any(%(sha256)s)
"""  # noqa: S608 - as above
_UNNAMED: Final = """
with clock as materialized (select tocsin_now() as now)
update payload_objects set look_at = clock.now + %(after)s,
    unnamed_since = case when unnamed_since = 0 then clock.now else unnamed_since end
from clock where sha256 = any(%(sha256)s)
"""
_FORGET: Final = "delete from payload_objects where sha256 = any(%(sha256)s)"


class PostgresPayloads:
    """The port `PayloadList`; any number of tasks may ask."""

    def __init__(self, conninfo: str) -> None:
        """Connect with the first question."""
        self._pool = lazy_pool(conninfo, "payloads", CONNECTIONS_MAX)

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()

    async def note(self, objects: Sequence[PayloadObject]) -> int:
        """Note objects that are about to be written; return the instant by the database clock."""
        values = {
            "sha256": [place.ref.sha256 for place in objects],
            "tenants": [place.tenant_id.hex() for place in objects],
            "jobs": [place.job_id.hex() for place in objects],
            "sizes": [place.ref.size for place in objects],
        }
        ((at, noted),) = await self._ask(_NOTE, values)
        assert noted == len(objects), "an object is of one job"
        return int(at)

    async def take(self, limit: int) -> list[Taken]:
        """Return objects whose time to be looked at has come."""
        rows = await self._ask(_TAKE, {"limit": limit})
        return [
            Taken(
                PayloadObject(tenant_id.bytes, job_id.bytes, PayloadRef(bytes(sha256), size)),
                unnamed_since,
            )
            for tenant_id, job_id, sha256, size, unnamed_since in rows
        ]

    async def named(self, objects: Sequence[PayloadObject]) -> None:
        """Have objects looked at again much later."""
        await self._tell(_NAMED, objects)

    async def unnamed(self, objects: Sequence[PayloadObject], after_ms: int) -> None:
        """Have objects that nothing names looked at again."""
        await self._tell(_UNNAMED, objects, after=after_ms)

    async def forget(self, objects: Sequence[PayloadObject]) -> None:
        """Take objects from the list."""
        await self._tell(_FORGET, objects)

    async def _tell(self, statement: str, objects: Sequence[PayloadObject], **more: int) -> None:
        values = {"sha256": [place.ref.sha256 for place in objects], **more}
        await asyncio.to_thread(self._execute, statement, values)

    async def _ask(self, statement: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        return await asyncio.to_thread(self._rows, statement, values)

    def _rows(self, statement: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        with self._connection() as connection:
            return connection.execute(statement.encode(), values).fetchall()

    def _execute(self, statement: str, values: dict[str, Any]) -> None:
        with self._connection() as connection:
            connection.execute(statement.encode(), values)

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection]:
        with translated():
            self._pool.open()
            with self._pool.connection() as connection:
                yield connection
