"""Excluded slots: they never fire, each has the verdict `blackout` once it has passed, and one."""

import os
import random
from collections import Counter
from typing import Final

import msgspec
import pytest

from domain.job import decide, replan
from domain.job import events as je
from domain.job import state as js
from domain.run import events as re
from domain.schedule.exclusion import Exclusion, cover, packed
from domain.schedule.schedule import ScheduleSpec, plan
from domain.slots import slots_of
from tests.domain.protocol.scene import MINUTE, MINUTELY, SECOND, START, Desk, cron, spec
from tests.domain.protocol.test_laws import JobMachine
from tests.domain.protocol.test_policies_at_random import SEED, Play

PLAYS: Final = int(os.environ.get("TOCSIN_EXCLUSION_PLAYS", "8"))
"""Plays of each pair of policies."""
STEPS: Final = 50
HOUR: Final = 60 * MINUTE
START_S: Final = START // SECOND
HOURLY: Final = cron("0 * * * *")


def minutes(name: str, version: int, *stretches: tuple[int, int]) -> Exclusion:
    """Return a calendar of stretches in minutes from START on."""
    pairs = [(START_S + first * 60, START_S + end * 60) for first, end in stretches]
    return Exclusion(name, version, "UTC", packed(pairs))


def excluding(
    *exclusions: Exclusion, schedule: ScheduleSpec = MINUTELY, **fields: object
) -> je.JobSpec:
    """Return a job with these calendars."""
    names = tuple(exclusion.name for exclusion in exclusions)
    return spec(schedule, exclude=names, exclusions=exclusions, **fields)


def job(new: je.JobSpec) -> Desk:
    """Return a job defined at START."""
    desk = Desk()
    desk.define(new)
    return desk


def edit(desk: Desk, exclusion: Exclusion) -> bool:
    """Put a version of a calendar in force; return whether the open occurrence moved."""
    decision = decide.exclude(desk.job, desk.runs(), exclusion, desk.by())
    if decision is None:
        return False
    moved = replan.moved(desk.job, desk.runs(), decision)
    assert desk.commit(decision)
    return moved


def blackouts(desk: Desk) -> list[tuple[int, int, int | None, str]]:
    """Return the ranges of excluded slots, in minutes from START."""
    return [
        ((p.first - START) // MINUTE, (p.last - START) // MINUTE, p.count, p.cause)
        for p in desk.passed()
        if p.verdict == re.BLACKOUT
    ]


def slot(number: int) -> int:
    return START + number * MINUTE


# ---------------------------------------------------------------- by hand


def test_excluded_slots_do_not_fire_and_have_one_range_once_they_have_passed() -> None:
    desk = job(excluding(minutes("lunch", 1, (2, 5))))
    desk.fire()
    assert desk.frontier().facts.nominal == slot(5)
    assert blackouts(desk) == []
    desk.fire()
    assert desk.frontier().facts.nominal == slot(6)
    assert blackouts(desk) == [(2, 4, 3, "lunch")]


def test_a_slot_that_two_calendars_exclude_is_the_first_ones() -> None:
    desk = job(excluding(minutes("a", 1, (1, 4)), minutes("b", 1, (2, 6))))
    assert desk.frontier().facts.nominal == slot(6)
    desk.fire()
    assert blackouts(desk) == [(1, 3, 3, "a"), (4, 5, 2, "b")]


def test_slots_passed_by_a_long_run_are_overlap_and_those_excluded_are_not() -> None:
    desk = job(excluding(minutes("lunch", 1, (3, 6))))
    run = desk.begin()
    desk.now = slot(8)
    desk.report(run)
    verdicts = [((p.first - START) // MINUTE, p.count, p.verdict) for p in desk.passed()]
    assert verdicts == [(2, 4, re.OVERLAP), (3, 3, re.BLACKOUT)]
    assert desk.frontier().facts.nominal == slot(9)


def test_an_outage_over_excluded_slots_counts_them_apart() -> None:
    desk = job(excluding(minutes("a", 1, (2, 4), (6, 8)), misfire=je.NONE))
    desk.now = slot(9) + 30 * SECOND
    run = desk.frontier()
    assert desk.lease(run) is None
    assert [(p.verdict, p.count) for p in desk.passed()] == [(re.MISFIRE, 4), (re.BLACKOUT, 4)]


def test_an_edit_that_excludes_the_open_occurrence_moves_it() -> None:
    desk = job(excluding(minutes("a", 1)))
    before = desk.frontier()
    assert edit(desk, minutes("a", 2, (0, 10)))
    assert desk.frontier().facts.nominal == slot(10)
    assert desk.last(before.facts.run_id) == ["Scheduled", "Withdrawn"]
    (event,) = [event for event in desk.job_events if isinstance(event, je.Replanned)]
    assert event.cause == "calendar"
    assert desk.head().facts.spec.exclusions[0].version == 2


def test_an_edit_of_other_dates_moves_nothing_and_is_in_force() -> None:
    desk = job(excluding(minutes("a", 1)))
    assert not edit(desk, minutes("a", 2, (2, 10)))
    desk.fire()
    assert desk.frontier().facts.nominal == slot(10)


def test_an_edit_that_is_in_force_already_is_done() -> None:
    desk = job(excluding(minutes("a", 2)))
    for known in (minutes("a", 2), minutes("a", 1, (0, 9)), minutes("b", 3, (0, 9))):
        assert decide.exclude(desk.job, desk.runs(), known, desk.by()) is None


def test_an_occurrence_whose_instant_has_come_is_not_removed() -> None:
    desk = job(excluding(minutes("a", 1)))
    desk.now = slot(1) + SECOND
    assert not edit(desk, minutes("a", 2, (0, 10)))
    desk.fire()
    assert desk.frontier().facts.nominal == slot(10)


def test_a_run_in_flight_goes_on_and_the_next_follows_the_new_version() -> None:
    desk = job(excluding(minutes("a", 1)))
    run = desk.begin()
    assert not edit(desk, minutes("a", 2, (0, 10)))
    desk.report(run)
    assert desk.frontier().facts.nominal == slot(10)


def test_slots_before_an_edit_are_judged_by_what_was_in_force_then() -> None:
    desk = job(excluding(minutes("a", 1, (2, 4))))
    run = desk.begin()
    desk.now = slot(5) + SECOND
    edit(desk, minutes("a", 2, (5, 8)))
    desk.now = slot(9) + SECOND
    desk.report(run)
    assert blackouts(desk) == [(2, 3, 2, "a"), (6, 7, 2, "a")]


def test_a_slot_that_comes_back_has_no_verdict_of_the_time_when_it_was_excluded() -> None:
    desk = job(excluding(minutes("a", 1, (1, 10))))
    assert edit(desk, minutes("a", 2))
    assert desk.frontier().facts.nominal == slot(1)
    assert blackouts(desk) == []


def test_what_a_pause_holds_is_counted_where_it_moves() -> None:
    desk = job(excluding(minutes("a", 1)))
    desk.pause()
    assert edit(desk, minutes("a", 2, (0, 10)))
    assert isinstance(desk.job, js.Paused)
    desk.resume()
    assert desk.frontier().facts.nominal == slot(10)


def test_what_a_pause_missed_is_caught_up_without_the_excluded_slots() -> None:
    desk = job(excluding(minutes("a", 1, (3, 5))))
    desk.pause()
    desk.now = slot(8) + SECOND
    desk.resume("all")
    fired = []
    for _ in range(6):
        fired.append((desk.fire().facts.nominal - START) // MINUTE)
        desk.now += SECOND
    assert fired == [1, 2, 5, 6, 7, 8]
    assert blackouts(desk) == [(3, 4, 2, "a")]


def test_a_job_that_has_no_slot_left_is_finished_and_comes_back_with_its_slots() -> None:
    desk = job(excluding(minutes("a", 1), ends_at=slot(20)))
    assert edit(desk, minutes("a", 2, (0, 30)))
    assert isinstance(desk.job, js.Finished)
    assert not desk.due
    desk.now = slot(3) + SECOND
    assert edit(desk, minutes("a", 3, (0, 9)))
    assert isinstance(desk.job, js.Active)
    assert desk.frontier().facts.nominal == slot(9)


def test_a_job_whose_slots_are_all_excluded_is_paused_and_says_so() -> None:
    desk = job(excluding(minutes("a", 1), schedule=HOURLY))
    every_hour = packed([(hour * 3600, hour * 3600 + 60) for hour in range(7 * 24)])
    assert edit(desk, Exclusion("a", 2, "UTC", weekly=every_hour))
    assert isinstance(desk.job, js.Paused)
    assert desk.job.cause == je.SCHEDULE_ERROR
    assert "excluded" in desk.job.reason
    assert not desk.due
    edit(desk, minutes("a", 3))
    desk.resume()
    assert desk.frontier().facts.nominal == START + HOUR


def test_a_job_without_calendars_is_not_touched() -> None:
    desk = job(spec())
    assert not edit(desk, minutes("a", 2, (0, 10)))
    cancelled = job(excluding(minutes("a", 1)))
    cancelled.cancel()
    assert not edit(cancelled, minutes("a", 2, (0, 10)))


# ---------------------------------------------------------------- at random


class _Desk(Desk):
    """Keeps excluded slots apart: the laws of the others go by `passed`."""

    def passed(self) -> list[re.Passed]:
        return [p for p in super().passed() if p.verdict != re.BLACKOUT]

    def blackouts(self) -> list[re.Passed]:
        return [p for p in super().passed() if p.verdict == re.BLACKOUT]


class _Machine(JobMachine):
    """Knows which slots were excluded when they passed, and by which calendar."""

    def __init__(self) -> None:
        super().__init__()
        self.desk: _Desk = _Desk()
        self.out: dict[int, str] = {}
        self.blacked = 0

    def advance(self, until: int) -> None:
        """Pass time, and note what passes."""
        job = self.desk.job
        if isinstance(job, js.Active | js.Paused) and not job.facts.spec.is_one_time:
            one = job.facts.spec
            covers = [(e.name, cover(e, "UTC")) for e in one.exclusions]
            inner, kept = plan(one.schedule), slots_of(one)
            busy = any(
                run.facts.begun and run.facts.is_link and run.facts.life == job.facts.life
                for run in self.desk.runs()
            )
            slot = inner.next_after(self.desk.now)
            while slot is not None and slot <= until:
                causes = [name for name, covering in covers if covering.end(slot)]
                assert (kept.next_after(slot - 1) == slot) == (not causes)
                if causes:
                    self.out[slot] = causes[0]
                else:
                    self.owed[slot] = (busy, isinstance(job, js.Paused))
                slot = inner.next_after(slot)
        self.desk.now = until

    def excluded_slots_have_one_verdict(self, *, all_of_them: bool) -> None:
        """P13 for the slots that calendars exclude."""
        ranges = self.desk.blackouts()
        for p in ranges[self.blacked :]:
            covered = [s for s in self.out if p.first <= s <= p.last and self.out[s] == p.cause]
            assert p.count == len(covered), (p, covered)
            assert p.first in covered
            assert p.last in covered
            assert p.last <= self.desk.now, "not before it has passed"
        self.blacked = len(ranges)
        for slot, cause in self.out.items():
            found = sum(p.first <= slot <= p.last and p.cause == cause for p in ranges)
            assert found == 1 if all_of_them else found <= 1, self.story(slot)
            assert slot not in self.ended_slots() or slot in self.owed


class _Excluding(Play):
    """Play with calendars, which are edited now and then."""

    def __init__(self, seed: str, overlap: int, misfire: int, *, limited: bool) -> None:
        self.calendars = random.Random(f"{seed} calendars")
        self.versions: Counter[str] = Counter()
        self.current: dict[str, Exclusion] = {}
        super().__init__(seed, overlap, misfire, limited=limited)

    def calendar(self, name: str) -> Exclusion:
        """Return the next version of a calendar: some minutes of the hours around now."""
        self.versions[name] += 1
        pick = self.calendars
        stretches = []
        machine = getattr(self, "machine", None)
        at = 0 if machine is None else (machine.desk.now - START) // MINUTE
        for _ in range(pick.randrange(6)):
            first = at + pick.randrange(-20, 90)
            stretches.append((first, first + pick.choice((1, 2, 5, 30))))
        self.current[name] = minutes(name, self.versions[name], *stretches)
        return self.current[name]

    def _spec(self) -> je.JobSpec:
        for name in ("a", "b"):
            if name not in self.current:
                self.calendar(name)
        names = self.calendars.choice((("a",), ("a", "b"), ("b", "a"), ("b",), ()))
        exclusions = tuple(self.current[name] for name in names)
        return msgspec.structs.replace(super()._spec(), exclude=names, exclusions=exclusions)

    def _define(self) -> None:
        if not isinstance(self.machine, _Machine):
            self.machine = _Machine()
            self.machine.desk.now = START
        super()._define()

    def step(self) -> None:
        """Do something, or edit a calendar."""
        if self.calendars.random() < 0.1:
            edit(self.machine.desk, self.calendar(self.calendars.choice("ab")))
            self.look()
        super().step()

    def look(self) -> None:
        """Check the laws that hold at every instant."""
        super().look()
        assert isinstance(self.machine, _Machine)
        self.machine.excluded_slots_have_one_verdict(all_of_them=False)


@pytest.mark.parametrize("misfire", range(3), ids=je.MISFIRE_NAMES)
@pytest.mark.parametrize("overlap", range(5), ids=je.OVERLAP_NAMES)
def test_every_excluded_slot_has_one_verdict_under(overlap: int, misfire: int) -> None:
    for number in range(PLAYS):
        seed = f"{SEED} excluded {overlap} {misfire} {number}"
        print(f"seed {seed}")
        play = _Excluding(seed, overlap, misfire, limited=number % 2 == 1)
        for _ in range(STEPS):
            play.step()
        play.machine.body_and_instant_of_a_run_never_change()
        play.machine.teardown()
        assert isinstance(play.machine, _Machine)
        play.machine.excluded_slots_have_one_verdict(all_of_them=True)


def test_the_plays_come_to_excluded_slots_and_to_edits_that_move() -> None:
    seen: Counter[str] = Counter()
    for overlap in range(5):
        play = _Excluding(f"{SEED} {overlap}", overlap, je.ALL, limited=False)
        for _ in range(6 * STEPS):
            play.step()
        assert isinstance(play.machine, _Machine)
        seen["blackouts"] += len(play.machine.desk.blackouts())
        seen["edits"] += sum(isinstance(e, je.Replanned) for e in play.machine.desk.job_events)
    assert min(seen["blackouts"], seen["edits"]) > 30, seen
