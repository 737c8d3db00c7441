"""Seeds of the simulation, few of them; `make simulate` plays as many as are asked for."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.simulation.__main__ import again, seeds_of
from tests.simulation.play import Play, play
from tests.simulation.scenario import Scenario, Woe
from tests.simulation.shrink import Shrinker
from tests.simulation.swarm import draw
from tests.simulation.world import START, World

REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*.json"))
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("seed", range(1, 7))
def test_nothing_goes_wrong_in(seed: int) -> None:
    print(again(seed))
    assert play(draw(seed)).wrongs == []


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: path.stem)
def test_what_went_wrong_once_goes_right(path: Path) -> None:
    assert play(msgspec.json.decode(path.read_bytes(), type=Scenario)).wrongs == []


def test_a_scenario_that_was_written_down_is_the_same() -> None:
    scenario = draw(3)
    assert msgspec.json.decode(msgspec.json.encode(scenario), type=Scenario) == scenario


def test_a_seed_has_the_same_trace_in_every_process() -> None:
    found = []
    for hash_seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-m", "tests.simulation", "--seeds", "14-14", "--workers", "1"],
            capture_output=True,
            check=True,
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            text=True,
            timeout=300,
        )
        found += [line for line in run.stdout.splitlines() if line.startswith("trace ")]
    assert len(found) == 2
    assert found[0] == found[1]


def test_seeds_differ() -> None:
    assert len({play(draw(seed)).trace for seed in (14, 15)}) == 2


def test_what_goes_wrong_is_cut_to_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = Play._judged

    def wrong(self: Play) -> list[str]:
        wiped = any(fault.kind == "broker" for fault in self.faults)
        return [*judged(self), "the broker was wiped at 12"] if wiped else judged(self)

    monkeypatch.setattr(Play, "_judged", wrong)
    woes = (*(Woe(at, "sleep", 1, 500) for at in range(1_000, 9_000, 1_000)), Woe(9_500, "wipe"))
    scenario = msgspec.structs.replace(draw(14), ms=20_000, woes=woes)
    small = Shrinker(scenario, play(scenario)).shrink()
    assert small.woes == (Woe(9_500, "wipe"),)
    assert (small.jobs, small.deeds) == ((), ())


def test_a_node_that_runs_fast_is_put_right_by_the_database() -> None:
    world = World(1)
    process = world.processes[2]
    process.run()
    process.clocks.drift(1.02)
    world.run_until(START + 60_000)
    clocks = process.clocks
    assert clocks.mono_us() - world.clock.mono_us() > 1_000_000
    assert abs(clocks.database.now() - world.database_ms() - clocks.skew_ms) < 100


def test_seeds_are_a_number_or_a_first_and_a_last() -> None:
    assert list(seeds_of("3")) == [1, 2, 3]
    assert list(seeds_of("7-9")) == [7, 8, 9]
