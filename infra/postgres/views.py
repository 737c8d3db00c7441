"""What projections keep in Postgres: positions, parked streams, and the job board."""

from collections.abc import Mapping, Sequence
from typing import Final

import psycopg
from psycopg.types.json import Jsonb

from infra.postgres.connection import Reconnecting
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
insert into job_board (tenant_id, job_id, view, version, status, one_time, name, schedule, timezone,
    target, host, labels, defined_at, changed_at)
values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
on conflict (tenant_id, view, job_id) do update set
    version = excluded.version, one_time = excluded.one_time, name = excluded.name,
    status = coalesce(nullif(excluded.status, ''), job_board.status),
    schedule = excluded.schedule, timezone = excluded.timezone, target = excluded.target,
    host = excluded.host, labels = excluded.labels, changed_at = excluded.changed_at,
    defined_at = case when excluded.defined_at > 0 then excluded.defined_at
                      else job_board.defined_at end
where job_board.version < excluded.version
"""
_STATUS: Final = """
update job_board set version = %s, status = %s, changed_at = %s
where job_id = %s and view = %s and version < %s
"""
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

    def write(
        self, view: str, changes: Sequence[BoardChange], positions: Mapping[int, int]
    ) -> None:
        """Apply changes in order and save the positions."""
        with (
            self._link.use() as connection,
            connection.transaction(),
            connection.cursor() as cursor,
        ):
            for run in _runs(changes):
                if isinstance(run[0], BoardRow):
                    cursor.executemany(_PUT, [_put(view, row) for row in run])
                else:
                    cursor.executemany(_STATUS, [_status(view, row) for row in run])
            save_positions(connection, view, positions)

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
        """Close the connection."""
        self._link.close()


def _runs(changes: Sequence[BoardChange]) -> list[list[BoardChange]]:
    """Cut changes into runs of one kind, so that each is one pipelined call."""
    runs: list[list[BoardChange]] = []
    for change in changes:
        if not runs or type(runs[-1][0]) is not type(change):
            runs.append([])
        runs[-1].append(change)
    return runs


def _put(view: str, row: BoardChange) -> tuple[object, ...]:
    assert isinstance(row, BoardRow)
    return (
        row.tenant_id.hex(),
        row.job_id.hex(),
        view,
        row.version,
        row.status,
        row.one_time,
        row.name,
        row.schedule,
        row.timezone,
        row.target,
        row.host,
        Jsonb(dict(row.labels)),
        row.defined_at,
        row.changed_at,
    )


def _status(view: str, row: BoardChange) -> tuple[object, ...]:
    assert not isinstance(row, BoardRow)
    return (row.version, row.status, row.changed_at, row.job_id.hex(), view, row.version)
