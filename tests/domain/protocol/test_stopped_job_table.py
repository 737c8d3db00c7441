"""Protocol §3: the rows of paused, finished and cancelled jobs, and the answer of gone."""

import pytest

from domain import chain
from domain.envelope import Rejected
from domain.ids import MANUAL
from domain.job import events as je
from domain.job import state as js
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
    cron,
    once,
    spec,
)

EVERY_TWO = cron("*/2 * * * *")
EVERY_THREE = cron("*/3 * * * *")


@pytest.fixture
def desk() -> Desk:
    """A minutely job, defined at 08:00:00; its first slot is 08:01."""
    desk = Desk()
    desk.define(spec())
    return desk


def refused(outcome: object) -> str:
    assert isinstance(outcome, Rejected)
    return outcome.code


@pytest.fixture
def paused(desk: Desk) -> Desk:
    """The minutely job, paused at 08:00:01 with its 08:01 withheld."""
    desk.now = START + SECOND
    desk.pause()
    return desk


def test_pausing_a_paused_job_is_done(paused: Desk) -> None:
    assert paused.pause() is None


def test_a_paused_job_is_not_triggered(paused: Desk) -> None:
    assert refused(paused.trigger()) == "paused"


def test_a_withheld_frontier_still_to_come_is_planned_again(paused: Desk) -> None:
    held = paused.head()
    assert isinstance(held, js.Paused)
    paused.now = START + 30 * SECOND
    paused.resume()
    assert paused.frontier().facts.run_id == held.held
    assert paused.frontier().facts.due_at == START + MINUTE


def test_a_withheld_frontier_that_has_passed_is_skipped_and_the_others_are_one_range(
    paused: Desk,
) -> None:
    held = paused.head()
    assert isinstance(held, js.Paused)
    paused.now = START + 270 * SECOND
    paused.resume()
    assert paused.last(held.held) == ["Scheduled", "Withdrawn", "Skipped"]
    assert [(p.first, p.count, p.verdict) for p in paused.passed()] == [
        (START + 2 * MINUTE, 3, re.PAUSED)
    ]
    assert paused.frontier().facts.nominal == START + 5 * MINUTE


def test_a_one_time_job_that_was_paused_over_its_instant_is_due_at_the_resume() -> None:
    desk = Desk()
    desk.define(once(START + MINUTE))
    desk.pause()
    desk.now = START + 5 * MINUTE
    desk.resume()
    facts = desk.only().facts
    assert (facts.nominal, facts.due_at) == (START + MINUTE, desk.now)


def test_a_one_time_job_that_was_paused_beyond_its_lateness_is_skipped() -> None:
    desk = Desk()
    desk.define(once(START + MINUTE, max_lateness_ms=MINUTE))
    desk.pause()
    desk.now = START + 5 * MINUTE
    desk.resume()
    assert desk.due == {}
    assert isinstance(chain.effective(desk.head(), desk.runs()), js.Finished)


def test_begun_runs_that_were_withdrawn_are_due_at_the_resume(desk: Desk) -> None:
    desk.fire(FAILED)
    desk.pause()
    desk.now += 5 * MINUTE
    desk.resume()
    facts = desk.only().facts
    assert (facts.due_at, facts.attempt) == (desk.now, 1)


def test_a_run_that_failed_while_paused_is_found_by_the_resume(desk: Desk) -> None:
    run = desk.begin()
    desk.pause()
    desk.report(run, FAILED)
    assert desk.last(run.facts.run_id)[-2:] == ["Fired", "Withdrawn"]
    desk.resume()
    assert desk.only().facts.run_id == run.facts.run_id


def test_a_run_that_ended_while_paused_leaves_the_chain_to_the_resume(desk: Desk) -> None:
    run = desk.begin()
    desk.pause()
    desk.report(run)
    assert desk.due == {}
    desk.now = START + 150 * SECOND
    desk.resume()
    assert desk.frontier().facts.nominal == START + 3 * MINUTE


def test_while_a_begun_link_is_open_the_resume_plans_nothing(desk: Desk) -> None:
    run = desk.begin()
    desk.pause()
    desk.resume()
    assert list(desk.due) == [run.facts.run_id]
    desk.report(run)
    assert desk.frontier().facts.nominal == START + 2 * MINUTE


def test_a_schedule_edit_of_a_paused_job_drops_the_withheld_frontier(paused: Desk) -> None:
    paused.revise(spec(EVERY_THREE))
    job = paused.head()
    assert isinstance(job, js.Paused)
    assert job.held == b""
    paused.resume()
    assert paused.frontier().facts.nominal == START + 3 * MINUTE


def test_a_payload_edit_of_a_paused_job_keeps_the_withheld_frontier(paused: Desk) -> None:
    held = paused.head()
    assert isinstance(held, js.Paused)
    paused.revise(spec(payload=b"new"))
    paused.resume()
    facts = paused.frontier().facts
    assert (facts.run_id, facts.payload_version) == (held.held, 3)


def test_a_one_time_job_moved_while_paused_fires_at_its_new_instant() -> None:
    desk = Desk()
    desk.define(once(START + MINUTE))
    desk.pause()
    desk.revise(once(START + 2 * MINUTE))
    desk.now = START + 3 * MINUTE
    desk.resume()
    facts = desk.only().facts
    assert (facts.nominal, facts.due_at) == (START + 2 * MINUTE, desk.now)


def test_a_cancel_of_a_paused_job_ends_its_withheld_runs(paused: Desk) -> None:
    held = paused.head()
    assert isinstance(held, js.Paused)
    paused.cancel()
    assert paused.last(held.held) == ["Scheduled", "Withdrawn", "Cancelled"]


@pytest.fixture
def finished() -> Desk:
    """A one-time job whose run has succeeded."""
    desk = Desk()
    desk.define(once(START))
    desk.fire()
    return desk


def test_the_end_of_its_only_link_finishes_a_one_time_job_without_an_event(
    finished: Desk,
) -> None:
    assert isinstance(chain.effective(finished.head(), finished.runs()), js.Finished)
    assert [type(event) for event in finished.job_events] == [je.Defined]


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_a_finished_job_is_neither_paused_nor_resumed(finished: Desk, command: str) -> None:
    assert refused(getattr(finished, command)()) == "finished"


def test_a_new_instant_makes_a_finished_job_active_again(finished: Desk) -> None:
    finished.revise(once(START + MINUTE))
    assert finished.frontier().facts.nominal == START + MINUTE


def test_another_edit_leaves_a_finished_job_finished(finished: Desk) -> None:
    finished.revise(once(START, payload=b"new"))
    assert finished.due == {}


def test_a_finished_job_can_be_triggered(finished: Desk) -> None:
    finished.trigger()
    assert finished.only().facts.kind == MANUAL


def test_a_finished_job_can_be_cancelled(finished: Desk) -> None:
    finished.cancel()
    assert isinstance(finished.head(), js.Cancelled)


@pytest.fixture
def cancelled(desk: Desk) -> Desk:
    """The minutely job, cancelled at 08:00."""
    desk.cancel()
    return desk


def test_cancelling_again_is_done(cancelled: Desk) -> None:
    assert cancelled.cancel() is None


@pytest.mark.parametrize("command", ["pause", "resume", "trigger"])
def test_nothing_else_is_done_to_a_cancelled_job(cancelled: Desk, command: str) -> None:
    assert refused(getattr(cancelled, command)()) == "cancelled"


def test_a_cancelled_job_is_not_edited(cancelled: Desk) -> None:
    assert refused(cancelled.revise(spec(EVERY_TWO))) == "cancelled"


def test_a_cancelled_job_has_a_next_life(cancelled: Desk) -> None:
    cancelled.now = START + 90 * SECOND
    cancelled.define(spec())
    facts = cancelled.frontier().facts
    assert (facts.life, facts.nominal) == (2, START + 2 * MINUTE)


def test_a_run_of_the_last_life_ends_when_it_fails(desk: Desk) -> None:
    run = desk.begin()
    desk.cancel()
    desk.define(spec())
    desk.report(run, FAILED)
    assert desk.last(run.facts.run_id)[-2:] == ["Fired", "Cancelled"]
    assert desk.frontier().facts.life == 2


def test_an_answer_of_gone_ends_the_run_and_pauses_the_job(desk: Desk) -> None:
    run = desk.begin()
    desk.report(run, GONE)
    job = desk.head()
    assert isinstance(job, js.Paused)
    assert job.cause == "gone"
    ended = desk.states[run.facts.run_id]
    assert isinstance(ended, rs.Ended)
    assert ended.verdict == re.DEAD
    assert desk.due == {}


def test_an_answer_of_gone_only_ends_the_run_of_a_one_time_job() -> None:
    desk = Desk()
    desk.define(once(START))
    run = desk.begin()
    desk.report(run, GONE)
    assert isinstance(desk.head(), js.Active)
    assert desk.due == {}


def test_a_repeat_of_a_success_says_nothing_any_more(desk: Desk) -> None:
    run = desk.fire()
    assert desk.report(run, OK) is None


def test_a_schedule_edit_skips_a_withheld_frontier_that_has_passed(paused: Desk) -> None:
    held = paused.head()
    assert isinstance(held, js.Paused)
    paused.now = START + 90 * SECOND
    paused.revise(spec(EVERY_THREE))
    assert paused.last(held.held) == ["Scheduled", "Withdrawn", "Skipped"]


def test_a_link_that_an_edit_dropped_holds_the_cursor_no_more() -> None:
    desk = Desk()
    desk.define(once(START + 10 * MINUTE))
    desk.pause()
    desk.revise(once(START + 5 * MINUTE))
    desk.resume()
    assert desk.frontier().facts.nominal == START + 5 * MINUTE
