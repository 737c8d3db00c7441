"""Protocol §7: which missed slots still fire, when, and what becomes of the others."""

from itertools import pairwise
from typing import Final

from domain.backlog import CATCH_UP_MAX, PACE_MS
from domain.job import events as je
from domain.job import state as js
from domain.run import events as re
from domain.run import state as rs
from tests.domain.protocol.scene import FAILED, MINUTE, MINUTELY, SECOND, START, Desk, cron, spec

HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR


def slot(minutes: int) -> int:
    """Return the slot of the minutely job so many minutes after 08:00."""
    return START + minutes * MINUTE


def job(**fields: object) -> Desk:
    """Return a minutely job defined at 08:00."""
    desk = Desk()
    desk.define(spec(MINUTELY, **fields))
    return desk


def verdicts(desk: Desk) -> list[tuple[int, int, str, str]]:
    """Return the ranges in order: first and last in minutes after 08:00, verdict, cause."""
    return [
        ((p.first - START) // MINUTE, (p.last - START) // MINUTE, p.verdict, p.cause)
        for p in desk.passed()
    ]


def in_minutes(runs: list[rs.InFlight]) -> list[int]:
    """Return the slots of runs in minutes after 08:00."""
    return [(run.facts.nominal - START) // MINUTE for run in runs]


# ------------------------------------------------------------------ buffer_one


def test_a_buffer_of_one_keeps_the_first_slot_that_passed_and_no_other() -> None:
    """OVL-07."""
    desk = job(overlap=je.BUFFER_ONE)
    run = desk.begin()
    desk.now = slot(4) + 30 * SECOND
    desk.report(run)
    kept = desk.frontier()
    assert (kept.facts.nominal, kept.facts.due_at) == (slot(2), slot(4) + 30 * SECOND)
    assert verdicts(desk) == [(3, 4, re.OVERLAP, "")]
    assert desk.lease(kept) is not None


def test_after_the_kept_slot_the_chain_goes_on_after_what_was_judged() -> None:
    desk = job(overlap=je.BUFFER_ONE)
    run = desk.begin()
    desk.now = slot(4) + 30 * SECOND
    desk.report(run)
    desk.fire()
    assert desk.frontier().facts.nominal == slot(5)
    assert verdicts(desk) == [(3, 4, re.OVERLAP, "")]


def test_slots_that_passed_while_the_kept_one_ran_are_kept_in_their_turn() -> None:
    desk = job(overlap=je.BUFFER_ONE)
    run = desk.begin()
    desk.now = slot(3) + SECOND
    desk.report(run)
    run = desk.begin()
    desk.now = slot(6) + SECOND
    desk.report(run)
    assert desk.frontier().facts.nominal == slot(4)
    assert verdicts(desk) == [(3, 3, re.OVERLAP, ""), (5, 6, re.OVERLAP, "")]


def test_a_buffered_frontier_waits_for_a_manual_run_instead_of_being_skipped() -> None:
    desk = job(overlap=je.BUFFER_ONE)
    desk.trigger()
    (manual,) = [r for r in desk.due.values() if not r.facts.is_link]
    run = desk.lease(manual)
    assert run is not None
    desk.now = slot(1) + SECOND
    assert desk.lease(desk.frontier()) is None
    desk.report(run)
    leased = desk.lease(desk.frontier())
    assert leased is not None
    assert leased.facts.nominal == slot(1)


def test_a_pause_gives_the_kept_slot_back_and_judges_nothing_twice() -> None:
    desk = job(overlap=je.BUFFER_ONE)
    run = desk.begin()
    desk.now = slot(4) + SECOND
    desk.report(run)
    kept = desk.frontier().facts.run_id
    desk.pause()
    desk.now = slot(6) + SECOND
    desk.resume()
    assert verdicts(desk) == [(3, 4, re.OVERLAP, ""), (5, 6, re.PAUSED, "")]
    assert desk.last(kept) == ["Scheduled", "Withdrawn", "Skipped"]
    assert desk.frontier().facts.nominal == slot(7)


# ------------------------------------------------------------------ cancel_other


def test_cancel_other_ends_the_run_in_flight_and_starts_the_newer_one_in_one_append() -> None:
    desk = job(overlap=je.CANCEL_OTHER)
    old = desk.begin()
    new = desk.begin()
    assert new.facts.nominal == slot(2)
    ended = desk.streams[old.facts.run_id][-1]
    assert isinstance(ended, re.Cancelled)
    assert (ended.cause, ended.attempts) == (re.SUPERSEDED, 1)
    assert desk.commits[-1].job_id == old.facts.job_id
    assert [type(event).__name__ for event in desk.log[-3:]] == ["Cancelled", "Leased", "Scheduled"]
    assert desk.frontier().facts.nominal == slot(3)


def test_the_report_of_a_cancelled_other_has_nothing_to_say_any_more() -> None:
    desk = job(overlap=je.CANCEL_OTHER)
    old = desk.begin()
    desk.begin()
    assert desk.report(old) is None


def test_a_lease_that_would_cancel_a_run_which_has_ended_meanwhile_is_refused() -> None:
    desk = job(overlap=je.CANCEL_OTHER)
    old = desk.begin()
    desk.now = slot(2)
    decision = desk.decide_lease(desk.frontier())
    assert decision is not None
    desk.report(old)
    assert not desk.commit(decision), "its guards are on both"
    assert desk.lease(desk.frontier()) is not None
    assert desk.last(old.facts.run_id)[-1] == "Completed"


def test_cancel_other_ends_a_run_that_waits_for_its_retry() -> None:
    desk = job(overlap=je.CANCEL_OTHER)
    old = desk.begin()
    desk.report(old, FAILED)
    desk.begin()
    assert desk.last(old.facts.run_id)[-1] == "Cancelled"


def test_a_manual_run_cancels_nobody() -> None:
    desk = job(overlap=je.CANCEL_OTHER)
    desk.trigger()
    (manual,) = [r for r in desk.due.values() if not r.facts.is_link]
    desk.begin()
    assert desk.lease(manual) is None


# ------------------------------------------------------------------ misfire all


def outage(**fields: object) -> Desk:
    """Return a minutely job whose slots 1 to 10 were missed, ten minutes later."""
    desk = job(misfire=je.ALL, **fields)
    desk.now = slot(10) + 5 * SECOND
    return desk


def drained(desk: Desk, most: int = 2_000) -> list[rs.InFlight]:
    """Fire until the frontier is in the future."""
    fired: list[rs.InFlight] = []
    while desk.frontier().facts.nominal <= desk.now and len(fired) < most:
        fired.append(desk.fire())
    return fired


def test_all_missed_slots_fire_from_the_oldest_on_one_a_second() -> None:
    desk = outage()
    fired = drained(desk)
    assert in_minutes(fired) == list(range(1, 11))
    began = [run.leased_at for run in fired]
    assert [later - at for at, later in pairwise(began)] == [PACE_MS] * 9
    assert verdicts(desk) == []
    assert desk.frontier().facts.nominal == slot(11)


def test_slots_missed_while_a_catch_up_is_open_are_misfires_or_overlaps() -> None:
    desk = outage()
    run = desk.begin()
    desk.now = slot(12) + SECOND
    desk.report(run)
    desk.now = slot(13) + SECOND
    second = desk.lease(desk.frontier())
    assert second is not None
    desk.report(second)
    assert verdicts(desk) == [(11, 12, re.OVERLAP, ""), (13, 13, re.MISFIRE, "")]
    assert in_minutes(drained(desk)) == list(range(3, 11))
    assert desk.frontier().facts.nominal == slot(14)


def test_slots_older_than_the_window_do_not_fire() -> None:
    desk = outage(catch_up_window_ms=4 * MINUTE)
    first = desk.frontier().facts.run_id
    assert in_minutes(drained(desk)) == [7, 8, 9, 10]
    assert desk.last(first) == ["Scheduled", "Skipped"]
    assert verdicts(desk) == [(2, 6, re.MISFIRE, "catch_up_window")]


def test_a_catch_up_is_capped_and_the_slots_beyond_are_one_range() -> None:
    desk = job(misfire=je.ALL)
    desk.now = slot(0) + 2 * DAY
    run = desk.begin()
    assert run.facts.nominal == slot(1)
    (gone,) = desk.passed()
    assert (gone.first, gone.last) == (slot(2 + CATCH_UP_MAX), slot(2 * 24 * 60))
    assert (gone.verdict, gone.cause, gone.count) == (re.MISFIRE, "cap", None)


def test_a_catch_up_run_that_is_itself_late_goes_on_with_what_is_inside_the_window() -> None:
    desk = outage(catch_up_window_ms=12 * MINUTE)
    desk.fire()
    desk.now = slot(18) + 5 * SECOND
    assert in_minutes(drained(desk)) == [7, 8, 9, 10]
    assert verdicts(desk) == [
        (3, 6, re.MISFIRE, "catch_up_window"),
        (11, 18, re.MISFIRE, "catch_up"),
    ]


def test_a_catch_up_in_which_nothing_is_young_enough_any_more_ends() -> None:
    desk = outage(catch_up_window_ms=12 * MINUTE)
    desk.fire()
    desk.now = slot(40) + 5 * SECOND
    assert desk.lease(desk.frontier()) is None
    assert desk.frontier().facts.nominal == slot(41)


def test_catch_up_runs_that_are_too_old_are_expired_together() -> None:
    desk = outage(max_lateness_ms=10 * MINUTE + 6 * SECOND)
    run = desk.begin()
    desk.now = slot(14)
    desk.report(run)
    assert desk.lease(desk.frontier()) is None
    assert [v for v in verdicts(desk) if v[2] == re.EXPIRED] == [(3, 3, re.EXPIRED, "max_lateness")]
    assert in_minutes(drained(desk)) == [4, 5, 6, 7, 8, 9, 10]


def test_a_command_that_settles_closes_the_catch_up() -> None:
    desk = outage()
    run = desk.begin()
    desk.pause()
    assert verdicts(desk) == [(2, 10, re.MISFIRE, "catch_up")]
    desk.resume()
    desk.report(run)
    assert desk.frontier().facts.nominal == slot(11), "the run in flight carried it, and is over"


def test_a_catch_up_survives_an_edit_that_does_not_settle_and_its_retries() -> None:
    desk = outage()
    desk.fire()
    desk.revise(spec(misfire=je.ALL, payload=b"other"))
    desk.fire(FAILED)
    retry = desk.lease_when_due()
    desk.report(retry)
    assert in_minutes(drained(desk)) == list(range(3, 11))


def test_an_edit_of_the_schedule_closes_the_catch_up() -> None:
    desk = outage()
    desk.fire()
    desk.revise(spec(cron("*/7 * * * *"), misfire=je.ALL))
    assert verdicts(desk) == [(3, 10, re.MISFIRE, "catch_up")]
    desk.fire()
    assert desk.frontier().facts.nominal % (7 * MINUTE) == slot(0) % (7 * MINUTE)


def test_where_runs_may_overlap_a_catch_up_starts_one_a_second_too() -> None:
    desk = outage(overlap=je.ALLOW, overlap_limit=100)
    began = []
    while desk.frontier().facts.nominal <= desk.now:
        began.append(desk.begin())
    assert in_minutes(began) == list(range(1, 11))
    assert began[-1].leased_at - began[0].leased_at == 9 * PACE_MS


def test_a_run_that_started_less_than_a_minute_late_leaves_a_catch_up_too() -> None:
    desk = job(misfire=je.ALL)
    desk.now = slot(2)
    run = desk.lease(desk.frontier())
    assert run is not None
    desk.report(run)
    assert desk.frontier().facts.nominal == slot(2)
    assert verdicts(desk) == []


# ------------------------------------------------------------------ buffer_all


def test_buffer_all_keeps_every_slot_that_passed_while_a_run_was_in_flight() -> None:
    desk = job(overlap=je.BUFFER_ALL, overlap_limit=10)
    run = desk.begin()
    desk.now = slot(4) + SECOND
    desk.report(run)
    assert in_minutes(drained(desk)) == [2, 3, 4]
    assert verdicts(desk) == []


def test_a_buffer_takes_what_passes_while_it_is_worked_off() -> None:
    desk = job(overlap=je.BUFFER_ALL, overlap_limit=10)
    run = desk.begin()
    desk.now = slot(4) + SECOND
    desk.report(run)
    run = desk.begin()
    desk.now = slot(7) + SECOND
    desk.report(run)
    assert in_minutes(drained(desk)) == [3, 4, 5, 6, 7]
    assert verdicts(desk) == []


def test_a_full_buffer_drops_the_oldest_as_overlap() -> None:
    desk = job(overlap=je.BUFFER_ALL, overlap_limit=3)
    run = desk.begin()
    desk.now = slot(10) + SECOND
    desk.report(run)
    assert verdicts(desk) == [(2, 7, re.OVERLAP, "buffer")]
    assert in_minutes(drained(desk)) == [8, 9, 10]


def test_buffer_all_and_misfire_all_miss_nothing_inside_their_bounds() -> None:
    desk = outage(overlap=je.BUFFER_ALL, overlap_limit=100)
    run = desk.begin()
    desk.now = slot(15) + SECOND
    desk.report(run)
    assert in_minutes(drained(desk)) == list(range(2, 16))
    assert verdicts(desk) == []


def test_cancelling_closes_a_buffer_with_the_verdict_of_what_was_in_its_way() -> None:
    desk = job(overlap=je.BUFFER_ALL, overlap_limit=10)
    run = desk.begin()
    desk.now = slot(4) + SECOND
    desk.report(run)
    desk.cancel()
    assert isinstance(desk.head(), js.Cancelled)
    assert verdicts(desk) == [(3, 4, re.OVERLAP, "buffer")]
