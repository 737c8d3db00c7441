"""What a backfill must know of a job's past, read from the log and held against it again.

The reads come before the decision, which is taken on the job and its open runs as they were at the
reads: an event of the chain comes only with one of the job or of an open run, so that where none of
those has a new version, nothing has happened to any slot. Else it is read again.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from commandside.command_port import LAST_EVENTS_MAX, CommandLog
from commandside.definitions.given import with_values
from commandside.definitions.reading import strange
from domain.catalogue import DomainEvent
from domain.envelope import Decision, Rejected
from domain.instant import rfc3339
from domain.job import events as e
from domain.job import state as s
from domain.job.backfill import CHANGES, SLOTS_MAX, Past, Range, backfill, past, refusal, sort
from domain.job.command import By, Outcome, absent
from domain.problem import Problem, invalid
from domain.refusal import Refused
from domain.run.state import OpenRun
from domain.schedule.once import read_instant
from domain.schedule.schedule import ScheduleBreach

CHANGES_MAX: Final = 1_000
"""Edits of one life whose schedules are looked at."""
LOOKUPS_MAX: Final = 10 * LAST_EVENTS_MAX
"""Streams in which the slots of one request may have run."""
MOVED: Final = "moved"
REASON_MAX: Final = 512
_FIELDS: Final = frozenset({"from", "to", "reason", "rerun", "dry_run"})
_INSTANT: Final = (
    "is needed: RFC 3339 with an offset and at most milliseconds, such as 2027-03-01T09:00:00Z"
)


class Known(msgspec.Struct, frozen=True):
    """A job as it was when its past was read; `ends` has the last events of each slot's runs."""

    job: s.JobState
    runs: tuple[OpenRun, ...]
    past: Past
    slots: tuple[int, ...]
    """One more than are allowed, at most."""
    ends: dict[int, list[DomainEvent]]
    complete: bool = True
    """Its edits are not too many to be looked at."""

    @property
    def most(self) -> int:
        """How many slots a request may have: each is looked for under every edit."""
        streams = len(self.past.versions) + len(self.past.backfills)
        return min(SLOTS_MAX, LOOKUPS_MAX // max(streams, 1))

    def has_moved(self, job: s.JobState, runs: tuple[OpenRun, ...]) -> bool:
        """Tell whether anything has happened to the job since."""
        return _versions(job, runs) != _versions(self.job, self.runs)


def _versions(job: s.JobState, runs: tuple[OpenRun, ...]) -> tuple[int, list[tuple[bytes, int]]]:
    facts = sorted((run.facts.run_id, run.facts.version) for run in runs)
    return job.facts.version, facts


def read(body: dict[str, Any]) -> tuple[Range, str, bool]:
    """Return what a body asks for, its reason, and whether it is a dry run; raises Problem."""
    wrong = strange(body, _FIELDS)
    ends: dict[str, int] = {}
    for name in ("from", "to"):
        value = body.get(name)
        try:
            if not isinstance(value, str):
                raise ValueError(_INSTANT)
            ends[name] = read_instant(value)
        except ValueError as error:
            wrong.append(Refused(f"/{name}", str(error)))
    rerun, dry_run = body.get("rerun", False), body.get("dry_run", False)
    for name, flag in (("rerun", rerun), ("dry_run", dry_run)):
        if not isinstance(flag, bool):
            wrong.append(Refused(f"/{name}", "true or false"))
    reason = body.get("reason", "")
    if not isinstance(reason, str) or len(reason) > REASON_MAX:
        wrong.append(Refused("/reason", f"a text of at most {REASON_MAX} characters"))
    if wrong:
        raise invalid(with_values(wrong, body))
    return Range(ends["from"], ends["to"], rerun), reason, dry_run


async def look(
    log: CommandLog, job_id: bytes, tenant_id: bytes, asked: Range
) -> Known | ScheduleBreach | None:
    """Read what became of the slots of a range; None where the tenant has no such job."""
    standing = await log.standing(job_id)
    if standing is None or standing.job.facts.tenant_id != tenant_id:
        return None
    told: list[tuple[int, e.JobEvent]] = []
    for version, event in await log.told(job_id, CHANGES, CHANGES_MAX + 1):
        assert isinstance(event, e.JobEvent)
        told.append((version, event))
    if len(told) > CHANGES_MAX:
        nothing = Past(job_id, 0, (), (), ())
        return Known(standing.job, standing.runs, nothing, (), {}, complete=False)
    lived = past(job_id, told)
    try:
        slots = tuple(lived.slots(asked, SLOTS_MAX + 1))
    except ScheduleBreach as breach:
        return breach
    known = Known(standing.job, standing.runs, lived, slots, {})
    if len(slots) <= known.most:
        known.ends.update(await _ends(log, lived, slots))
    return known


async def _ends(log: CommandLog, lived: Past, slots: Sequence[int]) -> dict[int, list[DomainEvent]]:
    streams = {slot: lived.streams(slot) for slot in slots}
    asked = [stream for each in streams.values() for stream in each]
    last: dict[bytes, DomainEvent] = {}
    for start in range(0, len(asked), LAST_EVENTS_MAX):
        last |= await log.last_events(asked[start : start + LAST_EVENTS_MAX])
    return {
        slot: [last[stream] for stream in each if stream in last] for slot, each in streams.items()
    }


def decide_backfill(  # noqa: PLR0913 - a verb, and what is known
    known: Known | None,
    asked: Range,
    zone_data: str,
    job: s.JobState | None,
    runs: tuple[OpenRun, ...],
    by: By,
) -> Outcome:
    """Decide on a job that has not moved since its past was read; else the refusal MOVED."""
    if job is None:
        return absent()
    refused = refusal(job, runs)
    if refused is not None:
        return refused
    if known is None or known.has_moved(job, runs):
        return Rejected(MOVED, "the job has moved since its past was read")
    wrong = _wrong(known, asked, by.at)
    if wrong is not None:
        raise wrong
    return backfill(job, runs, asked, sort(job, runs, by.at, known.ends), zone_data, by)


def _wrong(known: Known, asked: Range, at: int) -> Problem | None:
    """Return what is wrong with a range, None for nothing."""
    if asked.until > at:
        return invalid((Refused("/to", f"at most now, {rfc3339(at)}: only past slots are run"),))
    if asked.since > asked.until:
        return invalid((Refused("/from", f"at most /to, {rfc3339(asked.until)}"),))
    if not known.complete:
        detail = f"the job has had more than {CHANGES_MAX} edits; the past of that many is not read"
        return Problem("too_many_edits", detail)
    if not known.past.has_slots(asked):
        detail = "each run counted from the end of the one before: no slot was missed; trigger one"
        return invalid((Refused("/from", detail),))
    if len(known.slots) > known.most:
        last = rfc3339(known.slots[known.most - 1])
        detail = f"more than {known.most} slots, which one request may have: up to {last} they go"
        return invalid((Refused("/to", detail),))
    return None


def requested(outcome: Outcome) -> e.BackfillRequested | Rejected:
    """Return the request that a decision would write down."""
    if isinstance(outcome, Rejected):
        return outcome
    assert isinstance(outcome, Decision)
    (event,) = outcome.slices[0].events
    assert isinstance(event, e.BackfillRequested)
    return event
