"""python -m tests.checker.dump FOLDER --postgres …: what a real cell holds, as files to be judged.

The log and the tables that are written with it are read in one snapshot; the run history after it,
so that nothing is missing there which the log has, once the projector has caught up.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import psycopg

from infra.clickhouse.connection import Connection
from infra.clickhouse.tables import Tables
from projections.due_index import DueRow, HeadRow
from projections.rows import AttemptRow, BoardRow, RunRow
from tests.checker.inputs import (
    Attempt,
    Board,
    Command,
    Due,
    Head,
    Kept,
    Row,
    Run,
    Session,
    Standing,
    Stored,
)

PAGE: Final = 10_000
"""Rows fetched at once."""
BOARD_VIEW: Final = "job_board"
_UUIDS: Final = ("run_id", "job_id", "tenant_id", "owner", "session_id", "command_id")
_NULLABLE: Final = {"owner": b"", "nonce": b"", "catch_start": 0, "catch_end": 0, "catch_cursor": 0}

_EVENTS: Final = """
select shard, position, uuid_send(stream_id), version, name, data
from events order by shard, position
"""
_COMMANDS: Final = """
select uuid_send(job_id), uuid_send(command_id), body_hash, version, position, at from commands
"""
_SESSIONS: Final = "select uuid_send(session_id), until, ended from sessions"
_POSITIONS: Final = "select view, shard, position from view_positions"


def snapshot(conninfo: str) -> tuple[list[Stored], list[Row]]:
    """Return E and P of a cell, in one snapshot."""
    with psycopg.connect(conninfo) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        events = [
            Stored(shard, position, bytes(stream), version, sys.intern(name), bytes(data))
            for shard, position, stream, version, name, data in _rows(connection, _EVENTS)
        ]
        return events, list(_projections(connection))


def kept(url: str, database: str) -> list[Kept]:
    """Return Q: the rows of the run history, each key once."""
    connection, tables = Connection(url), Tables(database)
    try:
        found: list[Kept] = []
        for kind, row, table in (
            (Attempt, AttemptRow, tables.attempts),
            (Run, RunRow, tables.runs),
        ):
            names = row.__struct_fields__
            with connection.use() as client:
                result = client.query(
                    f"select {', '.join(names)} from {table} final",  # noqa: S608 - names of ours
                    column_formats={"body": "bytes", "headers": "bytes"} if kind is Attempt else {},
                )
            for values in result.result_rows:
                fields = dict(zip(names, values, strict=True))
                if kind is Attempt:
                    fields["headers"] = msgspec.json.decode(
                        fields["headers"], type=tuple[tuple[str, str], ...]
                    )
                found.append(kind(**fields))
        return found
    finally:
        connection.close()


def _projections(connection: psycopg.Connection[Any]) -> Iterator[Row]:
    for kind, row, table in ((Due, DueRow, "due_index"), (Head, HeadRow, "job_heads")):
        names = row.__struct_fields__
        columns = ", ".join(f"uuid_send({n})" if n in _UUIDS else n for n in names)
        for values in _rows(connection, f"select {columns} from {table}"):  # noqa: S608 - as above
            fields: dict[str, Any] = {
                name: _NULLABLE[name] if value is None else value
                for name, value in zip(names, values, strict=True)
            }
            yield kind(**fields)
    names = BoardRow.__struct_fields__
    columns = ", ".join(f"uuid_send({n})" if n in _UUIDS else n for n in names)
    board = f"select {columns} from job_board where view = %s"  # noqa: S608 - as above
    for values in _rows(connection, board, (BOARD_VIEW,)):
        found = dict(zip(names, values, strict=True))
        yield Board(**found | {"labels": tuple(sorted(found["labels"].items()))})
    yield from (Command(*values) for values in _rows(connection, _COMMANDS))
    yield from (Session(*values) for values in _rows(connection, _SESSIONS))
    yield from (Standing(*values) for values in _rows(connection, _POSITIONS))


def _rows(
    connection: psycopg.Connection[Any], query: str, values: tuple[object, ...] = ()
) -> Iterator[tuple[Any, ...]]:
    with connection.cursor("dump") as cursor:
        cursor.itersize = PAGE
        cursor.execute(query.encode(), values)
        yield from cursor


def main(argv: list[str]) -> int:
    """Write the files of a cell into a folder."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.checker.dump", description="Dump a cell for the history checker."
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--postgres", required=True, help="connection string of the cell")
    parser.add_argument("--clickhouse", help="URL of the run history")
    parser.add_argument("--database", default="tocsin", help="its database there")
    said = parser.parse_args(argv)
    events, rows = snapshot(said.postgres)
    parts: dict[str, Any] = {"events": events, "projections": rows}
    if said.clickhouse:
        parts["history"] = kept(said.clickhouse, said.database)
    said.folder.mkdir(parents=True, exist_ok=True)
    for name, part in parts.items():
        (said.folder / f"{name}.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(part))
        print(f"{name}: {len(part)} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
