"""`starts_at` and `ends_at`: which slots of a schedule are the job's (protocol §7)."""

import msgspec

from domain.job import events as je
from domain.job import state as js
from domain.run import events as re
from tests.domain.protocol.scene import FAILED, MINUTE, SECOND, START, Desk, allow, spec


def slot(minutes: int) -> int:
    """Return the slot of the minutely job so many minutes after 08:00."""
    return START + minutes * MINUTE


def job(new: je.JobSpec) -> Desk:
    """Return a job defined at 08:00."""
    desk = Desk()
    desk.define(new)
    return desk


def test_no_slot_lies_before_the_start() -> None:
    desk = job(spec(starts_at=slot(10)))
    assert desk.frontier().facts.nominal == slot(10)


def test_the_slot_of_the_end_itself_fires_and_finishes_the_job() -> None:
    desk = job(spec(ends_at=slot(2)))
    desk.fire()
    assert desk.frontier().facts.nominal == slot(2)
    desk.fire()
    assert isinstance(desk.head(), js.Finished)
    assert desk.due == {}


def test_where_runs_may_overlap_the_last_lease_finishes_the_job() -> None:
    desk = job(msgspec.structs.replace(allow(), ends_at=slot(1)))
    run = desk.begin()
    assert isinstance(desk.head(), js.Finished)
    assert desk.report(run) is not None


def test_slots_after_the_end_have_no_verdict() -> None:
    desk = job(spec(ends_at=slot(3)))
    run = desk.begin()
    desk.now = slot(9)
    desk.report(run)
    assert [(p.first, p.last, p.verdict) for p in desk.passed()] == [
        (slot(2), slot(3), re.OVERLAP),
    ]
    assert isinstance(desk.head(), js.Finished)


def test_an_end_that_is_moved_before_the_next_slot_finishes_the_job() -> None:
    desk = job(spec())
    desk.revise(spec(ends_at=START + 30 * SECOND))
    assert isinstance(desk.head(), js.Finished)
    assert desk.due == {}


def test_an_end_that_is_moved_on_makes_a_finished_job_active_from_now_on() -> None:
    desk = job(spec(ends_at=slot(1)))
    desk.fire()
    desk.now = slot(5) + SECOND
    desk.revise(spec(ends_at=slot(20)))
    assert desk.frontier().facts.nominal == slot(6)


def test_a_start_that_is_moved_on_moves_the_next_slot() -> None:
    desk = job(spec())
    desk.revise(spec(starts_at=slot(7)))
    assert desk.frontier().facts.nominal == slot(7)


def test_a_pause_over_the_end_gives_verdicts_up_to_it_and_resume_finishes() -> None:
    desk = job(spec(ends_at=slot(2)))
    desk.pause()
    desk.now = slot(9)
    desk.resume()
    assert isinstance(desk.head(), js.Finished)
    assert sum(p.count or 0 for p in desk.passed()) == 1


def test_a_job_finishes_with_the_end_of_its_last_run() -> None:
    desk = job(spec(max_runs=2))
    desk.fire()
    assert desk.frontier().facts.nominal == slot(2)
    desk.fire()
    assert isinstance(desk.head(), js.Finished)
    assert desk.due == {}


def test_retries_of_the_last_run_go_on_and_are_not_counted() -> None:
    desk = job(spec(max_runs=1))
    desk.fire(FAILED)
    retry = desk.only()
    desk.now = retry.facts.due_at
    run = desk.lease(retry)
    assert run is not None
    desk.report(run)
    assert isinstance(desk.head(), js.Finished)
    assert desk.head().facts.begun == 1


def test_where_runs_may_overlap_the_lease_of_the_last_run_finishes_the_job() -> None:
    desk = job(msgspec.structs.replace(allow(), max_runs=2))
    first = desk.begin()
    second = desk.begin()
    assert isinstance(desk.head(), js.Finished)
    assert desk.report(first) is not None
    assert desk.report(second) is not None
    assert desk.due == {}


def test_a_change_of_overlap_counts_no_run_twice() -> None:
    desk = job(msgspec.structs.replace(allow(), max_runs=3))
    run = desk.begin()
    desk.revise(spec(max_runs=3))
    desk.report(run)
    desk.fire()
    assert isinstance(desk.head(), js.Active)
    desk.fire()
    assert isinstance(desk.head(), js.Finished)


def test_skipped_slots_and_manual_runs_do_not_count() -> None:
    desk = job(spec(max_runs=2))
    desk.trigger()
    (manual,) = [r for r in desk.due.values() if not r.facts.is_link]
    run = desk.lease(manual)
    assert run is not None
    desk.now = slot(1)
    assert desk.lease(desk.frontier()) is None
    desk.report(run)
    assert desk.head().facts.begun == 0
    assert desk.frontier().facts.nominal == slot(2)


def test_slots_that_passed_during_the_last_run_have_a_verdict() -> None:
    desk = job(spec(max_runs=1))
    run = desk.begin()
    desk.now = slot(4) + SECOND
    desk.report(run)
    assert [(p.first, p.last, p.verdict) for p in desk.passed()] == [(slot(2), slot(4), re.OVERLAP)]


def test_a_catch_up_that_is_cut_off_has_a_verdict_for_each_slot() -> None:
    desk = job(spec(max_runs=2, misfire=je.ALL))
    desk.now = slot(6) + SECOND
    run = desk.begin()
    desk.report(run)
    desk.now += 5 * SECOND
    run = desk.begin()
    desk.report(run)
    assert isinstance(desk.head(), js.Finished)
    assert [(p.first, p.last, p.cause) for p in desk.passed()] == [(slot(3), slot(6), "max_runs")]


def test_a_run_that_began_before_a_pause_is_counted_after_it() -> None:
    desk = job(spec(max_runs=1))
    run = desk.begin()
    desk.pause()
    desk.report(run)
    desk.resume()
    assert isinstance(desk.head(), js.Finished)


def test_fewer_runs_than_have_begun_finish_the_job_and_more_make_it_active() -> None:
    desk = job(spec(max_runs=5))
    desk.fire()
    desk.fire()
    desk.revise(spec(max_runs=2))
    assert isinstance(desk.head(), js.Finished)
    assert desk.due == {}
    desk.revise(spec(max_runs=3))
    assert desk.frontier().facts.nominal == slot(3)


def test_runs_are_counted_from_the_edit_that_sets_a_limit() -> None:
    desk = job(spec())
    desk.fire()
    desk.revise(spec(max_runs=1))
    desk.fire()
    assert isinstance(desk.head(), js.Finished)


def test_a_job_that_is_defined_again_counts_anew() -> None:
    desk = job(spec(max_runs=1))
    desk.fire()
    desk.cancel()
    desk.define(spec(max_runs=1))
    assert desk.frontier().facts.nominal == slot(2)


def test_a_job_without_a_limit_writes_nothing_about_its_runs() -> None:
    desk = job(spec())
    desk.fire()
    assert len(desk.job_events) == 1
