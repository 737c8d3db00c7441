"""The store of calendars in Postgres. Nothing of it is on the path of a fire."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import psycopg

from commandside.calendar_port import CALENDARS_MAX, Calendar, Put, Use
from domain.envelope import Rejected
from domain.schedule.exclusion import Exclusion
from infra.postgres.connection import translated
from infra.postgres.pools import lazy_pool

CONNECTIONS_MAX: Final = 2

# Made if it is not there, and locked: two who make the same calendar take turns.
_LOCK: Final = """
insert into calendars (tenant_id, name, version, deleted) values (%(tenant)s, %(name)s, 0, true)
on conflict (tenant_id, name) do update set name = excluded.name
returning version, deleted
"""
_FORGET: Final = """
delete from calendars where tenant_id = %(tenant)s and name = %(name)s and version = 0
"""
_LOCK_KNOWN: Final = """
select version from calendars
where tenant_id = %(tenant)s and name = %(name)s and not deleted for update
"""
_VERSION: Final = """
select v.content, v.expanded_until, v.at, v.actor
from calendars c join calendar_versions v using (tenant_id, name)
where c.tenant_id = %(tenant)s and c.name = %(name)s and not c.deleted
    and v.version = case when %(version)s::int = 0 then c.version else %(version)s::int end
"""
_PAGE: Final = """
select v.content, v.expanded_until, v.at, v.actor
from calendars c join calendar_versions v using (tenant_id, name, version)
where c.tenant_id = %(tenant)s and c.name > %(after)s and not c.deleted
order by c.name limit %(limit)s
"""
_HOW_MANY: Final = "select count(*) from calendars where tenant_id = %(tenant)s and not deleted"
_ADD: Final = """
insert into calendar_versions (tenant_id, name, version, content, expanded_until, at, actor)
values (%(tenant)s, %(name)s, %(version)s, %(content)s, %(until)s, tocsin_now(), %(actor)s)
returning at
"""
_CURRENT: Final = """
update calendars set version = %(version)s, deleted = false
where tenant_id = %(tenant)s and name = %(name)s
"""
_WANTED: Final = """
update calendar_uses set wanted = %(version)s where tenant_id = %(tenant)s and name = %(name)s
"""
_COUNT: Final = """
select count(*) from calendar_uses where tenant_id = %(tenant)s and name = %(name)s
"""
_DELETE: Final = """
update calendars set deleted = true where tenant_id = %(tenant)s and name = %(name)s
"""
# The lock keeps an edit out between what is read here and the uses that are written after it.
_SHARE: Final = """
select name, version from calendars
where tenant_id = %(tenant)s and name = any(%(names)s) and not deleted order by name for share
"""
_CLAIM: Final = """
insert into calendar_uses (job_id, tenant_id, name, wanted, applied, at)
select u.job_id, %(tenant)s::uuid, u.name, c.version, 0, %(at)s
from unnest(%(jobs)s::uuid[], %(uses)s::text[]) u (job_id, name)
join calendars c on c.tenant_id = %(tenant)s::uuid and c.name = u.name and not c.deleted
on conflict (job_id, tenant_id, name) do update
    set wanted = greatest(calendar_uses.wanted, excluded.wanted), applied = 0, at = excluded.at
"""
_NOW: Final = """
select v.content from calendars c join calendar_versions v using (tenant_id, name, version)
where c.tenant_id = %(tenant)s and c.name = any(%(names)s) and not c.deleted
"""
_APPLIED: Final = """
with now as (
    update calendar_uses u set applied = greatest(u.applied, f.version)
    from unnest(%(jobs)s::uuid[], %(uses)s::text[], %(versions)s::int[]) f (job_id, name, version)
    where u.tenant_id = %(tenant)s and u.job_id = f.job_id and u.name = f.name
    returning u.tenant_id, u.name, u.job_id, u.at, u.applied < u.wanted as behind
)
select tenant_id, name, job_id, at from now where behind
"""
_BEHIND: Final = """
select tenant_id, name, job_id, at from calendar_uses
where applied < wanted and job_id > %(after)s
    and (%(tenant)s::uuid is null or (tenant_id = %(tenant)s::uuid and name = %(name)s))
order by job_id, tenant_id, name limit %(limit)s
"""
_USERS: Final = """
select tenant_id, name, job_id, at from calendar_uses
where tenant_id = %(tenant)s and name = %(name)s order by at, job_id limit %(limit)s
"""
_DROP: Final = """
delete from calendar_uses
where job_id = %(job)s and tenant_id = %(tenant)s and name = %(name)s and at = %(at)s
"""

_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final = msgspec.msgpack.Decoder(Exclusion).decode


class PostgresCalendars:
    """The port `Calendars`, on threads of the running loop."""

    def __init__(self, conninfo: str) -> None:
        """Connect with the first question."""
        self._pool = lazy_pool(conninfo, "calendars", CONNECTIONS_MAX)

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()

    async def put(self, tenant_id: bytes, new: Calendar, if_version: int) -> Put | Rejected:
        """Make the next version, unless the current one has the same content."""
        return await asyncio.to_thread(self._put, tenant_id, new, if_version)

    def _put(self, tenant_id: bytes, new: Calendar, if_version: int) -> Put | Rejected:
        name = new.exclusion.name
        values: dict[str, Any] = {"tenant": tenant_id.hex(), "name": name, "version": 0}
        with self._connection() as connection, connection.transaction():
            version, deleted = _one(connection, _LOCK, values)
            now = 0 if deleted else version
            refused = _refused(connection, values, now, if_version)
            if refused is not None:
                if not version:
                    connection.execute(_FORGET, values)
                return refused
            if not deleted:
                row = _calendar(_one(connection, _VERSION, values))
                if row.exclusion == msgspec.structs.replace(new.exclusion, version=version):
                    return Put(row, changed=False)
            exclusion = msgspec.structs.replace(new.exclusion, version=version + 1)
            values |= {
                "version": version + 1,
                "content": _ENCODE(exclusion),
                "until": new.expanded_until,
                "actor": new.actor,
            }
            (at,) = _one(connection, _ADD, values)
            connection.execute(_CURRENT, values)
            connection.execute(_WANTED, values)
        calendar = msgspec.structs.replace(new, exclusion=exclusion, at=at)
        return Put(calendar, created=bool(deleted))

    async def find(self, tenant_id: bytes, name: str, version: int = 0) -> Calendar | None:
        """Return a version of a calendar, the current one for 0."""
        values = {"tenant": tenant_id.hex(), "name": name, "version": version}
        rows = await self._ask(_VERSION, values)
        return _calendar(rows[0]) if rows else None

    async def page(self, tenant_id: bytes, after: str, limit: int) -> list[Calendar]:
        """Return calendars by name."""
        values = {"tenant": tenant_id.hex(), "after": after, "limit": limit}
        return [_calendar(row) for row in await self._ask(_PAGE, values)]

    async def remove(self, tenant_id: bytes, name: str, if_version: int) -> Rejected | None:
        """Delete a calendar that no job uses."""
        return await asyncio.to_thread(self._remove, tenant_id, name, if_version)

    def _remove(self, tenant_id: bytes, name: str, if_version: int) -> Rejected | None:
        values = {"tenant": tenant_id.hex(), "name": name}
        with self._connection() as connection, connection.transaction():
            row = connection.execute(_LOCK_KNOWN, values).fetchone()
            if row is None:
                return Rejected("absent", "there is no such calendar")
            if if_version and row[0] != if_version:
                return Rejected("precondition", f"the calendar is at version {row[0]}")
            (used,) = _one(connection, _COUNT, values)
            if used:
                return Rejected("in_use", f"{used} jobs use it: take it out of their exclude first")
            connection.execute(_DELETE, values)
        return None

    async def claim(
        self, tenant_id: bytes, jobs: Sequence[tuple[bytes, tuple[str, ...]]], at: int
    ) -> dict[str, Exclusion]:
        """Note that jobs are about to use calendars; return those that exist."""
        return await asyncio.to_thread(self._claim, tenant_id, jobs, at)

    def _claim(
        self, tenant_id: bytes, jobs: Sequence[tuple[bytes, tuple[str, ...]]], at: int
    ) -> dict[str, Exclusion]:
        pairs = sorted((job_id.hex(), name) for job_id, names in jobs for name in set(names))
        values = {
            "tenant": tenant_id.hex(),
            "names": sorted({name for _, name in pairs}),
            "jobs": [job_id for job_id, _ in pairs],
            "uses": [name for _, name in pairs],
            "at": at,
        }
        with self._connection() as connection, connection.transaction():
            connection.execute(_SHARE, values)
            connection.execute(_CLAIM, values)
            rows = connection.execute(_NOW, values).fetchall()
        return _by_name(rows)

    async def current(self, tenant_id: bytes, names: Sequence[str]) -> dict[str, Exclusion]:
        """Return those calendars that exist."""
        values = {"tenant": tenant_id.hex(), "names": list(names)}
        return _by_name(await self._ask(_NOW, values))

    async def applied(self, tenant_id: bytes, jobs: Sequence[tuple[bytes, str, int]]) -> list[Use]:
        """Note that jobs follow a version; return those that are behind even so."""
        values = {
            "tenant": tenant_id.hex(),
            "jobs": [job_id.hex() for job_id, _, _ in jobs],
            "uses": [name for _, name, _ in jobs],
            "versions": [version for _, _, version in jobs],
        }
        return [_use(row) for row in await self._ask(_APPLIED, values)]

    async def behind(
        self, after: bytes, limit: int, tenant_id: bytes = b"", name: str = ""
    ) -> list[Use]:
        """Return uses that are behind, by job id."""
        values = {
            "after": (after or bytes(16)).hex(),
            "limit": limit,
            "tenant": tenant_id.hex() or None,
            "name": name,
        }
        return [_use(row) for row in await self._ask(_BEHIND, values)]

    async def users(self, tenant_id: bytes, name: str, limit: int) -> list[Use]:
        """Return some of the uses of a calendar."""
        values = {"tenant": tenant_id.hex(), "name": name, "limit": limit}
        return [_use(row) for row in await self._ask(_USERS, values)]

    async def count(self, tenant_id: bytes, name: str) -> int:
        """Return how many jobs may use a calendar."""
        rows = await self._ask(_COUNT, {"tenant": tenant_id.hex(), "name": name})
        return int(rows[0][0])

    async def drop(self, use: Use) -> None:
        """Forget a use, unless it was claimed again since."""
        values = {
            "job": use.job_id.hex(),
            "tenant": use.tenant_id.hex(),
            "name": use.name,
            "at": use.at,
        }
        await asyncio.to_thread(self._execute, _DROP, values)

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


def _refused(
    connection: psycopg.Connection, values: dict[str, Any], now: int, if_version: int
) -> Rejected | None:
    if if_version and now != if_version:
        return Rejected("precondition", f"the calendar is at version {now}")
    if not now:
        (others,) = _one(connection, _HOW_MANY, values)
        if others >= CALENDARS_MAX:
            return Rejected("too_many", f"there are {others} calendars, as many as may be")
    return None


def _one(connection: psycopg.Connection, statement: str, values: dict[str, Any]) -> tuple[Any, ...]:
    row = connection.execute(statement.encode(), values).fetchone()
    assert row is not None
    return tuple(row)


def _calendar(row: tuple[Any, ...]) -> Calendar:
    content, until, at, actor = row
    return Calendar(_DECODE(content), until, at, actor)


def _by_name(rows: Sequence[tuple[Any, ...]]) -> dict[str, Exclusion]:
    found = [_DECODE(content) for (content,) in rows]
    return {exclusion.name: exclusion for exclusion in found}


def _use(row: tuple[Any, ...]) -> Use:
    tenant_id, name, job_id, at = row
    return Use(tenant_id.bytes, name, job_id.bytes, at)
