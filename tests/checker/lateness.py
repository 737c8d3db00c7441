"""How late first attempts were, and what never began (I11, and the open runs of I1)."""

from typing import Final

from domain.ids import SLOT
from domain.job.events import ALLOW
from tests.checker.inputs import Hit, Scenario
from tests.checker.report import Report
from tests.checker.runs import AFTERTHOUGHTS
from tests.checker.track import (
    ACCEPTED,
    ACTIVE,
    ENDED,
    FINISHED,
    FLYING,
    READY,
    WITHHELD,
    Faults,
    Job,
    Run,
)

RECOVERY_MS: Final = {
    "dispatcher": 12_000,
    "scheduler": 6_000,
    "postgres": 5_000,
    "broker": 15_000,
    "target": 300_000,
    "network": 15_000,
    "clock": 15_000,
    "disk": 5_000,
}
"""R by kind of fault: how long its effect lasts. A kind that is not here may delay nothing."""


class Allowance:
    """D of §2.3: how late an occurrence may be, for what was broken meanwhile."""

    def __init__(self, faults: Faults, scenario: Scenario) -> None:
        self._faults, self._base = faults, scenario.late_ms

    def of(self, due: int, until: int, job: bytes) -> tuple[int, list[str]]:
        """Return the allowance of an instant, and the kinds of fault that it is for."""
        allowed, kinds = self._base, []
        for fault in self._faults.all:
            recovery = RECOVERY_MS.get(fault.kind)
            if recovery is None or fault.start > until or fault.end + recovery < due:
                continue
            if fault.jobs and job not in fault.jobs:
                continue
            allowed += max(0, min(fault.end, until) - max(fault.start, due)) + recovery
            kinds.append(fault.kind)
        return allowed, kinds


def judge(
    job: Job,
    hits: dict[bytes, list[Hit]],
    allowance: Allowance,
    scenario: Scenario,
    report: Report,
) -> None:
    """Judge every run of a job: how late it began, and what of it is still open."""
    begun = [run for run in job.runs.values() if run.begun]
    for run in begun:
        if run.kind not in AFTERTHOUGHTS:
            _first(job, run, begun, (hits.get(run.id, []), allowance, report))
    for run in job.runs.values():
        if run.state != ENDED:
            _open(job, run, allowance, scenario, report)


def _first(job: Job, run: Run, begun: list[Run], told: tuple[list[Hit], Allowance, Report]) -> None:
    hits, allowance, report = told
    first = run.attempts[0]
    start = first.at
    if hits and hits[0].attempt == 1:
        start = hits[0].at_us // 1_000
    late = max(0, start - first.due_at)
    allowed, kinds = allowance.of(first.due_at, start, job.id)
    if len(begun) > 1 and late > allowed and _waited(run, begun, first.due_at, first.at):
        report.lateness_ms.setdefault("behind another run", []).append(late)
        return
    for kind in sorted(set(kinds)) or ["none"]:
        report.lateness_ms.setdefault(kind, []).append(late)
    if late > allowed:
        what = f"it began {late} ms after it was due, {allowed} are allowed"
        report.wrong(
            "I11", f"{what} ({', '.join(sorted(set(kinds))) or 'no fault'})", job=job.id, run=run.id
        )


def _waited(run: Run, begun: list[Run], due: int, start: int) -> bool:
    """Tell whether another run of the job was in its way at some time."""
    return any(
        other is not run
        and other.first_leased_at <= start
        and (not other.ended_at or other.ended_at >= due)
        for other in begun
    )


def _open(job: Job, run: Run, allowance: Allowance, scenario: Scenario, report: Report) -> None:
    """I1: at the end nothing waits that could have been done."""
    settled = scenario.settled_at
    what = ""
    if run.state == WITHHELD:
        forgotten = run.begun or run.kind != SLOT
        if forgotten and job.status in (ACTIVE, FINISHED) and run.life == job.life:
            what = "it was withdrawn by a pause, and its job goes on without it"
    elif not settled:
        return
    elif run.state == READY:
        allowed, _ = allowance.of(run.due_at, settled, job.id)
        if run.due_at + allowed <= settled and not _blocked(job, run):
            what = f"it was due at {run.due_at}, and nothing has become of it by {settled}"
    elif run.state in (FLYING, ACCEPTED):
        allowed, _ = allowance.of(run.until, settled, job.id)
        if run.until + allowed <= settled:
            what = f"its lease was over at {run.until}, and nobody has reclaimed it by {settled}"
    else:
        what = "nothing follows the report of its last attempt"
    if what:
        report.wrong("I1", what, job=job.id, run=run.id)


def _blocked(job: Job, run: Run) -> bool:
    """Tell whether another run of its job is in its way."""
    if run.begun:
        return False
    others = sum(
        1
        for other in job.runs.values()
        if other is not run and other.begun and other.state in (READY, FLYING, ACCEPTED)
    )
    spec = job.spec
    limit = spec.overlap_limit if spec is not None and spec.overlap == ALLOW else 1
    return others >= limit
