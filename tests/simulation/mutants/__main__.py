"""Plays every mutant until it is caught, and writes docs/mutants.md: `make mutants`."""

import argparse
import sys
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from tests.simulation.mutants.broken import ELSEWHERE, MUTANTS, NOT_BUILT, Mutant
from tests.simulation.play import play
from tests.simulation.shrink import kinds
from tests.simulation.swarm import draw

STEPS_MAX: Final = 20_000
PAGE: Final = Path(__file__).parents[3] / "docs" / "mutants.md"
HEAD: Final = """# Seeded bugs, and what catches them

Written by `make mutants`. Each line is a bug of the product that a test puts in by replacing one
function with a broken twin; the simulation then plays seeds, from the first on, that have drawn
what the bug is about, until something is said to be wrong. A step is one batch of one process.

| bug | caught by | seed | seeds | steps |
| --- | --- | --- | --- | --- |
"""


class Caught(msgspec.Struct):
    """How a mutant was caught; `said` is empty where it was not."""

    name: str
    said: str = ""
    seed: int = 0
    seeds: int = 0
    steps: int = 0


@contextmanager
def broken(mutant: Mutant) -> Iterator[None]:
    """Put a bug in for a while."""
    patches = mutant.patches()
    kept = [getattr(where, name) for where, name, _ in patches]
    for where, name, twin in patches:
        setattr(where, name, twin)
    try:
        yield
    finally:
        for (where, name, _), right in zip(patches, kept, strict=True):
            setattr(where, name, right)


def hunt(mutant: Mutant, steps_max: int = STEPS_MAX) -> Caught:
    """Play seeds until the mutant is caught or the steps are spent."""
    caught, seed = Caught(mutant.name), 0
    while caught.steps < steps_max:
        seed += 1
        scenario = draw(seed)
        if not set(mutant.needs) <= set(scenario.features):
            continue
        caught.seeds += 1
        try:
            with broken(mutant):
                played = play(scenario)
        except Exception:  # noqa: BLE001 - a world that falls over has caught it
            caught.said, caught.seed = traceback.format_exc().strip().splitlines()[-1], seed
            return caught
        caught.steps += played.steps
        if played.wrongs:
            caught.said, caught.seed = played.wrongs[0], seed
            return caught
    return caught


def _hunt(number: int) -> Caught:
    return hunt(MUTANTS[number])


def _line(caught: Caught) -> str:
    said = next(iter(kinds([caught.said]))) if caught.said else "**nothing**"
    said = said.replace("|", "/")[:110]
    return f"| {caught.name} | {said} | {caught.seed} | {caught.seeds} | {caught.steps:,} |\n"


def page(all_caught: Sequence[Caught]) -> str:
    """Return the page."""
    lines = [
        HEAD,
        *map(_line, all_caught),
        "\nBugs that need a real engine, or no world at all:\n\n",
    ]
    lines += ["| bug | test |\n| --- | --- |\n"]
    lines += [f"| {name} | `{test}` |\n" for name, test in ELSEWHERE]
    lines += [f"| {name} | {why} |\n" for name, why in NOT_BUILT]
    return "".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="", help="part of a name: nothing is written then")
    asked = parser.parse_args(arguments)
    chosen = [n for n, mutant in enumerate(MUTANTS) if asked.only in mutant.name]
    found: list[Caught] = []
    with ProcessPoolExecutor(asked.workers) as pool:
        for caught in pool.map(_hunt, chosen):
            found.append(caught)
            sys.stdout.write(_line(caught))
            sys.stdout.flush()
    if not asked.only:
        PAGE.write_text(page(found))
    return 0 if all(caught.said for caught in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
