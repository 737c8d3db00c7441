"""What clients were told, held against the log (I8, I13, I19, I20)."""

from collections import Counter
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final

from domain.job import events as e
from tests.checker.inputs import INFO, OK, Command, Operation
from tests.checker.report import Report
from tests.checker.track import ACTIVE, CANCELLED, FINISHED, PAUSED, Case, Job

LEADS_TO: Final = {
    "pause": (PAUSED,),
    "resume": (ACTIVE, FINISHED),
    "cancel": (CANCELLED,),
}
"""What a job may be at the version that such a command answers: a resume may find no slot left."""
READS: Final = ("read", "list")
CONFLICT: Final = 422


def judge(case: Case, job: Job, report: Report) -> None:
    """Judge the calls about one job."""
    calls = sorted(case.clients, key=lambda op: op.invoked_us)
    for op in calls:
        if op.outcome == INFO:
            report.paths["unknown_calls"] += 1
        if op.outcome == OK and op.version:
            _exists(job, op, report)
    _once(job, calls, report)
    _requested(case, job, report)
    _monotonic(job, calls, report)


def _exists(job: Job, op: Operation, report: Report) -> None:
    """I13: what was acknowledged is in the log."""
    if op.version > job.version or op.version >= len(job.statuses):
        what = f"{op.action} was answered with version {op.version}, the log has {job.version}"
        report.wrong("I13", what, job=job.id)
        return
    status = LEADS_TO.get(op.action)
    if status is not None and job.statuses[op.version] not in status:
        what = f"{op.action} was answered with version {op.version}, where the job is not so"
        report.wrong("I13", what, job=job.id)


def _once(job: Job, calls: Sequence[Operation], report: Report) -> None:
    """I19: a command id has one effect, and one body."""
    first: dict[str, Operation] = {}
    for op in calls:
        if not op.command or op.outcome != OK:
            continue
        before = first.setdefault(op.command, op)
        if before is op:
            continue
        if before.body_sha256 != op.body_sha256:
            what = f"the command {op.command!r} was answered {op.status} with another body"
            report.wrong("I19", what, job=job.id)
        elif before.version != op.version:
            what = f"the command {op.command!r} was answered with versions {before.version} and "
            report.wrong("I19", f"{what}{op.version}", job=job.id)
    for op in calls:
        done = first.get(op.command) if op.command else None
        if done is None or op.outcome != "fail" or op.invoked_us < done.returned_us:
            continue
        same = done.body_sha256 == op.body_sha256
        if (op.status == CONFLICT) == same and (same or op.status < 500):
            what = f"the command {op.command!r} was answered {op.status} after it had succeeded"
            report.wrong("I19", what, job=job.id)


def _requested(case: Case, job: Job, report: Report) -> None:
    """I19: in the log and in the table of commands, an id stands once."""
    seen: set[bytes] = set()
    for _, event in case.decoded:
        if isinstance(event, e.RunRequested):
            if event.command_id in seen:
                what = f"the command {event.command_id.hex()} asks for a second run"
                report.wrong("I19", what, job=job.id, run=event.run_id)
            seen.add(event.command_id)
    effects: set[bytes] = set()
    places = {s.version: s.position for s in case.events if s.stream == job.id}
    ends = {s.position for s in case.events}
    for row in case.rows:
        if not isinstance(row, Command):
            continue
        if row.command_id in effects:
            what = f"the command {row.command_id.hex()} has two rows"
            report.wrong("I19", what, job=job.id)
        effects.add(row.command_id)
        # Position 0: there was nothing left to do, and that is what its repeat is told.
        if row.version not in places or (row.position and row.position not in ends):
            what = f"the command {row.command_id.hex()} wrote version {row.version}, which is not "
            report.wrong("I19", f"{what}in the log", job=job.id)


def _monotonic(job: Job, calls: Sequence[Operation], report: Report) -> None:
    """I20: a client never sees a job go back, nor less than it asks for."""
    ended: dict[str, list[tuple[int, int]]] = {}
    newest: Counter[str] = Counter()
    for op in calls:
        if op.outcome != OK or not op.version:
            continue
        if op.version < op.min_version:
            what = f"{op.client} asked for version {op.min_version} and was given {op.version}"
            report.wrong("I20", what, job=job.id)
        if op.action not in READS and op.command:
            # A command that is repeated is answered as it was at first.
            continue
        mine = ended.setdefault(op.client, [])
        while mine and mine[0][0] <= op.invoked_us:
            newest[op.client] = max(newest[op.client], heappop(mine)[1])
        if op.version < newest[op.client]:
            what = f"{op.client} was shown version {op.version} after {newest[op.client]}"
            report.wrong("I20", what, job=job.id)
        heappush(mine, (op.returned_us, op.version))
