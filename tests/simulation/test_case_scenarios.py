"""The lines of `tests/cases/cases.jsonl` about missed slots and runs that meet, as scenarios.

Each scenario is named by the id of its case and gets what the case expects. Those of one process
run on `LongRun`; those about a change of processes on the whole simulated installation.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from domain.envelope import Decision
from domain.ids import SLOT
from domain.instant import DAY, HOUR, MINUTE, SECOND, rfc3339
from domain.job import decide as job
from domain.job import events as je
from domain.run import events as re
from domain.schedule.schedule import Cron, parse_cron
from tests.contracts import jobs
from tests.simulation.ledger import wrongs
from tests.simulation.long_run import OK, LongRun
from tests.simulation.world import START, World

KINDS: Final = ("misfire", "overlap")
CASES: Final[dict[str, dict[str, Any]]] = {
    case["id"]: case
    for case in map(
        json.loads,
        (Path(__file__).parents[1] / "cases" / "cases.jsonl").read_text("utf-8").splitlines(),
    )
    if case["kind"] in KINDS
}
Scenario = Callable[[dict[str, Any]], None]


def ms(text: str) -> int:
    """Return an instant of a case."""
    return int(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1_000)


def cron(text: str) -> Cron:
    """Return a schedule in UTC."""
    found = parse_cron(text, "UTC")
    assert isinstance(found, Cron)
    return found


def spec(text: str, **fields: object) -> je.JobSpec:
    """Return a spec with the defaults of a definition, without jitter."""
    return msgspec.structs.replace(jobs.spec(cron(text), payload=b""), **fields)


def fired(world: LongRun) -> list[str]:
    """Return the slots that were leased, in order."""
    return [rfc3339(run.facts.nominal) for run in world.fired if run.facts.kind == SLOT]


def frontier(world: LongRun, job_id: bytes) -> int:
    """Return the instant of the next occurrence."""
    return min(r.facts.nominal for r in world.log.runs_of(job_id) if not r.facts.begun)


def skipped(world: LongRun) -> dict[int, str]:
    """Return the slots that got a verdict without firing, each with it."""
    found: dict[int, str] = {}
    for stream in world.log.streams:
        for event in world.log.events_of(stream):
            if isinstance(event, re.Skipped):
                found[event.nominal] = event.verdict
            for gone in getattr(event, "passed", ()):
                found |= {gone.first: gone.verdict, gone.last: gone.verdict}
    return found


def count_of_ranges(world: LongRun) -> int:
    """Return how many slots got their verdict by a range."""
    events = (event for s in world.log.streams for event in world.log.events_of(s))
    return sum(gone.count or 0 for event in events for gone in getattr(event, "passed", ()))


# ------------------------------------------------------------------ misfire


def mis_02(wanted: dict[str, Any]) -> None:
    world = LongRun(ms("2026-03-01T00:04:00Z"))
    world.define(spec("*/10 * * * *"))
    world.sleep_until(ms("2026-03-02T00:05:00Z"))
    world.run_until(ms("2026-03-02T00:05:30Z"))
    assert len(world.fired) == wanted["fires"]
    assert fired(world) == [rfc3339(ms(wanted["scheduled_ts"]))]
    # The others: the first has a stream of its own, the rest is a range.
    assert count_of_ranges(world) + 1 + len(world.fired) == wanted["missed_slots"]


def edited(first: str, then: str, ran_at: str, edited_at: str) -> tuple[LongRun, bytes, int]:
    """Return a job that ran and was edited, and how many runs the edit made due at once."""
    at = ms(ran_at)
    world = LongRun(at - MINUTE)
    job_id = world.define(spec(first))
    world.run_until(ms(edited_at))
    before = len(world.fired)
    world.revise(job_id, spec(then))
    world.run_until(world.clock.now() + 10 * SECOND)
    return world, job_id, len(world.fired) - before


def mis_05(wanted: dict[str, Any]) -> None:
    world, job_id, made = edited(
        "0 1 * * *", "0 14 * * *", "2026-03-02T01:00:00Z", "2026-03-02T15:00:00Z"
    )
    assert made == wanted["runs_created_by_patch"]
    assert frontier(world, job_id) == ms(wanted["next_run_at"])


def mis_06(wanted: dict[str, Any]) -> None:
    world, job_id, made = edited(
        "0 1 * * *", "0 2 * * *", "2026-03-02T01:00:00Z", "2026-03-02T15:00:00Z"
    )
    assert made == wanted["runs_created_by_patch"]
    assert frontier(world, job_id) == ms("2026-03-03T02:00:00Z")


def mis_07(wanted: dict[str, Any]) -> None:
    world, job_id, _ = edited(
        "0 23 * * *", "0 5 * * *", "2026-03-01T23:00:00Z", "2026-03-02T12:00:00Z"
    )
    assert frontier(world, job_id) == ms("2026-03-03T05:00:00Z")
    world.run_until(ms("2026-03-03T04:00:00Z"))
    late = [run for run in world.fired if run.facts.nominal == ms("2026-03-02T23:00:00Z")]
    assert len(late) == wanted["fires_at_23:00"]


def mis_08(_: dict[str, Any]) -> None:
    world, job_id, made = edited(
        "0 3 * * *", "* * * * *", "2026-03-02T03:00:00Z", "2026-03-02T10:00:20Z"
    )
    assert made == 0
    assert frontier(world, job_id) == ms("2026-03-02T10:01:00Z")


def mis_09(wanted: dict[str, Any]) -> None:
    world = LongRun(ms("2026-03-01T00:00:30Z"))
    job_id = world.define(spec("0 * * * *"))
    world.run_until(ms("2026-03-01T23:30:00Z"))
    world.command(job_id, job.cancel)
    world.run_until(ms("2026-03-05T12:00:30Z"))
    before = len(world.fired)
    new = job.NewJob(job_id, jobs.TENANT, spec("* * * * *"))
    again = world.command(job_id, lambda head, _runs, by: job.define(new, head, by))
    assert isinstance(again, Decision)
    world.run_until(world.clock.now() + 20 * SECOND)
    assert len(world.fired) - before == wanted["fires_for_the_gap"]
    assert frontier(world, job_id) == ms("2026-03-05T12:01:00Z")


def hand_over(world: World, stops: int, starts: int) -> None:
    """Let every process stop at one instant, and come back at another as new ones."""
    world.run_until(stops)
    for number, process in enumerate(world.processes):
        process.kill()
        world.hold(number, starts)
    world.run_until(starts + 30 * SECOND)


def daily_at_ten(stops_ms: int, starts_ms: int) -> list[int]:
    """Return the lateness (ms) of each fire of 10:00 around a change of processes."""
    world = World(7)
    ten = START + 2 * HOUR
    decision = jobs.define(jobs.job_id(0, 8), spec("0 10 * * *"), world.clock.now())
    assert world.log.append([decision], world.clock.now()).refused == ()
    hand_over(world, ten + stops_ms, ten + starts_ms)
    assert wrongs(world.log, world.deliverers, ten) == []
    hits = [hit for deliverer in world.deliverers for hit in deliverer.hits]
    return [hit.at_us // 1_000 - ten for hit in hits]


def mis_11(wanted: dict[str, Any]) -> None:
    late = daily_at_ten(-2_600, 700)
    assert len(late) == wanted["fires"]
    assert max(late) <= wanted["lateness_s_max"] * SECOND


def mis_12(wanted: dict[str, Any]) -> None:
    assert len(daily_at_ten(-10_000, 10_000)) == wanted["fires"]


def mis_14(wanted: dict[str, Any]) -> None:
    world = LongRun(ms("2026-03-02T10:00:30Z"))
    job_id = world.define(spec("* * * * *"))
    for _ in range(10 * 60 * 5):
        world.run_until(world.clock.now() + 200)
        before = frontier(world, job_id) if not world.log.runs_of(job_id)[0].facts.begun else 0
        assert world.revise(job_id, spec("* * * * *")) is None
        assert not before or frontier(world, job_id) == before
    assert len(world.fired) == wanted["fires"]


def mis_16(wanted: dict[str, Any]) -> None:
    world = LongRun(ms("2026-03-02T00:00:00Z"))
    world.define(spec("0 10 * * *", max_lateness_ms=10 * SECOND))
    ten = ms("2026-03-02T10:00:00Z")
    world.run_until(ten - SECOND)
    world.sleep_until(ten + 14 * SECOND)
    world.run_until(ten + MINUTE)
    (history,) = wanted["history"]
    events = [event for s in world.log.streams for event in world.log.events_of(s)]
    (miss,) = [event for event in events if isinstance(event, re.Skipped)]
    assert miss.verdict == history["verdict"]
    assert miss.at - miss.due_at == history["lateness_ms"]
    assert world.fired == []


# ------------------------------------------------------------------ overlap


def most_at_once(world: LongRun) -> int:
    """Return how many runs were begun and not ended at once."""
    changes: list[tuple[int, int]] = []
    for stream in world.log.streams:
        for event in world.log.events_of(stream):
            if isinstance(event, re.Leased) and event.attempt == 1:
                changes.append((event.at, 1))
            elif isinstance(event, re.Completed | re.Cancelled):
                changes.append((event.at, -1))
    most = now = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most


def ovl_01(wanted: dict[str, Any]) -> None:
    ten = ms("2026-03-02T10:00:00Z")
    world = LongRun(ten - 30 * SECOND)
    job_id = world.define(spec("* * * * *"))
    world.sleep_until(ten + MINUTE + 2 * SECOND)
    assert len(world.log.runs_of(job_id)) <= wanted["running_or_queued_max"]
    world.run_until(ten + MINUTE + 30 * SECOND)
    assert fired(world) == [rfc3339(ten + MINUTE)]
    assert skipped(world) == {ten: re.MISFIRE}


def ovl_03(wanted: dict[str, Any]) -> None:
    ten = ms("2026-03-02T10:00:00Z")
    world = LongRun(ten - MINUTE)
    world.say = lambda _run: (70 * MINUTE, OK)
    job_id = world.define(spec("0 * * * *"))
    world.run_until(ten + 71 * MINUTE)
    assert frontier(world, job_id) == ten + 2 * HOUR
    world.run_until(ten + DAY)
    assert most_at_once(world) == wanted["concurrent_runs_max"]
    assert wanted["history_11:00"] == f"skipped_{skipped(world)[ten + HOUR]}"


def ovl_06(wanted: dict[str, Any]) -> None:
    ten = ms("2026-03-02T10:00:00Z")
    world = LongRun(ten - 2 * MINUTE)
    world.say = lambda _run: (5 * MINUTE, OK)
    job_id = world.define(spec("0 * * * *"))
    world.trigger(job_id)
    world.run_until(ten + MINUTE)
    assert wanted["history_10:00"] == f"skipped_{skipped(world)[ten]}"
    assert frontier(world, job_id) == ten + HOUR


def ovl_07(wanted: dict[str, Any]) -> None:
    ten = ms("2026-03-02T10:00:00Z")
    world = LongRun(ten - 30 * SECOND)
    took = iter((3 * MINUTE + 30 * SECOND, SECOND))
    world.say = lambda _run: (next(took, SECOND), OK)
    world.define(spec("* * * * *", overlap=je.BUFFER_ONE))
    world.run_until(ten + 3 * MINUTE + 59 * SECOND)
    starts = [(run.leased_at - ten, run.facts.nominal - ten) for run in world.fired]
    assert starts == [(0, 0), (3 * MINUTE + 30 * SECOND, MINUTE)]
    assert wanted["starts"] == ["10:00:00", "10:03:30 (slot 10:01)"]
    dropped = [rfc3339(slot)[11:16] for slot, verdict in skipped(world).items() if verdict]
    assert dropped == wanted["skipped"]


SCENARIOS: Final[dict[str, Scenario]] = {
    name.upper().replace("_", "-"): value
    for name, value in globals().items()
    if name.startswith(("mis_", "ovl_"))
}


def test_every_case_of_these_kinds_has_its_scenario() -> None:
    assert set(SCENARIOS) == set(CASES)


@pytest.mark.parametrize("case", SCENARIOS)
def test_case(case: str) -> None:
    SCENARIOS[case](CASES[case]["expected"])
