"""Rows of the history in ClickHouse's RowBinary: what an insert sends.

RowBinary because it was the cheapest of what was measured (see docs/adr): one pack call for the
fixed front of a row, and texts that recur in every row encoded once.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final

import msgspec

from projections.rows import AttemptRow, RunRow

ATTEMPT_COLUMNS: Final = AttemptRow.__struct_fields__
RUN_COLUMNS: Final = RunRow.__struct_fields__

# tenant, job, nominal, run, attempt, kind, due, leased, ended, lateness, elapsed
_ATTEMPT_FRONT: Final = Struct("<16s16sq16sIBqqqqq")
# late, fence
_ATTEMPT_MIDDLE: Final = Struct("<?i")
# tenant, job, nominal, run, kind, last, count, due
_RUN_FRONT: Final = Struct("<16s16sq16sBqIq")
# attempts, fired, ended, position
_RUN_BACK: Final = Struct("<Iqqq")
_I32: Final = Struct("<i")
_I64: Final = Struct("<q")

_LEB_LIMIT: Final = 0x80
_BYTE: Final = tuple(bytes((n,)) for n in range(_LEB_LIMIT))
_RECURRING_MAX: Final = 4_096
"""Different texts remembered during one insert; error texts can all differ."""


def attempts(rows: Iterable[AttemptRow]) -> bytes:
    """Return rows of `attempts`, columns in the order of ATTEMPT_COLUMNS."""
    out: list[bytes] = []
    known: dict[object, tuple[bytes, bytes]] = {}
    for row in rows:
        key = (row.outcome, row.then, row.status, row.error, row.headers)
        found = known.get(key)
        if found is None:
            found = (
                _text(row.outcome) + _text(row.then) + _I32.pack(row.status) + _text(row.error),
                _bytes(msgspec.json.encode(row.headers)),
            )
            if len(known) < _RECURRING_MAX:
                known[key] = found
        out.append(
            _ATTEMPT_FRONT.pack(
                row.tenant_id,
                row.job_id,
                row.nominal,
                row.run_id,
                row.attempt,
                row.kind,
                row.due_at,
                row.leased_at,
                row.ended_at,
                row.lateness_ms,
                row.elapsed_us,
            )
            + found[0]
            + _ATTEMPT_MIDDLE.pack(row.late, row.fence)
            + found[1]
            + _bytes(row.body)
            + _I64.pack(row.position)
        )
    return b"".join(out)


def runs(rows: Iterable[RunRow]) -> bytes:
    """Return rows of `runs`, columns in the order of RUN_COLUMNS."""
    out: list[bytes] = []
    known: dict[object, bytes] = {}
    for row in rows:
        key = (row.status, row.verdict, row.cause)
        found = known.get(key)
        if found is None:
            found = _text(row.status) + _text(row.verdict) + _text(row.cause)
            if len(known) < _RECURRING_MAX:
                known[key] = found
        out.append(
            _RUN_FRONT.pack(
                row.tenant_id,
                row.job_id,
                row.nominal,
                row.run_id,
                row.kind,
                row.last,
                row.count,
                row.due_at,
            )
            + found
            + _RUN_BACK.pack(row.attempts, row.fired_at, row.ended_at, row.position)
        )
    return b"".join(out)


def _text(value: str) -> bytes:
    return _bytes(value.encode("utf-8", errors="replace"))


def _bytes(value: bytes) -> bytes:
    """Return `value` behind its length in LEB128."""
    size = len(value)
    if size < _LEB_LIMIT:
        return _BYTE[size] + value
    head = bytearray()
    while size >= _LEB_LIMIT:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return bytes(head) + value
