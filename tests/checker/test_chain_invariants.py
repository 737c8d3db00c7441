"""Chains, times and the order of the log, broken by hand: that one is found, and no other."""

import msgspec
import pytest

from domain.catalogue import encode
from domain.ids import MANUAL
from domain.job import events as je
from domain.retry import RetryPolicy
from domain.run import events as re
from tests.checker.check import check
from tests.checker.inputs import Fault, Stored
from tests.checker.scene import (
    MINUTE,
    MINUTELY,
    SECOND,
    START,
    TENANT,
    Scene,
    broken,
    spec,
)

# -------------------------------------------------------------------- I9


def test_i9_a_slot_that_is_forgotten() -> None:
    scene = Scene()
    job = scene.define()
    scene.fire(scene.plan(job, START + MINUTE))
    scene.plan(job, START + 3 * MINUTE)
    assert broken(scene) == {"I9"}


def test_i9_a_slot_with_two_verdicts() -> None:
    scene = Scene()
    job = scene.define()
    run = scene.plan(job, START + MINUTE)
    scene.lease(run)
    scene.now += 90 * SECOND
    scene.fired(run, re.OK, re.SUCCEEDED)
    scene.completed(run)
    both = re.Passed(START + 2 * MINUTE, START + 2 * MINUTE, 1, re.OVERLAP)
    scene.plan(job, START + 3 * MINUTE, passed=(both, both))
    assert broken(scene, exact_hits=False) == {"I9"}


def test_i9_a_range_that_counts_wrong() -> None:
    scene = Scene()
    job = scene.define()
    run = scene.plan(job, START + MINUTE)
    scene.lease(run)
    scene.now += 150 * SECOND
    scene.fired(run, re.OK, re.SUCCEEDED)
    scene.completed(run)
    gone = re.Passed(START + 2 * MINUTE, START + 3 * MINUTE, 1, re.OVERLAP)
    scene.plan(job, START + 4 * MINUTE, passed=(gone,))
    assert broken(scene, exact_hits=False) == {"I9"}


def test_i9_an_active_job_without_a_next_occurrence() -> None:
    scene = Scene()
    job = scene.define()
    scene.fire(scene.plan(job, START + MINUTE))
    assert broken(scene) == {"I9"}


def test_i9_an_active_job_with_two() -> None:
    scene = Scene()
    job = scene.define()
    scene.plan(job, START + MINUTE)
    scene.plan(job, START + 2 * MINUTE)
    assert broken(scene) == {"I9"}


# -------------------------------------------------------------------- I10, I11


def test_i10_a_lease_before_the_run_is_due() -> None:
    scene = Scene()
    job = scene.define()
    run = scene.plan(job, START + MINUTE)
    scene.now = START + MINUTE
    scene.lease(run, at=START + MINUTE - 2)
    scene.hit(run)
    scene.succeed(run)
    scene.plan(job, START + 2 * MINUTE)
    assert broken(scene) == {"I10"}


def test_i11_a_fire_that_is_late_without_a_reason() -> None:
    scene = Scene()
    job = scene.define()
    run = scene.plan(job, START + MINUTE)
    scene.now = START + MINUTE + 3 * SECOND
    scene.fire(run)
    scene.plan(job, START + 2 * MINUTE)
    assert broken(scene) == {"I11"}


# -------------------------------------------------------------------- I13


def test_i13_a_version_that_is_missing() -> None:
    scene = Scene()
    scene.chain(scene.define(), 2)
    job = scene.events[0].stream
    scene.versions[job] += 1
    scene.put(job, je.CatchUpClosed(scene.now, START, tenant_id=TENANT))
    assert broken(scene) == {"I13"}


def test_i13_versions_that_are_not_in_commit_order() -> None:
    scene = Scene()
    job = scene.define()
    for _ in range(2):
        scene.put(job, je.CatchUpClosed(scene.now, START, tenant_id=TENANT))
    scene.plan(job, START + MINUTE, spec_version=1, payload_version=1)
    second, third = scene.events[1:3]
    scene.events[1] = msgspec.structs.replace(second, position=third.position)
    scene.events[2] = msgspec.structs.replace(third, position=second.position)
    assert broken(scene) == {"I13"}


def test_i13_an_event_that_nobody_knows() -> None:
    scene = Scene()
    scene.chain(scene.define(), 1)
    job = scene.events[0].stream
    position = len(scene.events) + 1
    scene.events.append(
        Stored(0, position, job, 2, "job.exploded.v1", encode(je.CatchUpClosed(scene.now, START)))
    )
    assert broken(scene) == {"I13"}


def test_i13_an_event_that_was_changed_since_the_last_dump() -> None:
    scene = Scene()
    scene.chain(scene.define(), 1)
    history = scene.history()
    history.before = [msgspec.structs.replace(scene.events[1], data=b"other")]
    assert set(check(history).broken) == {"I13"}


def test_i13_a_command_that_was_acknowledged_and_is_not_in_the_log() -> None:
    scene = Scene()
    job = scene.define()
    scene.chain(job, 1)
    scene.told("revise", job, 2)
    assert broken(scene) == {"I13"}


# -------------------------------------------------------------------- I17, I18


def test_i17_a_run_that_begins_beside_another() -> None:
    scene = Scene()
    job = scene.define()
    run = scene.plan(job, START + MINUTE)
    scene.lease(run)
    beside = scene.plan(job, START + MINUTE, kind=MANUAL, due_at=scene.now)
    scene.lease(beside)
    for one in (run, beside):
        scene.hit(one)
        scene.succeed(one)
    scene.plan(job, START + 2 * MINUTE)
    assert broken(scene) == {"I17"}


def test_i18_a_missed_slot_that_fires_though_a_newer_one_has_passed() -> None:
    scene = Scene()
    job = scene.define()
    run = scene.plan(job, START + MINUTE)
    scene.faults.append(Fault("postgres", "outage", START, START + 5 * MINUTE))
    scene.now = START + 5 * MINUTE + SECOND
    scene.fire(run)
    gone = re.Passed(START + 2 * MINUTE, START + 5 * MINUTE, 4, re.MISFIRE)
    scene.plan(job, START + 6 * MINUTE, passed=(gone,))
    assert broken(scene) == {"I18"}


def test_i18_a_missed_slot_that_fires_though_its_job_skips_them() -> None:
    scene = Scene()
    job = scene.define(spec(misfire=je.NONE))
    run = scene.plan(job, START + MINUTE)
    scene.faults.append(Fault("postgres", "outage", START, START + 5 * MINUTE))
    scene.now = START + 2 * MINUTE + SECOND
    scene.fire(run)
    gone = re.Passed(START + 2 * MINUTE, START + 2 * MINUTE, 1, re.MISFIRE)
    scene.plan(job, START + 3 * MINUTE, passed=(gone,))
    assert broken(scene) == {"I18"}


def test_i18_missed_slots_of_which_none_fires_though_the_newest_must() -> None:
    scene = Scene()
    job = scene.define()
    run = scene.plan(job, START + MINUTE)
    scene.now = START + 5 * MINUTE + SECOND
    scene.skipped(run, re.MISFIRE, "outage")
    gone = re.Passed(START + 2 * MINUTE, START + 5 * MINUTE, 4, re.MISFIRE, "outage")
    scene.plan(job, START + 6 * MINUTE, passed=(gone,))
    assert broken(scene) == {"I18"}


# -------------------------------------------------------------------- I21


@pytest.mark.parametrize("delay", [4_999, 5_001])
def test_i21_a_retry_that_is_not_when_its_policy_says(delay: int) -> None:
    scene = Scene()
    job = scene.define()
    run = scene.plan(job, START + MINUTE)
    scene.lease(run)
    scene.hit(run, 500)
    scene.fail(run, delay)
    scene.fire(run)
    scene.plan(job, START + 2 * MINUTE)
    assert broken(scene) == {"I21"}


@pytest.mark.parametrize(("header", "delay"), [("30", 30_000), ("2", 5_000)])
def test_i21_a_wish_of_the_target_counts_where_it_is_longer(header: str, delay: int) -> None:
    scene = Scene()
    job = scene.define()
    run = scene.plan(job, START + MINUTE)
    scene.lease(run)
    scene.hit(run, 503)
    scene.fail(run, delay, status=503, headers=(("retry-after", header),))
    scene.fire(run)
    scene.plan(job, START + 2 * MINUTE)
    assert broken(scene) == set()


def test_i21_full_jitter_lies_between_the_base_and_the_doubled_wait() -> None:
    policy = RetryPolicy(9, "exponential", 2_000, 60_000)
    for delay, wrong in ((2_000, set()), (4_000, set()), (1_999, {"I21"}), (4_001, {"I21"})):
        scene = Scene()
        job = scene.define(spec(MINUTELY, retry=policy))
        run = scene.plan(job, START + MINUTE)
        scene.lease(run)
        scene.hit(run, 500)
        scene.fail(run, delay)
        scene.fire(run)
        scene.plan(job, START + 2 * MINUTE)
        assert broken(scene) == wrong
