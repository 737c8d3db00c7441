"""What projections keep in Postgres: positions, parked streams, and the job board."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
import psycopg

from infra.postgres import arrays
from infra.postgres.blocking import BlockingWire
from infra.postgres.connection import Reconnecting
from infra.postgres.wire import Statement
from projections.ports import Recorded
from projections.rows import BoardChange, BoardRow

SWAP_TIMEOUT_MS: Final = 600_000
"""A rebuilt board changes places in one statement, whose length goes with the number of jobs."""

_LOAD: Final = "select shard, position from view_positions where view = %s"
_SAVE: Final = """
insert into view_positions (view, shard, position)
select %s, * from unnest(%s::int[], %s::bigint[])
on conflict (view, shard) do update set position = excluded.position
where view_positions.position < excluded.position
"""
_FORGET: Final = "delete from view_positions where view = %s"

_PARKED: Final = "select distinct stream_id from parked_events where view = %s"
_PARK: Final = """
insert into parked_events (view, stream_id, version, position, name)
select %s, * from unnest(%s::uuid[], %s::int[], %s::bigint[], %s::text[])
on conflict (view, stream_id, version) do update set name = excluded.name
"""
_UNPARK: Final = "delete from parked_events where view = %s"
_ADOPT: Final = "update parked_events set view = %s where view = %s"

_PUT: Final = """
insert into job_board (view, tenant_id, job_id, version, status, one_time, name, schedule, timezone,
    target, host, labels, defined_at, changed_at, key)
select convert_from($1::bytea, 'utf8'), tenant_id, job_id, version, status, one_time, name,
    schedule, timezone, target, host, labels::jsonb, defined_at, changed_at, key
from unnest($2::uuid[], $3::uuid[], $4::int4[], $5::text[], $6::bool[], $7::text[], $8::text[],
    $9::text[], $10::text[], $11::text[], $12::text[], $13::int8[], $14::int8[], $15::text[])
    as r(tenant_id, job_id, version, status, one_time, name, schedule, timezone, target, host,
        labels, defined_at, changed_at, key)
on conflict (tenant_id, view, job_id) do update set
    version = excluded.version, one_time = excluded.one_time, name = excluded.name,
    status = coalesce(nullif(excluded.status, ''), job_board.status),
    schedule = excluded.schedule, timezone = excluded.timezone, target = excluded.target,
    host = excluded.host, labels = excluded.labels, changed_at = excluded.changed_at,
    defined_at = case when excluded.defined_at > 0 then excluded.defined_at
                      else job_board.defined_at end,
    key = case when excluded.key <> '' then excluded.key else job_board.key end
where job_board.version < excluded.version
"""
_STATUS: Final = """
update job_board b set version = r.version, status = coalesce(nullif(r.status, ''), b.status),
    changed_at = coalesce(nullif(r.changed_at, 0), b.changed_at)
from unnest($2::uuid[], $3::int4[], $4::text[], $5::int8[])
    as r(job_id, version, status, changed_at)
where b.job_id = r.job_id and b.view = convert_from($1::bytea, 'utf8') and b.version < r.version
"""
_REACHED: Final = """
insert into view_positions (view, shard, position)
select convert_from($1::bytea, 'utf8'), shard, position
from unnest($2::int4[], $3::int8[]) as r(shard, position)
on conflict (view, shard) do update set position = excluded.position
where view_positions.position < excluded.position
"""
"""Statements of one write of the board, each a set of rows; `_SAVE` in the wire's own form."""
ROWS_MAX: Final = 1_000
SETS_MAX: Final = 8
"""Sets of one transaction, so that it ends within a reply's bound."""
_JSON: Final = msgspec.json.Encoder().encode
_LONG: Final = f"set local statement_timeout = {SWAP_TIMEOUT_MS}"
_HOLD: Final = "lock table job_board in share row exclusive mode"
_CLEAR: Final = "delete from job_board where view = %s"
_RENAME: Final = "update job_board set view = %s where view = %s"


class PostgresPositions:
    """`projections.ports.Positions`; the tracker of every view."""

    def __init__(self, conninfo: str) -> None:
        """Connect lazily."""
        self._link = Reconnecting(conninfo, "positions")

    def load(self, view: str) -> dict[int, int]:
        """Return shard → position of a view."""
        with self._link.use() as connection:
            return dict(connection.execute(_LOAD, (view,)).fetchall())

    def save(self, view: str, positions: Mapping[int, int]) -> None:
        """Store positions; never moves one back."""
        with self._link.use() as connection:
            save_positions(connection, view, positions)

    def forget(self, view: str) -> None:
        """Start a view from the beginning."""
        with self._link.use() as connection:
            connection.execute(_FORGET, (view,))

    def close(self) -> None:
        """Close the connection."""
        self._link.close()


def save_positions(connection: psycopg.Connection, view: str, positions: Mapping[int, int]) -> None:
    """Store positions within the caller's transaction."""
    connection.execute(_SAVE, (view, list(positions), list(positions.values())), prepare=True)


class PostgresParking:
    """`projections.ports.Parking`."""

    def __init__(self, conninfo: str) -> None:
        """Connect lazily."""
        self._link = Reconnecting(conninfo, "parking")

    def load(self, view: str) -> set[bytes]:
        """Return the parked streams of a view."""
        with self._link.use() as connection:
            return {row[0].bytes for row in connection.execute(_PARKED, (view,)).fetchall()}

    def park(self, view: str, events: Sequence[Recorded]) -> None:
        """Keep these events."""
        values = (
            view,
            [e.stream_id.hex() for e in events],
            [e.version for e in events],
            [e.position for e in events],
            [e.name or type(e.event).__name__ for e in events],
        )
        with self._link.use() as connection:
            connection.execute(_PARK, values)

    def forget(self, view: str) -> None:
        """Drop what is parked of a view."""
        with self._link.use() as connection:
            connection.execute(_UNPARK, (view,))

    def adopt(self, view: str, live: str) -> None:
        """Let what is parked of `view` be what is parked of `live`."""
        with self._link.use() as connection, connection.transaction():
            connection.execute(_UNPARK, (live,))
            connection.execute(_ADOPT, (live, view))

    def close(self) -> None:
        """Close the connection."""
        self._link.close()


class PostgresBoardStore:
    """`projections.ports.BoardStore`: rows and positions in one transaction."""

    def __init__(self, conninfo: str) -> None:
        """Connect lazily."""
        self._link = Reconnecting(conninfo, "job board")
        statements = {"put": _PUT, "status": _STATUS, "reached": _REACHED}
        self._wire = BlockingWire(conninfo, "job board rows", statements)

    def write(
        self, view: str, changes: Sequence[BoardChange], positions: Mapping[int, int]
    ) -> None:
        """Apply changes in order and save the positions, in the last of several transactions.

        A batch that is cut short begins again, which changes nothing: versions only rise.
        """
        name = view.encode()
        request: list[Statement] = []
        for run in _runs(changes):
            if len(request) >= SETS_MAX:
                self._wire.call(request)
                request = []
            if isinstance(run[0], BoardRow):
                request.append(("put", [name, *_put(run)]))
            else:
                request.append(("status", [name, *_status(run)]))
        reached = [arrays.int4s(list(positions)), arrays.int8s(list(positions.values()))]
        self._wire.call([*request, ("reached", [name, *reached])])

    def begin(self, view: str) -> None:
        """Remove the rows of a view."""
        with self._link.use() as connection, connection.transaction():
            connection.execute(_LONG)
            connection.execute(_CLEAR, (view,))

    def swap(self, view: str, live: str) -> None:
        """Put the rows of `view` in the place of those of `live`, in one transaction."""
        with self._link.use() as connection, connection.transaction():
            connection.execute(_LONG)
            # Readers see the old rows until the commit; the live projector waits for it.
            connection.execute(_HOLD)
            connection.execute(_CLEAR, (live,))
            connection.execute(_RENAME, (live, view))

    def close(self) -> None:
        """Close the connections."""
        self._link.close()
        self._wire.close()


def _runs(changes: Sequence[BoardChange]) -> list[list[BoardChange]]:
    """Cut changes into sets of one kind, each with no job twice, so that each is one statement."""
    runs: list[list[BoardChange]] = []
    jobs: set[bytes] = set()
    for change in changes:
        fits = runs and type(runs[-1][0]) is type(change) and len(runs[-1]) < ROWS_MAX
        if not fits or change.job_id in jobs:
            runs.append([])
            jobs.clear()
        runs[-1].append(change)
        jobs.add(change.job_id)
    return runs


def _texts(values: Iterable[str]) -> bytes:
    return arrays.texts([value.encode() for value in values])


def _put(run: Sequence[BoardChange]) -> list[bytes]:
    rows = [row for row in run if isinstance(row, BoardRow)]
    return [
        arrays.uuids([row.tenant_id for row in rows]),
        arrays.uuids([row.job_id for row in rows]),
        arrays.int4s([row.version for row in rows]),
        _texts(row.status for row in rows),
        arrays.bools([row.one_time for row in rows]),
        _texts(row.name for row in rows),
        _texts(row.schedule for row in rows),
        _texts(row.timezone for row in rows),
        _texts(row.target for row in rows),
        _texts(row.host for row in rows),
        arrays.texts([_JSON(dict(row.labels)) for row in rows]),
        arrays.int8s([row.defined_at for row in rows]),
        arrays.int8s([row.changed_at for row in rows]),
        _texts(row.key for row in rows),
    ]


def _status(run: Sequence[BoardChange]) -> list[bytes]:
    return [
        arrays.uuids([row.job_id for row in run]),
        arrays.int4s([row.version for row in run]),
        _texts(row.status for row in run),
        arrays.int8s([row.changed_at for row in run]),
    ]
