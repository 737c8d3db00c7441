"""Judges a history: every invariant that its inputs allow, job by job, in one pass."""

import gc

from tests.checker import (
    clients,
    handed,
    health,
    kept,
    lateness,
    ledger,
    log,
    secrecy,
    story,
    views,
)
from tests.checker.attach import attach
from tests.checker.inputs import History, Session
from tests.checker.report import PATHS, Report, Violation
from tests.checker.targets import Keys, Targets
from tests.checker.track import Case, Faults, Job
from tests.checker.walk import Walk


def check(history: History) -> Report:
    """Return what is wrong with a run, and what it went through."""
    # Much is made and nothing of it in circles: the collector would look at all of it, often.
    collects = gc.isenabled()
    gc.disable()
    try:
        return _check(history)
    finally:
        if collects:
            gc.enable()


def _check(history: History) -> Report:
    report = Report()
    report.events = len(history.events)
    faults = Faults(list(history.faults))
    cases = log.cases(history, report)
    attach(history, cases, report)
    judge = _Judge(history, faults, report)
    for case in cases.values():
        judge.job(case)
    health.settled(history, judge.probed, faults, report)
    health.means(history, report)
    secrecy.judge(history, report)
    _paths(history, report)
    chosen = _shortest(report, cases)
    if chosen is not None:
        report.told = chosen
        report.story = story.tell(chosen, cases, history, faults)
    return report


class _Judge:
    """What all jobs are judged with."""

    def __init__(self, history: History, faults: Faults, report: Report) -> None:
        self.history, self.faults, self.report = history, faults, report
        self.keys = Keys()
        self.allowance = lateness.Allowance(faults, history.scenario)
        self.sessions = {
            row.session_id: row for row in history.projections or () if isinstance(row, Session)
        }
        self.probed: dict[bytes, Job] = {}

    def job(self, case: Case) -> None:
        """Judge one job; nothing of it is kept."""
        history, report, scenario = self.history, self.report, self.history.scenario
        job = Walk(case, report, self.sessions).go()
        ledger.audit(case, job, report)
        if history.hits is not None:
            Targets(case, job, self.keys, self.faults, scenario, report).judge()
        lateness.judge(job, case.hits, self.allowance, scenario, report)
        clients.judge(case, job, report)
        if history.projections is not None:
            views.judge(case, job, report, quiescent=scenario.quiescent)
        if history.history is not None:
            kept.judge(case, job, report, quiescent=scenario.quiescent)
        if history.hand_offs is not None:
            handed.judge(case, job, scenario, report)
        health.overdue(job, history, self.faults, report)
        if scenario.probe is not None and scenario.probe.job == case.job_id:
            self.probed[case.job_id] = job
        case.decoded.clear()


def _paths(history: History, report: Report) -> None:
    """A path that the run was for, and that it never took, is a failure."""
    for name, times in history.scenario.counted.items():
        report.paths[name] += times
    for name in history.scenario.expected:
        if name not in PATHS:
            raise ValueError(f"no path is called {name!r}")
        if not report.paths[name]:
            report.wrong("path", f"the run never took the path {name}: {PATHS[name]}")


def _shortest(report: Report, cases: dict[bytes, Case]) -> Violation | None:
    """Return the violation whose story is the shortest: of a run, where there is one."""
    found = [v for v in report.violations if v.job in cases]

    def length(violation: Violation) -> tuple[bool, int]:
        return not violation.run, len(cases[violation.job].events)

    return min(found, key=length, default=None)
