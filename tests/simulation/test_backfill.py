"""A past range is run on a whole installation, over edits, a change of zone, pauses and crashes."""

import asyncio
import os
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import msgspec
import pytest

from commandside import fault_points
from commandside.command_port import Accepted, Decide
from commandside.commands.backfill import decide_backfill, look
from domain.ids import BACKFILL, SLOT
from domain.instant import HOUR, MINUTE, SECOND
from domain.job import decide as job
from domain.job.backfill import Range
from domain.job.events import ALLOW, BUFFER_ONE, CANCEL_OTHER, SKIP, BackfillRequested
from domain.job.resume import NONE
from domain.retry import RetryPolicy
from domain.run import events as re
from domain.run import state as rs
from domain.schedule.schedule import Cron, parse_cron
from infra.memory.targets import Reply
from tests.contracts import jobs
from tests.simulation.ledger import Ledger, header, wrongs
from tests.simulation.world import START, Weather, World

SEED: Final = int(os.environ.get("TOCSIN_SIMULATION_SEED", "20270115"))
RETRIES: Final = RetryPolicy(4, "exponential", 2_000, 30_000, max_age_ms=HOUR)
EDITED: Final = START + HOUR + MINUTE
MOVED: Final = START + 3 * HOUR + MINUTE
RESUMED: Final = START + 5 * HOUR + MINUTE
JOB: Final = bytes(12) + b"back"


def cron(text: str, zone: str) -> Cron:
    """Return a schedule."""
    found = parse_cron(text, zone)
    assert isinstance(found, Cron)
    return found


def matching(first: int, last: int, minutes: range | tuple[int, ...], zone: str) -> list[int]:
    """Walk (first, last] minute by minute, with the zones of another library."""
    found, at = [], datetime.fromtimestamp(first / 1_000, UTC).replace(second=0)
    while (at := at + timedelta(minutes=1)).timestamp() * 1_000 <= last:
        if at.astimezone(ZoneInfo(zone)).minute in minutes:
            found.append(int(at.timestamp()) * 1_000)
    return found


MISSED: Final = [
    *matching(START, EDITED, range(0, 60, 10), "UTC"),
    *matching(EDITED, MOVED, (10, 25), "UTC"),
    *matching(MOVED, RESUMED, (10, 25), "Asia/Kolkata"),
]
"""Slots of the pause: each ten minutes, then twice an hour, then that in a zone of half hours."""


class Scene:
    """A job whose schedule and zone change while it is paused, and its installation."""

    def __init__(self, seed: int, overlap: int) -> None:
        print(f"seed {seed}")
        self.world = World(seed)
        self.spec = msgspec.structs.replace(
            jobs.spec(cron("*/10 * * * *", "UTC"), payload=b""),
            retry=RETRIES,
            overlap=overlap,
            overlap_limit=2 if overlap == ALLOW else 1,
        )
        decision = jobs.define(JOB, self.spec, self.world.clock.now())
        assert self.world.log.append([decision], self.world.clock.now()).refused == ()
        self.command(lambda state, runs, at: job.pause(state, runs, job.By(at)))
        self.edit(EDITED, cron("10,25 * * * *", "UTC"))
        self.edit(MOVED, cron("10,25 * * * *", "Asia/Kolkata"))
        self.world.run_until(RESUMED)
        self.command(lambda state, runs, at: job.resume(state, runs, job.By(at), catch_up=NONE))
        self.edit(RESUMED + SECOND, cron("* * * * *", "UTC"))
        self.world.hurries = False

    def command(self, decide: Decide) -> Accepted:
        """Carry out a command."""
        answer = asyncio.run(self.world.commands.command(JOB, b"", b"", decide))
        assert isinstance(answer, Accepted), answer
        return answer

    def edit(self, at: int, schedule: Cron) -> None:
        """Give the job another schedule at an instant."""
        self.world.run_until(at)
        self.spec = msgspec.structs.replace(self.spec, schedule=schedule)
        self.command(lambda state, runs, at: job.revise(state, runs, self.spec, "", job.By(at)))

    def backfill(self, asked: Range) -> BackfillRequested:
        """Ask for a range, as the command API does."""
        log = self.world.commands
        known = asyncio.run(look(log, JOB, jobs.TENANT, asked))
        assert known is not None
        assert not isinstance(known, Exception)
        accepted = self.command(
            lambda state, runs, at: decide_backfill(known, asked, "", state, runs, job.By(at))
        )
        (event,) = asyncio.run(log.events(JOB, JOB, accepted.version - 1, 1))
        assert isinstance(event, BackfillRequested)
        return event

    def run(self, minutes: int) -> None:
        """Let time pass."""
        self.world.run_until(self.world.clock.now() + minutes * MINUTE)

    def ran(self) -> Counter[int]:
        """Return how many runs each backfilled slot has had; all of them are over."""
        ledger, found = Ledger(self.world.log), Counter[int]()
        for stream, events in ledger.runs.items():
            first = events[0]
            assert isinstance(first, re.Scheduled)
            if first.kind == BACKFILL:
                assert isinstance(ledger.states[stream], rs.Ended), stream.hex()
                found[first.nominal] += 1
        return found

    def sent(self) -> set[tuple[str, str]]:
        """Return slot and key of every request that left."""
        hits = [hit for deliverer in self.world.deliverers for hit in deliverer.hits]
        return {
            (header(hit.call, "Tocsin-Run-Id"), header(hit.call, "Idempotency-Key")) for hit in hits
        }


@pytest.mark.parametrize("overlap", [SKIP, ALLOW, BUFFER_ONE, CANCEL_OTHER])
def test_the_slots_in_force_then_run_once_and_the_chain_goes_on(
    overlap: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(SEED + overlap, overlap)
    monkeypatch.setattr(scene.world, "answer", lambda *_: Reply(latency_us=9_000_000))
    event = scene.backfill(Range(START, RESUMED))
    began = scene.world.clock.now()
    assert event.found == len(MISSED)
    scene.run(30)
    end = scene.world.clock.now()
    assert scene.ran() == Counter(MISSED)
    assert wrongs(scene.world.log, scene.world.deliverers, end - MINUTE) == []
    late = []
    for events in Ledger(scene.world.log).runs.values():
        first = events[0]
        assert isinstance(first, re.Scheduled)
        if first.kind == SLOT and began < first.nominal <= end - MINUTE:
            assert [type(e) for e in events[-2:]] == [re.Fired, re.Completed], events
            (leased,) = [e for e in events if isinstance(e, re.Leased)]
            late.append(leased.at - first.due_at)
    assert len(late) in (28, 29)
    # Each waits for the one slot that is in flight, never for the rest of the backfill.
    assert max(late) < 30 * SECOND


@pytest.mark.parametrize("number", range(2))
def test_whatever_fails_each_slot_has_one_run_and_one_key(number: int) -> None:
    scene = Scene(SEED + number, SKIP)
    world = scene.world
    world.set_weather(Weather(log=0.02, message=0.05, target=0.3))
    scene.backfill(Range(START, RESUMED))
    for process in world.processes[2:]:
        process.faults.armed |= set(fault_points.ROLES["dispatcher"])
    scene.run(1)
    scene.command(lambda state, runs, at: job.pause(state, runs, job.By(at)))
    scene.run(3)
    scene.command(lambda state, runs, at: job.resume(state, runs, job.By(at)))
    scene.run(2)
    world.log.away = True
    scene.run(1)
    world.log.away = False
    scene.run(30)
    world.set_weather(Weather())
    scene.run(60)
    assert world.crashes
    assert scene.ran() == Counter(MISSED)
    assert wrongs(world.log, world.deliverers, world.clock.now() - 2 * MINUTE) == []
    keys = {key for _, key in scene.sent()}
    plain = {f"jb_{JOB.hex()}/{slot}" for slot in MISSED}
    assert plain <= keys
    again = scene.backfill(Range(START, RESUMED))
    assert again.slots == ()
    assert again.succeeded + again.dead == len(MISSED)


def test_a_cancel_ends_what_is_left() -> None:
    scene = Scene(SEED, SKIP)
    scene.backfill(Range(START, RESUMED))
    scene.world.run_until(scene.world.clock.now() + 5 * SECOND)
    scene.command(lambda state, runs, at: job.cancel(state, runs, job.By(at)))
    scene.run(10)
    ran = scene.ran()
    assert 0 < len(ran) < len(MISSED)
    assert wrongs(scene.world.log, scene.world.deliverers, scene.world.clock.now()) == []
