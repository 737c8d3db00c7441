"""New zone data: what has begun or has passed stays, what is still to come moves, once."""

from collections.abc import Iterator

import pytest

from domain.envelope import Decision
from domain.job import events as je
from domain.job import state as js
from domain.job.decide import replan
from domain.schedule import schedule, zone
from domain.schedule.schedule import Cron, parse_cron
from tests.domain.protocol.scene import MINUTE, START, Desk, once, spec

HOUR = 60 * MINUTE
DATA = "2099z"


def daily() -> Cron:
    """Every day at 15:00 in a zone whose data will change; the first is 6 h after START."""
    found = parse_cron("0 15 * * *", "Europe/Berlin")
    assert isinstance(found, Cron)
    return found


@pytest.fixture
def berlin_moves(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """From here on Berlin is an hour further east than the data said."""
    known = zone.load("Europe/Berlin")
    moved = zone.Zone(known.name, known.starts, [offset + 3600 for offset in known.offsets])
    monkeypatch.setattr(zone, "load", lambda _name: moved)
    schedule.plan.cache_clear()
    schedule.between.cache_clear()
    yield
    schedule.plan.cache_clear()
    schedule.between.cache_clear()


def planned(desk: Desk) -> int:
    return desk.frontier().facts.nominal


def apply(desk: Desk) -> Decision | None:
    decision = replan(desk.job, desk.runs(), DATA, desk.now)
    if decision is not None:
        assert desk.commit(decision)
    return decision


def defined(new: je.JobSpec) -> Desk:
    desk = Desk()
    desk.define(new)
    return desk


def test_data_that_move_nothing_append_nothing() -> None:
    desk = defined(spec(daily()))
    assert apply(desk) is None


@pytest.fixture
def waiting() -> Desk:
    """A job planned under the old data (the fixture that changes them comes later)."""
    return defined(spec(daily()))


def test_an_occurrence_still_to_come_is_planned_where_its_slot_is_now(
    waiting: Desk, berlin_moves: None
) -> None:
    del berlin_moves
    before, run = planned(waiting), waiting.frontier()
    assert apply(waiting) is not None
    assert planned(waiting) == before - HOUR
    assert waiting.last(run.facts.run_id) == ["Scheduled", "Withdrawn"]
    assert isinstance(waiting.job_events[-1], je.Replanned)
    assert waiting.head().facts.zone_data == DATA


def test_a_second_pass_finds_nothing_to_do(waiting: Desk, berlin_moves: None) -> None:
    del berlin_moves
    apply(waiting)
    assert apply(waiting) is None


def test_an_occurrence_whose_instant_has_come_stays(waiting: Desk, berlin_moves: None) -> None:
    del berlin_moves
    before = planned(waiting)
    waiting.now = before
    assert apply(waiting) is None
    assert planned(waiting) == before


def test_a_run_in_flight_stays_and_the_next_follows_the_new_data(
    waiting: Desk, berlin_moves: None
) -> None:
    del berlin_moves
    before = planned(waiting)
    run = waiting.begin()
    assert apply(waiting) is None
    waiting.report(run)
    assert planned(waiting) == before + 24 * HOUR - HOUR


def test_a_slot_that_comes_back_with_the_old_data_is_planned_under_an_id_of_its_own(
    waiting: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, first = planned(waiting), waiting.frontier().facts.run_id
    known = zone.load("Europe/Berlin")
    moved = zone.Zone(known.name, known.starts, [offset + 3600 for offset in known.offsets])
    for data in (moved, known):
        schedule.plan.cache_clear()
        schedule.between.cache_clear()
        monkeypatch.setattr(zone, "load", lambda _name, data=data: data)
        assert apply(waiting) is not None
    schedule.plan.cache_clear()
    schedule.between.cache_clear()
    assert planned(waiting) == before
    assert waiting.frontier().facts.run_id != first


def test_what_a_pause_holds_is_planned_anew_when_it_ends(waiting: Desk, berlin_moves: None) -> None:
    del berlin_moves
    before = planned(waiting)
    waiting.pause()
    assert apply(waiting) is not None
    assert isinstance(waiting.job, js.Paused)
    assert not waiting.job.held
    waiting.resume()
    assert planned(waiting) == before - HOUR


def test_a_one_time_job_has_an_instant_and_no_zone(berlin_moves: None) -> None:
    del berlin_moves
    desk = defined(once(START + HOUR))
    assert apply(desk) is None


def test_a_slot_that_has_fired_before_does_not_keep_the_next_one_in_its_old_place(
    request: pytest.FixtureRequest,
) -> None:
    often = parse_cron("30 */2 * * *", "Europe/Berlin")
    assert isinstance(often, Cron)
    desk = defined(spec(often))
    before = planned(desk)
    request.getfixturevalue("berlin_moves")
    assert apply(desk) is not None
    assert planned(desk) == before - HOUR


def test_an_occurrence_whose_slot_is_past_by_the_new_data_fires_when_it_was_promised(
    waiting: Desk, berlin_moves: None
) -> None:
    del berlin_moves
    before = planned(waiting)
    waiting.now = before - HOUR // 2
    assert apply(waiting) is None
    waiting.fire()
    assert planned(waiting) == before + 23 * HOUR
