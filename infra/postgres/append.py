"""The append: one statement for any batch of decisions, under the frame of protocol.md §5.

A transaction is two statements: `LOCK` for the batch's shards, then an append, whose snapshot is
therefore younger than the locks. It checks expiry, session and every guard; drops decisions
that fail, whole; inserts the events of the others; and applies due index, heads and command rows.

Due rows are found by their key and then written by the place (`ctid`) where this very snapshot
found them: a join on the key could be planned the other way round while the table is small, and
stay so when it is not. This holds because whoever writes a due row has its shard's lock.

Independent of the kind of connection: parameters are bytes in Postgres' binary form, the result is
one row. Run `SETTINGS` once on a connection that will run these statements: a `wire.Wire` does.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import astuple

from commandside.ports import SESSION_LEFT_MS
from domain.catalogue import NAMES, encode
from domain.envelope import Decision, JobAt, RunAt, Slice, StreamAt
from domain.job import state as js
from domain.run.state import Ended
from domain.sharding import shard_of
from infra.postgres import arrays
from infra.postgres.rows import DUE_COLUMNS, NO_ID, NONE, Fields
from projections.due_index import ACCEPTED, DueRow, HeadRow, due_row, head_row

SETTINGS: Final = (
    "select set_config(name, 'off', false) from unnest(array['jit', 'enable_seqscan',"
    " 'enable_hashjoin', 'enable_mergejoin', 'enable_bitmapscan']) name"
    " union all select set_config('plan_cache_mode', 'force_generic_plan', false)"
)
"""Plans are driven by the input arrays, with a look-up in an index for each element, whatever the
tables' statistics said when the plan was made: on an empty table a sequential scan looks
cheapest, and a cached plan would keep it after the table has filled."""

LOCK: Final = "select pg_advisory_xact_lock(7, s) from unnest($1::int4[]) s"
"""Takes the locks of these shards, ascending; a statement of its own, before the one that checks
what it guards."""

BUGS: Final = frozenset({"23505", "XX001"})
"""SQLSTATEs (unique violation, `tocsin_alarm`) that only a bug can cause: under the lock nobody
else inserts, and counts must agree."""


class LogCorrupt(AssertionError):
    """An append met what guards under the lock exclude: a bug. Nothing of it was committed."""


Column = tuple[str, str]
_GROUPS: Final[dict[str, tuple[Column, ...]]] = {
    "job": (("d", "int4"), ("id", "uuid"), ("version", "int4")),
    "run": (("d", "int4"), ("id", "uuid"), ("version", "int4")),
    "stream": (("d", "int4"), ("id", "uuid"), ("version", "int4")),
    "beside": (("d", "int4"), ("job_id", "uuid"), ("run_id", "uuid"), ("count", "int4")),
    "early": (("d", "int4"), ("not_before", "int8")),
    "event": (
        ("d", "int4"),
        ("stream_id", "uuid"),
        ("version", "int4"),
        ("shard", "int4"),
        ("name", "text"),
        ("data", "bytea"),
    ),
    "gone": (("d", "int4"), ("run_id", "uuid")),
    "due": (("d", "int4"), ("fresh", "bool"), ("shard", "int4"), *DUE_COLUMNS),
    "head": (
        ("d", "int4"),
        ("fresh", "bool"),
        ("shard", "int4"),
        ("job_id", "uuid"),
        ("tenant_id", "uuid"),
        ("version", "int4"),
        ("status", "int2"),
        ("overlap_limit", "int4"),
        ("plans_at_lease", "bool"),
        ("misfire_after_ms", "int8"),
        ("max_lateness_ms", "int8"),
        ("timeout_ms", "int8"),
        ("payload_version", "int4"),
        ("resume_at", "int8"),
        ("state", "bytea"),
    ),
    "command": (
        ("d", "int4"),
        ("shard", "int4"),
        ("job_id", "uuid"),
        ("command_id", "uuid"),
        ("body_hash", "bytea"),
        ("version", "int4"),
        ("event", "int4"),
        ("at", "int8"),
    ),
}
"""What is sent, as columns; `d` is the index of the decision a row belongs to. `fresh`: of a stream
that begins here, so that nothing can be in the row's way: looking first costs a third more."""
assert tuple(n for n, _ in _GROUPS["head"][3:]) == HeadRow.__struct_fields__
assert tuple(n for n, _ in _GROUPS["due"][3:]) == DueRow.__struct_fields__


def _owners(values: Sequence[bytes]) -> bytes:
    """Return uuid[]: most rows have no owner."""
    return arrays.uuids([owner or NO_ID for owner in values])


# What a column holds is said by its kind in _GROUPS.
_ENCODERS: Final[dict[str, Callable[[Sequence[Any]], bytes]]] = {
    "uuid": arrays.uuids,
    "int2": arrays.int2s,
    "int4": arrays.int4s,
    "int8": arrays.int8s,
    "bool": arrays.bools,
    "bytea": arrays.byteas,
    "text": arrays.texts,
}
_COLUMN_ENCODERS: Final = {
    group: [_owners if name == "owner" else _ENCODERS[kind] for name, kind in columns]
    for group, columns in _GROUPS.items()
}
_SCALARS: Final = 2
_FRESH: Final = 1
assert {_GROUPS[group][_FRESH][0] for group in ("due", "head")} == {"fresh"}
_SENT_FOR_NULL: Final = {**NONE, "nonce": "''::bytea"}
_DUE_NAMES: Final = tuple(name for name, _ in DUE_COLUMNS)
_HEAD_NAMES: Final = HeadRow.__struct_fields__
_DUE_VALUES: Final = ", ".join(
    f"nullif(due.{name}, {_SENT_FOR_NULL[name]})" if name in NONE else f"due.{name}"
    for name in _DUE_NAMES
)
_DUE_TAKEN: Final = ", ".join(f"{name} = excluded.{name}" for name in _DUE_NAMES[3:])
_HEAD_VALUES: Final = ", ".join(f"head.{name}" for name in _HEAD_NAMES)
_HEAD_TAKEN: Final = ", ".join(f"{name} = excluded.{name}" for name in _HEAD_NAMES[2:])

_CHECKS: Final = {
    "job": """
        select job.d from {job}
        where job.version <> coalesce(
            (select h.version from job_heads h where h.job_id = job.id), 0)""",
    "run": """
        select run.d from {run}
        where run.version is distinct from
            (select i.version from due_index i where i.run_id = run.id)""",
    "stream": """
        select stream.d from {stream}
        where stream.version <> coalesce(
            (select max(e.version) from events e where e.stream_id = stream.id), 0)""",
    "beside": """
        select beside.d from {beside}
        where beside.count <> (
            select count(*) from due_index i
            where i.job_id = beside.job_id and i.attempt > 0 and i.run_id <> beside.run_id)""",
    "early": """
        select early.d from {early} where early.not_before > (select now from clock)""",
    "command": """
        select command.d from {command}
        where (select true from commands c
            where c.job_id = command.job_id and c.command_id = command.command_id)""",
}
"""Group → the query of the decisions whose guard of that kind fails."""

_EFFECTS: Final = {
    "gone": """
over as materialized (
    select d.place from {gone}
    cross join lateral (
        select i.ctid as place from due_index i where i.run_id = gone.run_id offset 0) d
    where {holds_gone}
),
ended as (
    delete from due_index i using over where i.ctid = over.place returning 1
),""",
    "due": f"""
planned as (
    insert into due_index (shard, wake_at, {", ".join(_DUE_NAMES)})
    select due.shard, due.due_at, {_DUE_VALUES}
    from {{due}}
    where due.fresh and {{holds_due}}
),""",  # noqa: S608 - as _TEXT
    "head": f"""
headed as (
    insert into job_heads (shard, {", ".join(_HEAD_NAMES)})
    select head.shard, {_HEAD_VALUES}
    from {{head}}
    where head.fresh and {{holds_head}}
),""",  # noqa: S608 - as _TEXT
    "command": """
commanded as (
    insert into commands (shard, job_id, command_id, body_hash, version, position, at)
    select command.shard, command.job_id, command.command_id, command.body_hash, command.version,
        ((select list from places))[command.event], command.at
    from {command}
    where {holds_command}
),""",
}
"""Group → what is applied beside the events."""

_AGAIN: Final = {
    "due": f"""
planned_again as (
    insert into due_index as i (shard, wake_at, {", ".join(_DUE_NAMES)})
    select due.shard, case when due.phase = {ACCEPTED} then due.until else due.due_at end,
        {_DUE_VALUES}
    from {{due}}
    where not due.fresh and {{holds_due}}
    on conflict (run_id) do update set {_DUE_TAKEN}, wake_at = excluded.wake_at,
        handed_off_at = null, handed_off_partition = null, handed_off_offset = null,
        handed_off_topic = null, hand_offs = 0
),""",  # noqa: S608 - as _TEXT
    "head": f"""
headed_again as (
    insert into job_heads as h (shard, {", ".join(_HEAD_NAMES)})
    select head.shard, {_HEAD_VALUES}
    from {{head}}
    where not head.fresh and {{holds_head}}
    on conflict (job_id) do update set {_HEAD_TAKEN}
),""",  # noqa: S608 - as _TEXT
}
"""Group → what is applied where the stream was there before. An accepted run can be in flight for
hours: scans do not look through its row before its lease is over."""

_TEXT: Final = f"""
with clock as materialized (select tocsin_now() as now),
session as materialized (
    select $2::uuid = '{NO_ID.hex()}' or coalesce((
        select not ended and until - (select now from clock) >= {SESSION_LEFT_MS}
        from sessions where session_id = $2::uuid), false) as live
),
gate as materialized (
    select now, now <= $1::int8 as in_time, live, now <= $1::int8 and live as yes
    from clock, session
),
failed as materialized (
    select coalesce(array_agg(distinct d), '{{{{}}}}'::int4[]) as list from ({{checks}}
    ) checks
),
places as materialized (
    select coalesce(array_agg(nextval('event_position')), '{{{{}}}}'::int8[]) as list
    from generate_series(1, cardinality({{event_d}}))
    where (select yes from gate)
),{{effects}}
appended as (
    insert into events (stream_id, version, shard, position, name, data)
    select event.stream_id, event.version, event.shard,
        ((select list from places))[event.n::int], event.name, event.data
    from {{event}}
    where {{holds_event}}
    returning 1
)
select gate.now, gate.in_time, gate.live, failed.list, places.list,
    case when gate.yes and (select count(*) from appended) <>
        case when cardinality(failed.list) = 0 then cardinality({{event_d}})
        else (select count(*) from unnest({{event_d}}) d
            where d <> all (failed.list)) end
    then tocsin_alarm('fewer events inserted than sent'){{alarm}} end
from gate, failed, places
"""  # noqa: S608 - the parts are constants of this program


_ALARM: Final = """
    when (select count(*) from ended) <> (select count(*) from over)
    then tocsin_alarm('a due row was written without its lock')"""


def _statement(groups: Sequence[str], *, new: bool = False) -> str:
    """Return the append for batches of these groups only; `new`: no stream was there before."""
    parts: dict[str, str] = {}
    number = _SCALARS
    for group in groups:
        values, names = [], []
        for name, kind in _GROUPS[group]:
            number += 1
            values.append(f"${number}::{kind}[]")
            names.append(name)
        numbered = group == "event"
        unnested = f"unnest({', '.join(values)}){' with ordinality' if numbered else ''}"
        parts[group] = f"{unnested} as {group}({', '.join(names)}{', n' if numbered else ''})"
        parts[f"holds_{group}"] = (
            f"(select yes from gate) and {group}.d <> all ((select list from failed)::int4[])"  # noqa: S608 - as _TEXT
        )
        if numbered:
            parts["event_d"] = values[0]
    checks = [check.format(**parts) for group, check in _CHECKS.items() if group in parts]
    effects = [
        effect.format(**parts)
        for effects_of in ((_EFFECTS,) if new else (_EFFECTS, _AGAIN))
        for group, effect in effects_of.items()
        if group in parts
    ]
    return _TEXT.format(
        **parts,
        checks="\n        union all".join(checks),
        effects="".join(effects),
        alarm=_ALARM if "gone" in parts else "",
    )


_LEAN: Final = ("job", "run", "event", "gone", "due")
"""What reports of attempts consist of, and little else: a statement's fixed cost is that of its
parameters, and a report of one-time jobs would send four fifths of them empty."""
_NEW: Final = ("job", "event", "due", "head", "command")
"""What definitions of new jobs consist of."""
_GROUPS_OF: Final = {"append_new": _NEW, "append_lean": _LEAN, "append": tuple(_GROUPS)}
STATEMENTS: Final = {
    name: _statement(groups, new=name == "append_new") for name, groups in _GROUPS_OF.items()
}
"""Name → statement. `request` chooses; result: one row for `result`."""


class Appended(msgspec.Struct, frozen=True, gc=False):
    """What became of a batch. `refused`: indices of decisions dropped whole, all where not `live`.

    `positions`: log position of each decision's last event, 0 where it was refused.
    """

    at: int
    expired: bool
    live: bool
    refused: tuple[int, ...]
    positions: tuple[int, ...]


def lock_parameters(shards: Iterable[int]) -> list[bytes]:
    """Return the parameters of `LOCK` for these shards."""
    return [arrays.int4s(sorted(set(shards)))]


def shards_of(decisions: Sequence[Decision], shards: int) -> set[int]:
    """Return the shards of a batch; `shards` is their number in the installation."""
    return {shard_of(decision.job_id, shards) for decision in decisions}


_NAME_BYTES: Final = {kind: name.encode("ascii") for kind, name in NAMES.items()}
_Row = tuple[object, ...]


def request(
    decisions: Sequence[Decision], shards: int, expires_at: int, session: bytes = b""
) -> tuple[str, list[bytes]]:
    """Return which of STATEMENTS appends these, and its parameters in Postgres' binary form.

    `session`, where given, must have SESSION_LEFT_MS left, or everything is refused.
    """
    sent: dict[str, list[_Row]] = {group: [] for group in _GROUPS}
    events = sent["event"]
    for d, decision in enumerate(decisions):
        shard = shard_of(decision.job_id, shards)
        _guards(sent, d, decision)
        for piece in decision.slices:
            stream, version = piece.stream_id, piece.version
            for event in piece.events:
                events.append((d, stream, version, shard, _NAME_BYTES[type(event)], encode(event)))
                version += 1
            _applied(sent, d, shard, piece)
        if decision.command is not None:
            sent["command"].append(_command(d, shard, decision, len(events)))
    name = _name(sent)
    encoded = [arrays.int8(expires_at), session or NO_ID]
    for group in _GROUPS_OF[name]:
        rows = sent[group]
        if rows:
            encoded += [
                encoder(column)
                for encoder, column in zip(
                    _COLUMN_ENCODERS[group], zip(*rows, strict=True), strict=True
                )
            ]
        else:
            encoded += _EMPTY[group]
    return name, encoded


def _name(sent: dict[str, list[_Row]]) -> str:
    """Return the shortest of STATEMENTS that does this."""
    used = {group for group, rows in sent.items() if rows}
    if used.issubset(_NEW) and all(row[_FRESH] for row in (*sent["due"], *sent["head"])):
        return "append_new"
    return "append_lean" if used.issubset(_LEAN) else "append"


_EMPTY: Final = {
    group: [_ENCODERS[kind](()) for _, kind in columns] for group, columns in _GROUPS.items()
}


def _applied(sent: dict[str, list[_Row]], d: int, shard: int, piece: Slice) -> None:
    """Add what a slice leaves in the due index or among the heads."""
    after, fresh = piece.after, piece.version == 1
    if isinstance(after, Ended):
        row = None
    elif isinstance(after, js.JobState):
        sent["head"].append((d, fresh, shard, *astuple(head_row(after))))
        return
    else:
        row = due_row(after)
    if row is not None:
        sent["due"].append((d, fresh, shard, *astuple(row)))
    elif not fresh:
        sent["gone"].append((d, piece.stream_id))


def _guards(sent: dict[str, list[_Row]], d: int, decision: Decision) -> None:
    for guard in decision.guards:
        if isinstance(guard, RunAt):
            sent["run"].append((d, guard.run_id, guard.version))
        elif isinstance(guard, JobAt):
            sent["job"].append((d, guard.job_id, guard.version))
        elif isinstance(guard, StreamAt):
            sent["stream"].append((d, guard.stream_id, guard.version))
        else:
            sent["beside"].append((d, guard.job_id, guard.run_id, guard.count))
    if decision.not_before:
        sent["early"].append((d, decision.not_before))


def _command(d: int, shard: int, decision: Decision, last_event: int) -> _Row:
    """The row that makes a repeat find this effect: the job's new version, the last position."""
    command = decision.command
    assert command is not None
    head = next(p for p in decision.slices if p.stream_id == decision.job_id)
    at = head.events[-1].at
    version = head.version + len(head.events) - 1
    return (
        d,
        shard,
        decision.job_id,
        command.command_id,
        command.body_hash,
        version,
        last_event,
        at,
    )


def result(row: Fields, decisions: Sequence[Decision]) -> Appended:
    """Read the row that an append returned for these decisions."""
    now, in_time, live, failed, places, _ = row
    assert now is not None
    at = int.from_bytes(now, "big")
    if in_time != b"\1" or live != b"\1":
        everyone = tuple(range(len(decisions)))
        return Appended(at, in_time != b"\1", live == b"\1", everyone, (0,) * len(everyone))
    refused = arrays.read_int4s(failed)
    of_events = arrays.read_int8s(places)
    positions = []
    last = -1
    for decision in decisions:
        for piece in decision.slices:
            last += len(piece.events)
        positions.append(of_events[last])
    for d in refused:
        positions[d] = 0
    return Appended(at, expired=False, live=True, refused=refused, positions=tuple(positions))
