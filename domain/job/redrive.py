"""Dead runs run again: a new run each, with the job's current target, the dead one's body and key.

The id of the new run is a function of the dead one's, so that there is one at most: where its
stream exists the dead run was redriven. A redrive that ends dead is a dead run like any other.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from domain import chain
from domain.catalogue import DomainEvent
from domain.draft import Draft
from domain.envelope import Rejected
from domain.ids import OWN_KEY, REDRIVE, REDRIVE_OWN, RUN, redrive_id, text
from domain.instant import DAY, SECOND, rfc3339
from domain.job import events as e
from domain.job import state as s
from domain.job.command import By, Outcome, absent, full, wrong_state
from domain.run import events as re
from domain.run import state as rs
from domain.run.decide import MAX_OPEN_RUNS
from domain.run.planning import scheduled

TELLING: Final = (
    re.Scheduled,
    re.Leased,
    re.Accepted,
    re.Withdrawn,
    re.Completed,
    re.Skipped,
    re.Cancelled,
)
"""What of a run's stream says whose it is, how it stands, and which body it sent."""
TELLING_MAX: Final = 8
"""Of those, the newest: the last `Scheduled` is followed by four at most."""
KEPT_MS: Final = 30 * DAY
"""A dead letter can be redriven for so long after its end, where the operator says nothing."""
Redriven = Mapping[bytes, DomainEvent]
"""The last event of each redrive that exists, by its stream."""


class Dead(msgspec.Struct, frozen=True, gc=False):
    """A run as its stream tells of it; `status` is dead, or what it is instead."""

    run_id: bytes
    status: str
    planned: re.Scheduled
    """The last time: body and key are those of its first lease."""
    ended_at: int = 0

    @property
    def redrive_id(self) -> bytes:
        """The stream of the run that takes its place."""
        return redrive_id(self.planned.job_id, self.planned.nominal, self.run_id)


def tell(run_id: bytes, told: Sequence[tuple[int, DomainEvent]]) -> Dead | None:
    """Read a run from its newest events of the kinds TELLING; None where there is no such run."""
    planned = next((event for _, event in reversed(told) if isinstance(event, re.Scheduled)), None)
    if planned is None:
        return None
    last = told[-1][1]
    ended_at = last.at if isinstance(last, re.Completed) else 0
    return Dead(run_id, status_of(last), planned, ended_at)


def status_of(last: DomainEvent) -> str:
    """Return how a run stands whose last event of the kinds TELLING this is."""
    match last:
        case re.Scheduled():
            return "waiting" if last.attempt > 1 else "scheduled"
        case re.Completed():
            return last.outcome
        case re.Withdrawn():
            return "withdrawn"
        case re.Skipped():
            return "skipped"
        case re.Cancelled():
            return "cancelled"
        case _:
            return "running"


def refusal(job: s.JobState | None, runs: tuple[rs.OpenRun, ...]) -> Rejected | None:
    """Return why a job takes no redrive now, None where it does."""
    if job is None:
        return absent()
    if isinstance(job, s.Paused | s.Cancelled):
        return wrong_state(job, "redriven")
    return full(runs)


def aged_out(ended_at: int, at: int, kept_ms: int) -> bool:
    """Tell whether a dead letter is too old to be redriven: a rule on what the log recorded."""
    return at - ended_at > kept_ms


def refusal_of(
    job: s.JobState, dead: Dead, redriven: Redriven, at: int, kept_ms: int
) -> Rejected | None:
    """Return why a run of this job is not redriven, None where it is."""
    if dead.status != re.DEAD:
        return Rejected("not_dead", f"the run is {dead.status}; only a dead one is redriven")
    if dead.planned.life != job.facts.life:
        return Rejected("earlier_life", "the run's job was cancelled, and defined again since")
    if dead.redrive_id in redriven:
        by = text(RUN, dead.redrive_id)
        status = status_of(redriven[dead.redrive_id])
        return Rejected("redriven", f"the run was redriven by {by}, which is {status}")
    if aged_out(dead.ended_at, at, kept_ms):
        until = rfc3339(dead.ended_at + kept_ms)
        return Rejected("aged_out", f"the run could be redriven until {until}")
    return None


def redrive(  # noqa: PLR0913 - a command on a job, the runs, and what is known of them
    job: s.JobState | None,
    runs: tuple[rs.OpenRun, ...],
    dead: Sequence[Dead],
    redriven: Redriven,
    by: By,
    *,
    per_second: int = 0,
    ahead: int = 0,
    kept_ms: int = KEPT_MS,
) -> Outcome:
    """Run those that are dead and were not redriven, as many as the job may have open runs.

    They are due now, or where `per_second` is given so many in each second from now on,
    after `ahead` others. Those that ended longer than `kept_ms` ago stay as they are. The refusal
    of the first is that of the command where none is left.
    """
    refused = refusal(job, runs)
    if refused is not None or job is None:
        return refused
    refusals = [refusal_of(job, each, redriven, by.at, kept_ms) for each in dead]
    chosen = [each for each, why in zip(dead, refusals, strict=True) if why is None]
    chosen = chosen[: MAX_OPEN_RUNS - len(runs)]
    if not chosen:
        return refusals[0] if refusals else None
    draft = Draft(job.facts.job_id, job)
    draft.on_job(
        e.RedriveRequested(
            by.at,
            tuple(each.run_id for each in chosen),
            tuple(each.redrive_id for each in chosen),
            by.reason,
            by.actor,
            job.facts.tenant_id,
        )
    )
    assert draft.job is not None
    for place, each in enumerate(chosen):
        due_at = by.at + ((ahead + place) * SECOND // per_second if per_second else 0)
        draft.on_run(each.redrive_id, None, _planned(draft.job, each, due_at, by.at))
    return draft.decision(runs, command=by.command)


def _planned(job: s.JobState, dead: Dead, due_at: int, at: int) -> re.Scheduled:
    planned = dead.planned
    own = planned.kind in OWN_KEY
    return msgspec.structs.replace(
        scheduled(job, chain.Link(planned.nominal, due_at), job.facts.cursor, at),
        kind=REDRIVE_OWN if own else REDRIVE,
        payload_version=planned.payload_version,
        cause="redrive",
    )
