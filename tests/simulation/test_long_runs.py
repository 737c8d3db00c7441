"""A year over every change of the clocks, and ten days without anybody, under every policy."""

import os
import random
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
import pytest

from domain.backlog import CATCH_UP_MAX
from domain.instant import DAY, HOUR, MINUTE, SECOND
from domain.job import decide as job
from domain.job import events as je
from domain.job import state as js
from domain.retry import RetryPolicy
from domain.run import events as re
from domain.run import state as rs
from domain.run.decide import Result
from domain.schedule.schedule import Cron, Every, parse_cron
from tests.contracts import jobs
from tests.simulation.ledger import wrongs
from tests.simulation.long_run import FAILED, OK, LongRun

SEED: Final = int(os.environ.get("TOCSIN_SIMULATION_SEED", "20270115"))
NEW_YEAR: Final = 1_798_761_600_000
"""2027-01-01T00:00:00Z"""
YEAR: Final = 365 * DAY
ZONES: Final = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "America/Santiago",
)
TEXTS: Final = ("30 2 * * *", "15 */3 * * *", "*/20 0-3 * * 0", "5 1,2,3 * * *")
RETRIES: Final = RetryPolicy(3, "exponential", 60_000, 3_600_000)


def cron(text: str, zone: str) -> Cron:
    """Return a schedule in a zone."""
    found = parse_cron(text, zone)
    assert isinstance(found, Cron)
    return found


def say(dice: random.Random, run: rs.InFlight) -> tuple[int, Result]:
    """Most runs take seconds, some take hours, some fail."""
    took = dice.choice((SECOND, 5 * SECOND, 20 * MINUTE, 50 * MINUTE, 4 * HOUR, 9 * HOUR))
    return took, FAILED if dice.random() < 0.1 and run.facts.attempt < 3 else OK


class Year:
    """Two jobs of a pair of policies, their outages, pauses, edits and triggers."""

    def __init__(self, overlap: int, misfire: int) -> None:
        self.seed = f"{SEED} {overlap} {misfire}"
        self.random = random.Random(self.seed)
        self.overlap, self.misfire = overlap, misfire
        self.world = LongRun(NEW_YEAR)
        self.world.say = partial(say, self.random)
        self.job_ids = [self.world.define(self._spec(), shard) for shard in range(2)]
        for job_id in self.job_ids:
            for month in range(12):
                start = NEW_YEAR + month * 30 * DAY
                self._plan(job_id, start + self.random.randrange(25 * DAY))

    def _spec(self) -> je.JobSpec:
        pick = self.random.choice
        plain = jobs.spec(cron(pick(TEXTS), pick(ZONES)), payload=b"", overlap=self.overlap)
        return msgspec.structs.replace(
            plain,
            overlap_limit=pick((2, 5, 40)),
            misfire=self.misfire,
            catch_up_window_ms=pick((0, DAY, 3 * DAY)),
            max_lateness_ms=pick((0, 0, 2 * DAY)),
            jitter_ms=pick((0, 0, 10 * MINUTE)),
            retry=RETRIES,
        )

    def _plan(self, job_id: bytes, when: int) -> None:
        deeds: tuple[Callable[[], object], ...] = (
            partial(self.world.revise, job_id, self._spec()),
            partial(self.world.command, job_id, job.pause),
            partial(self.world.trigger, job_id),
        )
        deed = self.random.choice(deeds)

        def do() -> None:
            deed()

        self.world.at(when, do)
        catch_up = self.random.choice(("", "latest", "all"))
        back = when + self.random.randrange(4 * DAY)
        self.world.at(back, lambda: self._resume(job_id, catch_up))

    def _resume(self, job_id: bytes, catch_up: str) -> None:
        self.world.command(
            job_id, lambda head, runs, by: job.resume(head, runs, by, catch_up=catch_up)
        )

    def play(self) -> int:
        """Play the year with six outages, and return until when slots must have a verdict."""
        for number in range(6):
            self.world.run_until(NEW_YEAR + number * 60 * DAY + self.random.randrange(40 * DAY))
            self.world.sleep_until(self.world.clock.now() + self.random.choice((HOUR, 3 * DAY)))
        end = NEW_YEAR + YEAR
        self.world.run_until(end)
        for job_id in self.job_ids:
            self._resume(job_id, "")
        self.world.run_until(end + 5 * DAY)
        for job_id in self.job_ids:
            self.world.command(job_id, job.cancel)
        # Nothing new begins; what is in flight, and its retries, come to their end.
        self.world.run_until(end + 20 * DAY)
        return end


@pytest.mark.parametrize("misfire", range(3), ids=je.MISFIRE_NAMES)
@pytest.mark.parametrize("overlap", range(5), ids=je.OVERLAP_NAMES)
def test_in_a_year_every_slot_has_one_verdict_under(overlap: int, misfire: int) -> None:
    year = Year(overlap, misfire)
    print(f"seed {year.seed}")
    until = year.play()
    assert len(year.world.fired) > 100
    assert wrongs(year.world.log, [], until)[:10] == []


# ------------------------------------------------------------------ ten days


def every_second(**fields: object) -> je.JobSpec:
    """Return the spec of a job that fires every second."""
    plain = jobs.spec(Every("PT1S", NEW_YEAR, "UTC", SECOND), payload=b"")
    return msgspec.structs.replace(plain, **fields)


@pytest.mark.parametrize("misfire", range(3), ids=je.MISFIRE_NAMES)
@pytest.mark.parametrize("overlap", range(5), ids=je.OVERLAP_NAMES)
def test_ten_days_without_anybody_stay_bounded_under(overlap: int, misfire: int) -> None:
    world = LongRun(NEW_YEAR)
    world.say = lambda _run: (200, OK)
    limit = je.LIMITS.get(overlap, 1)
    job_id = world.define(every_second(overlap=overlap, misfire=misfire, overlap_limit=limit))
    world.run_until(NEW_YEAR + 3 * SECOND + 500)
    before = world.events()
    world.sleep_until(world.clock.now() + 10 * DAY)
    back = world.clock.now()
    drain = CATCH_UP_MAX * SECOND if misfire == je.ALL else 2 * SECOND
    world.run_until(back + drain)
    # Four events for each fire, on time or late, and one or two for what is skipped.
    fires = drain // SECOND + 2
    assert world.events() - before <= 4 * fires + 4
    assert len(world.log.runs_of(job_id)) <= 3
    assert max(len(data) for data in _written(world)) <= 600
    assert isinstance(world.head(job_id), js.Active)


def _written(world: LongRun) -> list[bytes]:
    return [written.data for stream in world.log.streams.values() for written in stream]


def test_ten_days_paused_and_caught_up_stay_bounded() -> None:
    world = LongRun(NEW_YEAR)
    job_id = world.define(every_second())
    world.run_until(NEW_YEAR + 3 * SECOND + 500)
    world.command(job_id, job.pause)
    before = world.events()
    world.sleep_until(world.clock.now() + 10 * DAY)
    world.command(job_id, lambda head, runs, by: job.resume(head, runs, by, catch_up="all"))
    world.run_until(world.clock.now() + CATCH_UP_MAX * 2 * SECOND)
    assert world.events() - before <= 4 * 2 * (CATCH_UP_MAX + 2)
    (passed,) = [p for p in _ranges(world, job_id) if p.cause == "cap"]
    assert passed.count is None
    assert passed.last - passed.first > 9 * DAY


def _ranges(world: LongRun, job_id: bytes) -> list[re.Passed]:
    found: list[re.Passed] = []
    for stream in world.log.streams:
        for event in world.log.events_of(stream):
            found += getattr(event, "passed", ())
    assert job_id in world.log.heads
    return found
