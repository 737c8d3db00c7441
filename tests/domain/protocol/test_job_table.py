"""Protocol §3: each row of job state by command."""

import pytest

from domain.envelope import Decision, Rejected
from domain.ids import MANUAL
from domain.job import state as js
from domain.run import events as re
from tests.domain.protocol.scene import (
    FAILED,
    MINUTE,
    SECOND,
    START,
    Desk,
    allow,
    cron,
    once,
    spec,
)

EVERY_TWO = cron("*/2 * * * *")


@pytest.fixture
def desk() -> Desk:
    """A minutely job, defined at 08:00:00; its first slot is 08:01."""
    desk = Desk()
    desk.define(spec())
    return desk


def refused(outcome: object) -> str:
    assert isinstance(outcome, Rejected)
    return outcome.code


@pytest.mark.parametrize("command", ["pause", "resume", "cancel", "trigger"])
def test_a_command_for_no_job_is_refused(command: str) -> None:
    assert refused(getattr(Desk(), command)()) == "absent"


def test_an_edit_of_no_job_is_refused() -> None:
    assert refused(Desk().revise(spec())) == "absent"


def test_a_definition_plans_the_first_slot_after_now(desk: Desk) -> None:
    frontier = desk.frontier()
    assert frontier.facts.nominal == START + MINUTE
    assert frontier.facts.version == 1
    assert desk.head().facts.cursor == START


def test_a_one_time_job_up_to_a_minute_past_is_due_now_and_keeps_its_instant() -> None:
    desk = Desk()
    desk.define(once(START - 59 * SECOND))
    facts = desk.only().facts
    assert (facts.nominal, facts.due_at) == (START - 59 * SECOND, START)


def test_a_job_that_exists_is_not_defined_again(desk: Desk) -> None:
    assert refused(desk.define(spec())) == "exists"


def test_an_edit_that_changes_nothing_is_done(desk: Desk) -> None:
    assert desk.revise(spec()) is None


def test_an_edit_of_the_payload_plans_the_frontier_again_with_the_new_body(desk: Desk) -> None:
    before = desk.frontier().facts
    desk.revise(spec(payload=b"new"))
    after = desk.frontier().facts
    assert (after.run_id, after.version) == (before.run_id, 2)
    assert (after.nominal, after.due_at) == (before.nominal, before.due_at)
    assert after.spec_version == after.payload_version == 2


def test_an_edit_of_the_target_leaves_the_body_version(desk: Desk) -> None:
    desk.revise(spec(timeout_ms=1_000))
    assert desk.frontier().facts.payload_version == 1
    assert desk.frontier().facts.spec_version == 2


def test_an_edit_of_the_payload_leaves_the_body_of_a_begun_run(desk: Desk) -> None:
    desk.fire(FAILED)
    desk.revise(spec(payload=b"new"))
    facts = desk.only().facts
    assert (facts.spec_version, facts.payload_version) == (2, 1)


def test_a_schedule_edit_withdraws_a_future_frontier_and_plans_the_new_slot(desk: Desk) -> None:
    old = desk.frontier().facts.run_id
    desk.revise(spec(EVERY_TWO))
    assert desk.last(old) == ["Scheduled", "Withdrawn"]
    gone = desk.streams[old][-1]
    assert isinstance(gone, re.Withdrawn)
    assert gone.of is not None
    assert (gone.cause, gone.of.nominal, gone.of.due_at) == (
        re.SUPERSEDED,
        START + MINUTE,
        START + MINUTE,
    )
    assert desk.frontier().facts.nominal == START + 2 * MINUTE


def test_a_schedule_edit_keeps_a_frontier_on_the_same_instant(desk: Desk) -> None:
    desk.revise(spec(EVERY_TWO))
    desk.now = START + MINUTE
    kept = desk.frontier().facts.run_id
    desk.revise(spec())
    assert desk.frontier().facts.run_id == kept
    assert desk.last(kept) == ["Scheduled", "Scheduled"]


def test_an_edit_there_and_back_plans_the_same_instant_twice(desk: Desk) -> None:
    first = desk.frontier().facts
    desk.revise(spec(EVERY_TWO))
    desk.revise(spec())
    again = desk.frontier().facts
    assert again.nominal == first.nominal
    assert again.run_id != first.run_id, "a planned stream is new"


def test_a_slot_that_was_taken_away_and_came_back_is_planned_by_a_report(desk: Desk) -> None:
    desk.revise(spec(EVERY_TWO))
    desk.revise(spec())
    desk.fire()
    assert desk.frontier().facts.nominal == START + 2 * MINUTE


def test_an_edit_never_removes_a_frontier_whose_instant_has_come(desk: Desk) -> None:
    desk.now = START + 150 * SECOND
    due = desk.frontier().facts
    desk.revise(spec(EVERY_TWO))
    assert desk.frontier().facts.run_id == due.run_id


def test_an_edit_of_the_schedule_judges_the_slots_that_have_passed(desk: Desk) -> None:
    desk.now = START + 150 * SECOND
    desk.revise(spec(EVERY_TWO))
    passed = desk.passed()
    assert [(p.first, p.last, p.verdict) for p in passed] == [
        (START + 2 * MINUTE, START + 2 * MINUTE, re.MISFIRE)
    ]
    assert desk.head().facts.cursor == desk.now


def test_an_edit_of_the_payload_judges_nothing(desk: Desk) -> None:
    desk.now = START + 150 * SECOND
    desk.revise(spec(payload=b"new"))
    assert desk.passed() == []
    assert desk.head().facts.cursor == START


def test_an_edit_never_appends_to_a_run_in_flight(desk: Desk) -> None:
    run = desk.begin()
    desk.revise(spec(EVERY_TWO))
    assert desk.last(run.facts.run_id) == ["Scheduled", "Leased"]


def test_the_retry_of_a_run_in_flight_at_an_edit_is_under_the_new_spec(desk: Desk) -> None:
    run = desk.begin()
    desk.revise(spec(payload=b"new"))
    desk.report(run, FAILED)
    facts = desk.only().facts
    assert (facts.spec_version, facts.payload_version) == (2, 1)


def test_a_change_to_allow_plans_the_first_slot_after_now_and_judges_those_passed(
    desk: Desk,
) -> None:
    desk.begin()
    desk.now = START + 150 * SECOND
    desk.revise(allow())
    assert desk.frontier().facts.nominal == START + 3 * MINUTE
    assert [(p.first, p.verdict) for p in desk.passed()] == [(START + 2 * MINUTE, re.OVERLAP)]


def test_a_change_to_skip_keeps_the_frontier_which_is_blocked_by_a_run_in_flight() -> None:
    desk = Desk()
    desk.define(allow())
    desk.begin()
    desk.revise(spec())
    frontier = desk.frontier()
    desk.now = frontier.facts.due_at
    assert desk.lease(frontier) is None
    assert desk.last(frontier.facts.run_id)[-1] == "Skipped"
    assert desk.frontier().facts.nominal == START + 3 * MINUTE


def test_one_time_jobs_are_not_moved_into_the_past() -> None:
    desk = Desk()
    desk.define(once(START + MINUTE))
    assert refused(desk.revise(once(START))) == "past"


def test_a_one_time_job_moved_while_its_run_is_in_flight_fires_again() -> None:
    desk = Desk()
    desk.define(once(START))
    run = desk.begin()
    desk.revise(once(START + MINUTE))
    desk.now = START + 2 * MINUTE
    desk.report(run)
    facts = desk.only().facts
    assert (facts.nominal, facts.due_at) == (START + MINUTE, desk.now)


def test_a_pause_withdraws_what_waits_and_remembers_the_frontier(desk: Desk) -> None:
    frontier = desk.frontier().facts.run_id
    desk.trigger()
    desk.pause()
    job = desk.head()
    assert isinstance(job, js.Paused)
    assert job.held == frontier
    assert desk.due == {}
    assert len(job.runs) == 2


def test_a_pause_gives_back_the_slot_of_a_future_frontier(desk: Desk) -> None:
    desk.now = START + SECOND
    desk.pause()
    assert desk.head().facts.cursor == START + SECOND


def test_a_pause_never_appends_to_a_run_in_flight(desk: Desk) -> None:
    run = desk.begin()
    desk.pause()
    assert desk.last(run.facts.run_id) == ["Scheduled", "Leased"]


def test_a_pause_judges_slots_that_passed_while_a_run_was_in_flight(desk: Desk) -> None:
    desk.begin()
    desk.now = START + 150 * SECOND
    desk.pause()
    assert [p.verdict for p in desk.passed()] == [re.OVERLAP]


def test_resuming_an_active_job_is_done(desk: Desk) -> None:
    assert desk.resume() is None


def test_a_cancel_ends_every_run_that_is_not_in_flight_and_names_those_that_are(
    desk: Desk,
) -> None:
    run = desk.begin()
    desk.trigger(allow_overlap=True)
    desk.cancel()
    job = desk.head()
    assert isinstance(job, js.Cancelled)
    assert job.in_flight == (run.facts.run_id,)
    assert list(desk.due) == [run.facts.run_id]


def test_a_trigger_plans_a_manual_run_that_is_due_now(desk: Desk) -> None:
    desk.trigger()
    (facts,) = [r.facts for r in desk.due.values() if r.facts.kind == MANUAL]
    assert (facts.nominal, facts.due_at, facts.version) == (START, START, 1)
    assert desk.head().facts.version == 2, "a cancel that has read the runs must lose"


def test_two_triggers_at_one_instant_are_two_runs(desk: Desk) -> None:
    desk.trigger()
    desk.trigger()
    assert len([r for r in desk.due.values() if r.facts.kind == MANUAL]) == 2


def test_a_trigger_is_refused_while_a_run_is_in_flight(desk: Desk) -> None:
    desk.begin()
    assert refused(desk.trigger()) == "in_flight"


def test_a_run_that_waits_for_its_retry_is_in_flight(desk: Desk) -> None:
    desk.fire(FAILED)
    assert refused(desk.trigger()) == "in_flight"


def test_a_trigger_may_ask_to_overlap(desk: Desk) -> None:
    desk.begin()
    assert isinstance(desk.trigger(allow_overlap=True), Decision)
