"""Jobs with a fixed delay whose runs are slow, fail, crash and come late."""

import random
from itertools import pairwise
from typing import Final

import msgspec
import pytest

from commandside import fault_points
from domain.ids import SLOT
from domain.instant import DAY, HOUR, MINUTE, SECOND
from domain.job import decide as job
from domain.job import events as je
from domain.run import events as re
from domain.schedule.schedule import FixedDelay
from infra.memory.log import MemoryLog
from tests.contracts import jobs
from tests.simulation.ledger import Ledger, wrongs
from tests.simulation.long_run import FAILED, OK, LongRun
from tests.simulation.story import FOUL, RETRIES
from tests.simulation.world import START, Weather, World

DELAY: Final = FixedDelay("PT1M", MINUTE)
SLOW: Final = 90 * SECOND


def spec(schedule: FixedDelay = DELAY, **fields: object) -> je.JobSpec:
    """Return the spec of a job with a fixed delay and without payload."""
    plain = jobs.spec(schedule, payload=b"")
    return msgspec.structs.replace(plain, retry=RETRIES, timeout_ms=10 * MINUTE, **fields)


def history(log: MemoryLog) -> list[tuple[int, int]]:
    """Return the instant and the end of each occurrence that has ended, in order."""
    found = []
    for events in Ledger(log).runs.values():
        first, last = events[0], events[-1]
        assert isinstance(first, re.Scheduled)
        if first.kind == SLOT and isinstance(last, re.Completed | re.Skipped):
            found.append((first.nominal, last.at))
    return sorted(found)


def follows(log: MemoryLog, delay: int = MINUTE) -> bool:
    """Tell whether each occurrence came so long after the end of the one before."""
    return all(nominal == ended + delay for (_, ended), (nominal, _) in pairwise(history(log)))


def test_runs_that_take_longer_than_the_delay_never_meet_and_none_is_skipped() -> None:
    world = LongRun(START)
    world.say = lambda _run: (SLOW, OK)
    world.define(spec())
    world.run_until(START + HOUR)
    instants = [run.facts.nominal - START for run in world.fired]
    assert instants == [MINUTE + number * (MINUTE + SLOW) for number in range(24)]
    assert follows(world.log)
    assert wrongs(world.log, [], START) == []


def test_the_delay_counts_from_the_last_retry() -> None:
    world = LongRun(START)
    world.say = lambda run: (5 * SECOND, FAILED if run.facts.attempt < 3 else OK)
    world.define(spec())
    world.run_until(START + HOUR)
    assert len(world.fired) > 60
    assert follows(world.log)


def test_ten_days_without_anybody_cost_one_late_run() -> None:
    world = LongRun(START)
    job_id = world.define(spec())
    world.run_until(START + 5 * MINUTE)
    before = world.events()
    world.sleep_until(world.clock.now() + 10 * DAY)
    world.run_until(world.clock.now() + 2 * SECOND)
    assert world.events() - before <= 8
    assert world.fired[-1].leased_at - world.fired[-1].facts.nominal > 9 * DAY
    assert follows(world.log)
    assert len(world.log.runs_of(job_id)) == 1


def test_a_pause_and_an_edit_count_from_the_instant_of_the_command() -> None:
    world = LongRun(START)
    job_id = world.define(spec())
    world.run_until(START + 10 * MINUTE)
    world.command(job_id, job.pause)
    world.run_until(START + HOUR)
    world.command(job_id, job.resume)
    (run,) = world.log.runs_of(job_id)
    assert run.facts.nominal == START + HOUR + MINUTE
    world.revise(job_id, spec(FixedDelay("PT10M", 10 * MINUTE)))
    (run,) = world.log.runs_of(job_id)
    assert run.facts.nominal == START + HOUR + 10 * MINUTE
    world.run_until(START + 3 * HOUR)
    after = [nominal for nominal, _ in history(world.log) if nominal > START + HOUR]
    assert after == [START + HOUR + 10 * MINUTE + n * (10 * MINUTE + SECOND) for n in range(11)]


@pytest.mark.parametrize("seed", range(3))
def test_whatever_crashes_and_gets_lost_each_run_follows_the_end_of_the_one_before(
    seed: int,
) -> None:
    print(f"seed {seed}")
    world, dice = World(seed), random.Random(seed)
    for shard in range(4):
        decision = jobs.define(jobs.job_id(shard, 8), spec(max_lateness_ms=0), world.clock.now())
        assert world.log.append([decision], world.clock.now()).refused == ()
    world.set_weather(FOUL)
    for _ in range(24):
        for process in world.processes:
            points = fault_points.ROLES[process.name.split()[0]]
            process.faults.armed.add(dice.choice(sorted(points)))
        world.run_until(world.clock.now() + 5 * MINUTE)
    world.set_weather(Weather())
    for process in world.processes:
        process.faults.armed.clear()
    world.run_until(world.clock.now() + HOUR)
    assert sum(world.crashes.values()) > 20
    until = world.clock.now() - 10 * MINUTE
    assert wrongs(world.log, world.deliverers, until) == []
    ledger = Ledger(world.log)
    assert len(ledger.jobs) == 4
    for job_id in ledger.jobs:
        mine = [
            events
            for events in ledger.runs.values()
            if isinstance(events[0], re.Scheduled) and events[0].job_id == job_id
        ]
        planned = sorted(
            e.nominal for e in (events[0] for events in mine) if isinstance(e, re.Scheduled)
        )
        ends = sorted(events[-1].at for events in mine if isinstance(events[-1], re.Completed))
        assert len(planned) > 30
        assert planned == [START + MINUTE, *(ended + MINUTE for ended in ends)]
