"""What was published or claimed, against what was leased (I14)."""

from collections import Counter

from domain.run import events as e
from tests.checker.inputs import Scenario
from tests.checker.report import Report
from tests.checker.track import READY, Case, Job


def judge(case: Case, job: Job, scenario: Scenario, report: Report) -> None:
    """Nothing is leased that was not handed off, and nothing that is due is left out."""
    known: Counter[tuple[bytes, int]] = Counter()
    for entry in case.hand_offs:
        known[entry.run, entry.version] += 1
        if entry.kind == "claim":
            report.paths["direct_claims"] += 1
        elif known[entry.run, entry.version] > 1:
            report.paths["published_again"] += 1
    _leased(case, job, known, report)
    versions = {(stored.stream, stored.version) for stored in case.events}
    report.paths["ghost_messages"] += sum(known[key] for key in known if key not in versions)
    if not scenario.settled_at:
        return
    for run in job.runs.values():
        overdue = run.state == READY and run.due_at + scenario.late_ms <= scenario.settled_at
        if overdue and not known[run.id, run.version]:
            what = f"it was due at {run.due_at}, and was never handed off"
            report.wrong("I14", what, job=job.id, run=run.id)


def _leased(case: Case, job: Job, known: Counter[tuple[bytes, int]], report: Report) -> None:
    planned: dict[bytes, tuple[int, int]] = {}
    for stored, event in case.decoded:
        if isinstance(event, e.Scheduled):
            planned[stored.stream] = stored.version, event.at
        elif isinstance(event, e.Leased):
            version, at = planned.get(stored.stream, (0, 0))
            # Planned and leased in one append: the entry was of the link whose place it takes.
            together = at == event.at and version == stored.version - 1
            if not together and not known[stored.stream, version]:
                what = f"attempt {event.attempt} is leased, and version {version} was never "
                report.wrong("I14", f"{what}handed off", job=job.id, run=stored.stream)
