"""`starts_at` and `ends_at`: which slots of a schedule are the job's (protocol §7)."""

import msgspec

from domain.job import events as je
from domain.job import state as js
from domain.run import events as re
from tests.domain.protocol.scene import MINUTE, SECOND, START, Desk, allow, spec


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
