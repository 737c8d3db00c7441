"""Gives each job what was recorded of it, and notes what belongs to none."""

from tests.checker.inputs import Board, Command, Due, Head, History
from tests.checker.report import Report
from tests.checker.track import Case

Cases = dict[bytes, Case]


def attach(history: History, cases: Cases, report: Report) -> None:
    """Sort every input by job."""
    of_run = {
        stored.stream: job_id
        for job_id, case in cases.items()
        for stored in case.events
        if stored.version == 1
    }
    _hits(history, cases, of_run, report)
    _clients(history, cases, report)
    for slots in history.oracle:
        if slots.job in cases:
            cases[slots.job].oracle.append(slots)
    for entry in history.hand_offs or ():
        job_id = of_run.get(entry.run)
        if job_id is None:
            report.paths["ghost_messages"] += 1
        else:
            cases[job_id].hand_offs.append(entry)
    _rows(history, cases, report)


def _hits(history: History, cases: Cases, of_run: dict[bytes, bytes], report: Report) -> None:
    for hit in history.hits or ():
        job_id = of_run.get(hit.run)
        if job_id is None:
            report.wrong("I2", f"a request with key {hit.key!r} came for no run", run=hit.run)
        else:
            cases[job_id].hits.setdefault(hit.run, []).append(hit)


def _clients(history: History, cases: Cases, report: Report) -> None:
    for op in history.clients:
        case = cases.get(op.job)
        if case is not None:
            case.clients.append(op)
        elif op.job and op.outcome == "ok" and op.version:
            what = f"{op.action} was answered with version {op.version} of a job that is not there"
            report.wrong("I13", what, job=op.job)


def _rows(history: History, cases: Cases, report: Report) -> None:
    for kept in history.history or ():
        case = cases.get(kept.job_id)
        if case is None:
            what = "the history has rows of a job that is not in the log"
            report.wrong("I15", what, job=kept.job_id, run=kept.run_id)
        else:
            case.history.append(kept)
    for row in history.projections or ():
        if not isinstance(row, Due | Head | Board | Command):
            continue
        case = cases.get(row.job_id)
        if case is None:
            what = f"{type(row).__name__.lower()} has a row of a job that is not in the log"
            report.wrong("I12", what, job=row.job_id)
        else:
            case.rows.append(row)
