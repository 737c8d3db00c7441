"""The tables that are written with the log, or after it, against the fold of the log (I12)."""

from typing import Any

import msgspec

from domain.job import state as js
from domain.job.events import ALLOW, JobSpec
from domain.schedule.schedule import OneTime
from projections.due_index import decode_job
from tests.checker.inputs import Board, Due, Head
from tests.checker.report import Report
from tests.checker.track import (
    ACCEPTED,
    ACTIVE,
    CANCELLED,
    FINISHED,
    FLYING,
    PAUSED,
    READY,
    Case,
    Job,
    Run,
)

MISFIRE_AFTER_MS = 60_000
STATUS_NAMES = {ACTIVE: "active", PAUSED: "paused", FINISHED: "finished", CANCELLED: "cancelled"}
STATES = {js.Active: ACTIVE, js.Paused: PAUSED, js.Finished: FINISHED, js.Cancelled: CANCELLED}
PHASES = {READY: 0, FLYING: 1, ACCEPTED: 2}


def judge(case: Case, job: Job, report: Report, *, quiescent: bool) -> None:
    """Compare the rows of one job with what its events say, field by field."""
    found = _Rows(case, job, report)
    found.due_index()
    found.head()
    found.board(quiescent=quiescent)


class _Rows:
    def __init__(self, case: Case, job: Job, report: Report) -> None:
        self.case, self.job, self.report = case, job, report

    def wrong(self, what: str, run: bytes = b"") -> None:
        self.report.wrong("I12", what, job=self.job.id, run=run)

    def differs(self, table: str, row: Any, wanted: dict[str, Any], run: bytes = b"") -> None:
        """Note the first field of a row that is not what it should be."""
        for name, value in wanted.items():
            if getattr(row, name) != value:
                what = f"{table}.{name} is {getattr(row, name)!r}, the log says {value!r}"
                self.wrong(what, run)
                return

    # ---------------------------------------------------------------- due index

    def due_index(self) -> None:
        rows = {row.run_id: row for row in self.case.rows if isinstance(row, Due)}
        for run in self.job.runs.values():
            row = rows.pop(run.id, None)
            if run.state not in PHASES:
                if row is not None:
                    self.wrong("a run that is not open has a due row", run.id)
            elif row is None:
                self.wrong("an open run has no due row", run.id)
            else:
                self.differs("due_index", row, _due(self.job, run), run.id)
        for run_id in rows:
            self.wrong("a due row is of no run", run_id)

    # ---------------------------------------------------------------- heads

    def head(self) -> None:
        rows = [row for row in self.case.rows if isinstance(row, Head)]
        if len(rows) != 1:
            self.wrong(f"the job has {len(rows)} heads")
            return
        job, spec = self.job, self.job.spec
        if spec is None:
            return
        self.differs("job_heads", rows[0], _head(job, spec))
        try:
            state = decode_job(rows[0].state)
        except msgspec.DecodeError as error:
            self.wrong(f"the state in the head cannot be read: {error}")
            return
        if STATES[type(state)] != job.status:
            self.wrong(f"the state in the head is {type(state).__name__}")
        wanted = {
            "job_id": job.id,
            "tenant_id": job.tenant,
            "version": job.version,
            "life": job.life,
            "spec": spec,
            "spec_version": job.spec_version,
            "payload_version": job.payload_version,
            "cursor": job.cursor,
            "key": job.key,
            "begun": job.begun,
        }
        self.differs("job_heads.state", state.facts, wanted)

    # ---------------------------------------------------------------- board

    def board(self, *, quiescent: bool) -> None:
        rows = [row for row in self.case.rows if isinstance(row, Board)]
        if not rows:
            if quiescent:
                self.wrong("the job is not on the board")
            return
        row, job, spec = rows[0], self.job, self.job.spec
        if spec is None or row.version > job.version:
            self.wrong(f"the board has version {row.version} of a job of version {job.version}")
            return
        if not quiescent and row.version < job.version:
            return
        wanted: dict[str, Any] = {
            "tenant_id": job.tenant,
            "name": spec.name,
            "labels": tuple(sorted(spec.labels)),
            "one_time": isinstance(spec.schedule, OneTime),
        }
        if not isinstance(spec.schedule, OneTime):
            wanted["status"] = STATUS_NAMES[job.status]
        self.differs("job_board", row, wanted)


def _due(job: Job, run: Run) -> dict[str, Any]:
    """Return the due row of an open run, but for the columns that the log does not say."""
    flying = run.state == FLYING
    catch = run.catch_up
    return {
        "job_id": job.id,
        "tenant_id": run.tenant,
        "life": run.life,
        "kind": run.kind,
        "lane": run.lane,
        "phase": PHASES[run.state],
        "version": run.version,
        "nominal": run.nominal,
        "due_at": run.due_at,
        "attempt": len(run.attempts),
        "fence": run.attempts[-1].fence if run.attempts else 0,
        "fails": run.fails,
        "lost": run.lost,
        "abandoned": run.abandoned,
        "first_leased_at": run.first_leased_at,
        "spec_version": run.spec_version,
        "payload_version": run.payload_version,
        "owner": run.owner if flying else b"",
        "leased_at": run.leased_at if run.state != READY else 0,
        "until": run.until if run.state != READY else 0,
        "catch_start": catch.start if catch else 0,
        "catch_end": catch.end if catch else 0,
        "catch_cursor": catch.cursor if catch else 0,
    }


def _head(job: Job, spec: JobSpec) -> dict[str, Any]:
    limit = spec.overlap_limit if spec.overlap == ALLOW else 1
    return {
        "tenant_id": job.tenant,
        "version": job.version,
        "status": job.status,
        # Where occurrences are counted, each first lease is decided, not granted by the statement.
        "overlap_limit": 0 if spec.max_runs else limit,
        "plans_at_lease": spec.plans_at_lease,
        "misfire_after_ms": 0 if isinstance(spec.schedule, OneTime) else MISFIRE_AFTER_MS,
        "max_lateness_ms": spec.max_lateness_ms,
        "timeout_ms": spec.timeout_ms,
        "payload_version": job.payload_version,
        "resume_at": job.until if job.status == PAUSED else 0,
    }
