"""What an edit of a calendar, or a definition, leaves that is cut off, and who ends it."""

import asyncio
from typing import Any

import pytest

from commandside.ports import Unavailable
from domain import ids
from domain.tenant import SCOPES, Caller
from infra.web import tenant_calendars
from tests.api.test_calendars import NIGHT, PATH, excluding, put, shown
from tests.api.world import START, World


def test_an_edit_that_was_cut_off_is_ended_by_whoever_looks(world: World) -> None:
    put(world, {"dates": []})
    job_id = excluding(world)["job_id"]
    visited = world.calendars.behind

    async def killed(*_: Any) -> Any:
        raise ConnectionError("killed")

    world.calendars.behind = killed  # type: ignore[assignment,method-assign]  # the fault
    assert world.send("PUT", PATH, NIGHT).status_code == 500
    world.calendars.behind = visited  # type: ignore[method-assign]  # the fault
    assert shown(world, job_id)["calendars"] == [{"name": "holidays", "version": 1}]
    sweep = tenant_calendars(world.ports).sweep
    assert asyncio.run(sweep()) == 1
    assert shown(world, job_id)["calendars"] == [{"name": "holidays", "version": 2}]
    assert shown(world, job_id)["next_run_at"] == "2025-11-30T06:00:00.000Z"
    assert asyncio.run(sweep()) == 0


def test_a_job_that_cannot_follow_is_told_and_the_others_follow(world: World) -> None:
    put(world, {"dates": []})
    jobs = sorted(excluding(world)["job_id"] for _ in range(3))
    command = world.commands.command
    stuck = ids.parse(ids.JOB, jobs[0])

    async def broken_for_one(job_id: bytes, *more: Any) -> Any:
        if job_id == stuck:
            raise ZeroDivisionError
        return await command(job_id, *more)

    world.commands.command = broken_for_one  # type: ignore[assignment,method-assign]  # the fault
    assert world.send("PUT", PATH, NIGHT).status_code == 500
    with pytest.raises(ZeroDivisionError) as raised:
        asyncio.run(tenant_calendars(world.ports).sweep())
    assert stuck is not None
    assert stuck.hex() in raised.value.__notes__[0]
    assert [shown(world, job)["calendars"][0]["version"] for job in jobs] == [1, 2, 2]


def test_a_definition_is_answered_though_its_use_could_not_be_noted(world: World) -> None:
    put(world, {"dates": []})
    applied = world.calendars.applied

    async def away(*_: Any) -> Any:
        raise Unavailable("away")

    world.calendars.applied = away  # type: ignore[assignment,method-assign]  # the fault
    job_id = excluding(world)["job_id"]
    world.calendars.applied = applied  # type: ignore[method-assign]  # the fault
    assert asyncio.run(tenant_calendars(world.ports).sweep()) == 1
    assert shown(world, job_id)["calendars"] == [{"name": "holidays", "version": 1}]
    assert asyncio.run(tenant_calendars(world.ports).sweep()) == 0


def test_a_definition_that_read_the_version_before_an_edit_follows_it_at_once(
    world: World,
) -> None:
    put(world, {"dates": []})
    define_all = world.commands.define_all

    async def edited_in_between(decisions: Any) -> Any:
        world.commands.define_all = define_all  # type: ignore[method-assign]  # the fault
        await tenant_calendars(world.ports).put(Caller(b"t" * 16, "k", SCOPES), "holidays", NIGHT)
        return await define_all(decisions)

    world.commands.define_all = edited_in_between  # type: ignore[method-assign]  # the fault
    answer = excluding(world)
    assert shown(world, answer["job_id"])["calendars"] == [{"name": "holidays", "version": 2}]
    assert shown(world, answer["job_id"])["next_run_at"] == "2025-11-30T06:00:00.000Z"


def test_a_use_whose_job_never_came_is_forgotten(world: World) -> None:
    put(world)
    asyncio.run(world.calendars.claim(b"t" * 16, [(bytes(15) + b"\x01", ("holidays",))], START))
    sweep = tenant_calendars(world.ports).sweep
    asyncio.run(sweep())
    assert world.send("GET", PATH).json()["jobs"] == 1
    world.clock.advance_ms(2 * 60_000)
    asyncio.run(sweep())
    assert world.send("GET", PATH).json()["jobs"] == 0
