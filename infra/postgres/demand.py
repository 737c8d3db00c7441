"""What a tenant's jobs ask for, from Postgres: the board finds them, their heads say what they do.

Every statement goes by an index with the tenant in it, and stops at its bound.
"""

from typing import Any, Final

import msgspec
import psycopg

from commandside.demand import Demanded, Group, Limits
from domain.job.state import JobState
from infra.postgres.connection import translated
from infra.postgres.pools import lazy_pool
from projections.job_board import VIEW

CONNECTIONS_MAX: Final = 2
STATEMENT_TIMEOUT_MS: Final = 5_000
COUNTED_MAX: Final = 1_000_000
"""Jobs left out are counted up to here."""

_MINE: Final = "b.tenant_id = %(tenant)s::uuid and b.view = %(view)s and b.status = 'active'"
_HEAD: Final = """
cross join lateral (select h.state from job_heads h where h.job_id = {of}.job_id offset 0) head
"""
JOBS: Final = f"""
select head.state from (
    select b.job_id from job_board b where {_MINE} and not b.one_time limit %(jobs)s + 1) j
{_HEAD.format(of="j")}
"""  # noqa: S608 - parts of this module
GROUPS: Final = f"""
with scanned as materialized (
    select b.schedule, b.timezone, b.job_id from job_board b
    where {_MINE} and not b.one_time order by b.schedule, b.timezone limit %(scanned)s
), grouped as (
    select count(*) as jobs, min(job_id::text)::uuid as job_id from scanned
    group by schedule, timezone order by 1 desc, 2 limit %(groups)s
)
select g.jobs, head.state from grouped g
{_HEAD.format(of="g")}
order by g.jobs desc, g.job_id
"""  # noqa: S608 - as above
COUNT: Final = f"""
select count(*) from (
    select from job_board b where {_MINE} and not b.one_time limit {COUNTED_MAX}) found
"""  # noqa: S608 - as above
ONCE: Final = f"""
with newest as materialized (
    select b.job_id from job_board b where {_MINE} and b.one_time
    order by b.defined_at desc, b.job_id limit %(once)s
)
select n.job_id, d.due_at, (select count(*) from newest) from newest n
cross join lateral (
    select d.due_at from due_index d where d.job_id = n.job_id and d.kind = 0 offset 0) d
where d.due_at >= %(since)s and d.due_at < %(until)s
"""  # noqa: S608 - as above
OLDER: Final = f"""
select count(*) from (
    select from job_board b where {_MINE} and b.one_time
    order by b.defined_at desc, b.job_id offset %(once)s limit %(scanned)s) found
"""  # noqa: S608 - as above

_STATE: Final = msgspec.msgpack.Decoder(JobState)


class PostgresDemand:
    """`commandside.demand.Demand`; any number of threads may ask."""

    def __init__(self, conninfo: str, limits: Limits | None = None) -> None:
        """Connect with the first question."""
        self._limits = limits or Limits()
        self._pool = lazy_pool(conninfo, "demand", CONNECTIONS_MAX, STATEMENT_TIMEOUT_MS)

    def of_tenant(self, tenant_id: bytes, since: int, until: int) -> Demanded:
        """Return a tenant's active jobs; of one-time ones those due in [since, until) (ms)."""
        limits = self._limits
        values = msgspec.structs.asdict(limits) | {
            "tenant": tenant_id.hex(),
            "view": VIEW,
            "since": since,
            "until": until,
        }
        with translated():
            self._pool.open()
            with self._pool.connection() as connection:
                once, left_out = _once(connection, values)
                # Binary: a state as hex digits is twice as long, and read twice.
                rows = connection.execute(JOBS.encode(), values, binary=True).fetchall()
                jobs = [_state(row[0]) for row in rows]
                if len(jobs) <= limits.jobs:
                    return Demanded(jobs, [], once, left_out)
                rows = connection.execute(GROUPS.encode(), values).fetchall()
                total = connection.execute(COUNT.encode(), values).fetchone()
        groups = [Group(_state(state), count) for count, state in rows]
        assert total is not None
        left_out += max(0, total[0] - sum(group.jobs for group in groups))
        return Demanded([], groups, once, left_out)

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()


def _once(
    connection: psycopg.Connection, values: dict[str, Any]
) -> tuple[list[tuple[bytes, int]], int]:
    """Return job and due instant of one-time jobs, and how many were not looked at."""
    rows = connection.execute(ONCE.encode(), values).fetchall()
    found = [(job_id.bytes, due_at) for job_id, due_at, _ in rows]
    older = connection.execute(OLDER.encode(), values).fetchone()
    return found, older[0] if older else 0


def _state(data: bytes) -> JobState:
    state: JobState = _STATE.decode(data)
    return state
