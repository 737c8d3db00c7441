"""Plays a scenario from its load to its verdict."""

import random
import time
from pathlib import Path
from typing import Final

import msgspec
import psycopg

from infra.embedded.processes import wait_until
from tests.chaos.client import LEAD_MS, in_thread
from tests.chaos.faults import DO, Unreached
from tests.chaos.rig import Rig, built
from tests.chaos.scenario import Scenario
from tests.checker import inputs
from tests.checker.check import check
from tests.checker.dump import kept, snapshot
from tests.checker.inputs import History, Probe
from tests.checker.report import Report

SETTLES_S: Final = 120.0
PROBE_S: Final = 15.0
SPREAD: Final = 0.1
"""The seed moves a fault by so much of the load's time, either way."""


class Played(msgspec.Struct):
    """What became of a scenario."""

    scenario: Scenario
    report: Report
    fires: int
    recovered_s: float
    """From the last heal to everything that was due being done."""
    wrong: list[str]


def play(scenario: Scenario, folder: Path) -> Played:
    """Play it in a fresh folder, which keeps its history; raises Unreached."""
    do = DO.get(scenario.inject.what)
    if do is None:
        raise ValueError(f"{scenario.name}: inject.what is one of {', '.join(sorted(DO))}")
    random_ = random.Random(f"{scenario.name}/{scenario.seed}")
    with built(scenario, folder) as rig:
        start = _now_ms() + LEAD_MS
        dues = rig.client.define_one_time(scenario.load, random_, start)
        rig.client.define_recurring(scenario.load, start)
        changing = random.Random(random_.random())
        changes = in_thread(lambda: rig.client.change(scenario.load, changing, dues))
        share = scenario.inject.at + random_.uniform(-SPREAD, SPREAD)
        at = start + max(0.0, share) * scenario.load.seconds * 1_000
        rig.rest(max(0.0, (at - _now_ms()) / 1_000))
        do(rig, scenario.inject, scenario.fault, random_)
        healed = _now_ms()
        over = start + round(scenario.load.seconds * 1_000)
        rig.rest(max(0.0, (over - _now_ms()) / 1_000))
        changes.join()
        wrong = []
        if not wait_until(lambda: _over(rig), SETTLES_S):
            wrong.append(f"not all that was due is over {SETTLES_S} s later:\n{rig.cell.logs()}")
        recovered = max(0, _now_ms() - max(healed, over)) / 1_000
        if recovered > scenario.expect.recover_s:
            wrong.append(f"recovered after {recovered:.1f} s; {scenario.expect.recover_s} allowed")
        settled = _now_ms()
        probed, late = _probe(rig)
        wrong += late
        if not wait_until(lambda: _caught_up(rig), SETTLES_S):
            wrong.append(f"the views are behind {SETTLES_S} s later:\n{rig.cell.logs()}")
        history = _history(rig, scenario, settled, probed)
        inputs.write(folder / "history", history)
        report = check(history)
        wrong += [violation.text() for violation in report.violations]
        return Played(scenario, report, len(rig.targets.hits), recovered, wrong)


def _over(rig: Rig) -> bool:
    """Say whether nothing that was due is open."""
    query = "select count(*) from due_index where due_at <= extract(epoch from now()) * 1000"
    return _count(rig, query) == 0


def _caught_up(rig: Rig) -> bool:
    """Say whether every view stands where the log ends, in each shard."""
    query = """
        select count(*) from (select distinct view from view_positions) v
        cross join (select shard, max(position) as head from events group by shard) e
        left join view_positions p on p.view = v.view and p.shard = e.shard
        where coalesce(p.position, 0) < e.head
    """
    return _count(rig, query) == 0


def _count(rig: Rig, query: str) -> int | None:
    """Return what a query counts; None while Postgres lets nobody in."""
    try:
        with psycopg.connect(rig.cell.engines.postgres) as connection:
            row = connection.execute(query.encode()).fetchone()
    except psycopg.OperationalError:
        return None
    assert row is not None
    return int(row[0])


def _probe(rig: Rig) -> tuple[Probe, list[str]]:
    """Define a fresh job, and see that it fires and ends (I23 says whether in time)."""
    job, _due = rig.client.probe(len(rig.client.jobs))
    path = f"{rig.targets.url}/steady/probe-"

    def fired() -> bool:
        return any(hit.url.startswith(path) for hit in rig.targets.hits) and _over(rig)

    if not wait_until(fired, PROBE_S):
        return Probe(job), [f"a fresh job did not fire in {PROBE_S} s:\n{rig.cell.logs()}"]
    return Probe(job), []


def _history(rig: Rig, scenario: Scenario, settled_at: int, probed: Probe) -> History:
    """Take down all that the run left: log and views in one snapshot, then the run history."""
    up = rig.all_up()
    events, rows = snapshot(rig.cell.engines.postgres)
    engines = rig.cell.engines
    found = History(
        events=events,
        projections=rows,
        history=kept(engines.clickhouse, engines.prefix),
        hits=rig.targets.hits,
        clients=rig.client.operations,
        oracle=rig.client.oracle,
        faults=rig.faults,
    )
    found.scenario = inputs.Scenario(
        name=scenario.name,
        seed=scenario.seed,
        command=f"python -m tests.chaos {scenario.name} --seed {scenario.seed}",
        settled_at=settled_at,
        ended_at=_now_ms(),
        quiescent=True,
        late_ms=round(scenario.expect.late_s * 1_000),
        recover_ms=round(scenario.expect.recover_s * 1_000),
        expected=scenario.expect.paths,
        secrets=(rig.cell.key,),
        probe=probed,
        up=up,
    )
    return found


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


__all__ = ["Played", "Unreached", "play"]
