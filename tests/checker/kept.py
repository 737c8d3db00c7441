"""The run history against the log: every attempt and every end, each once (I15)."""

from collections import Counter
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

from domain.job import events as je
from domain.run import events as e
from tests.checker.inputs import Attempt, Run, Stored
from tests.checker.report import Report
from tests.checker.track import Case, Job

ENDS: Final = (e.SUCCEEDED, e.DEAD, e.CANCELLED)
NO_RUN: Final = bytes(16)
SAID: Final = {e.RETRY: "waiting", e.WITHDRAWN: "withdrawn"}

ATTEMPT: Final = (
    "position",
    "nominal",
    "outcome",
    "then",
    "status",
    "error",
    "fence",
    "due_at",
    "leased_at",
    "ended_at",
    "elapsed_us",
    "late",
    "lateness_ms",
    "tenant_id",
)
RUN: Final = ("position", "nominal", "status", "verdict", "cause", "attempts", "tenant_id")
RANGE: Final = ("position", "nominal", "last", "count", "verdict", "cause", "tenant_id")
"""Columns that are compared."""
_VALUES: Final[dict[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]] = {
    names: attrgetter(*names) for names in (ATTEMPT, RUN, RANGE)
}

Key = tuple[bytes, int]
"""Run and attempt; 0 for the run itself. A range: no run, and its first slot below 0."""


def judge(case: Case, job: Job, report: Report, *, quiescent: bool) -> None:
    """Compare the rows of one job; while the view is behind only what is there is judged."""
    wanted: dict[Key, tuple[Any, ...]] = {}
    for stored, event in case.decoded:
        _fold(job.tenant, stored, event, wanted)
    seen: Counter[Key] = Counter()
    for row in case.history:
        key, names = _place(row)
        seen[key] += 1
        if seen[key] > 1:
            report.wrong("I15", f"{_word(key)} is there twice", job=job.id, run=row.run_id)
        elif key not in wanted:
            report.wrong("I15", f"{_word(key)} is not in the log", job=job.id, run=row.run_id)
        elif quiescent or row.position == wanted[key][0]:
            found = _VALUES[names](row)
            if found != wanted[key]:
                _differs(names, found, wanted[key], (job, key, report))
    if quiescent:
        for key in wanted:
            if not seen[key]:
                what = f"{_word(key)} is missing"
                report.wrong("I15", what, job=job.id, run=key[0] if key[1] >= 0 else b"")


def _place(row: Attempt | Run) -> tuple[Key, tuple[str, ...]]:
    if isinstance(row, Attempt):
        return (row.run_id, row.attempt), ATTEMPT
    if row.run_id == NO_RUN:
        return (NO_RUN, -row.nominal), RANGE
    return (row.run_id, 0), RUN


def _word(key: Key) -> str:
    if key[1] > 0:
        return f"attempt {key[1]} in the history"
    return "the run in the history" if key[1] == 0 else f"the range from {-key[1]} in the history"


def _differs(
    names: tuple[str, ...],
    found: tuple[Any, ...],
    wanted: tuple[Any, ...],
    said: tuple[Job, Key, Report],
) -> None:
    job, key, report = said
    name, is_so, should = next(
        (n, a, b) for n, a, b in zip(names, found, wanted, strict=True) if a != b
    )
    what = f"{_word(key)} has {name} {is_so!r}, the log says {should!r}"
    report.wrong("I15", what, job=job.id, run=key[0] if key[1] >= 0 else b"")


def _fold(tenant: bytes, stored: Stored, event: Any, wanted: dict[Key, tuple[Any, ...]]) -> None:
    """Put what an event says in the place of what was said before: the last word counts."""
    run_id, position = stored.stream, stored.position
    match event:
        case e.Fired():
            f, then = event, event.then
            late_ms = max(0, (f.sent_at or f.leased_at) - f.due_at)
            attempt: tuple[Any, ...] = (position, f.nominal, f.outcome, then, f.status, f.error)
            attempt += (f.fence, f.due_at, f.leased_at, f.at, f.elapsed_us, f.late, late_ms)
            wanted[run_id, f.attempt] = (*attempt, tenant)
            verdict = then if then in ENDS else ""
            status = SAID.get(then, then)
            wanted[run_id, 0] = (position, f.nominal, status, verdict, f.cause, f.attempt, tenant)
        case e.Completed(outcome=outcome, cause=cause, of=e.Occurrence() as of):
            wanted[run_id, 0] = (position, of.nominal, outcome, outcome, cause, of.attempts, tenant)
        case e.Withdrawn(cause=cause, of=e.Occurrence() as of):
            said = (position, of.nominal, "withdrawn", cause, "", of.attempts, tenant)
            wanted[run_id, 0] = said
        case e.Skipped(nominal=nominal, verdict=verdict, cause=cause):
            wanted[run_id, 0] = (position, nominal, "skipped", verdict, cause, 0, tenant)
        case e.Cancelled(nominal=nominal, cause=cause, attempts=made):
            wanted[run_id, 0] = (
                position,
                nominal,
                e.CANCELLED,
                e.CANCELLED,
                cause,
                made,
                tenant,
            )
        case _:
            pass
    if isinstance(event, e.Scheduled | je.JobEvent):
        for gone in getattr(event, "passed", ()):
            wanted[NO_RUN, -gone.first] = (
                position,
                gone.first,
                gone.last,
                gone.count or 0,
                gone.verdict,
                gone.cause,
                tenant,
            )
