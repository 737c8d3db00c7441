"""A resume that catches up: which slots of the pause fire, and what becomes of the others."""

from domain.job import events as je
from domain.run import events as re
from tests.domain.protocol.scene import MINUTE, SECOND, START, Desk, once, spec
from tests.domain.protocol.test_missed_slots import drained, in_minutes, job, slot, verdicts


def paused(minutes: int = 10, **fields: object) -> Desk:
    """Return a minutely job that was paused at 08:00:30, so many minutes and a bit later."""
    desk = job(**fields)
    desk.now = START + 30 * SECOND
    desk.pause()
    desk.now = slot(minutes) + 5 * SECOND
    return desk


def test_without_catch_up_nothing_of_the_pause_fires() -> None:
    desk = paused()
    desk.resume("none")
    assert verdicts(desk) == [(2, 10, re.PAUSED, "")]
    assert desk.frontier().facts.nominal == slot(11)


def test_latest_fires_the_newest_slot_of_the_pause_and_no_other() -> None:
    desk = paused()
    desk.resume("latest")
    assert in_minutes(drained(desk)) == [10]
    assert verdicts(desk) == [(2, 9, re.PAUSED, "")]
    assert desk.frontier().facts.nominal == slot(11)


def test_latest_fires_the_withheld_occurrence_where_it_alone_has_passed() -> None:
    desk = paused(minutes=1)
    held = desk.runs()[0].facts.run_id
    desk.resume("latest")
    (fired,) = drained(desk)
    assert fired.facts.run_id == held
    assert verdicts(desk) == []


def test_all_fires_every_slot_of_the_pause_from_the_oldest_on() -> None:
    desk = paused()
    desk.resume("all")
    assert in_minutes(drained(desk)) == list(range(1, 11))
    assert verdicts(desk) == []
    assert desk.frontier().facts.nominal == slot(11)


def test_what_is_caught_up_waits_for_a_run_that_is_still_in_flight() -> None:
    desk = job()
    run = desk.begin()
    desk.now = slot(1) + 30 * SECOND
    desk.pause()
    desk.now = slot(5) + SECOND
    desk.resume("all")
    assert desk.links() == [desk.only()], "no other beside it"
    desk.report(run)
    assert in_minutes(drained(desk)) == [2, 3, 4, 5]
    assert verdicts(desk) == []
    assert desk.frontier().facts.nominal == slot(6)


def test_the_newest_slot_waits_for_a_run_that_is_still_in_flight() -> None:
    desk = job()
    run = desk.begin()
    desk.now = slot(1) + 30 * SECOND
    desk.pause()
    desk.now = slot(5) + SECOND
    desk.resume("latest")
    desk.revise(spec(payload=b"other"))
    desk.report(run)
    assert in_minutes(drained(desk)) == [5]
    assert verdicts(desk) == [(2, 4, re.PAUSED, "")]


def test_another_pause_closes_what_the_first_had_left() -> None:
    desk = paused()
    desk.resume("all")
    desk.fire()
    desk.pause()
    assert verdicts(desk) == [(3, 10, re.MISFIRE, "catch_up")]


def test_where_runs_may_overlap_all_of_the_pause_fires_too() -> None:
    desk = paused(overlap=je.ALLOW, overlap_limit=100)
    desk.resume("all")
    fired = []
    while desk.frontier().facts.nominal <= desk.now:
        fired.append(desk.begin())
    assert in_minutes(fired) == list(range(1, 11))


def test_a_one_time_job_fires_after_its_pause_unless_it_is_asked_not_to() -> None:
    for catch_up, fires in (("", True), ("latest", True), ("all", True), ("none", False)):
        desk = Desk()
        desk.define(once(START + MINUTE))
        desk.pause()
        desk.now = START + 10 * MINUTE
        desk.resume(catch_up)
        assert bool(desk.due) is fires, catch_up
