"""`projections.ports.HistoryStore` on ClickHouse: one insert per table and batch."""

from collections.abc import Sequence
from typing import Final

from infra.clickhouse import packing
from infra.clickhouse.connection import Connection
from infra.clickhouse.tables import LIVE, Tables
from projections.rows import AttemptRow, RunRow

_INSERT_SETTINGS: Final = {
    "max_execution_time": 30,
    # One instant of many jobs is one partition; catching up after an outage may touch many.
    "max_partitions_per_insert_block": 0,
    # Keys hardly ever repeat within an insert: leaving that to merges saves 3 us a row.
    "optimize_on_insert": 0,
    "async_insert": 0,
    # Two inserts of one token must meet in one block each.
    "max_insert_block_size": 1_048_576,
}
_TABLES_THERE: Final = (
    "select count() from system.tables"
    " where database = {database:String} and name in ({attempts:String}, {runs:String})"
)


class ClickHouseHistory:
    """One copy of the history. Raises Unavailable where the engine is away."""

    def __init__(self, url: str, database: str, copy: str = LIVE) -> None:
        """Connect lazily; `copy` names a second one beside the live one."""
        self._connection = Connection(url)
        self._tables = Tables(database, copy)

    def missing(self) -> bool:
        """Tell whether a table is not there: new, or lost with what it held."""
        tables = self._tables
        names = {
            "database": tables.database,
            "attempts": tables.attempts.rpartition(".")[2],
            "runs": tables.runs.rpartition(".")[2],
        }
        with self._connection.use() as client:
            found = client.query(_TABLES_THERE, parameters=names).result_rows
        return bool(found[0][0] < 2)  # noqa: PLR2004 - the two tables

    def prepare(self) -> None:
        """Create the tables that are missing."""
        self._run(self._tables.create())

    def begin(self) -> None:
        """Drop this copy and create it empty."""
        self._run((*self._tables.drop(), *self._tables.create()))

    def swap(self) -> None:
        """Exchange this copy with the live one, then drop what was the live one."""
        if self._tables.copy == LIVE:
            raise ValueError("the live copy cannot take its own place")
        live = Tables(self._tables.database)
        self._run((*live.create(), *self._tables.exchange(), *self._tables.drop()))

    def write(self, attempts: Sequence[AttemptRow], runs: Sequence[RunRow], token: str) -> None:
        """Insert rows; a repeat of a token inserts what is not there yet."""
        for table, columns, rows in (
            (self._tables.attempts, packing.ATTEMPT_COLUMNS, packing.attempts(attempts)),
            (self._tables.runs, packing.RUN_COLUMNS, packing.runs(runs)),
        ):
            if rows:
                with self._connection.use() as client:
                    client.raw_insert(
                        table,
                        columns,
                        rows,
                        settings={**_INSERT_SETTINGS, "insert_deduplication_token": token},
                        fmt="RowBinary",
                    )

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _run(self, statements: Sequence[str]) -> None:
        for statement in statements:
            with self._connection.use() as client:
                client.command(statement)
