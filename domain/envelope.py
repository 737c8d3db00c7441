"""What a decider hands to the log: a decision commits whole or not at all (protocol.md §5)."""

import msgspec

from domain.job.events import JobEvent
from domain.job.state import JobState
from domain.run.events import RunEvent
from domain.run.state import Awaiting, Ended, InFlight, Ready, Withheld

SettledRun = Ready | InFlight | Awaiting | Withheld | Ended
"""States a run may be in between two commits."""


class RunAt(msgspec.Struct, frozen=True, gc=False):
    """Guard: the run has a due row, at this version."""

    run_id: bytes
    version: int


class StreamAt(msgspec.Struct, frozen=True, gc=False):
    """Guard: the last event of the stream in the log has this version (0: there is none)."""

    stream_id: bytes
    version: int


class JobAt(msgspec.Struct, frozen=True, gc=False):
    """Guard: the job's head is at this version (0: there is none)."""

    job_id: bytes
    version: int


class BegunBeside(msgspec.Struct, frozen=True, gc=False):
    """Guard: this many open runs of the job, `run_id` left out, have been leased at least once."""

    job_id: bytes
    run_id: bytes
    count: int


Guard = RunAt | StreamAt | JobAt | BegunBeside


class Slice(msgspec.Struct, frozen=True):
    """New events of one stream, the first at `version`, and the state they lead to.

    `after` is the fold; the due row and the job's head are written from it in the same commit.
    """

    stream_id: bytes
    version: int
    events: tuple[JobEvent, ...] | tuple[RunEvent, ...]
    after: JobState | SettledRun


class Command(msgspec.Struct, frozen=True, gc=False):
    """A client's command: the same id with the same body has one effect for the life of the job."""

    command_id: bytes
    body_hash: bytes


class Decision(msgspec.Struct, frozen=True):
    """One atomic change of one job; refused while the database clock is < `not_before` (ms).

    With `not_after` it is never committed later, by the same clock; only command logs take those.
    """

    job_id: bytes
    guards: tuple[Guard, ...]
    slices: tuple[Slice, ...]
    command: Command | None = None
    not_before: int = 0
    not_after: int = 0


class Rejected(msgspec.Struct, frozen=True):
    """A business refusal: a stable code (`paused`, `cancelled`, `in_flight` …) and a sentence."""

    code: str
    detail: str
