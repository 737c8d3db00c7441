"""Lists of jobs from Postgres: the board's rows, with what the due index says of each right now.

A page is cut from the board by its own index first; only its rows are joined. The tenant is part of
every index that is used, and of the statement, whatever else is asked.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, LiteralString

import psycopg
from psycopg.types.json import Jsonb

from infra.postgres.connection import translated
from infra.postgres.pools import lazy_pool
from projections.job_board import VIEW
from projections.rows import BoardRow
from queryside.ports import JobFilter, JobLine, JobPlace

CONNECTIONS_MAX: Final = 4
"""As many lists are read at a time; another waits for its turn."""
STATEMENT_TIMEOUT_MS: Final = 5_000

_LINK: Final = "select 1 from due_index d where d.job_id = b.job_id and d.kind = 0"
# No event says that a one-time job is over: the end of its link implies it.
_OVER: Final = f"b.one_time and b.status = 'active' and not exists ({_LINK})"
_FILTERS: Final[dict[str, LiteralString]] = {
    "active": f"b.status = 'active' and not ({_OVER})",
    "finished": f"(b.status = 'finished' or ({_OVER}))",
    "paused": "b.status = 'paused'",
    "cancelled": "b.status = 'cancelled'",
    "name": "b.name ^@ %(name)s::text",
    "host": "b.host = %(host)s",
    "job": "b.job_id = %(job)s::uuid",
    "labels": "b.labels @> %(labels)s",
    "after": """b.defined_at <= %(number)s
        and (b.defined_at < %(number)s or b.job_id > %(id)s::uuid)""",
    "before": """b.defined_at >= %(number)s
        and (b.defined_at > %(number)s or b.job_id < %(id)s::uuid)""",
}
_FALLING: Final = "b.defined_at desc, b.job_id"
_RISING: Final = "b.defined_at, b.job_id desc"
_PAGE: Final = """
with page as materialized (
    select b.* from job_board b
    where b.tenant_id = %(tenant)s::uuid and b.view = %(view)s{filters}
    order by {order} limit %(limit)s
)
select b.job_id, b.version, b.status, b.one_time, b.name, b.schedule, b.timezone, b.target,
    b.host, b.labels, b.defined_at, b.changed_at,
    n.nominal, n.due_at, coalesce(f.runs, 0), ({over}), b.key
from page b
left join lateral (
    select d.nominal, d.due_at from due_index d
    where d.job_id = b.job_id and d.kind = 0 and d.attempt = 0
    order by d.nominal limit 1) n on true
left join lateral (
    select count(*) as runs from due_index d where d.job_id = b.job_id and d.phase <> 0) f on true
order by {shown}
"""
_LABELLED: Final = """
select job_id from job_board
where tenant_id = %(tenant)s::uuid and view = %(view)s and job_id = any(%(jobs)s::uuid[])
    and labels @> %(labels)s
"""
_REACHED: Final = """
select position from view_positions where view = %s and shard = %s
"""


class PostgresBoard:
    """`queryside.ports.JobBoard` and `Freshness`; any number of threads may ask."""

    def __init__(self, conninfo: str) -> None:
        """Connect with the first question."""
        self._pool = lazy_pool(conninfo, "lists", CONNECTIONS_MAX, STATEMENT_TIMEOUT_MS)

    def page(
        self,
        tenant_id: bytes,
        wanted: JobFilter,
        edge: JobPlace | None,
        limit: int,
        *,
        newer: bool = False,
    ) -> list[JobLine]:
        """Return up to `limit` jobs next to `edge`, in the order of lists."""
        values: dict[str, Any] = {
            "tenant": tenant_id.hex(),
            "view": VIEW,
            "limit": limit,
            "name": wanted.name_prefix,
            "host": wanted.host,
            "labels": Jsonb(dict(wanted.labels)),
            "job": wanted.job_id.hex(),
        }
        asked = [
            wanted.status,
            "name" if wanted.name_prefix else "",
            "host" if wanted.host else "",
            "labels" if wanted.labels else "",
            "job" if wanted.job_id else "",
        ]
        if edge is not None:
            asked.append("before" if newer else "after")
            values |= {"number": edge.defined_at, "id": edge.job_id.hex()}
        statement = _PAGE.format(
            filters="".join(f"\n        and {_FILTERS[name]}" for name in asked if name),
            order=_RISING if newer else _FALLING,
            over=_OVER,
            shown=_FALLING,
        )
        with self._connection() as connection:
            rows = connection.execute(statement.encode(), values).fetchall()
        return [_line(tenant_id, row) for row in rows]

    def labelled(
        self, tenant_id: bytes, job_ids: Sequence[bytes], labels: Sequence[tuple[str, str]]
    ) -> list[bytes]:
        """Return those of these jobs that have all these labels."""
        values = {
            "tenant": tenant_id.hex(),
            "view": VIEW,
            "jobs": [job_id.hex() for job_id in job_ids],
            "labels": Jsonb(dict(labels)),
        }
        with self._connection() as connection:
            return [row[0].bytes for row in connection.execute(_LABELLED, values)]

    def reached(self, view: str, shard: int) -> int:
        """Return the position of a view in a shard."""
        with self._connection() as connection:
            row = connection.execute(_REACHED, (view, shard)).fetchone()
        return int(row[0]) if row else 0

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection]:
        with translated():
            self._pool.open()
            with self._pool.connection() as connection:
                yield connection


def _line(tenant_id: bytes, row: tuple[Any, ...]) -> JobLine:
    job_id, version, status, one_time, name, schedule, zone, target, host, labels, *rest = row
    defined_at, changed_at, nominal, due_at, in_flight, over, key = rest
    return JobLine(
        BoardRow(
            job_id.bytes,
            tenant_id,
            version,
            "finished" if over else status,
            one_time,
            name,
            schedule,
            zone,
            target,
            host,
            tuple(sorted(labels.items())),
            defined_at,
            changed_at,
            key,
        ),
        nominal,
        due_at,
        in_flight,
    )
