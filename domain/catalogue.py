"""The stable names of all events, and their bytes. A name once written is read for ever.

The integer tags are part of the storage format, like the order of fields.
"""

from typing import Final

import msgspec

from domain.job import events as job
from domain.run import events as run

DomainEvent = job.JobEvent | run.RunEvent

NAMES: Final[dict[type, str]] = {
    job.Defined: "job.defined.v1",
    job.Revised: "job.revised.v1",
    job.Paused: "job.paused.v1",
    job.Resumed: "job.resumed.v1",
    job.Cancelled: "job.cancelled.v1",
    job.Finished: "job.finished.v1",
    job.RunRequested: "job.run-requested.v1",
    job.Replanned: "job.replanned.v1",
    job.CatchUpClosed: "job.catch-up-closed.v1",
    job.Counted: "job.counted.v1",
    job.Failing: "job.failing.v1",
    job.BackfillRequested: "job.backfill-requested.v1",
    job.BackfillMoved: "job.backfill-moved.v1",
    job.RedriveRequested: "job.redrive-requested.v1",
    run.Scheduled: "run.scheduled.v1",
    run.Leased: "run.leased.v1",
    run.Accepted: "run.accepted.v1",
    run.Extended: "run.extended.v1",
    run.Progressed: "run.progressed.v1",
    run.Fired: "run.fired.v1",
    run.Completed: "run.completed.v1",
    run.Withdrawn: "run.withdrawn.v1",
    run.Skipped: "run.skipped.v1",
    run.Cancelled: "run.cancelled.v1",
}
TYPES: Final[dict[str, type]] = {name: kind for kind, name in NAMES.items()}

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(DomainEvent)

encode = _ENCODER.encode
"""Return the stored bytes of an event."""


def decode(name: str, data: bytes) -> DomainEvent | None:
    """Return the event stored under `name`, or None for a name of a later version of Tocsin.

    Raises msgspec.DecodeError where the bytes are not what the name promises.
    """
    if name not in TYPES:
        return None
    event = _DECODER.decode(data)
    if NAMES[type(event)] != name:
        raise msgspec.ValidationError(f"an event stored as {name} holds {NAMES[type(event)]}")
    return event
