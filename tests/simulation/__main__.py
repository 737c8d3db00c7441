"""Plays seeds of the simulation: `python -m tests.simulation --seeds 200`.

Exits 1 where a seed goes wrong, with the command that plays it again and a scenario cut smaller.
"""

import argparse
import os
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec

from tests.simulation.play import Played, play
from tests.simulation.scenario import Scenario
from tests.simulation.shrink import Shrinker
from tests.simulation.swarm import draw

SHRUNK_MAX: Final = 3
"""Seeds whose scenarios are cut smaller; the others are only named."""


def seeds_of(text: str) -> range:
    """Return the seeds that `200` (the first 200), `7-9` or `7-7` name."""
    first, dash, last = text.partition("-")
    return range(int(first), int(last) + 1) if dash else range(1, int(first) + 1)


def played(seed: int) -> Played:
    """Play a seed; a crash of the world itself is something wrong too."""
    try:
        return play(draw(seed))
    except Exception:  # noqa: BLE001 - told with its seed
        return Played(seed, "", [traceback.format_exc()], 0, 0, 0.0, {})


def _all(seeds: Sequence[int], workers: int) -> Iterator[Played]:
    if workers == 1:
        yield from map(played, seeds)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(played, seeds, chunksize=1)


def again(seed: int) -> str:
    """Return the command that plays a seed again."""
    return f"make simulate SEEDS={seed}-{seed}"


def _tell(wrong: Played) -> None:
    sys.stdout.write(f"seed {wrong.seed} goes wrong: {' '.join(wrong.features)}\n")
    for line in wrong.wrongs[:5]:
        sys.stdout.write(f"    {line}\n")
    sys.stdout.write(f"  again: {again(wrong.seed)}\n")


def _shrink(wrong: Played, folder: Path) -> None:
    if not wrong.trace:
        return
    small = Shrinker(draw(wrong.seed), wrong)
    scenario = small.shrink()
    path = folder / f"scenario-{wrong.seed}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(scenario)))
    counted = f"{len(scenario.jobs)} jobs, {len(scenario.deeds)} deeds, {len(scenario.woes)} woes"
    sys.stdout.write(f"  cut to {counted}; weather {scenario.weather}\n")
    for line in small.played.wrongs[:3]:
        sys.stdout.write(f"    {line}\n")
    sys.stdout.write(f"  the cut: python -m tests.simulation --scenario {path}\n")


def _sum(all_played: list[Played], took: float) -> None:
    fires, steps = sum(p.fires for p in all_played), sum(p.steps for p in all_played)
    cpu = sum(p.seconds for p in all_played) or 1.0
    counts: Counter[str] = Counter()
    for each in all_played:
        counts.update(each.counts)
    for name, count in sorted(counts.items()):
        sys.stdout.write(f"  {count:>9,}  {name}\n")
    sys.stdout.write(
        f"{len(all_played)} seeds, {fires:,} fires, {steps:,} steps in {took:.0f} s;"
        f" {fires / cpu:,.0f} fires a second of one core, judging included\n"
    )


def _repeat(seeds: Sequence[int], workers: int) -> int:
    """Play each seed twice; return 1 where two traces differ."""
    first = {each.seed: each.trace for each in _all(seeds, workers)}
    differ = [each.seed for each in _all(seeds, workers) if first[each.seed] != each.trace]
    sys.stdout.write(
        f"{len(first) - len(differ)} of {len(first)} seeds have the same trace twice\n"
    )
    for seed in differ:
        sys.stdout.write(f"seed {seed} differs\n")
    return 1 if differ else 0


def _scenario(path: Path) -> int:
    scenario = msgspec.json.decode(path.read_bytes(), type=Scenario)
    found = play(scenario)
    sys.stdout.write(f"trace {found.trace}\n" + "".join(f"{line}\n" for line in found.wrongs))
    return 1 if found.wrongs else 0


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", default="20", help="how many, or the first and last: 7-9")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--scenario", type=Path, help="play this file instead")
    parser.add_argument("--twice", action="store_true", help="compare the traces of two plays")
    parser.add_argument("--shrunk", type=Path, default=Path(), help="folder of what was cut")
    asked = parser.parse_args(arguments)
    if asked.scenario:
        return _scenario(asked.scenario)
    seeds = seeds_of(asked.seeds)
    if asked.twice:
        return _repeat(seeds, asked.workers)
    began, all_played, wrong = monotonic(), list[Played](), list[Played]()
    for each in _all(seeds, asked.workers):
        all_played.append(each)
        if each.wrongs:
            wrong.append(each)
            _tell(each)
            if len(wrong) <= SHRUNK_MAX:
                _shrink(each, asked.shrunk)
            sys.stdout.flush()
    if len(seeds) == 1:
        sys.stdout.write(f"trace {all_played[0].trace}\n")
    _sum(all_played, monotonic() - began)
    sys.stdout.write(f"{len(wrong)} seeds went wrong: {[each.seed for each in wrong]}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
