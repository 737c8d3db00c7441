"""What a command or a look at a job answers: functions of the state and an instant, nothing else.

An answer to a command uses the job's own state only, and the command's instant, so that a repeat of
the command finds the same words in the log for ever. A look at a job knows its open runs as well.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

from domain import chain, wording
from domain.ids import JOB, RUN, text
from domain.instant import rfc3339
from domain.job import state as js
from domain.run import state as rs
from domain.schedule.schedule import plan

NEXT_RUNS: Final = 5


def after_command(job: js.JobState, at: int) -> dict[str, Any]:
    """Return the job as a command made at `at` leaves it."""
    return _head(job) | _upcoming(job, _planned(job, at), at)


def look(job: js.JobState, runs: tuple[rs.OpenRun, ...], at: int) -> dict[str, Any]:
    """Return a job as it stands at `at`, without its payload."""
    job = chain.effective(job, runs)
    found = _head(job) | _upcoming(job, _frontier(job, runs) or _planned(job, at, runs), at)
    found["in_flight"] = in_flight(runs)
    return found | _facts(job)


def look_back(job: js.JobState, at: int) -> dict[str, Any]:
    """Return a job as its stream says it was at `at`."""
    return after_command(job, at) | _facts(job)


def in_flight(runs: Iterable[rs.OpenRun]) -> list[str]:
    """Return the ids of the runs that an attempt is under way for."""
    return [text(RUN, r.facts.run_id) for r in runs if isinstance(r, rs.InFlight | rs.Awaiting)]


def _head(job: js.JobState) -> dict[str, Any]:
    facts = job.facts
    found: dict[str, Any] = {"job_id": text(JOB, facts.job_id)}
    if facts.key:
        found["key"] = facts.key
    found["status"] = js.STATUS_NAMES[type(job)]
    found["version"] = facts.version
    return found


def _facts(job: js.JobState) -> dict[str, Any]:
    facts = job.facts
    found: dict[str, Any] = {
        "defined_at": rfc3339(facts.defined_at),
        "changed_at": rfc3339(facts.changed_at),
        "zone_data": facts.zone_data,
        "spec": wording.spec(facts.spec),
    }
    if isinstance(job, js.Paused):
        found["paused"] = {
            "at": rfc3339(job.paused_at),
            "cause": job.cause,
            "reason": job.reason,
        }
    return found


def _upcoming(job: js.JobState, link: tuple[int, int] | None, at: int) -> dict[str, Any]:
    if link is None:
        return {"next_run_at": None, "next_due_at": None, "next_runs": []}
    nominal, due_at = link
    return {
        "next_run_at": rfc3339(nominal),
        "next_due_at": rfc3339(max(due_at, at) if job.facts.spec.is_one_time else due_at),
        "next_runs": [rfc3339(slot) for slot in islice(_slots(job, nominal), NEXT_RUNS)],
    }


def _slots(job: js.JobState, nominal: int) -> Iterable[int]:
    slots = plan(job.facts.spec.schedule)
    slot: int | None = nominal
    while slot is not None:
        yield slot
        slot = slots.next_after(slot)


def _planned(
    job: js.JobState, at: int, runs: tuple[rs.OpenRun, ...] = ()
) -> tuple[int, int] | None:
    """Return the next slot as the schedule has it; None where none will come."""
    if not isinstance(job, js.Active):
        return None
    spec = job.facts.spec
    slots = chain.Chain(job.facts.job_id, spec)
    if spec.is_one_time:
        first = slots.first_after(-1)
    else:
        first = slots.first_after(max(chain.cursor_of(job, runs), at))
    return None if isinstance(first, chain.End) else (first.nominal, first.due_at)


def _frontier(job: js.JobState, runs: tuple[rs.OpenRun, ...]) -> tuple[int, int] | None:
    """Return the link that waits for its first lease."""
    for run in runs:
        facts = run.facts
        fresh = isinstance(run, rs.Ready) and facts.is_link and not facts.begun
        if fresh and facts.life == job.facts.life:
            return facts.nominal, facts.due_at
    return None
