"""Due rows and heads as concatenated bytes: one value for a whole batch instead of rows and fields.

`record_send` writes a row's columns with their oid and length before each; all columns are of fixed
width and never null, so that one struct layout reads them all.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final

import msgspec

from domain.job.state import JobState
from projections.due_index import DueRow

Fields = Sequence[bytes | None]
"""A row's values in Postgres' binary form."""

NO_ID: Final = bytes(16)
"""What stands for "none" where an id is sent: no id of ours is all zeros."""

DUE_COLUMNS: Final = (
    ("run_id", "uuid"),
    ("job_id", "uuid"),
    ("tenant_id", "uuid"),
    ("life", "int4"),
    ("kind", "int2"),
    ("lane", "int2"),
    ("phase", "int2"),
    ("version", "int4"),
    ("nominal", "int8"),
    ("due_at", "int8"),
    ("attempt", "int4"),
    ("fence", "int4"),
    ("fails", "int4"),
    ("lost", "int4"),
    ("abandoned", "int4"),
    ("first_leased_at", "int8"),
    ("spec_version", "int4"),
    ("payload_version", "int4"),
    ("owner", "uuid"),
    ("nonce", "bytea"),
    ("leased_at", "int8"),
    ("until", "int8"),
    ("catch_start", "int8"),
    ("catch_end", "int8"),
    ("catch_cursor", "int8"),
)
"""The columns of `due_index` that a DueRow has, in its order, with their types."""
assert tuple(name for name, _ in DUE_COLUMNS) == DueRow.__struct_fields__

NONE: Final = {
    "owner": f"'{NO_ID.hex()}'::uuid",
    "nonce": r"'\x0000000000000000'::bytea",
    "catch_start": "0::int8",
    "catch_end": "0::int8",
    "catch_cursor": "0::int8",
}
"""Nullable columns, and what is sent for a null; a nonce has eight bytes."""

_LAYOUT: Final = {"uuid": "16s", "int2": "h", "int4": "i", "int8": "q", "bytea": "8s"}
_RECORD: Final = Struct(">4x" + "".join(f"8x{_LAYOUT[kind]}" for _, kind in DUE_COLUMNS))


def record_of(alias: str) -> str:
    """Return the SQL expression (bytea) of a due row's record; `alias` has the table's columns."""
    columns = ", ".join(
        f"coalesce({alias}.{name}, {NONE[name]})" if name in NONE else f"{alias}.{name}"
        for name, _ in DUE_COLUMNS
    )
    return f"record_send(row({columns}))"


def entry_of(alias: str) -> str:
    """Return the SQL expression (bytea) of a due row as an ENTRY record."""
    return (
        f"uuid_send({alias}.run_id) || uuid_send({alias}.job_id) || uuid_send({alias}.tenant_id)"
        f" || int4send({alias}.version) || int8send({alias}.due_at)"
    )


def due_rows(data: bytes) -> Iterator[DueRow]:
    """Return the rows of concatenated records; owner and nonce mean something in a lease only."""
    for values in _RECORD.iter_unpack(data):
        yield DueRow(*values)


_JOBS: Final = msgspec.msgpack.Decoder(list[JobState])
_ARRAY32: Final = b"\xdd"


def jobs(count: int, states: bytes) -> list[JobState]:
    """Return the `count` job states of concatenated `job_heads.state` values."""
    return _JOBS.decode(_ARRAY32 + count.to_bytes(4, "big") + states)
