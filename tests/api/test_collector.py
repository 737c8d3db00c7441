"""Large payloads are deleted when no run can need them any more, and not before."""

from collections.abc import Sequence
from typing import Any

import pytest

from commandside.command_port import Answer
from commandside.payload_port import AGAIN_MS, APPEND_WITHIN_MS, GRACE_MS
from domain.envelope import Decision
from domain.ids import REDRIVE
from domain.job.redrive import KEPT_MS
from domain.run.decide import Grant, Result, first_lease, report
from domain.run.events import FAILED, OK
from domain.run.state import InFlight, Ready
from infra.memory.payloads import MemoryPayloadStore
from infra.web import collector
from tests.api.test_payloads import KIB, object_of, spec_of, text
from tests.api.test_queries import fire, lease
from tests.api.world import World

HOUR_MS = 3_600_000
DEAD = Result(FAILED, "dead", 400)
OVER_MS = KEPT_MS + 3 * GRACE_MS
"""From when an object is found unnamed until it is deleted."""


def later(world: World, ms: int) -> None:
    """Let time pass, and the collector look as often as it would."""
    end = world.clock.now() + ms
    while world.clock.now() < end:
        world.clock.advance_ms(min(AGAIN_MS, end - world.clock.now()))
        world.collect()


def kept(world: World) -> int:
    return len(world.objects.objects)


def edit(world: World, job: str, letter: str) -> None:
    found = world.send("PATCH", f"/v1/jobs/{job}", {"payload_text": letter * 20 * KIB})
    assert found.status_code == 200, found.text


def once(world: World, **fields: Any) -> str:
    """Define a job with one occurrence, an hour from now."""
    body = {name: value for name, value in text(20 * KIB).items() if name != "timezone"}
    del body["schedule"]
    at = "2025-11-30T01:00:00.000Z"
    job: str = world.define(body | {"type": "one_time", "run_at": at} | fields)["job_id"]
    return job


def replace_while_in_flight(world: World) -> tuple[str, Any]:
    """Let a run carry a body, and give its job another one; return what is in flight."""
    job = once(world)
    world.clock.advance_ms(HOUR_MS + 1_000)
    (granted,) = lease(world)
    edit(world, job, "y")
    assert kept(world) == 2
    return job, granted


def ends(world: World, granted: Any, result: Result) -> None:
    standing = world.log.standings([granted.job.facts.job_id])[granted.job.facts.job_id]
    facts = granted.run.facts
    decision = report(standing.job, granted.run, facts.fence, result, world.clock.now(), alone=True)
    assert decision is not None
    assert not world.log.append([decision], world.clock.now()).refused


def redriven(world: World, result: Result) -> str:
    """Let the redrive that is due end as said; its lease is decided. Return its id."""
    world.clock.advance_ms(1_000)
    session, at = world.new_id(16), world.clock.now()
    world.log.start(session)
    (run,) = [row.run for row in world.log.waking(at) if row.run.facts.kind == REDRIVE]
    assert isinstance(run, Ready)
    assert run.facts.payload_version == 1
    job, _ = world.log.heads[run.facts.job_id]
    leased = first_lease(job, run, (), at, Grant(session, bytes(8)))
    assert leased is not None
    assert not world.log.append([leased], at).refused
    after = leased.slices[0].after
    assert isinstance(after, InFlight)
    done = report(job, after, after.facts.fence, result, at, alone=False)
    assert done is not None
    assert not world.log.append([done], at).refused
    return f"rn_{run.facts.run_id.hex()}"


def test_a_body_that_a_job_names_stays_however_long(world: World) -> None:
    job = world.define(text(20 * KIB))["job_id"]
    later(world, 3 * OVER_MS)
    assert kept(world) == 1
    assert world.send("GET", f"/v1/jobs/{job}").json()["spec"]["payload_text"] == "x" * 20 * KIB


def test_a_body_whose_definition_was_cut_off_is_deleted_after_its_grace(world: World) -> None:
    world.log.away = True
    world.send("POST", "/v1/jobs", text(20 * KIB))
    world.log.away = False
    world.clock.advance_ms(GRACE_MS - 1)
    assert world.collect() == 0
    world.clock.advance_ms(1)
    assert world.collect() == 1
    assert kept(world) == 0
    later(world, AGAIN_MS)


def test_a_body_whose_edit_was_cut_off_is_deleted_after_its_grace(world: World) -> None:
    job = world.define(text(20 * KIB))["job_id"]

    class CutOff(MemoryPayloadStore):
        def put(self, objects: Any) -> None:
            super().put(objects)
            world.log.away = True

    store = CutOff()
    store.objects = world.objects.objects
    world.serve(objects=store)
    found = world.send("PATCH", f"/v1/jobs/{job}", {"payload_text": "y" * 20 * KIB})
    assert found.status_code == 503
    world.log.away = False
    assert kept(world) == 2
    world.clock.advance_ms(GRACE_MS)
    assert world.collect() == 1
    assert list(world.objects.objects) == [object_of(world, job)]


def test_a_body_that_was_replaced_is_deleted_when_no_dead_run_could_be_redriven_with_it(
    world: World,
) -> None:
    job = world.define(text(20 * KIB))["job_id"]
    edit(world, job, "y")
    later(world, KEPT_MS)
    assert kept(world) == 2
    later(world, 4 * AGAIN_MS)
    assert list(world.objects.objects) == [object_of(world, job)]


def test_a_longer_time_for_redrives_holds_for_what_was_found_unnamed_before(world: World) -> None:
    job = world.define(text(20 * KIB))["job_id"]
    edit(world, job, "y")
    later(world, 2 * AGAIN_MS)
    world.serve(dead_kept_ms=3 * KEPT_MS)
    later(world, 2 * KEPT_MS)
    assert kept(world) == 2
    later(world, 3 * KEPT_MS)
    assert list(world.objects.objects) == [object_of(world, job)]


def test_a_run_in_flight_keeps_the_body_of_its_first_lease(world: World) -> None:
    job, granted = replace_while_in_flight(world)
    later(world, 2 * OVER_MS)
    assert kept(world) == 2
    ends(world, granted, Result(OK, "ok", 200))
    later(world, OVER_MS + 2 * AGAIN_MS)
    assert list(world.objects.objects) == [object_of(world, job)]


def test_a_dead_run_keeps_its_body_for_as_long_as_it_can_be_redriven(world: World) -> None:
    _, granted = replace_while_in_flight(world)
    # The collector has looked while the run was open, and right after its end.
    world.clock.advance_ms(2 * GRACE_MS)
    world.collect()
    ends(world, granted, DEAD)
    ended = world.clock.now()
    run = f"rn_{granted.run.facts.run_id.hex()}"
    later(world, KEPT_MS - HOUR_MS)
    assert world.clock.now() == ended + KEPT_MS - HOUR_MS
    assert kept(world) == 2
    assert world.send("POST", f"/v1/runs/{run}/redrive").status_code == 200
    # The redrive carries it, dies too, and can be redriven for as long again.
    again = redriven(world, DEAD)
    later(world, KEPT_MS - HOUR_MS)
    assert kept(world) == 2
    assert world.send("POST", f"/v1/runs/{again}/redrive").status_code == 200
    redriven(world, Result(OK, "ok", 200))
    later(world, OVER_MS + 6 * AGAIN_MS)
    assert kept(world) == 1


def test_the_body_of_a_cancelled_job_is_deleted_once_no_run_is_in_flight(world: World) -> None:
    job = once(world)
    world.clock.advance_ms(HOUR_MS + 1_000)
    (granted,) = lease(world)
    world.send("DELETE", f"/v1/jobs/{job}")
    later(world, 2 * AGAIN_MS)
    assert kept(world) == 1
    ends(world, granted, Result(OK, "ok", 200))
    later(world, 2 * AGAIN_MS)
    assert kept(world) == 0
    shown = world.send("GET", f"/v1/jobs/{job}").json()
    assert shown["status"] == "cancelled"
    assert shown["spec"]["payload_missing"] is True


def test_a_job_of_a_next_life_keeps_its_own_body(world: World) -> None:
    job = world.define(text(20 * KIB) | {"key": "k"})["job_id"]
    world.send("DELETE", f"/v1/jobs/{job}")
    world.define(text(20 * KIB, "y") | {"key": "k"})
    later(world, OVER_MS + 2 * AGAIN_MS)
    assert list(world.objects.objects) == [object_of(world, job)]


@pytest.mark.parametrize("slept_ms", [0, APPEND_WITHIN_MS, GRACE_MS, 2 * GRACE_MS])
def test_no_event_ever_names_what_was_collected(slept_ms: int) -> None:
    """The API sleeps between the object and its event, and the collector looks meanwhile."""
    world = World()

    class Sleeping(MemoryPayloadStore):
        def put(self, objects: Any) -> None:
            super().put(objects)
            world.clock.advance_ms(slept_ms)

    store = Sleeping()
    world.serve(objects=store)
    define = world.commands.define_all

    async def collect_first(decisions: Sequence[Decision]) -> list[Answer | Exception]:
        await collector(world.ports).sweep()
        return await define(decisions)

    world.commands.define_all = collect_first  # type: ignore[method-assign]  # a pause before it
    found = world.send("POST", "/v1/jobs", text(20 * KIB))
    if found.status_code == 201:
        job = found.json()["job_id"]
        assert spec_of(world, job).payload_ref is not None
        assert object_of(world, job) in store.objects
    else:
        assert found.status_code == 503
        assert world.stored() == 0
        assert slept_ms > APPEND_WITHIN_MS


def test_a_store_that_is_away_keeps_what_is_to_be_deleted_for_later(world: World) -> None:
    world.log.away = True
    world.send("POST", "/v1/jobs", text(20 * KIB))
    world.log.away = False
    world.clock.advance_ms(GRACE_MS)
    world.objects.away = True
    with pytest.raises(Exception, match="away"):
        world.collect()
    world.objects.away = False
    later(world, AGAIN_MS)
    assert kept(world) == 0


def test_a_job_that_changes_often_keeps_its_last_body_alone(world: World) -> None:
    job = world.define(text(20 * KIB))["job_id"]
    for n in range(30):
        edit(world, job, "abcdefghij"[n % 10])
    assert kept(world) == 11
    later(world, OVER_MS + 2 * AGAIN_MS)
    assert list(world.objects.objects) == [object_of(world, job)]


def test_a_fire_needs_no_look(world: World) -> None:
    world.define(text(20 * KIB))
    world.clock.advance_ms(HOUR_MS + 10_000)
    fire(world, Result(OK, "ok", 200))
    later(world, OVER_MS)
    assert kept(world) == 1
