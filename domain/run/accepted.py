"""An attempt that its handler took to end by itself: asynchronous completion (protocol §8).

The run stays in flight; its lease goes from heartbeat to heartbeat instead of with a session, and
never beyond the longest time that the job allows. What ends it is a report like any other.
"""

from typing import Final

import msgspec

from domain.draft import guard_of
from domain.envelope import Decision, Rejected, Slice
from domain.instant import DAY, MINUTE, SECOND
from domain.job import state as js
from domain.job.events import JobSpec
from domain.run import events as e
from domain.run import state as s
from domain.run.report import LOST, Result

HEARTBEAT_MS_MIN: Final = 30 * SECOND
HEARTBEAT_MS_MAX: Final = DAY
HEARTBEAT_MS: Final = 5 * MINUTE
"""Of a job that says nothing: long enough for a beat a minute, short enough not to block a day."""
RUN_TIME_MS_MIN: Final = MINUTE
RUN_TIME_MS_MAX: Final = 30 * DAY
RUN_TIME_MS: Final = DAY

STATUS: Final = 202
"""What the target answered, for every attempt that is ended by its handler or by its lease."""
UNHEARD, OVERTIME, BY_HANDLER = "heartbeat", "max_run_time", "handler"
"""Errors of such an attempt: no heartbeat came; it took too long; its handler gave it up."""
_TEXT: Final = (("content-type", "text/plain; charset=utf-8"),)
_JSON: Final = (("content-type", "application/json"),)


class Progress(msgspec.Struct, frozen=True, gc=False):
    """How far a handler says it is: 0 to 100, and a note of its own."""

    percent: int
    note: str = ""


def heartbeat_ms(spec: JobSpec) -> int:
    """Return how long an accepted attempt may go without a heartbeat."""
    return spec.heartbeat_timeout_ms or min(HEARTBEAT_MS, run_time_ms(spec))


def run_time_ms(spec: JobSpec) -> int:
    """Return how long an attempt may take, from its lease to the handler's last word."""
    return spec.max_run_time_ms or RUN_TIME_MS


def lease_end(spec: JobSpec, leased_at: int, at: int) -> int:
    """Return until when an attempt is its handler's that was heard of at `at`.

    A third longer than a heartbeat's time-out: beats within a third of the last one that was
    written are not, and the time-out is promised from every beat.
    """
    beat = heartbeat_ms(spec)
    return min(at + beat + beat // 3, leased_at + run_time_ms(spec))


def accept(spec: JobSpec, run: s.OpenRun, fence: int, at: int) -> Decision | None:
    """Return what "I have it, and will say when it is done" appends; None where it is too late."""
    if not isinstance(run, s.InFlight) or run.facts.fence != fence:
        return None
    at = max(at, run.leased_at)
    return _on(run, e.Accepted(at, lease_end(spec, run.leased_at, at)))


def extend(
    job: js.JobState, run: s.OpenRun, fence: int, at: int, progress: Progress | None
) -> Decision | Rejected | None:
    """Return what a heartbeat appends: nothing where the last one written is recent enough.

    Progress is written with the heartbeat that carries it, or not at all.
    """
    facts = run.facts
    if facts.fence != fence:
        return Rejected("superseded", "a later attempt has taken this one's place")
    if isinstance(job, js.Cancelled) or facts.life != job.facts.life:
        return Rejected("gone", "the job was cancelled")
    if isinstance(run, s.InFlight):
        # The answer that accepts it is on its way, and until then the call's own lease holds.
        return None
    if not isinstance(run, s.Awaiting):
        return Rejected("superseded", "the attempt was given up; a success would still be taken")
    spec = job.facts.spec
    last = run.leased_at + run_time_ms(spec)
    if at >= last:
        return Rejected("overtime", "the attempt has taken as long as max_run_time_s allows")
    until = lease_end(spec, run.leased_at, at)
    gained = until - run.until
    if gained <= 0 or (gained < heartbeat_ms(spec) // 3 and until < last):
        return None
    said = () if progress is None else (e.Progressed(at, progress.percent, progress.note),)
    return _on(run, e.Extended(at, until), *said)


def succeeded(run: s.OpenRun, at: int, body: bytes) -> Result:
    """Return the result of an attempt whose handler says that it is done; `body` is JSON."""
    headers = _JSON if body else ()
    return Result(e.OK, "ok", STATUS, "", _elapsed_us(run, at), 0, headers, body)


def failed(run: s.OpenRun, at: int, reason: str, *, retry: bool) -> Result:
    """Return the result of an attempt that its handler gives up."""
    body = reason.encode()
    return Result(
        e.FAILED,
        "retry" if retry else "dead",
        STATUS,
        BY_HANDLER,
        _elapsed_us(run, at),
        0,
        _TEXT if body else (),
        body,
        cause=BY_HANDLER,
    )


def lapsed(spec: JobSpec, run: s.OpenRun, at: int) -> Result:
    """Return the result of an attempt whose lease is over.

    Without a heartbeat nobody knows what the handler did. One that took too long has failed.
    """
    if not isinstance(run, s.Awaiting):
        return LOST
    at = max(at, run.until)
    elapsed_us = _elapsed_us(run, at)
    if at >= run.leased_at + run_time_ms(spec):
        return Result(e.FAILED, "retry", STATUS, OVERTIME, elapsed_us)
    return Result(e.LOST, "retry", STATUS, UNHEARD, elapsed_us)


def _elapsed_us(run: s.OpenRun, at: int) -> int:
    """Return how long the attempt took, from its lease on."""
    leased_at = run.leased_at if isinstance(run, s.InFlight | s.Awaiting) else at
    return max(0, at - leased_at) * 1_000


def _on(run: s.InFlight | s.Awaiting, *events: e.RunEvent) -> Decision:
    facts = run.facts
    after: s.RunState = run
    for event in events:
        after = s.evolve(facts.run_id, after, event)
    assert isinstance(after, s.Awaiting)
    own = Slice(facts.run_id, facts.version + 1, events, after)
    return Decision(facts.job_id, (guard_of(run),), (own,))
