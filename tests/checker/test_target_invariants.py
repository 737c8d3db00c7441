"""What targets saw, broken by hand: the invariant that it violates is found, and no other."""

from typing import Any

import msgspec
import pytest

from domain.ids import MANUAL
from domain.run import events as re
from tests.checker.inputs import Fault, Scenario
from tests.checker.scene import MINUTE, SECOND, START, Made, Scene, broken, spec


def fired() -> Scene:
    """Return a job that has fired once, with one hit."""
    scene = Scene()
    scene.chain(scene.define(), 1)
    return scene


def altered(**fields: Any) -> Scene:
    """Return the same with another hit."""
    scene = fired()
    scene.hits[0] = msgspec.structs.replace(scene.hits[0], **fields)
    return scene


def retried(answered: int, **second: Any) -> Scene:
    """Return a run of two attempts, the first lost after its target answered."""
    scene = Scene()
    job = scene.define()
    run = scene.plan(job, START + MINUTE)
    scene.lease(run)
    scene.hit(run, answered)
    scene.lose(run)
    scene.lease(run)
    scene.hit(run, **second)
    scene.succeed(run)
    gone = re.Passed(START + 2 * MINUTE, START + 2 * MINUTE, 1, re.OVERLAP)
    scene.plan(job, START + 3 * MINUTE, passed=(gone,))
    return scene


def test_what_a_target_saw_is_right() -> None:
    assert broken(fired()) == set()


# -------------------------------------------------------------------- I1


def test_i1_a_success_that_no_target_confirms() -> None:
    assert broken(altered(status=500)) == {"I1"}


def test_i1_a_success_that_no_target_saw() -> None:
    scene = fired()
    scene.hits.clear()
    assert broken(scene) == {"I1"}


def test_i1_a_failure_that_its_target_denies() -> None:
    scene = Scene()
    job = scene.define()
    run = scene.plan(job, START + MINUTE)
    for _ in range(2):
        scene.lease(run)
        scene.hit(run, 500)
        scene.fail(run)
    scene.lease(run)
    scene.hit(run, 200)
    scene.fired(run, re.FAILED, re.DEAD)
    scene.completed(run, re.DEAD, "attempts")
    scene.plan(job, START + 2 * MINUTE)
    assert broken(scene) == {"I1"}


# -------------------------------------------------------------------- I2


@pytest.mark.parametrize(
    "fields",
    [
        {"run": bytes(16)},
        {"tenant": bytes(16)},
        {"url": "https://hooks.example.com/v2"},
        {"body_sha256": bytes(32)},
    ],
)
def test_i2_a_request_that_is_of_no_run_of_its_job(fields: dict[str, Any]) -> None:
    scene = altered(**fields)
    assert broken(scene, exact_hits="run" not in fields) == {"I2"}


# -------------------------------------------------------------------- I4


@pytest.mark.parametrize("fields", [{"key": "other", "webhook_id": "other"}, {"webhook_id": "o"}])
def test_i4_a_request_with_a_key_that_is_not_its_occurrences(fields: dict[str, Any]) -> None:
    assert broken(altered(**fields)) == {"I4"}


def test_i4_attempts_of_one_run_with_different_bodies() -> None:
    scene = retried(500, body_sha256=bytes(32))
    scene.clients.clear()
    assert broken(scene) == {"I4"}


def test_i4_two_occurrences_with_one_key() -> None:
    scene = Scene()
    first, second = scene.define(), scene.define(spec(key_template="x{scheduled_ts}{job_id}"))
    for job in (first, second):
        scene.now = START
        run = scene.plan(job, START + MINUTE)
        scene.fire(run)
        scene.plan(job, START + 2 * MINUTE)
    template = f"jb_{first.hex()}-" + "{scheduled_ts}"
    stolen = spec(key_template=template)
    defined = next(n for n, e in enumerate(scene.events) if e.stream == second)
    from domain.catalogue import encode
    from domain.job.events import Defined
    from tests.checker.scene import TENANT

    event = Defined(START, TENANT, 1, stolen, START)
    scene.events[defined] = msgspec.structs.replace(scene.events[defined], data=encode(event))
    assert broken(scene) == {"I4"}


def test_i4_a_manual_run_has_a_key_of_its_own() -> None:
    scene = fired()
    job = scene.events[0].stream
    manual = scene.plan(job, START + MINUTE, kind=MANUAL, due_at=scene.now)
    scene.fire(manual)
    assert broken(scene) == set()
    scene.hits[-1] = msgspec.structs.replace(scene.hits[-1], key=scene.hits[0].key, webhook_id="")
    assert broken(scene) == {"I4"}


# -------------------------------------------------------------------- I5


def test_i5_an_answer_to_one_attempt_that_is_taken_for_another() -> None:
    scene = retried(200, status=500)
    at = START + MINUTE
    scene.faults.append(Fault("dispatcher", "killed", at, at + SECOND))
    assert broken(scene) == {"I5"}


# -------------------------------------------------------------------- I6, I7


def test_i6_one_attempt_that_came_twice() -> None:
    scene = Scene()
    job = scene.define()
    run = scene.plan(job, START + MINUTE)
    scene.lease(run)
    scene.hit(run, 500)
    scene.hit(run, 200)
    scene.succeed(run)
    scene.plan(job, START + 2 * MINUTE)
    assert broken(scene) == {"I6"}


@pytest.mark.parametrize("fields", [{"attempt": 2}, {"fence": 3}])
def test_i6_a_request_without_its_lease(fields: dict[str, Any]) -> None:
    assert broken(altered(**fields)) == {"I6"}


def test_i7_a_second_request_after_an_answer() -> None:
    assert broken(retried(200)) == {"I7"}


def test_i7_a_fault_near_it_excuses_one() -> None:
    scene = retried(200)
    at = START + MINUTE
    scene.faults.append(Fault("dispatcher", "killed", at, at + SECOND))
    assert broken(scene) == set()


# -------------------------------------------------------------------- I8


def cancelled_in_flight() -> tuple[Scene, Made]:
    """Return a job that is cancelled while its run is in flight."""
    scene = Scene()
    job = scene.define()
    run = scene.plan(job, START + MINUTE)
    scene.lease(run)
    scene.cancel(job, in_flight=(run.id,))
    return scene, run


def test_i8_a_request_long_after_the_cancel() -> None:
    scene, run = cancelled_in_flight()
    scene.now += Scenario().send_ms + SECOND
    scene.hit(run)
    scene.succeed(run)
    assert broken(scene, late_ms=MINUTE) == {"I8"}


def test_i8_a_request_that_the_answer_does_not_name() -> None:
    scene, run = cancelled_in_flight()
    scene.clients[-1] = msgspec.structs.replace(scene.clients[-1], in_flight=())
    scene.hit(run)
    scene.succeed(run)
    assert broken(scene) == {"I8"}


# -------------------------------------------------------------------- I10, I11


def test_i10_a_request_before_its_run_is_due() -> None:
    scene = Scene()
    job = scene.define()
    run = scene.plan(job, START + MINUTE)
    scene.lease(run)
    early = (START + MINUTE - Scenario().early_ms - 1) * 1_000
    scene.hit(run, at_us=early, answered_us=early + 9)
    scene.succeed(run)
    scene.plan(job, START + 2 * MINUTE)
    assert broken(scene) == {"I10"}


def test_i6_a_request_before_its_lease() -> None:
    scene = Scene()
    job = scene.define()
    run = scene.plan(job, START + MINUTE)
    scene.now = START + MINUTE + SECOND
    scene.lease(run)
    early = (START + MINUTE) * 1_000
    scene.hit(run, at_us=early, answered_us=early + 9)
    scene.succeed(run)
    scene.plan(job, START + 2 * MINUTE)
    assert broken(scene) == {"I6"}


def test_i11_a_request_that_is_late_though_its_lease_was_not() -> None:
    scene = Scene()
    job = scene.define()
    run = scene.plan(job, START + MINUTE)
    scene.lease(run)
    scene.now += 4 * SECOND
    scene.hit(run)
    scene.succeed(run)
    scene.plan(job, START + 2 * MINUTE)
    assert broken(scene) == {"I11"}


def test_i11_what_was_broken_meanwhile_may_make_it_late() -> None:
    scene = Scene()
    job = scene.define()
    run = scene.plan(job, START + MINUTE)
    scene.now = START + MINUTE + 20 * SECOND
    scene.fire(run)
    scene.plan(job, START + 2 * MINUTE)
    for kind, wrong in (("postgres", set()), ("clickhouse", {"I11"}), ("projector", {"I11"})):
        scene.faults = [Fault(kind, "down", START, START + MINUTE + 19 * SECOND)]
        assert broken(scene) == wrong, kind
