"""Lines of `tests/cases/cases.jsonl` about clocks, doubles, broken jobs, retries and edits in time.

Each scenario is named by the id of its case and gets what the case expects.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from domain.envelope import Decision
from domain.ids import SLOT
from domain.instant import DAY, HOUR, LAST, MINUTE, SECOND, rfc3339
from domain.job import decide as job
from domain.job import state as js
from domain.retry import RetryPolicy
from domain.run import events as re
from domain.run import state as rs
from domain.run.decide import ABANDONED
from domain.schedule import schedule, zone
from domain.schedule.schedule import Cron, OneTime, parse_cron
from tests.contracts import jobs
from tests.domain.protocol import scene
from tests.domain.protocol.scene import Desk
from tests.simulation.ledger import wrongs
from tests.simulation.long_run import LongRun
from tests.simulation.test_case_scenarios import cron, hand_over, ms
from tests.simulation.world import START, World

CASES: Final[dict[str, dict[str, Any]]] = {
    case["id"]: case
    for case in map(
        json.loads,
        (Path(__file__).parents[1] / "cases" / "cases.jsonl").read_text("utf-8").splitlines(),
    )
}
Scenario = Callable[[dict[str, Any]], None]


# ------------------------------------------------------------------ clocks


def clk_03(wanted: dict[str, Any]) -> None:
    """The clock steps back over a slot that has run."""
    ten = ms("2026-03-02T10:00:00Z")
    desk = Desk(ten - HOUR)
    desk.define(scene.spec(cron("0 10 * * *")))
    first = desk.begin()
    desk.now = ten + 20 * SECOND
    desk.report(first)
    desk.now = ten - 10 * SECOND
    assert desk.lease(desk.frontier()) is None
    desk.revise(scene.spec(cron("0 10 * * *"), name="other"))
    assert desk.frontier().facts.nominal == ten + DAY
    desk.fire()
    leased = [run for run, events in desk.streams.items() if _nominal(events) == ten]
    assert len(leased) == wanted["fires_with_scheduled_ts_10:00"]


def _nominal(events: list[re.RunEvent]) -> int:
    assert isinstance(events[0], re.Scheduled)
    return events[0].nominal


def clk_05(wanted: dict[str, Any]) -> None:
    """Two nodes know of one run; the handler is done before the second one's clock is there."""
    desk = Desk()
    desk.define(scene.once(desk.now + SECOND))
    known_to_both = desk.frontier()
    desk.now += SECOND
    first = desk.lease(known_to_both)
    assert first is not None
    desk.now += 20
    desk.report(first)
    desk.now += 480
    fires = 1 + (desk.lease(known_to_both) is not None)
    assert fires == wanted["fires"]


def clk_07(wanted: dict[str, Any]) -> None:
    """Nobody waits by a timer that is too long, and nobody works while nothing is due."""
    for run_at in (ms("2027-12-01T00:00:00Z"), LAST):
        world = LongRun(ms("2026-11-01T00:00:00Z"))
        world.define(jobs.spec(OneTime(run_at), payload=b""))
        world.run_until(run_at - 1)
        assert (len(world.fired), world.steps) == (wanted["fires_before_run_at"], 0)
        world.run_until(run_at)
        assert len(world.fired) == 1


def run_06(wanted: dict[str, Any]) -> None:
    """What is due is not asked again whether it lies in the future."""
    ten = ms("2026-03-02T10:00:00Z")
    world = LongRun(ten - HOUR)
    world.define(jobs.spec(OneTime(ten), payload=b""))
    world.sleep_until(ten + 300)
    world.run_until(ten + HOUR)
    assert len(world.fired) == wanted["fires"]


# ------------------------------------------------------------------ processes that come and go


def installation(text: str, timezone: str = "UTC") -> tuple[World, bytes]:
    """Return an installation with one job."""
    world, job_id = World(11), jobs.job_id(0, 8)
    found = parse_cron(text, timezone)
    assert isinstance(found, Cron)
    new = msgspec.structs.replace(jobs.spec(found, payload=b""), jitter_ms=0)
    assert world.log.append([jobs.define(job_id, new, world.clock.now())], START).refused == ()
    return world, job_id


def calls(world: World) -> int:
    """Return how many requests left."""
    return sum(len(deliverer.hits) for deliverer in world.deliverers)


def tz_14(wanted: dict[str, Any]) -> None:
    """Another process takes over a day later, in the year after that of the simulation's start."""
    world, job_id = installation("0 19 * * *", "Europe/Paris")
    seven = START + 10 * HOUR  # 18:00 UTC
    world.run_until(seven + MINUTE)
    before = calls(world)
    hand_over(world, seven + 15 * HOUR + 20 * MINUTE, seven + 15 * HOUR + 21 * MINUTE)
    assert before == 1
    assert calls(world) - before == wanted["runs_created_by_takeover"]
    (run,) = world.log.runs_of(job_id)
    assert run.facts.nominal == seven + DAY


def dup_08(wanted: dict[str, Any]) -> None:
    """Nothing runs because a process starts."""
    world, _ = installation("0 10 * * *")
    for deploy in range(5):
        at = START + (1 + 4 * deploy) * HOUR
        hand_over(world, at, at + MINUTE)
    world.run_until(START + 23 * HOUR)
    assert calls(world) == wanted["fires_per_day"]
    assert wrongs(world.log, world.deliverers, START + 22 * HOUR) == []


def can_01(wanted: dict[str, Any]) -> None:
    """A cancel reaches what is in the queue already."""
    world, ten = World(12), START + 2 * MINUTE
    job_id = jobs.job_id(0, 8)
    new = jobs.spec(OneTime(ten), payload=b"")
    assert world.log.append([jobs.define(job_id, new, START)], START).refused == ()
    world.run_until(ten - 2 * SECOND)
    (run,) = world.log.runs_of(job_id)
    assert world.log.due[run.facts.run_id].handed_off_at, "it is in the queue"
    head = world.log.heads[job_id][0]
    gone = job.cancel(head, (run,), job.By(world.clock.now()))
    assert isinstance(gone, Decision)
    assert world.log.append([gone], world.clock.now()).refused == ()
    world.run_until(ten + MINUTE)
    assert calls(world) == wanted["requests_sent"]
    names = [type(event).__name__.lower() for event in world.log.events_of(run.facts.run_id)]
    assert [{"status": names[-1]}] == wanted["history"]


def con_01(wanted: dict[str, Any]) -> None:
    """Who was slow commits what was decided of an older state: nothing of it holds."""
    ten = ms("2026-03-02T10:00:00Z")
    desk = Desk(ten)
    desk.define(scene.spec())
    first = desk.begin()
    slow = desk.decide_report(first, scene.OK)
    assert slow is not None
    desk.report(first)
    desk.fire()
    assert not desk.commit(slow)
    assert rfc3339(desk.frontier().facts.nominal)[11:19] + "Z" == wanted["final_next_run_at"]
    fired = [_nominal(events) for events in desk.streams.values() if len(events) > 1]
    assert len(fired) == len(set(fired)) * wanted["fires_per_slot"]


# ------------------------------------------------------------------ what cannot be worked out


def broken_among(count: int, broken: int) -> LongRun:
    """Return jobs due together, some of a zone that the data have no longer at their first end."""
    world = LongRun(START)
    with pytest.MonkeyPatch.context() as before:
        before.setattr(zone, "load", lambda _name, _load=zone.load: _load("UTC"))
        for number in range(count):
            name = "Mars/Base" if number < broken else "UTC"
            world.define(spec_in(name))
        schedule.plan.cache_clear()
    return world


def spec_in(name: str) -> Any:
    """Return an hourly job in a zone."""
    return msgspec.structs.replace(
        jobs.spec(Cron("0 * * * *", "0 * * * *", name), payload=b""), jitter_ms=0
    )


def poi_01(wanted: dict[str, Any]) -> None:
    """One job whose schedule raises, among twenty."""
    world = broken_among(20, 1)
    world.run_until(START + 3 * HOUR + MINUTE)
    in_the_first_hour = [run for run in world.fired if run.facts.nominal == START + HOUR]
    assert str(len(in_the_first_hour)) in wanted["fires"]
    parked = [head for head, *_ in world.log.heads.values() if isinstance(head, js.Paused)]
    assert len(parked) == wanted["parked"]
    assert (parked[0].cause, "Mars/Base" in parked[0].reason) == ("schedule_error", True)
    assert len(world.fired) == 20 + 2 * 19


def poi_02(_: dict[str, Any]) -> None:
    """All jobs of one zone; the others fire at their instants."""
    world = broken_among(20, 10)
    world.run_until(START + 5 * HOUR + MINUTE)
    well = [run for run in world.fired if run.facts.nominal > START + HOUR]
    assert len(well) == 4 * 10
    assert all(run.leased_at == run.facts.nominal for run in well)


# ------------------------------------------------------------------ retries


def ret_06(wanted: dict[str, Any]) -> None:
    """Being put off does not make the first delay longer."""
    desk = Desk()
    policy = RetryPolicy(10, "exponential", SECOND, HOUR, jitter="none")
    desk.define(scene.once(desk.now + SECOND, retry=policy))
    for _ in range(12):
        desk.report(desk.lease_when_due(), ABANDONED)
    desk.report(desk.lease_when_due(), scene.FAILED)
    assert desk.only().facts.due_at - desk.now == wanted["delay_s"] * SECOND


def ret_08(wanted: dict[str, Any]) -> None:
    """Attempts belong to a run."""
    desk = Desk(ms("2026-03-02T09:59:00Z"))
    desk.define(scene.spec(cron("0 * * * *"), retry=RetryPolicy(3, "fixed", 5 * SECOND, MINUTE)))
    for result in (scene.FAILED, scene.FAILED, scene.OK):
        desk.report(desk.lease_when_due(), result)
    desk.report(desk.lease_when_due(), scene.FAILED)
    left = 0
    while isinstance(run := desk.only(), rs.Ready) and run.facts.begun:
        left += 1
        desk.report(desk.lease_when_due(), scene.FAILED)
    assert left == wanted["slot_11_attempts_left"]
    assert run.facts.kind == SLOT


SCENARIOS: Final[dict[str, Scenario]] = {
    name.upper().replace("_", "-"): value
    for name, value in globals().items()
    if name.startswith(("clk_", "run_", "tz_", "dup_", "can_", "con_", "poi_", "ret_"))
}


@pytest.mark.parametrize("case", SCENARIOS)
def test_case(case: str) -> None:
    SCENARIOS[case](CASES[case]["expected"])
