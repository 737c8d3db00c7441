"""The book of a job's slots: each one in force has one verdict, and no other any (I1, I2, I3, I9).

A verdict is a stream of its own, or one range. What a frontier gave back when it was withdrawn, and
what an open link still has to catch up, has none yet.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from typing import Final

from domain.ids import BACKFILL, RERUN, SLOT
from domain.job.events import ALLOW, CANCEL_OTHER, JobSpec
from domain.run import events as e
from domain.schedule.schedule import FixedDelay, OneTime
from tests.checker import oracle
from tests.checker.report import Report
from tests.checker.track import (
    ACTIVE,
    CANCELLED,
    ENDED,
    PAUSED,
    WITHHELD,
    Case,
    Force,
    Job,
    Run,
    Verdicts,
)

MISFIRES: Final = (
    "",
    "outage",
    "cap",
    "catch_up_window",
    "catch_up",
    "max_runs",
    "max_lateness",
    "overlap_limit",
)
"""Causes of slots that were missed."""


def audit(case: Case, job: Job, report: Report) -> None:
    """Judge the slots of a job, and what it has open at the end."""
    book = _Book(case, job, report)
    book.planned()
    book.ranges()
    for life in range(1, job.life + 1):
        book.life(life)
    book.open_links()


class _Book:
    def __init__(self, case: Case, job: Job, report: Report) -> None:
        self.case, self.job, self.report = case, job, report
        self.links = [run for run in job.runs.values() if run.kind == SLOT]

    def wrong(self, invariant: str, what: str, run: bytes = b"") -> None:
        self.report.wrong(invariant, what, job=self.job.id, run=run)

    def given_back(self, run: Run) -> bool:
        """Tell whether a withdrawn frontier has no say about its slot any more."""
        return run.state == WITHHELD and not run.begun and run.id != self.job.held

    # ---------------------------------------------------------------- what was planned

    def planned(self) -> None:
        """I2: every link is of a slot of the spec that it was planned under; I3: one each."""
        seen: dict[tuple[int, int], Run] = {}
        for run in self.links:
            spec = self.job.specs.get(run.first_spec)
            if spec is None:
                what = f"it is planned under version {run.first_spec}, which has no spec"
                self.wrong("I2", what, run.id)
                continue
            self._is_slot(run, spec)
            if self.given_back(run):
                continue
            other = seen.setdefault((run.life, run.nominal), run)
            if other is not run:
                what = f"the slot {run.nominal} has a stream already, {other.id.hex()}"
                self.wrong("I3", what, run.id)
        self._backfilled()

    def _is_slot(self, run: Run, spec: JobSpec) -> None:
        if isinstance(spec.schedule, FixedDelay):
            self._is_delay(run, spec, spec.schedule)
            return
        if not all(f.is_known for f in self.job.forces if f.version == run.first_spec):
            return
        found = oracle.slots(self.case, self.job, spec, run.nominal - 1, run.nominal)
        if found is not None and not found:
            what = f"it is planned for {run.nominal}, which is no slot of its schedule"
            self.wrong("I2", what, run.id)

    def _is_delay(self, run: Run, spec: JobSpec, delay: FixedDelay) -> None:
        # It counts from the decision that plans it; a job that was changed keeps its promise.
        first = max(delay.anchor, spec.starts_at)
        if run.nominal != first and run.nominal - delay.step_ms > run.planned_at:
            what = f"it is planned for {run.nominal}, later than its delay after {run.planned_at}"
            self.wrong("I2", what, run.id)
        if run.nominal != first and run.nominal - delay.step_ms < run.planned_at - delay.step_ms:
            self.wrong("I2", f"it is planned for {run.nominal}, before it was planned", run.id)

    def _backfilled(self) -> None:
        """I3: at most one run of each slot of a backfill."""
        seen: Counter[tuple[int, int, int]] = Counter()
        for run in self.job.runs.values():
            if run.kind in (BACKFILL, RERUN):
                key = run.life, run.nominal, run.planned_at
                seen[key] += 1
                if seen[key] == 2:
                    self.wrong("I3", f"the slot {run.nominal} is backfilled twice", run.id)

    # ---------------------------------------------------------------- ranges

    def ranges(self) -> None:
        """I1: slots that passed have passed, for a reason that their job bears out."""
        for said in self.job.ranges:
            passed = said.passed
            if passed.first > passed.last or passed.last > said.at:
                what = f"slots {passed.first} to {passed.last} are {passed.verdict} at {said.at}"
                self.wrong("I1", f"{what}, before they have passed")
            elif not self._reason(said):
                what = f"slots {passed.first} to {passed.last} are {passed.verdict}"
                self.wrong("I1", f"{what} ({passed.cause}), which their job gives no reason for")

    def _reason(self, said: Verdicts) -> bool:
        passed = said.passed
        verdict = passed.verdict
        if verdict == e.PAUSED:
            return any(
                at <= passed.first and (passed.last <= until or not until)
                for at, until, _, _ in self.job.pauses
            )
        if verdict == e.MISFIRE:
            return passed.cause in MISFIRES and not self._ran_through(said)
        if verdict == e.OVERLAP:
            return passed.cause == "buffer" or self._ran(passed.first, passed.last)
        if verdict == e.BLACKOUT:
            return any(f.spec.exclusions for f in self.job.forces)
        return verdict == e.EXPIRED and any(f.spec.max_lateness_ms for f in self.job.forces)

    def _ran(self, first: int, last: int) -> bool:
        """Tell whether a run was begun, and not over, at some instant of the range."""
        spread = max((oracle.spread(f.spec) for f in self.job.forces), default=0)
        return any(
            run.begun
            and run.first_leased_at <= last + spread
            and (not run.ended_at or run.ended_at >= first)
            for run in self.job.runs.values()
        )

    def _ran_through(self, said: Verdicts) -> bool:
        """Tell whether a link was in flight all the time in which these slots passed."""
        passed = said.passed
        if passed.cause or said.on_job:
            return False
        specs = [force.spec for force in self.job.forces if force.life == said.life]
        if any(spec.overlap in (ALLOW, CANCEL_OTHER) for spec in specs):
            # Links of before an edit may run beside the one that was late.
            return False
        slack = 2 * max((oracle.spread(spec) for spec in specs), default=0)
        return any(
            run.begun
            and run.life == said.life
            and run.first_leased_at + slack < passed.first
            and (not run.ended_at or run.ended_at > passed.last + slack)
            for run in self.links
        )

    # ---------------------------------------------------------------- one life

    def life(self, life: int) -> None:
        """I9: each slot that was in force in a life has one verdict."""
        job = self.job
        forces = [f for f in job.forces if f.life == life and f.after < f.until]
        last = self._settled_until(life)
        pending = self._pending(life)
        counts = {id(force): self._slots(force, last) for force in forces}
        slots: list[int] = []
        for force in forces:
            found = counts[id(force)]
            if found is None:
                self._unknown(force)
                return
            slots += found
        verdicts = [0] * (len(slots) + 1)
        mine = [said.passed for said in job.ranges if said.life == life]
        for passed in mine:
            low, high = bisect_left(slots, passed.first), bisect_right(slots, passed.last)
            if passed.count is not None and passed.count != high - low and passed.last <= last:
                what = f"the range {passed.first} to {passed.last} counts {passed.count} slots"
                self.wrong("I9", f"{what}, its schedule has {high - low}")
            verdicts[low] += 1
            verdicts[high] -= 1
        points = Counter(
            run.nominal for run in self.links if run.life == life and not self.given_back(run)
        )
        ranges = 0
        for place, slot in enumerate(slots):
            ranges += verdicts[place]
            said = ranges + points[slot]
            if said == 1 or (said == 0 and any(a < slot <= b for a, b in pending)):
                continue
            word = "no verdict" if not said else f"{said} verdicts"
            what = f"the slot {slot} has {word}: {points[slot]} streams, {ranges} ranges"
            run = next((r.id for r in self.links if r.nominal == slot), b"")
            self.wrong("I9", what, run)

    def _slots(self, force: Force, last: int) -> list[int] | None:
        if isinstance(force.spec.schedule, OneTime | FixedDelay):
            return []
        if not force.is_known:
            return None
        until = min(force.until, last)
        return oracle.slots(self.case, self.job, force.spec, force.after, until)

    def _unknown(self, force: Force) -> None:
        if force.spec.exclusions:
            why = "calendars"
        elif not force.is_known:
            why = "zone data of before a change"
        else:
            why = type(force.spec.schedule).__name__
        self.report.unjudged[f"I9: {why}"] += 1

    def _settled_until(self, life: int) -> int:
        """Return up to which instant every slot of a life has a run or a verdict."""
        job = self.job
        if life < job.life or job.status == CANCELLED:
            ends = [f.until for f in job.forces if f.life == life]
            return max(ends, default=0)
        found = job.cursor
        if job.status == PAUSED:
            return found
        if job.catch_up is not None:
            found = max(found, job.catch_up.cursor)
        for run in self.links:
            if run.life != life or self.given_back(run):
                continue
            found = max(found, run.nominal)
            if run.catch_up is not None:
                found = max(found, run.catch_up.cursor)
        return found

    def _pending(self, life: int) -> list[tuple[int, int]]:
        """Return the slots that are still to be caught up: (after, until] of each open link."""
        job = self.job
        if life != job.life or job.status != ACTIVE:
            return []
        owed = [job.catch_up] if job.catch_up is not None else []
        owed += [
            run.catch_up
            for run in self.links
            if run.catch_up is not None and run.state not in (ENDED, WITHHELD)
        ]
        return [(c.start, c.end) for c in owed if c.cursor > job.cursor]

    # ---------------------------------------------------------------- the end

    def open_links(self) -> None:
        """I9: a job that is active has one open future occurrence, or the run in its place."""
        job, spec = self.job, self.job.spec
        if job.status != ACTIVE or spec is None or isinstance(spec.schedule, OneTime):
            return
        mine = [
            run for run in self.links if run.life == job.life and run.state not in (ENDED, WITHHELD)
        ]
        waiting = sum(1 for run in mine if not run.begun)
        least = 1 if spec.overlap in (ALLOW, CANCEL_OTHER) else 0
        if waiting > 1 or waiting < least or not mine:
            what = f"it is active, and {waiting} occurrences wait of {len(mine)} that are open"
            self.wrong("I9", what, mine[0].id if mine else b"")
