"""The log in Postgres as the reactor of callbacks uses it. Nothing of it is on a fire's path."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import psycopg

from commandside.callback_port import Default
from domain.catalogue import NAMES, decode
from domain.envelope import Decision
from domain.job.events import Defined, JobSpec, Revised
from infra.postgres import append
from infra.postgres.blocking import BlockingWire
from infra.postgres.callback_defaults import SHARED, default_of
from infra.postgres.connection import Reconnecting

_NOTE: Final = """
insert into callback_jobs (job_id) select unnest(%s::uuid[]) on conflict (job_id) do nothing
"""
"""The row is its key alone: one that is there is the same."""
_IN_USE: Final = """
select exists (select from callback_defaults) or exists (select from callback_jobs)
"""
_CONCERNED: Final = """
select true, t from unnest(%(tenants)s::uuid[]) t
where exists (select from callback_defaults d where d.tenant_id = t)
union all select false, j from unnest(%(jobs)s::uuid[]) j
where exists (select from callback_jobs c where c.job_id = j)
"""
_VERSIONS: Final = """
select e.version from unnest(%(jobs)s::uuid[], %(before)s::bigint[]) with ordinality
    a (job_id, before, place)
left join lateral (
    select version from events
    where stream_id = a.job_id and position < a.before and name = any(%(names)s::text[])
    order by version desc limit 1
) e on true
order by a.place
"""
_EVENTS: Final = """
select e.stream_id, e.version, e.name, e.data
from unnest(%s::uuid[], %s::int[]) a (stream_id, version) join events e using (stream_id, version)
"""
_IN_FORCE: Final = """
select d.version, d.content, d.at, d.actor
from unnest(%(tenants)s::uuid[], %(before)s::bigint[]) with ordinality a (tenant_id, before, place)
left join lateral (
    select version, content, at, actor from callback_defaults
    where tenant_id = a.tenant_id and at < a.before
    order by version desc limit 1
) d on true
order by a.place
"""
_SPECS: Final = [NAMES[Defined], NAMES[Revised]]
_STATEMENTS: Final = {"lock": append.LOCK, **append.STATEMENTS}


class PostgresCallbackLog:
    """`commandside.callback_port.CallbackLog`; every call raises Unavailable."""

    def __init__(self, conninfo: str, shards: int) -> None:
        """Connect lazily."""
        self._link = Reconnecting(conninfo, "callbacks")
        self._log = BlockingWire(conninfo, "callbacks log", _STATEMENTS)
        self._shards = shards

    @contextmanager
    def _after_puts(self) -> Iterator[psycopg.Connection]:
        """Lend a connection that sees every default of before now, the first one of all too."""
        with self._link.use() as connection, connection.transaction():
            connection.execute(SHARED)
            yield connection

    def note(self, job_ids: Sequence[bytes]) -> None:
        """Keep that these jobs have, or had, callbacks of their own."""
        with self._link.use() as connection:
            connection.execute(_NOTE, (_hex(job_ids),), prepare=True)

    def in_use(self) -> bool:
        """Return whether any tenant ever had a default, or any job was noted."""
        with self._after_puts() as connection:
            row = connection.execute(_IN_USE, prepare=True).fetchone()
        assert row is not None
        return bool(row[0])

    def concerned(
        self, tenant_ids: Sequence[bytes], job_ids: Sequence[bytes]
    ) -> tuple[set[bytes], set[bytes]]:
        """Return which of these tenants ever had a default, and which of the jobs were noted."""
        values = {"tenants": _hex(tenant_ids), "jobs": _hex(job_ids)}
        with self._after_puts() as connection:
            rows = connection.execute(_CONCERNED, values, prepare=True).fetchall()
        tenants = {found.bytes for is_tenant, found in rows if is_tenant}
        return tenants, {found.bytes for is_tenant, found in rows if not is_tenant}

    def specs(self, asked: Sequence[tuple[bytes, int]]) -> list[JobSpec]:
        """Return the specs of jobs as they were just before positions of the log."""
        jobs = [job_id for job_id, _ in asked]
        values = {"jobs": _hex(jobs), "before": [before for _, before in asked], "names": _SPECS}
        with self._link.use() as connection:
            rows = connection.execute(_VERSIONS, values, prepare=True).fetchall()
        places = [(job_id, version) for job_id, (version,) in zip(jobs, rows, strict=True)]
        found = self._events(sorted(set(places)))
        return [found[place].spec for place in places]

    def defaults(self, asked: Sequence[tuple[bytes, int]]) -> list[Default | None]:
        """Return the defaults of tenants that were in force just before instants (ms)."""
        values = {
            "tenants": _hex([tenant_id for tenant_id, _ in asked]),
            "before": [before for _, before in asked],
        }
        with self._after_puts() as connection:
            rows = connection.execute(_IN_FORCE, values, prepare=True).fetchall()
        return [None if row[0] is None else default_of(row) for row in rows]

    def define(self, decisions: Sequence[Decision], expires_at: int) -> list[bool]:
        """Append definitions; return which hold. The others exist, or came too late."""
        shards = append.shards_of(decisions, self._shards)
        request = [
            ("lock", append.lock_parameters(shards)),
            append.request(decisions, self._shards, expires_at),
        ]
        refused = append.result(self._log.call(request), decisions).refused
        return [d not in refused for d in range(len(decisions))]

    def defined(self, job_ids: Sequence[bytes]) -> dict[bytes, Defined]:
        """Return the first event of each of these jobs that exists."""
        found = self._events([(job_id, 1) for job_id in job_ids])
        return {job_id: event for (job_id, _), event in found.items() if isinstance(event, Defined)}

    def _events(
        self, places: Sequence[tuple[bytes, int]]
    ) -> dict[tuple[bytes, int], Defined | Revised]:
        values = (_hex([stream for stream, _ in places]), [version for _, version in places])
        with self._link.use() as connection:
            rows = connection.execute(_EVENTS, values, prepare=True, binary=True).fetchall()
        found: dict[tuple[bytes, int], Defined | Revised] = {}
        for stream, version, name, data in rows:
            event = decode(name, data)
            assert isinstance(event, Defined | Revised), "asked for events that carry a spec"
            found[stream.bytes, version] = event
        return found

    def close(self) -> None:
        """Close the connections."""
        self._link.close()
        self._log.close()


def _hex(ids: Sequence[bytes]) -> list[str]:
    return [one.hex() for one in ids]
