"""The job board: what lists of jobs show and filter. Follows job streams only.

The next occurrence is not here: it would cost a write in every fire. Lists join it from the due
index, which is always current. Jobs that tell of others' ends are not here either: a tenant lists
what it has defined.
"""

from collections.abc import Iterable

import msgspec

from domain import wording
from domain.job import events as e
from domain.job.events import JobSpec
from domain.target import origin_of, url_of
from projections.ports import Recorded
from projections.rows import BoardChange, BoardRow, BoardStatus

VIEW = "job_board"


def changes(batch: Iterable[Recorded]) -> list[BoardChange]:
    """Return what a batch changes on the board, in order."""
    found = []
    for recorded in batch:
        change = _change(recorded)
        if change is not None:
            found.append(change)
    return found


def _change(recorded: Recorded) -> BoardChange | None:
    event = recorded.event
    match event:
        case e.Defined(spec=spec) | e.Revised(spec=spec) if spec.callback_of is not None:
            return None
        case e.Defined():
            row = _row(recorded, event.spec, event.tenant_id, event.at, event.at)
            return msgspec.structs.replace(row, key=event.key)
        case e.Revised():
            return _row(recorded, event.spec, event.tenant_id, 0, event.at)
        case e.Paused():
            return _status(recorded, "paused", event.at)
        case e.Resumed():
            return _status(recorded, "active", event.at)
        case e.Cancelled():
            return _status(recorded, "cancelled", event.at)
        case e.Finished():
            return _status(recorded, "finished", event.at)
        case (
            e.RunRequested()
            | e.Replanned()
            | e.CatchUpClosed()
            | e.BackfillRequested()
            | e.BackfillMoved()
            | e.RedriveRequested()
        ):
            # The job is what it was; only its version is another, as its own answer shows it.
            return _status(recorded, "", 0)
        case _:
            return None


def _status(recorded: Recorded, status: str, at: int) -> BoardStatus:
    return BoardStatus(recorded.stream_id, recorded.version, status, at)


def _row(recorded: Recorded, spec: JobSpec, tenant_id: bytes, defined_at: int, at: int) -> BoardRow:
    text, zone = wording.summary(spec.schedule)
    return BoardRow(
        recorded.stream_id,
        tenant_id,
        recorded.version,
        "" if defined_at == 0 else "active",
        spec.is_one_time,
        spec.name,
        text,
        zone,
        url_of(spec.target),
        origin_of(spec.target)[0],
        spec.labels,
        defined_at,
        at,
    )
