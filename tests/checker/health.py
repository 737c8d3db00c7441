"""Whether the system came back to rest (I23), and within its means (I24)."""

from collections.abc import Sequence
from typing import Final

from domain.run import events as e
from tests.checker.inputs import History, Sample, Standing
from tests.checker.lateness import Allowance
from tests.checker.report import Report
from tests.checker.track import ACCEPTED, FLYING, READY, Faults, Job

HOUR_MS: Final = 3_600_000
SLOPE: Final = 0.01
"""The most that a resource may rise in an hour, of its level."""
SAMPLES_MIN: Final = 20
SPAN_MIN_MS: Final = 600_000
"""A slope is of a run of some length."""


def overdue(job: Job, history: History, faults: Faults, report: Report) -> None:
    """I23: R after the last heal no lease is over, and nothing is due and unhanded."""
    scenario = history.scenario
    if not scenario.quiescent:
        return
    healed = max((fault.end for fault in faults.all), default=0) + scenario.recover_ms
    if healed > scenario.ended_at:
        return
    since = scenario.ended_at - scenario.recover_ms
    for run in job.runs.values():
        lapsed = run.state in (FLYING, ACCEPTED) and run.until <= since
        waits = run.state == READY and run.begun and run.due_at <= since
        if lapsed or waits:
            word = "its lease is over" if lapsed else "its retry is due"
            what = f"{word} since {run.until if lapsed else run.due_at}, and the system is at rest"
            report.wrong("I23", what, job=job.id, run=run.id)


def settled(history: History, jobs: dict[bytes, Job], faults: Faults, report: Report) -> None:
    """I23: the views are at the head, all processes are up, and a fresh job fires on time."""
    scenario = history.scenario
    if scenario.up is False:
        report.wrong("I23", "a process is not up at the end")
    if scenario.quiescent:
        _views(history, report)
    if scenario.probe is not None:
        _probe(history, jobs, faults, report)


def _views(history: History, report: Report) -> None:
    heads: dict[int, int] = {}
    for stored in history.events:
        heads[stored.shard] = max(heads.get(stored.shard, 0), stored.position)
    views: dict[str, dict[int, int]] = {}
    for row in history.projections or ():
        if isinstance(row, Standing):
            views.setdefault(row.view, {})[row.shard] = row.position
    for view, places in views.items():
        for shard, head in heads.items():
            if places.get(shard, 0) < head:
                what = f"{view} stands at {places.get(shard, 0)} of {head} in shard {shard}"
                report.wrong("I23", what)


def _probe(history: History, jobs: dict[bytes, Job], faults: Faults, report: Report) -> None:
    probe = history.scenario.probe
    assert probe is not None
    job = jobs.get(probe.job)
    runs = [run for run in job.runs.values() if run.verdict == e.SUCCEEDED] if job else []
    if not runs:
        report.wrong("I23", "the fresh job after the last heal did not fire", job=probe.job)
        return
    first = min(runs, key=lambda run: run.first_due)
    late = first.attempts[0].at - first.attempts[0].due_at
    allowed, _ = Allowance(Faults([]), history.scenario).of(first.first_due, first.first_due, b"")
    if late > allowed:
        what = f"the fresh job after the last heal fired {late} ms late"
        report.wrong("I23", what, job=probe.job, run=first.id)


def means(history: History, report: Report) -> None:
    """I24: no resource is above its budget, or still rising in the second half of the run."""
    series: dict[tuple[str, str], list[Sample]] = {}
    for sample in history.samples:
        series.setdefault((sample.process, sample.resource), []).append(sample)
    for (process, resource), samples in series.items():
        samples.sort(key=lambda sample: sample.at)
        for budget in history.scenario.budgets:
            if budget.resource != resource or budget.process not in ("", process):
                continue
            most = max(samples, key=lambda sample: sample.value)
            if most.value > budget.most:
                what = f"{resource} of {process} is {most.value:g} at {most.at}"
                report.wrong("I24", f"{what}, its budget is {budget.most:g}")
        rise = slope(samples[len(samples) // 2 :])
        if rise is not None and rise > SLOPE:
            report.wrong("I24", f"{resource} of {process} rises by {rise:.1%} an hour")


def slope(samples: Sequence[Sample]) -> float | None:
    """Return how much of its mean a resource rises in an hour, None for too few samples."""
    if len(samples) < SAMPLES_MIN or samples[-1].at - samples[0].at < SPAN_MIN_MS:
        return None
    middle = sum(sample.at for sample in samples) / len(samples)
    mean = sum(sample.value for sample in samples) / len(samples)
    spread = sum((sample.at - middle) ** 2 for sample in samples)
    if not mean or not spread:
        return None
    by = sum((s.at - middle) * (s.value - mean) for s in samples) / spread
    return by * HOUR_MS / mean
