"""Jobs and decisions for the suites of the log's ports, without an API in front."""

import itertools
from typing import Final

import msgspec

from commandside.ports import Granted, Want
from domain.chain import Link
from domain.envelope import Command, Decision, Slice
from domain.ids import MANUAL, SLOT, run_id
from domain.job import backfill, redrive
from domain.job import decide as job
from domain.job.events import LATEST, SKIP, JobSpec
from domain.job.state import JobState
from domain.retry import ONE_TIME_DEFAULT
from domain.run.decide import Result, report
from domain.run.events import OK, Scheduled
from domain.run.planning import scheduled
from domain.run.state import OpenRun, Ready
from domain.schedule.schedule import Cron, OneTime, ScheduleSpec, parse_cron
from domain.target import HttpTarget

TENANT: Final = bytes(15) + b"\x07"
_TARGET: Final = HttpTarget(
    "https", "hooks.example.com", 443, "/v1", "POST", (), "https://hooks.example.com/v1"
)
_numbers = itertools.count(1)


def job_id(shard: int, shards: int) -> bytes:
    """Return a new id of a job that lives in this shard."""
    assert shard < shards
    return shard.to_bytes(4, "big") + bytes(4) + next(_numbers).to_bytes(8, "big")


def spec(  # noqa: PLR0913 - what tests differ in
    schedule: ScheduleSpec,
    *,
    payload: bytes = b"body",
    overlap: int = SKIP,
    overlap_limit: int = 1,
    misfire: int = LATEST,
    max_lateness_ms: int = 0,
    max_runs: int = 0,
) -> JobSpec:
    """Return the spec of a job that calls a target which nobody runs."""
    return JobSpec(
        schedule,
        _TARGET,
        ONE_TIME_DEFAULT,
        30_000,
        "{job_id}/{scheduled_ts}",
        payload,
        overlap=overlap,
        overlap_limit=overlap_limit,
        misfire=misfire,
        max_lateness_ms=max_lateness_ms,
        max_runs=max_runs,
    )


def minutely() -> Cron:
    """Return the schedule that fires with every minute."""
    schedule = parse_cron("* * * * *", "UTC")
    assert isinstance(schedule, Cron)
    return schedule


def once(at: int) -> OneTime:
    """Return the schedule that fires at one instant."""
    return OneTime(at)


def define(job_id: bytes, spec: JobSpec, at: int, *, command: bytes = b"") -> Decision:
    """Return the definition of a new job, as if it were `at`."""
    by = job.By(at, command=Command(command, b"hash") if command else None)
    decision = job.define(job.NewJob(job_id, TENANT, spec), None, by)
    assert isinstance(decision, Decision)
    return decision


def ready_run(decision: Decision) -> Ready:
    """Return the run that a decision leaves ready."""
    found = [s.after for s in decision.slices if isinstance(s.after, Ready)]
    assert len(found) == 1
    return found[0]


def due(decision: Decision, at: int) -> Decision:
    """Return a decision whose planned run is due at this instant, whatever its slot is."""
    slices = []
    for part in decision.slices:
        piece = part
        if isinstance(part.after, Ready):
            (event,) = part.events
            assert isinstance(event, Scheduled)
            facts = msgspec.structs.replace(part.after.facts, due_at=at)
            moved = msgspec.structs.replace(event, due_at=at)
            piece = Slice(part.stream_id, part.version, (moved,), Ready(facts))
        slices.append(piece)
    return msgspec.structs.replace(decision, slices=tuple(slices))


def want(run: Ready) -> Want:
    """Return what a dispatcher asks for when it wants this run."""
    return Want(run.facts.run_id, run.facts.version, run.facts.job_id)


def succeeded(granted: Granted, at: int) -> Decision:
    """Return the report of a success."""
    facts = granted.run.facts
    decision = report(granted.job, granted.run, facts.fence, Result(OK, "ok", 200), at, alone=True)
    assert decision is not None
    return decision


def revised(job_state: JobState, runs: tuple[OpenRun, ...], spec: JobSpec, at: int) -> Decision:
    """Return the change of a job's spec."""
    decision = job.revise(job_state, runs, spec, "", job.By(at))
    assert isinstance(decision, Decision)
    return decision


def triggered(job_state: JobState, runs: tuple[OpenRun, ...], at: int) -> Decision:
    """Return the request of a manual run as if nothing were in flight: it waits for what is."""
    command = next(_numbers).to_bytes(16, "big")
    decision = job.trigger(job_state, runs, command, job.By(at), allow_overlap=True)
    assert isinstance(decision, Decision)
    head, part = decision.slices
    assert isinstance(part.after, Ready)
    (event,) = part.events
    assert isinstance(event, Scheduled)
    facts = msgspec.structs.replace(part.after.facts, kind=MANUAL)
    usual = msgspec.structs.replace(event, kind=MANUAL)
    manual = Slice(part.stream_id, part.version, (usual,), Ready(facts))
    return msgspec.structs.replace(decision, slices=(head, manual))


def backfilled(job_state: JobState, runs: tuple[OpenRun, ...], at: int) -> Decision:
    """Return the request of a backfill of one slot of ten minutes ago."""
    slot = at - 10 * 60_000
    missed = backfill.Sorted(missed=(slot,))
    asked = backfill.Range(slot, slot)
    decision = backfill.backfill(job_state, runs, asked, missed, "", job.By(at))
    assert isinstance(decision, Decision)
    return decision


def redriven(job_state: JobState, runs: tuple[OpenRun, ...], at: int) -> Decision:
    """Return the redrive of a run of ten minutes ago, as if it had ended dead."""
    facts = job_state.facts
    slot = at - 10 * 60_000
    planned = scheduled(job_state, Link(slot, slot), facts.cursor, slot)
    dead = redrive.Dead(slot_of(facts.job_id, slot), "dead", planned, slot)
    decision = redrive.redrive(job_state, runs, [dead], {}, job.By(at))
    assert isinstance(decision, Decision)
    return decision


def slot_of(job_id: bytes, nominal: int) -> bytes:
    """Return the id of the run of a slot in a job's first life."""
    return run_id(job_id, 1, nominal, SLOT)
