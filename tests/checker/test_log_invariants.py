"""Each invariant that the log alone can break, broken by hand: that one is found, and no other."""

from domain.job import events as je
from domain.run import events as re
from domain.schedule.schedule import FixedDelay
from tests.checker.check import check
from tests.checker.inputs import Session
from tests.checker.scene import (
    MINUTE,
    SECOND,
    SESSION,
    START,
    TENANT,
    Scene,
    broken,
    spec,
)


class TestRight:
    def test_a_job_that_fires(self) -> None:
        scene = Scene()
        scene.chain(scene.define(), 5)
        assert broken(scene, settled_at=scene.now) == set()

    def test_failures_are_retried_until_one_succeeds(self) -> None:
        scene = Scene()
        job = scene.define()
        run = scene.plan(job, START + MINUTE)
        for _ in range(2):
            scene.lease(run)
            scene.hit(run, 500)
            scene.fail(run)
        scene.fire(run)
        scene.plan(job, START + 2 * MINUTE)
        assert broken(scene) == set()

    def test_an_attempt_that_nobody_speaks_for_is_given_up_and_made_again(self) -> None:
        scene = Scene()
        job = scene.define()
        run = scene.plan(job, START + MINUTE)
        scene.lease(run)
        scene.lose(run)
        scene.fire(run)
        gone = (re.Passed(START + 2 * MINUTE, START + 2 * MINUTE, 1, re.OVERLAP),)
        scene.plan(job, START + 3 * MINUTE, after=START + 2 * MINUTE, passed=gone)
        assert broken(scene, exact_hits=False) == set()

    def test_a_run_that_fails_for_good_is_dead_and_the_next_one_follows(self) -> None:
        scene = Scene()
        job = scene.define()
        run = scene.plan(job, START + MINUTE)
        for _ in range(2):
            scene.lease(run)
            scene.hit(run, 500)
            scene.fail(run)
        scene.lease(run)
        scene.hit(run, 500)
        scene.fired(run, re.FAILED, re.DEAD)
        scene.completed(run, re.DEAD, "attempts")
        scene.plan(job, START + 2 * MINUTE)
        assert broken(scene) == set()

    def test_a_pause_withholds_and_a_resume_gives_back(self) -> None:
        scene = Scene()
        job = scene.define()
        run = scene.chain(job, 2)
        scene.pause(job, run)
        scene.now += SECOND
        scene.put(job, je.Resumed(scene.now, scene.now, tenant_id=TENANT))
        scene.again(run, run.planned.due_at, cause="resumed")
        scene.fire(run)
        scene.plan(job, run.planned.nominal + MINUTE)
        assert broken(scene) == set()

    def test_a_cancelled_job_with_a_run_in_flight(self) -> None:
        scene = Scene()
        job = scene.define()
        run = scene.plan(job, START + MINUTE)
        scene.lease(run)
        scene.cancel(job, in_flight=(run.id,))
        scene.hit(run)
        scene.succeed(run)
        assert broken(scene, settled_at=scene.now + MINUTE) == set()

    def test_slots_that_were_missed_are_skipped_and_the_newest_fires(self) -> None:
        scene = Scene()
        job = scene.define()
        run = scene.plan(job, START + MINUTE)
        scene.now = START + 5 * MINUTE + SECOND
        scene.skipped(run, re.MISFIRE, "outage")
        gone = (re.Passed(START + 2 * MINUTE, START + 4 * MINUTE, 3, re.MISFIRE, "outage"),)
        newest = scene.plan(job, START + 5 * MINUTE, after=START + MINUTE, passed=gone)
        scene.fire(newest)
        scene.plan(job, START + 6 * MINUTE, after=START + 5 * MINUTE)
        assert broken(scene) == set()


# -------------------------------------------------------------------- I1


def test_i1_an_occurrence_that_was_due_and_never_began() -> None:
    scene = Scene()
    run = scene.plan(scene.define(), START + MINUTE)
    assert broken(scene, settled_at=run.planned.due_at + 10 * SECOND) == {"I1"}


def test_i1_a_run_that_is_dead_before_its_attempts_are_made() -> None:
    scene = Scene()
    job = scene.define()
    run = scene.plan(job, START + MINUTE)
    scene.lease(run)
    scene.hit(run, 500)
    scene.fired(run, re.FAILED, re.DEAD)
    scene.completed(run, re.DEAD, "attempts")
    scene.plan(job, START + 2 * MINUTE)
    assert broken(scene) == {"I1"}


def test_i1_an_occurrence_that_is_missed_before_it_is_late() -> None:
    scene = Scene()
    job = scene.define(spec(misfire=je.NONE))
    run = scene.plan(job, START + MINUTE)
    scene.now = START + MINUTE + SECOND
    scene.skipped(run, re.MISFIRE, "outage")
    scene.plan(job, START + 2 * MINUTE)
    assert broken(scene) == {"I1"}


def test_i1_a_report_after_which_nothing_follows() -> None:
    scene = Scene()
    run = scene.plan(scene.define(), START + MINUTE)
    scene.lease(run)
    scene.hit(run)
    scene.fired(run, re.OK, re.SUCCEEDED)
    assert broken(scene, settled_at=scene.now + MINUTE) == {"I1"}


def test_i1_slots_that_are_skipped_before_they_have_passed() -> None:
    scene = Scene()
    job = scene.define()
    run = scene.plan(job, START + MINUTE)
    scene.fire(run)
    gone = (re.Passed(START + 2 * MINUTE, START + 3 * MINUTE, 2, re.OVERLAP),)
    scene.plan(job, START + 4 * MINUTE, passed=gone)
    assert broken(scene) == {"I1"}


def test_i1_slots_that_are_overlap_though_nothing_ran() -> None:
    scene = Scene()
    job = scene.define()
    run = scene.plan(job, START + MINUTE)
    scene.fire(run)
    scene.now = START + 3 * MINUTE
    gone = (re.Passed(START + 2 * MINUTE, START + 2 * MINUTE, 1, re.OVERLAP),)
    scene.plan(job, START + 3 * MINUTE, passed=gone)
    assert broken(scene) == {"I1"}


# -------------------------------------------------------------------- I2, I3


def test_i2_a_run_of_an_instant_that_is_no_slot() -> None:
    scene = Scene()
    job = scene.define()
    run = scene.plan(job, START + MINUTE)
    scene.fire(run)
    scene.fire(scene.plan(job, START + MINUTE + 30 * SECOND))
    scene.plan(job, START + 2 * MINUTE)
    assert broken(scene) == {"I2"}


def test_i2_a_fixed_delay_that_is_not_kept() -> None:
    scene = Scene()
    job = scene.define(spec(FixedDelay("PT1M", MINUTE)))
    run = scene.plan(job, START + MINUTE)
    scene.fire(run)
    scene.plan(job, scene.now + 2 * MINUTE)
    assert broken(scene) == {"I2"}


def test_i3_an_event_after_the_end() -> None:
    scene = Scene()
    job = scene.define()
    run = scene.plan(job, START + MINUTE)
    scene.fire(run)
    scene.completed(run)
    scene.plan(job, START + 2 * MINUTE)
    assert broken(scene) == {"I3"}


# -------------------------------------------------------------------- I5, I6, I7


def test_i5_a_report_of_an_attempt_that_was_superseded() -> None:
    scene = Scene()
    job = scene.define()
    run = scene.plan(job, START + MINUTE)
    scene.lease(run)
    scene.hit(run)
    first = run.fence
    scene.lose(run)
    scene.lease(run)
    scene.fired(run, re.OK, re.SUCCEEDED, fence=first)
    scene.completed(run)
    gone = (re.Passed(START + 2 * MINUTE, START + 2 * MINUTE, 1, re.OVERLAP),)
    scene.plan(job, START + 3 * MINUTE, passed=gone)
    assert broken(scene) == {"I5"}


def test_i5_a_second_lease_while_the_first_is_held() -> None:
    scene = Scene()
    job = scene.define()
    run = scene.plan(job, START + MINUTE)
    scene.lease(run)
    scene.lease(run)
    scene.hit(run)
    scene.succeed(run)
    scene.plan(job, START + 2 * MINUTE)
    assert broken(scene) == {"I5"}


def test_i5_an_attempt_that_is_taken_away_from_an_owner_that_lives() -> None:
    scene = Scene()
    job = scene.define()
    run = scene.plan(job, START + MINUTE)
    scene.lease(run)
    scene.now += 15 * SECOND
    scene.fired(run, re.LOST, re.RETRY)
    scene.again(run, scene.now, cause="retry")
    scene.fire(run)
    scene.plan(job, START + 2 * MINUTE)
    history = scene.history(exact_hits=False)
    history.projections = [Session(SESSION, START + 10 * MINUTE, ended=False)]
    report = check(history)
    assert {v.what for v in report.violations if v.invariant == "I5"} == {
        "it is given up though its owner lives"
    }
    assert set(report.broken) == {"I5", "I12"}, "the views were not written in this history"


def test_i6_an_attempt_that_is_numbered_as_another() -> None:
    scene = Scene()
    job = scene.define()
    run = scene.plan(job, START + MINUTE)
    scene.lease(run, attempt=2)
    scene.fired(run, re.OK, re.SUCCEEDED, attempt=2)
    scene.completed(run)
    scene.plan(job, START + 2 * MINUTE)
    assert broken(scene, exact_hits=False) == {"I6"}


def test_i7_more_attempts_than_the_policy_allows() -> None:
    scene = Scene()
    job = scene.define()
    run = scene.plan(job, START + MINUTE)
    for _ in range(3):
        scene.lease(run)
        scene.hit(run, 500)
        scene.fail(run)
    scene.fire(run)
    scene.plan(job, START + 2 * MINUTE)
    assert broken(scene) == {"I7"}


# -------------------------------------------------------------------- I8


def test_i8_a_lease_after_the_cancel() -> None:
    scene = Scene()
    job = scene.define()
    run = scene.plan(job, START + MINUTE)
    scene.cancel(job)
    scene.lease(run)
    scene.fired(run, re.FAILED, re.CANCELLED)
    scene.cancelled(run)
    assert broken(scene, exact_hits=False) == {"I8"}


def test_i8_a_lease_while_the_job_is_paused() -> None:
    scene = Scene()
    job = scene.define()
    run = scene.plan(job, START + MINUTE)
    scene.pause(job)
    scene.fire(run)
    assert broken(scene) == {"I8"}


def test_i8_a_lease_under_the_spec_of_before_an_edit() -> None:
    scene = Scene()
    job = scene.define()
    run = scene.plan(job, START + MINUTE)
    new = spec(timeout_ms=20_000)
    scene.put(job, je.Revised(scene.now, new, 1, scene.now, tenant_id=TENANT))
    scene.fire(run)
    scene.plan(job, START + 2 * MINUTE, payload_version=1)
    assert broken(scene) == {"I8"}
