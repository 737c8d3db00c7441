"""A dead run runs again as a new run: the job's current target, the dead run's body and key."""

from typing import Final

import pytest

from commandside.firing.calls import occurrence_key
from domain.envelope import Rejected
from domain.ids import MANUAL, REDRIVE, REDRIVE_OWN, redrive_id
from domain.instant import HOUR
from domain.job import events as je
from domain.job import state as js
from domain.retry import RetryPolicy
from domain.run import events as re
from domain.run import state as rs
from domain.run.decide import MAX_OPEN_RUNS
from tests.domain.protocol.scene import (
    FAILED,
    JOB,
    MINUTE,
    OK,
    SECOND,
    START,
    Desk,
    cron,
    once,
    spec,
)

ONE_TRY: Final = RetryPolicy(1, "fixed", 5_000, 60_000, jitter="none")
TWO_TRIES: Final = RetryPolicy(2, "fixed", 5_000, 60_000, jitter="none")
HOURLY: Final = cron("30 * * * *")
TEMPLATE: Final = "{job_id}-{scheduled_ts}"


def with_dead(new: je.JobSpec | None = None, count: int = 1) -> Desk:
    """Return a job whose first runs ended dead, and whose next slot is far away."""
    desk = Desk()
    wanted = new or spec(retry=ONE_TRY)
    desk.define(wanted)
    for _ in range(count):
        desk.fire(FAILED)
    desk.revise(
        spec(HOURLY, retry=ONE_TRY, overlap=wanted.overlap, overlap_limit=wanted.overlap_limit)
    )
    return desk


def waiting(desk: Desk) -> list[rs.Ready]:
    """Return the redrives that wait, as they are due."""
    found = [r for r in desk.due.values() if r.facts.is_redrive and isinstance(r, rs.Ready)]
    return sorted(found, key=lambda run: (run.facts.due_at, run.facts.nominal))


def run_next(desk: Desk, result: object = OK) -> rs.InFlight:
    run = waiting(desk)[0]
    desk.now = max(desk.now, run.facts.due_at)
    leased = desk.lease(run)
    assert leased is not None
    desk.report(leased, FAILED if result is FAILED else OK)
    return leased


def refused(outcome: object) -> str:
    assert isinstance(outcome, Rejected), outcome
    return outcome.code


def test_a_dead_run_runs_again_under_its_key() -> None:
    desk = with_dead()
    (dead,) = desk.dead()
    desk.redrive(dead)
    event = desk.job_events[-1]
    assert isinstance(event, je.RedriveRequested)
    assert (event.redriven, event.runs) == ((dead,), (redrive_id(JOB, START + MINUTE, dead),))
    leased = run_next(desk)
    assert (leased.facts.kind, leased.facts.nominal) == (REDRIVE, START + MINUTE)
    key = occurrence_key(TEMPLATE, leased.facts)
    assert key.endswith(f"-{START + MINUTE}"), "the key of the slot"
    assert desk.last(leased.facts.run_id)[-1] == "Completed"


def test_the_body_stays_the_dead_runs_over_edits_before_and_after_the_redrive() -> None:
    desk = with_dead()
    (dead,) = desk.dead()
    first = desk.head().facts.payload_version
    desk.revise(spec(HOURLY, retry=ONE_TRY, payload=b"other"))
    desk.redrive(dead)
    desk.revise(spec(HOURLY, retry=ONE_TRY, payload=b"third"))
    assert desk.head().facts.payload_version > first
    leased = run_next(desk)
    assert leased.facts.payload_version == first
    assert leased.facts.spec_version == desk.head().facts.spec_version, "the target is current"


def test_a_dead_run_with_a_key_of_its_own_keeps_it_over_every_redrive() -> None:
    desk = Desk()
    desk.define(spec(HOURLY, retry=ONE_TRY))
    desk.now += SECOND
    desk.trigger()
    (manual,) = [r for r in desk.due.values() if r.facts.kind == MANUAL]
    leased = desk.lease(manual)
    assert leased is not None
    desk.report(leased, FAILED)
    desk.redrive(leased.facts.run_id)
    again = run_next(desk, FAILED)
    desk.redrive(again.facts.run_id)
    third = run_next(desk)
    assert again.facts.kind == third.facts.kind == REDRIVE_OWN
    keys = {occurrence_key(TEMPLATE, run.facts) for run in (leased, again, third)}
    assert len(keys) == 1
    assert len({run.facts.run_id for run in (leased, again, third)}) == 3


def test_a_dead_run_is_redriven_once_and_its_redrive_may_be_again() -> None:
    desk = with_dead()
    (dead,) = desk.dead()
    desk.redrive(dead)
    assert refused(desk.redrive(dead)) == "redriven"
    again = run_next(desk, FAILED)
    assert refused(desk.redrive(dead)) == "redriven"
    desk.redrive(again.facts.run_id)
    run_next(desk)


@pytest.mark.parametrize("end", ["succeeded", "waiting", "running", "scheduled"])
def test_a_run_that_is_not_dead_is_refused_with_how_it_stands(end: str) -> None:
    desk = Desk()
    desk.define(spec(retry=TWO_TRIES))
    run = desk.frontier().facts.run_id
    if end == "succeeded":
        desk.fire(OK)
    elif end == "waiting":
        desk.fire(FAILED)
    elif end == "running":
        desk.begin()
    outcome = desk.redrive(run)
    assert refused(outcome) == "not_dead"
    assert isinstance(outcome, Rejected)
    assert f"the run is {end};" in outcome.detail


def test_a_paused_and_a_cancelled_job_refuse_and_so_does_the_life_after() -> None:
    desk = with_dead()
    (dead,) = desk.dead()
    desk.pause()
    assert refused(desk.redrive(dead)) == "paused"
    desk.resume()
    desk.cancel()
    assert refused(desk.redrive(dead)) == "cancelled"
    desk.now += SECOND
    desk.define(spec(retry=ONE_TRY))
    assert refused(desk.redrive(dead)) == "earlier_life"


def test_a_one_time_job_that_is_over_takes_a_redrive() -> None:
    desk = Desk()
    desk.define(once(START + MINUTE, retry=ONE_TRY))
    desk.fire(FAILED)
    desk.redrive(*desk.dead())
    run_next(desk)
    assert not desk.due


def test_a_redrive_moves_no_cursor_and_plans_nothing() -> None:
    desk = with_dead()
    before, frontier = desk.head().facts.cursor, desk.frontier()
    desk.redrive(*desk.dead())
    run_next(desk)
    assert desk.head().facts.cursor == before
    assert desk.links() == [frontier]


def test_max_lateness_does_not_concern_what_was_asked_for_late() -> None:
    desk = with_dead()
    desk.revise(spec(HOURLY, retry=ONE_TRY, max_lateness_ms=MINUTE))
    desk.now += 20 * MINUTE
    desk.redrive(*desk.dead())
    assert desk.last(run_next(desk).facts.run_id)[-1] == "Completed"


def test_many_are_due_at_the_pace_that_was_asked_for() -> None:
    desk = with_dead(count=5)
    desk.redrive(*desk.dead(), per_second=2)
    at = desk.now
    assert [run.facts.due_at - at for run in waiting(desk)] == [0, 500, 1_000, 1_500, 2_000]


def test_no_more_run_than_a_job_may_have_open() -> None:
    desk = with_dead(count=MAX_OPEN_RUNS + 5)
    open_before = len(desk.runs())
    desk.redrive(*desk.dead())
    assert len(desk.runs()) == MAX_OPEN_RUNS
    assert len(waiting(desk)) == MAX_OPEN_RUNS - open_before
    assert refused(desk.redrive(*desk.dead()[-2:])) == "open_runs"


def test_redrives_wait_for_each_other_and_the_chain_goes_first() -> None:
    desk = with_dead(count=3)
    desk.redrive(*desk.dead())
    first, second, _ = waiting(desk)
    leased = desk.lease(first)
    assert leased is not None
    assert desk.lease(second) is None, "one at a time"
    desk.now = desk.frontier().facts.due_at
    frontier = desk.frontier()
    assert desk.lease(frontier) is None, "deferred, not skipped"
    assert desk.frontier() == frontier
    desk.report(leased, OK)
    assert desk.lease(second) is None, "the chain goes first"
    desk.fire(OK)
    assert desk.lease(second) is not None


def test_where_runs_may_overlap_redrives_run_beside_each_other() -> None:
    desk = with_dead(spec(retry=ONE_TRY, overlap=je.ALLOW, overlap_limit=3), 3)
    desk.redrive(*desk.dead())
    assert all(desk.lease(run) is not None for run in waiting(desk))


def test_a_redrive_waits_with_its_job_through_a_pause() -> None:
    desk = with_dead()
    desk.redrive(*desk.dead())
    desk.pause()
    assert not waiting(desk)
    desk.now += HOUR
    desk.resume()
    pinned = run_next(desk).facts
    assert pinned.payload_version == 1


def test_a_cancel_ends_what_waits() -> None:
    desk = with_dead()
    desk.redrive(*desk.dead())
    run = waiting(desk)[0].facts.run_id
    desk.cancel()
    assert isinstance(desk.job, js.Cancelled)
    assert isinstance(desk.streams[run][-1], re.Cancelled)
