"""A past range is run slot by slot, whatever happens to its job meanwhile."""

from typing import Final

import pytest

from domain.envelope import Decision, Rejected
from domain.ids import BACKFILL, RERUN
from domain.job import events as je
from domain.job import state as js
from domain.outlook import backfill as shown
from domain.retry import RetryPolicy
from domain.run import events as re
from domain.run import state as rs
from tests.domain.protocol.scene import (
    FAILED,
    GONE,
    MINUTE,
    OK,
    SECOND,
    START,
    Desk,
    allow,
    cron,
    once,
    spec,
)

END: Final = START + 10 * MINUTE
ONE_TRY: Final = RetryPolicy(1, "fixed", 5_000, 60_000, jitter="none")


def missed(new: je.JobSpec | None = None, until: int = END) -> Desk:
    """Return a job that was paused from its start on, and runs again."""
    desk = Desk()
    desk.define(new or spec())
    desk.now = START + 1
    desk.pause()
    desk.now = until
    desk.resume("none")
    return desk


def hourly_later(desk: Desk) -> None:
    """Give the job a schedule whose next slot is far away, so that the chain is at rest."""
    desk.revise(spec(cron("30 * * * *")))


def requested(desk: Desk) -> je.BackfillRequested:
    found = desk.job_events[-1]
    assert isinstance(found, je.BackfillRequested)
    return found


def waiting(desk: Desk) -> rs.Ready:
    """Return the run of the backfill that waits."""
    (found,) = [r for r in desk.due.values() if r.facts.is_backfill]
    assert isinstance(found, rs.Ready)
    return found


def run_all(desk: Desk) -> list[int]:
    """Run the backfill to its end; return the slots that ran."""
    ran = []
    while any(r.facts.is_backfill for r in desk.due.values()):
        run = waiting(desk)
        desk.now = max(desk.now, run.facts.due_at)
        leased = desk.lease(run)
        assert leased is not None
        ran.append(run.facts.nominal)
        desk.report(leased, OK)
    return ran


def minutes(first: int, last: int) -> list[int]:
    return [START + n * MINUTE for n in range(first, last + 1)]


def test_what_was_missed_runs_once_and_in_order() -> None:
    desk = missed()
    hourly_later(desk)
    desk.backfill(START, END)
    assert run_all(desk) == minutes(1, 10)
    assert desk.head().facts.backfill is None
    desk.backfill(START, END)
    event = requested(desk)
    assert (event.found, event.succeeded, event.slots) == (10, 10, ())


def test_a_slot_that_succeeded_runs_again_only_where_it_is_asked_for() -> None:
    desk = Desk()
    desk.define(spec())
    for _ in range(3):
        desk.fire()
    hourly_later(desk)
    desk.backfill(START, desk.now)
    assert requested(desk).slots == ()
    desk.backfill(START, desk.now, rerun=True)
    assert waiting(desk).facts.kind == RERUN
    assert run_all(desk) == minutes(1, 3)


def test_a_dead_slot_is_left_to_a_redrive() -> None:
    desk = Desk()
    desk.define(spec(retry=ONE_TRY))
    desk.fire(FAILED)
    desk.revise(spec(cron("30 * * * *"), retry=ONE_TRY))
    desk.backfill(START, desk.now)
    assert (requested(desk).dead, requested(desk).slots) == (1, ())
    desk.backfill(START, desk.now, rerun=True)
    assert run_all(desk) == minutes(1, 1)


def test_slots_of_each_schedule_are_those_of_its_time() -> None:
    desk = Desk()
    desk.define(spec(cron("*/2 * * * *")))
    desk.now = START + 1
    desk.pause()
    desk.now = START + 5 * MINUTE + 1
    desk.revise(spec(cron("*/3 * * * *")))
    desk.now = START + 12 * MINUTE + 1
    desk.resume("none")
    hourly_later(desk)
    desk.backfill(START, desk.now)
    slots = [START + n * MINUTE for n in (2, 4, 6, 9, 12)]
    assert run_all(desk) == slots


def test_an_open_slot_is_left_alone() -> None:
    desk = missed()
    leased = desk.begin()
    desk.now += 10 * SECOND
    desk.backfill(START, desk.now)
    event = requested(desk)
    assert leased.facts.nominal == START + 11 * MINUTE
    assert (event.found, event.open) == (11, 1)


def test_a_slot_that_passes_while_a_run_is_in_flight_is_not_judged_yet() -> None:
    desk = missed()
    desk.begin()
    desk.now += 150 * SECOND
    desk.backfill(START + 11 * MINUTE, desk.now)
    event = requested(desk)
    assert (event.found, event.open, event.slots) == (3, 3, ())


def test_missed_slots_that_are_still_to_come_are_open() -> None:
    desk = Desk()
    desk.define(spec(misfire=je.ALL))
    desk.now = START + 6 * MINUTE
    desk.begin()
    desk.backfill(START, desk.now)
    event = requested(desk)
    assert (event.found, event.open, event.slots) == (6, 6, ())


def test_only_one_backfill_goes_on() -> None:
    desk = missed()
    desk.backfill(START, END)
    refused = desk.backfill(START, END)
    assert isinstance(refused, Rejected)
    assert refused.code == "backfilling"
    assert "10 of its runs" in refused.detail


@pytest.mark.parametrize("state", ["paused", "cancelled", "absent"])
def test_a_job_that_does_not_run_takes_none(state: str) -> None:
    desk = Desk()
    if state != "absent":
        desk.define(spec())
        desk.now += 3 * MINUTE
        desk.pause() if state == "paused" else desk.cancel()
    events = len(desk.log)
    refused = desk.backfill(START, desk.now)
    assert isinstance(refused, Rejected)
    assert refused.code == state
    assert len(desk.log) == events


def test_a_finished_job_takes_one() -> None:
    desk = Desk()
    desk.define(spec(ends_at=START + 3 * MINUTE))
    desk.now = START + 10 * MINUTE
    while desk.links():
        desk.lease(desk.frontier())
        for run in list(desk.due.values()):
            if isinstance(run, rs.InFlight):
                desk.report(run, OK)
    assert isinstance(desk.job, js.Finished)
    desk.backfill(START, desk.now)
    assert run_all(desk) == minutes(1, 2)
    assert isinstance(desk.job, js.Finished)


def test_a_one_time_job_that_expired_is_run_afterwards() -> None:
    desk = Desk()
    desk.define(once(START + MINUTE, max_lateness_ms=MINUTE))
    desk.now = START + 10 * MINUTE
    assert desk.lease(desk.frontier()) is None
    desk.backfill(START, desk.now)
    assert run_all(desk) == minutes(1, 1)


def test_how_late_a_run_may_be_does_not_concern_a_backfill() -> None:
    desk = missed(spec(max_lateness_ms=MINUTE))
    hourly_later(desk)
    desk.revise(spec(cron("30 * * * *"), max_lateness_ms=MINUTE))
    desk.backfill(START, END)
    assert len(run_all(desk)) == 10


# ---------------------------------------------------------------- pause, edit, cancel


def test_a_pause_withholds_it_and_a_resume_goes_on() -> None:
    desk = missed()
    hourly_later(desk)
    desk.backfill(START, END)
    desk.pause()
    assert not desk.due
    desk.resume()
    assert run_all(desk) == minutes(1, 10)


def test_a_run_that_ends_in_a_pause_leaves_its_place() -> None:
    desk = missed()
    hourly_later(desk)
    desk.backfill(START, END)
    leased = desk.lease(waiting(desk))
    assert leased is not None
    desk.pause()
    desk.now += SECOND
    desk.report(leased, OK)
    assert isinstance(desk.job_events[-1], je.BackfillMoved)
    assert not desk.due
    desk.resume()
    assert run_all(desk) == minutes(2, 10)


def test_the_last_run_that_ends_in_a_pause_ends_it() -> None:
    desk = missed()
    hourly_later(desk)
    desk.backfill(END, END)
    leased = desk.lease(waiting(desk))
    assert leased is not None
    desk.pause()
    desk.report(leased, OK)
    desk.resume()
    assert desk.head().facts.backfill is None
    assert run_all(desk) == []


def test_an_answer_that_says_gone_pauses_the_job_and_keeps_the_place() -> None:
    desk = missed()
    hourly_later(desk)
    desk.backfill(START, END)
    leased = desk.lease(waiting(desk))
    assert leased is not None
    desk.report(leased, GONE)
    assert isinstance(desk.job, js.Paused)
    assert not desk.due
    desk.resume()
    assert run_all(desk) == minutes(2, 10)


def test_a_retry_in_a_pause_is_withdrawn_and_goes_on() -> None:
    desk = missed()
    hourly_later(desk)
    desk.backfill(START, END)
    leased = desk.lease(waiting(desk))
    assert leased is not None
    desk.pause()
    desk.report(leased, FAILED)
    desk.resume()
    assert run_all(desk) == minutes(1, 10)


def test_an_edit_leaves_it() -> None:
    desk = missed()
    desk.backfill(START, END)
    hourly_later(desk)
    assert run_all(desk) == minutes(1, 10)


def test_a_cancel_ends_it() -> None:
    desk = missed()
    desk.backfill(START, END)
    run = waiting(desk)
    desk.cancel()
    assert desk.head().facts.backfill is None
    assert desk.last(run.facts.run_id) == ["Scheduled", "Cancelled"]
    assert not desk.due


def test_the_end_of_a_run_after_a_cancel_plans_nothing() -> None:
    desk = missed()
    desk.backfill(START, END)
    leased = desk.lease(waiting(desk))
    assert leased is not None
    desk.cancel()
    desk.report(leased, OK)
    assert not desk.due
    desk.define(spec(cron("30 * * * *")))
    assert [run.facts.kind for run in desk.due.values()] == [0]


def test_slots_of_an_older_life_are_not_there() -> None:
    desk = missed()
    desk.cancel()
    desk.define(spec())
    desk.backfill(START, END)
    assert requested(desk).found == 0


# ---------------------------------------------------------------- beside the chain


@pytest.mark.parametrize("overlap", [je.SKIP, je.BUFFER_ONE, je.BUFFER_ALL, je.CANCEL_OTHER])
def test_the_chain_waits_for_a_run_of_a_backfill_and_goes_before_the_next(overlap: int) -> None:
    desk = missed(spec(overlap=overlap))
    desk.backfill(START, END)
    leased = desk.lease(waiting(desk))
    assert leased is not None
    frontier = desk.frontier()
    desk.now = frontier.facts.due_at
    assert desk.lease(frontier) is None
    assert desk.frontier() == frontier, "it waits: neither skipped nor in the other's place"
    desk.now += SECOND
    desk.report(leased, OK)
    desk.now = max(desk.now, waiting(desk).facts.due_at)
    assert desk.lease(waiting(desk)) is None, "the chain goes first"
    chained = desk.lease(frontier)
    assert chained is not None
    assert desk.lease(waiting(desk)) is None
    desk.report(chained, OK)
    assert desk.lease(waiting(desk)) is not None


def test_runs_that_may_overlap_run_beside_it_within_the_limit() -> None:
    desk = missed(allow(limit=2))
    desk.backfill(START, END)
    assert desk.lease(waiting(desk)) is not None
    desk.now = desk.frontier().facts.due_at
    assert desk.lease(desk.frontier()) is not None
    desk.now = desk.frontier().facts.due_at
    assert desk.lease(desk.frontier()) is None


def test_the_first_of_a_backfill_waits_for_a_run_in_flight() -> None:
    desk = missed()
    chained = desk.begin()
    desk.backfill(START, END)
    assert desk.lease(waiting(desk)) is None
    desk.report(chained, OK)
    assert desk.lease(waiting(desk)) is not None


def test_slots_are_at_least_a_second_apart() -> None:
    desk = missed()
    desk.backfill(START, END)
    leased = desk.lease(waiting(desk))
    assert leased is not None
    desk.report(leased, OK)
    assert waiting(desk).facts.due_at == desk.now + SECOND


def test_what_is_left_is_shown() -> None:
    desk = missed()
    desk.backfill(START, END)
    assert shown(desk.head(), desk.runs()) == (10, START + MINUTE, END)
    leased = desk.lease(waiting(desk))
    assert leased is not None
    desk.report(leased, OK)
    assert shown(desk.head(), desk.runs()) == (9, START + 2 * MINUTE, END)


def test_a_job_without_a_backfill_pays_nothing_at_the_end_of_its_runs() -> None:
    desk = Desk()
    desk.define(spec())
    desk.fire()
    last = desk.commits[-1]
    assert isinstance(last, Decision)
    assert len(last.slices) == 2


def test_a_slot_costs_the_job_no_event() -> None:
    desk = missed()
    hourly_later(desk)
    before = len(desk.job_events)
    desk.backfill(START, END)
    run_all(desk)
    kinds = [type(event) for event in desk.job_events[before:]]
    assert kinds == [je.BackfillRequested, je.BackfillMoved]


def test_the_kind_says_what_it_is() -> None:
    desk = missed()
    desk.backfill(START, END)
    run = waiting(desk)
    (first,) = desk.streams[run.facts.run_id]
    assert isinstance(first, re.Scheduled)
    assert (first.kind, first.cause) == (BACKFILL, "backfill")
