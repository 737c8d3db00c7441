"""The views of a history as the product would write them: rows that are right, for the tests."""

from collections.abc import Sequence

import msgspec

from domain.catalogue import decode
from domain.job import events as je
from domain.job import state as js
from domain.run import events as re
from domain.run import state as rs
from projections import run_history
from projections.due_index import due_row, head_row
from projections.ports import Recorded
from projections.rows import AttemptRow, RunRow
from tests.checker import memory
from tests.checker.inputs import Due, Head, Kept, Row, Standing, Stored


def projections(events: Sequence[Stored]) -> list[Row]:
    """Return due rows, heads, and where a view stands."""
    jobs: dict[bytes, js.JobState] = {}
    runs: dict[bytes, rs.RunState] = {}
    for stored in events:
        event = decode(stored.name, stored.data)
        if isinstance(event, je.JobEvent):
            jobs[stored.stream] = js.evolve(stored.stream, jobs.get(stored.stream), event)
        elif isinstance(event, re.RunEvent):
            runs[stored.stream] = rs.evolve(stored.stream, runs.get(stored.stream), event)
    found: list[Row] = []
    for run in runs.values():
        assert not isinstance(run, rs.Reported)
        row = due_row(run)
        if row is not None:
            found.append(Due(*msgspec.structs.astuple(row)))
    found += [Head(*msgspec.structs.astuple(head_row(job))) for job in jobs.values()]
    found.append(Standing("run_history", 0, events[-1].position))
    return found


def history(events: Sequence[Stored]) -> list[Kept]:
    """Return the run history, each key once."""
    recorded = [
        Recorded(e.shard, e.position, e.stream, e.version, decode(e.name, e.data)) for e in events
    ]
    attempts: dict[tuple[bytes, int], AttemptRow] = {}
    runs: dict[tuple[bytes, int], RunRow] = {}
    for attempt in run_history.rows(recorded)[0]:
        attempts[attempt.run_id, attempt.attempt] = attempt
    for run in run_history.rows(recorded)[1]:
        runs[run.run_id, run.nominal] = run
    return memory.history(attempts.values(), runs.values())
