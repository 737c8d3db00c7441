"""The run history against the log: every attempt and every end, each once (I15)."""

from collections import Counter
from typing import Any

from domain.job import events as je
from domain.run import events as e
from tests.checker.inputs import Attempt, Run, Stored
from tests.checker.log import decoded
from tests.checker.report import Report
from tests.checker.track import Case, Job

ENDS = (e.SUCCEEDED, e.DEAD, e.CANCELLED)
NO_RUN = bytes(16)
SAID = {e.RETRY: "waiting", e.WITHDRAWN: "withdrawn"}


def judge(case: Case, job: Job, report: Report, *, quiescent: bool) -> None:
    """Compare the rows of one job; while the view is behind only what is there is judged."""
    attempts: dict[tuple[bytes, int], dict[str, Any]] = {}
    runs: dict[tuple[bytes, int], dict[str, Any]] = {}
    for stored in case.events:
        _fold(job, stored, attempts, runs)
    seen: Counter[tuple[bytes, int]] = Counter()
    for row in case.history:
        if isinstance(row, Attempt):
            key = row.run_id, row.attempt
            wanted = attempts.get(key)
            what = f"attempt {row.attempt} in the history"
        else:
            key = (row.run_id, -row.nominal if row.run_id == NO_RUN else 0)
            wanted = runs.get(key)
            what = "the run in the history"
        seen[key] += 1
        if seen[key] == 2:
            report.wrong("I15", f"{what} is there twice", job=job.id, run=row.run_id)
        elif wanted is None:
            report.wrong("I15", f"{what} is not in the log", job=job.id, run=row.run_id)
        elif quiescent or row.position == wanted["position"]:
            _same(row, wanted, what, (job, report))
    if quiescent:
        for key in (*attempts, *runs):
            if not seen[key]:
                what = f"attempt {key[1]}" if key[1] > 0 else "its end"
                report.wrong("I15", f"{what} is not in the history", job=job.id, run=key[0])


def _same(row: Attempt | Run, wanted: dict[str, Any], what: str, said: tuple[Job, Report]) -> None:
    for name, value in wanted.items():
        if getattr(row, name) != value:
            told = f"{what} has {name} {getattr(row, name)!r}, the log says {value!r}"
            said[1].wrong("I15", told, job=said[0].id, run=row.run_id)
            return


def _fold(
    job: Job,
    stored: Stored,
    attempts: dict[tuple[bytes, int], dict[str, Any]],
    runs: dict[tuple[bytes, int], dict[str, Any]],
) -> None:
    """Add what an event says to the rows that there should be."""
    event = decoded(stored)
    run_id, position = stored.stream, stored.position
    plain: dict[str, Any] = {"tenant_id": job.tenant, "job_id": job.id, "position": position}
    match event:
        case e.Fired():
            attempts[run_id, event.attempt] = plain | {
                "nominal": event.nominal,
                "outcome": event.outcome,
                "then": event.then,
                "status": event.status,
                "error": event.error,
                "fence": event.fence,
                "due_at": event.due_at,
                "leased_at": event.leased_at,
                "ended_at": event.at,
                "elapsed_us": event.elapsed_us,
                "late": event.late,
                "lateness_ms": max(0, (event.sent_at or event.leased_at) - event.due_at),
            }
            over = event.then in ENDS
            runs[run_id, 0] = plain | {
                "nominal": event.nominal,
                "status": SAID.get(event.then, event.then),
                "verdict": event.then if over else "",
                "attempts": event.attempt,
                "ended_at": event.at if over else 0,
            }
        case e.Completed(of=e.Occurrence() as of):
            runs[run_id, 0] = plain | {
                "nominal": of.nominal,
                "status": event.outcome,
                "verdict": event.outcome,
                "ended_at": event.at,
            }
        case e.Withdrawn(of=e.Occurrence() as of):
            runs[run_id, 0] = plain | {"nominal": of.nominal, "status": "withdrawn"}
        case e.Skipped():
            runs[run_id, 0] = plain | {
                "nominal": event.nominal,
                "status": "skipped",
                "verdict": event.verdict,
                "cause": event.cause,
            }
        case e.Cancelled():
            runs[run_id, 0] = plain | {
                "nominal": event.nominal,
                "status": "cancelled",
                "attempts": event.attempts,
            }
        case _:
            pass
    if isinstance(event, e.Scheduled | je.JobEvent):
        for gone in getattr(event, "passed", ()):
            # A range stands in the history by its first slot.
            runs[NO_RUN, -gone.first] = plain | {
                "nominal": gone.first,
                "last": gone.last,
                "count": gone.count or 0,
                "verdict": gone.verdict,
                "cause": gone.cause,
            }
