"""Protocol §7: which slot is next, and the verdict of each slot that passed."""

import pytest

from domain import slots
from domain.chain import Chain
from domain.instant import LAST
from domain.job import events as je
from domain.job import state as js
from domain.run import events as re
from domain.run import state as rs
from domain.schedule.schedule import Plan, ScheduleBreach, ScheduleSpec, plan
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


def slot(minutes: int) -> int:
    """Return the slot of the minutely job so many minutes after 08:00."""
    return START + minutes * MINUTE


def job(new: je.JobSpec | None = None) -> Desk:
    """Return a job defined at 08:00, minutely unless said otherwise."""
    desk = Desk()
    desk.define(new or spec())
    return desk


def verdicts(desk: Desk) -> list[tuple[int, int, str, str]]:
    """Return the ranges in order: first and last in minutes after 08:00, verdict, cause."""
    return [
        ((p.first - START) // MINUTE, (p.last - START) // MINUTE, p.verdict, p.cause)
        for p in desk.passed()
    ]


def test_the_end_of_a_run_plans_the_next_slot_in_the_same_append() -> None:
    desk = job()
    desk.fire()
    assert desk.frontier().facts.nominal == slot(2)
    assert len(desk.commits[-1].slices) == 2


def test_slots_that_passed_while_a_run_was_in_flight_are_overlap() -> None:
    desk = job()
    run = desk.begin()
    desk.now = slot(3) + SECOND
    desk.report(run)
    assert verdicts(desk) == [(2, 3, re.OVERLAP, "")]
    assert desk.frontier().facts.nominal == slot(4)


def test_slots_that_passed_before_the_run_started_are_misfire() -> None:
    desk = job(spec(max_lateness_ms=0))
    desk.now = slot(1) + 60 * SECOND
    run = desk.lease(desk.frontier())
    assert run is not None, "less than a minute late is not a misfire"
    desk.now = slot(3) + SECOND
    desk.report(run)
    assert verdicts(desk) == [(2, 2, re.MISFIRE, ""), (3, 3, re.OVERLAP, "")]


def test_a_slot_has_passed_when_its_jitter_has() -> None:
    desk = job(spec(jitter_ms=30 * SECOND))
    run = desk.begin()
    late = Chain(run.facts.job_id, desk.head().facts.spec).due(slot(2))
    assert late > slot(2)
    desk.now = late - 1
    desk.report(run)
    assert verdicts(desk) == []
    assert desk.frontier().facts.nominal == slot(2)


def test_consecutive_links_prove_the_ledger_gapless() -> None:
    desk = job()
    run = desk.begin()
    desk.now = slot(5) + SECOND
    desk.report(run)
    (event,) = desk.streams[desk.frontier().facts.run_id]
    assert isinstance(event, re.Scheduled)
    assert event.after == slot(1)
    assert [(p.first, p.last, p.count) for p in event.passed] == [(slot(2), slot(5), 4)]


def test_a_retry_keeps_the_chain_where_it_is() -> None:
    desk = job()
    desk.fire(FAILED)
    assert [r.facts.nominal for r in desk.due.values()] == [slot(1)]


def test_a_manual_run_plans_nothing_and_moves_no_cursor() -> None:
    desk = job()
    desk.trigger()
    (manual,) = [r for r in desk.due.values() if not r.facts.is_link]
    run = desk.lease(manual)
    assert run is not None
    desk.report(run)
    assert list(desk.due.values()) == [desk.frontier()]
    assert desk.head().facts.cursor == START


def test_a_schedule_without_another_slot_finishes_the_job() -> None:
    desk = Desk(LAST - LAST % MINUTE - 30 * SECOND)
    desk.define(spec())
    desk.fire()
    assert isinstance(desk.head(), js.Finished)
    assert desk.due == {}


def test_where_runs_may_overlap_the_next_is_planned_with_the_first_lease() -> None:
    desk = job(allow())
    desk.begin()
    assert desk.frontier().facts.nominal == slot(2)


def test_where_runs_may_overlap_a_retry_plans_nothing() -> None:
    desk = job(allow())
    run = desk.begin()
    desk.report(run, FAILED)
    desk.now += 5 * SECOND
    assert desk.lease(desk.due[run.facts.run_id]) is not None
    assert len(desk.links()) == 2


def test_where_runs_may_overlap_each_slot_less_than_a_minute_late_fires() -> None:
    desk = job(allow())
    desk.now = slot(2)
    fired = [desk.begin().facts.nominal, desk.begin().facts.nominal]
    assert fired == [slot(1), slot(2)]
    assert verdicts(desk) == []


def test_at_the_limit_the_frontier_waits() -> None:
    desk = job(allow(limit=1))
    run = desk.begin()
    desk.now = slot(2)
    assert desk.lease(desk.frontier()) is None
    assert desk.frontier().facts.version == 1
    desk.report(run)
    assert desk.lease(desk.frontier()) is not None


def test_at_the_limit_for_a_minute_the_frontier_is_a_misfire() -> None:
    desk = job(allow(limit=1))
    desk.begin()
    desk.now = slot(3) + SECOND
    skipped = desk.frontier().facts.run_id
    assert desk.lease(desk.frontier()) is None
    (verdict,) = [e for e in desk.streams[skipped] if isinstance(e, re.Skipped)]
    assert (verdict.verdict, verdict.cause) == (re.MISFIRE, "overlap_limit")
    assert desk.frontier().facts.nominal == slot(4)


def test_begun_runs_do_not_wait_for_each_other_when_the_limit_falls() -> None:
    desk = job(allow())
    first = desk.begin()
    second = desk.begin()
    desk.report(first, FAILED)
    desk.report(second, FAILED)
    desk.revise(spec())
    desk.now += 5 * SECOND
    assert desk.lease(desk.due[first.facts.run_id]) is not None
    assert desk.lease(desk.due[second.facts.run_id]) is not None


def test_a_late_lease_fires_the_newest_slot_and_skips_the_frontier_in_one_append() -> None:
    desk = job()
    first = desk.frontier().facts.run_id
    desk.now = slot(10) + 5 * SECOND
    run = desk.lease(desk.frontier())
    assert run is not None
    assert run.facts.nominal == run.facts.due_at == slot(10), "lateness must show"
    assert desk.last(run.facts.run_id) == ["Scheduled", "Leased"]
    assert desk.last(first) == ["Scheduled", "Skipped"]
    assert verdicts(desk) == [(2, 9, re.MISFIRE, "outage")]


def test_a_late_lease_where_runs_may_overlap_plans_the_slot_after_the_newest() -> None:
    desk = job(allow())
    desk.now = slot(10) + 5 * SECOND
    run = desk.lease(desk.frontier())
    assert run is not None
    assert run.facts.nominal == slot(10)
    assert desk.frontier().facts.nominal == slot(11)


def test_a_late_lease_of_the_newest_slot_is_an_ordinary_one() -> None:
    desk = job(spec(cron("0 * * * *")))
    desk.now = START + 90 * MINUTE
    run = desk.lease(desk.frontier())
    assert run is not None
    assert run.facts.nominal == START + 60 * MINUTE
    assert verdicts(desk) == []


def test_a_late_lease_never_fires_a_slot_that_a_command_has_judged() -> None:
    desk = job()
    frontier = desk.frontier().facts.run_id
    desk.now = slot(5) + SECOND
    desk.revise(spec(cron("*/7 * * * *")))
    run = desk.lease(desk.frontier())
    assert run is not None
    assert run.facts.run_id == frontier
    assert verdicts(desk) == [(2, 5, re.MISFIRE, "")]


def test_with_misfire_skip_a_late_frontier_does_not_fire() -> None:
    desk = job(spec(misfire=je.NONE))
    desk.now = slot(10) + 5 * SECOND
    assert desk.lease(desk.frontier()) is None
    assert verdicts(desk) == [(2, 10, re.MISFIRE, "outage")]
    assert desk.frontier().facts.nominal == slot(11)


def test_an_outage_of_years_is_one_range_without_a_count() -> None:
    desk = job()
    desk.now = START + 3 * 365 * 24 * 60 * MINUTE + SECOND
    assert desk.lease(desk.frontier()) is not None
    (only,) = desk.passed()
    assert only.count is None


def test_a_slot_inside_the_lateness_allowed_fires_where_the_frontier_is_too_old() -> None:
    desk = job(spec(max_lateness_ms=30 * SECOND))
    desk.now = slot(10) + 5 * SECOND
    run = desk.lease(desk.frontier())
    assert run is not None
    assert run.facts.nominal == slot(10)


def test_with_no_slot_inside_the_lateness_allowed_nothing_fires() -> None:
    desk = job(spec(max_lateness_ms=30 * SECOND))
    first = desk.frontier().facts.run_id
    desk.now = slot(10) + 45 * SECOND
    assert desk.lease(desk.frontier()) is None
    ended = desk.states[first]
    assert isinstance(ended, rs.Ended)
    assert ended.verdict == re.EXPIRED
    assert desk.frontier().facts.nominal == slot(11)


def test_the_newest_slot_fires_while_it_is_inside_the_window_for_catching_up() -> None:
    desk = job(spec(catch_up_window_ms=30 * SECOND))
    desk.now = slot(10) + 29 * SECOND
    run = desk.lease(desk.frontier())
    assert run is not None
    assert run.facts.nominal == slot(10)


def test_outside_the_window_for_catching_up_the_newest_slot_is_a_misfire_too() -> None:
    desk = job(spec(catch_up_window_ms=30 * SECOND, max_lateness_ms=20 * MINUTE))
    first = desk.frontier().facts.run_id
    desk.now = slot(10) + 31 * SECOND
    assert desk.lease(desk.frontier()) is None
    ended = desk.states[first]
    assert isinstance(ended, rs.Ended)
    assert ended.verdict == re.MISFIRE, "its lateness was allowed, catching up was not"
    assert desk.frontier().facts.nominal == slot(11)


def test_a_one_time_job_fires_however_late() -> None:
    desk = job(once(START + MINUTE))
    desk.now = START + 30 * 24 * 60 * MINUTE
    run = desk.lease(desk.only())
    assert run is not None
    assert run.facts.nominal == START + MINUTE


def test_a_begun_run_that_expires_is_a_dead_letter_and_its_chain_goes_on() -> None:
    desk = job(spec(max_lateness_ms=90 * SECOND))
    run = desk.fire(FAILED)
    desk.now = slot(5) + SECOND
    assert desk.lease(desk.only()) is None
    last = desk.streams[run.facts.run_id][-1]
    assert isinstance(last, re.Completed)
    assert (last.outcome, last.cause) == (re.DEAD, re.EXPIRED)
    assert desk.frontier().facts.nominal == slot(6)


def test_a_run_is_not_leased_before_it_is_due() -> None:
    desk = job()
    desk.now = slot(1) - 1
    assert desk.lease(desk.frontier()) is None


def test_a_frontier_that_a_manual_run_is_in_the_way_of_is_skipped_as_overlap() -> None:
    desk = job()
    desk.trigger()
    (manual,) = [r for r in desk.due.values() if not r.facts.is_link]
    desk.lease(manual)
    skipped = desk.frontier().facts.run_id
    desk.now = slot(1)
    assert desk.lease(desk.frontier()) is None
    ended = desk.states[skipped]
    assert isinstance(ended, rs.Ended)
    assert ended.verdict == re.OVERLAP
    assert desk.frontier().facts.nominal == slot(2)


def test_a_manual_run_that_finds_another_in_flight_waits() -> None:
    desk = job()
    desk.trigger()
    (manual,) = [r for r in desk.due.values() if not r.facts.is_link]
    desk.begin()
    assert desk.lease(manual) is None
    assert desk.due[manual.facts.run_id] == manual


def test_a_manual_run_asked_for_beside_one_in_flight_starts_beside_it() -> None:
    desk = job()
    desk.begin()
    desk.trigger(allow_overlap=True)
    (manual,) = [r for r in desk.due.values() if not r.facts.is_link]
    assert desk.lease(manual) is not None


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every question about slots raises."""

    def raises(_chain: Chain, _at: int) -> None:
        raise ScheduleBreach("slot 1 is not after 2")

    monkeypatch.setattr(Chain, "first_after", raises)
    monkeypatch.setattr(Chain, "after_end", lambda chain, *times: raises(chain, times[2]))


def test_a_report_commits_though_the_schedule_cannot_answer(
    request: pytest.FixtureRequest,
) -> None:
    """CLK-08: a slot that is not after the last parks the job."""
    desk = job()
    run = desk.begin()
    request.getfixturevalue("broken")
    desk.report(run)
    assert desk.last(run.facts.run_id)[-1] == "Completed"
    paused = desk.head()
    assert isinstance(paused, js.Paused)
    assert paused.cause == "schedule_error"


def test_the_pause_of_a_schedule_that_cannot_answer_lists_the_other_runs(
    request: pytest.FixtureRequest,
) -> None:
    desk = job()
    run = desk.begin()
    desk.trigger(allow_overlap=True)
    (manual,) = [r for r in desk.due.values() if not r.facts.is_link]
    other = desk.lease(manual)
    assert other is not None
    request.getfixturevalue("broken")
    desk.report(run)
    assert isinstance(desk.head(), js.Paused)
    desk.report(other, FAILED)
    assert isinstance(desk.states[manual.facts.run_id], rs.Withheld)
    assert manual.facts.run_id in {r.facts.run_id for r in desk.runs()}, "a resume looks there"


def test_a_lease_commits_before_the_pause_where_the_schedule_cannot_answer(
    request: pytest.FixtureRequest,
) -> None:
    desk = job(allow())
    request.getfixturevalue("broken")
    run = desk.begin()
    assert desk.last(run.facts.run_id) == ["Scheduled", "Leased"]
    assert isinstance(desk.head(), js.Paused)
    assert [type(event).__name__ for event in desk.log[-2:]] == ["Leased", "Paused"]


@pytest.fixture
def gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The minutely schedule cannot be read any more; others can."""

    def some(schedule: ScheduleSpec) -> Plan:
        if schedule == spec().schedule:
            raise ScheduleBreach("the zone is gone")
        return plan(schedule)

    monkeypatch.setattr(slots, "plan", some)


def test_a_job_whose_schedule_is_gone_can_be_cancelled(request: pytest.FixtureRequest) -> None:
    desk = job()
    desk.now = slot(3) + SECOND
    request.getfixturevalue("gone")
    desk.cancel()
    assert isinstance(desk.head(), js.Cancelled)
    assert desk.runs() == ()


def test_a_job_whose_schedule_is_gone_goes_on_under_another(
    request: pytest.FixtureRequest,
) -> None:
    desk = job()
    request.getfixturevalue("gone")
    desk.fire()
    assert isinstance(desk.head(), js.Paused)
    desk.now = slot(3) + SECOND
    desk.revise(spec(cron("*/5 * * * *")))
    desk.resume()
    assert desk.frontier().facts.nominal == slot(5)
