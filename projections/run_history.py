"""The run history: one row per attempt, one per run, one per range of slots that did not fire.

A run's row comes from its latest `Fired` or from the event that ends it without one; everything a
row needs is in that event, so nothing is joined and nothing is remembered between batches.
"""

from collections.abc import Iterable

from domain.job import events as je
from domain.run import events as e
from projections.ports import Recorded
from projections.rows import AttemptRow, RunRow

VIEW = "run_history"
NO_RUN = bytes(16)
"""Stands in a range's row where a run has its id."""

_SETTLES = (
    je.Revised
    | je.Paused
    | je.Resumed
    | je.Cancelled
    | je.Finished
    | je.Replanned
    | je.CatchUpClosed
)
"""Events of a job that can carry verdicts: a command settled the slots before it."""
_Settling = e.Scheduled | _SETTLES
TELLING = (e.Scheduled, e.Fired, e.Completed, e.Withdrawn, e.Skipped, e.Cancelled)
"""Events of a run that rows are made of."""
_WAITING = {e.RETRY: "waiting", e.WITHDRAWN: "withdrawn"}


def rows(batch: Iterable[Recorded]) -> tuple[list[AttemptRow], list[RunRow]]:
    """Return the rows of a batch, in order. Unknown events are the caller's to park."""
    attempts: list[AttemptRow] = []
    runs: list[RunRow] = []
    for recorded in batch:
        match recorded.event:
            case e.Fired() as fired:
                attempts.append(_attempt(recorded, fired))
                runs.append(_fired(recorded, fired))
            case e.Scheduled(passed=passed) as scheduled if passed:
                runs.extend(_ranges(recorded, scheduled.tenant_id, scheduled.job_id, scheduled))
            case e.Completed(at=at, outcome=outcome, cause=cause, of=e.Occurrence() as of):
                runs.append(_of(recorded, of, at, (outcome, outcome, cause)))
            case e.Withdrawn(at=at, cause=cause, of=e.Occurrence() as of):
                runs.append(_of(recorded, of, at, (e.WITHDRAWN, cause, "")))
            case e.Skipped() as skipped:
                runs.append(_unfired(recorded, skipped, "skipped", skipped.verdict, 0))
            case e.Cancelled() as cancelled:
                made = cancelled.attempts
                runs.append(_unfired(recorded, cancelled, e.CANCELLED, e.CANCELLED, made))
            case settled if isinstance(settled, _SETTLES) and settled.passed:
                runs.extend(_ranges(recorded, settled.tenant_id, recorded.stream_id, settled))
            case _:
                pass
    return attempts, runs


def _attempt(recorded: Recorded, f: e.Fired) -> AttemptRow:
    return AttemptRow(
        f.tenant_id,
        f.job_id,
        f.nominal,
        recorded.stream_id,
        f.attempt,
        f.kind,
        f.due_at,
        f.leased_at,
        f.at,
        max(0, (f.sent_at or f.leased_at) - f.due_at),
        f.elapsed_us,
        f.outcome,
        f.then,
        f.status,
        f.error,
        f.late,
        f.fence,
        f.headers,
        f.body,
        recorded.position,
    )


def _fired(recorded: Recorded, f: e.Fired) -> RunRow:
    ended = f.then in (e.SUCCEEDED, e.DEAD, e.CANCELLED)
    return RunRow(
        f.tenant_id,
        f.job_id,
        f.nominal,
        recorded.stream_id,
        f.kind,
        f.nominal,
        1,
        f.due_at,
        _WAITING.get(f.then, f.then),
        f.then if ended else "",
        f.cause,
        f.attempt,
        f.sent_at or f.leased_at,
        f.at if ended else 0,
        recorded.position,
    )


def _of(recorded: Recorded, of: e.Occurrence, at: int, said: tuple[str, str, str]) -> RunRow:
    """Return the row of a run that ends, or is withdrawn, by an event that names its occurrence.

    `said`: status, verdict, cause.
    """
    return RunRow(
        of.tenant_id,
        of.job_id,
        of.nominal,
        recorded.stream_id,
        of.kind,
        of.nominal,
        1,
        of.due_at,
        *said,
        of.attempts,
        0,
        at,
        recorded.position,
    )


def _unfired(
    recorded: Recorded, event: e.Skipped | e.Cancelled, status: str, verdict: str, attempts: int
) -> RunRow:
    return RunRow(
        event.tenant_id,
        event.job_id,
        event.nominal,
        recorded.stream_id,
        event.kind,
        event.nominal,
        1,
        event.due_at,
        status,
        verdict,
        event.cause,
        attempts,
        0,
        event.at,
        recorded.position,
    )


def _ranges(recorded: Recorded, tenant_id: bytes, job_id: bytes, event: _Settling) -> list[RunRow]:
    return [
        RunRow(
            tenant_id,
            job_id,
            gone.first,
            NO_RUN,
            0,
            gone.last,
            gone.count or 0,
            0,
            "skipped",
            gone.verdict,
            gone.cause,
            0,
            0,
            event.at,
            recorded.position,
        )
        for gone in event.passed
    ]
