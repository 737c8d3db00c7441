"""Goes through the events of one job in commit order, and notes each step that is not allowed.

The stream of the job is here; what its runs may do is in `runs`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from domain.catalogue import DomainEvent
from domain.job import events as e
from domain.run.events import Passed
from domain.stretch import instants
from tests.checker import runs
from tests.checker.inputs import Session
from tests.checker.log import decoded
from tests.checker.report import Report
from tests.checker.track import ACTIVE, CANCELLED, FINISHED, PAUSED, Case, Force, Job


class Walk:
    """The replay of one job. `job` and its runs are the state after the last event so far."""

    def __init__(self, case: Case, report: Report, sessions: Mapping[bytes, Session]) -> None:
        self.case = case
        self.report = report
        self.sessions = sessions
        self.missed: dict[bytes, int] = {}
        """Links that were skipped as missed, where another should begin at that instant."""
        self.job = Job(case.job_id)
        self.begun_open: set[bytes] = set()
        """Runs that were leased and are due to go on: in flight, or waiting for a retry."""
        self.position = 0
        self.at = 0
        """Database clock of the commit where it is `stamped`, else the `at` of the event."""
        self.stamped = False

    def go(self) -> Job:
        """Take every event; return the job."""
        job_id, report = self.job.id, self.report
        for stored in self.case.events:
            event = decoded(stored)
            if isinstance(event, str):
                job, run = (job_id, b"") if stored.stream == job_id else (job_id, stored.stream)
                report.wrong("I13", event, job=job, run=run)
                continue
            self.case.decoded.append((stored, event))
            self.position = stored.position
            self.stamped = stored.db_time > 0
            self.at = stored.db_time or getattr(event, "at", self.at)
            if stored.stream == job_id:
                self._of_job(stored.version, event)
            else:
                runs.step(self, stored.stream, stored.version, event)
        self._missed()
        return self.job

    def _missed(self) -> None:
        """I18: where the newest slot that was missed must fire, it does, in the same append."""
        if not self.missed:
            return
        began = {run.first_leased_at for run in self.job.runs.values() if run.begun}
        for run_id, at in self.missed.items():
            if at not in began:
                self.wrong("I18", "it was missed, and no slot fires in its place", run_id)

    def wrong(self, invariant: str, what: str, run: bytes = b"") -> None:
        """Note a violation of this job."""
        self.report.wrong(invariant, what, job=self.job.id, run=run)

    def passed(self, ranges: tuple[Passed, ...], at: int, life: int, *, on_job: bool) -> None:
        """Keep the verdicts of slots without a stream, for the ledger."""
        runs.keep(self, ranges, at, life, on_job=on_job)

    # ---------------------------------------------------------------- the stream of the job

    def _of_job(self, version: int, event: DomainEvent) -> None:
        job = self.job
        job.version = version
        handler = _HANDLERS.get(type(event))
        if handler is None:
            self.wrong("I13", f"{type(event).__name__} in the stream of a job")
            return
        if isinstance(event, e.Defined):
            if job.status not in (0, CANCELLED):
                self.wrong("I3", f"version {version} defines a job that exists")
        elif job.status == 0:
            self.wrong("I13", f"version {version} of a job that was never defined")
        elif job.status == CANCELLED:
            self.wrong("I8", f"{type(event).__name__} at version {version}, after the tombstone")
        handler(self, version, event)
        job.statuses.append(job.status)

    def _moved(self, event: Any) -> None:
        self.job.cursor = event.cursor
        self.passed(getattr(event, "passed", ()), event.at, self.job.life, on_job=True)

    def _defined(self, version: int, event: e.Defined) -> None:
        job = self.job
        if event.life != job.life + 1:
            self.wrong("I3", f"life {event.life} comes after life {job.life}")
        job.life, job.tenant, job.key = event.life, event.tenant_id, event.key
        job.spec = job.specs[version] = event.spec
        job.spec_version = job.payload_version = job.revised = version
        job.begun = job.failures = 0
        job.catch_up, job.held, job.backfill = None, b"", None
        job.cursor = event.cursor
        self._status(ACTIVE)
        self._in_force(version, event.cursor)

    def _revised(self, version: int, event: e.Revised) -> None:
        job = self.job
        self._moved(event)
        job.spec = job.specs[version] = event.spec
        job.spec_version = job.revised = version
        if event.payload_version not in job.specs:
            self.wrong("I4", f"version {version} takes its body from {event.payload_version}")
        job.payload_version = event.payload_version
        if not event.spec.max_runs:
            job.begun = 0
        if not event.spec.pause_after:
            job.failures = 0
        if job.status == PAUSED:
            job.held = event.held
        else:
            self._status(ACTIVE)
        self._in_force(version, event.at)

    def _paused(self, _version: int, event: e.Paused) -> None:
        job = self.job
        if job.status != ACTIVE:
            self.wrong("I8", "a job that is not active is paused")
        self._moved(event)
        job.held, job.paused_at, job.until = event.held, event.at, event.until
        job.catch_up = None
        if event.cause == e.FAILURES:
            job.failures += 1
        if event.cause == e.SCHEDULE_ERROR and job.forces:
            # Nobody can say any more what its slots were.
            job.forces[-1].is_known = False
        job.pauses.append([event.at, 0, self.position, 0])
        self._status(PAUSED)

    def _resumed(self, _version: int, event: e.Resumed) -> None:
        job = self.job
        if job.status != PAUSED:
            self.wrong("I8", "a job that is not paused is resumed")
        self._moved(event)
        job.catch_up, job.held, job.until = event.catch_up, b"", 0
        self._unpause(event.at)
        self._status(ACTIVE)

    def _unpause(self, at: int) -> None:
        if self.job.pauses and not self.job.pauses[-1][1]:
            self.job.pauses[-1][1] = at
            self.job.pauses[-1][3] = self.position

    def _cancelled(self, version: int, event: e.Cancelled) -> None:
        job = self.job
        self._moved(event)
        if job.status == PAUSED:
            self._unpause(event.at)
        job.cancels.append((self.position, event.at, version))
        job.backfill, job.catch_up, job.until = None, None, 0
        if job.forces:
            job.forces[-1].until = min(job.forces[-1].until, event.at)
        self._status(CANCELLED)

    def _finished(self, _version: int, event: e.Finished) -> None:
        job = self.job
        if job.status != ACTIVE:
            self.wrong("I9", "a job that is not active is finished")
        self._moved(event)
        job.catch_up = None
        if job.forces:
            job.forces[-1].until = min(job.forces[-1].until, event.at)
        self._status(FINISHED)

    def _replanned(self, version: int, event: e.Replanned) -> None:
        job = self.job
        self._moved(event)
        job.spec_version = version
        if event.exclusions and job.spec is not None:
            job.spec = msgspec.structs.replace(job.spec, exclusions=event.exclusions)
            job.revised = version
        else:
            for force in job.forces:
                force.is_known = False
        if job.spec is not None:
            job.specs[version] = job.spec
        if job.status == PAUSED:
            job.held = b""
        else:
            self._status(ACTIVE)
        self._in_force(version, event.at)

    def _requested(self, version: int, event: e.RunRequested) -> None:
        if self.job.status == PAUSED:
            self.wrong("I8", f"version {version} asks a paused job for a run", event.run_id)

    def _counted(self, _version: int, event: e.Counted) -> None:
        job = self.job
        self._moved(event)
        limit = job.spec.max_runs if job.spec else 0
        if event.begun != job.begun + 1:
            self.wrong("I9", f"occurrence {event.begun} begins after {job.begun}")
        if not limit or event.begun > limit:
            self.wrong("I9", f"occurrence {event.begun} begins, at most {limit} may")
        job.begun = event.begun

    def _failing(self, _version: int, event: e.Failing) -> None:
        self._moved(event)
        self.job.failures = event.failures

    def _backfill(self, version: int, event: e.BackfillRequested) -> None:
        self.job.backfill = version, frozenset(instants(event.slots))

    def _plain(self, _version: int, event: Any) -> None:
        if isinstance(event, e.CatchUpClosed):
            self._moved(event)

    def _status(self, status: int) -> None:
        self.job.status = status

    def _in_force(self, version: int, after: int) -> None:
        job = self.job
        if job.forces:
            job.forces[-1].until = min(job.forces[-1].until, after)
        assert job.spec is not None
        job.forces.append(Force(job.spec, version, job.life, after))


_HANDLERS: Final[dict[type, Callable[[Walk, int, Any], None]]] = {
    e.Defined: Walk._defined,
    e.Revised: Walk._revised,
    e.Paused: Walk._paused,
    e.Resumed: Walk._resumed,
    e.Cancelled: Walk._cancelled,
    e.Finished: Walk._finished,
    e.RunRequested: Walk._requested,
    e.Replanned: Walk._replanned,
    e.CatchUpClosed: Walk._plain,
    e.Counted: Walk._counted,
    e.Failing: Walk._failing,
    e.BackfillRequested: Walk._backfill,
    e.BackfillMoved: Walk._plain,
    e.RedriveRequested: Walk._plain,
}
