"""`python -m tests.chaos [NAME …] [--smoke] [--seeds N] [--hours H]`: play scenarios in turn."""

import argparse
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tests.chaos.play import Played, Unreached, play
from tests.chaos.scenario import Scenario, load_all


def main() -> int:
    """Return 0 where every scenario reached its fault and held."""
    asked = _arguments()
    failed: list[str] = []
    paths: Counter[str] = Counter()
    fires = 0
    for scenario in _wanted(asked):
        folder = Path(tempfile.mkdtemp(prefix=f"tocsin-chaos-{scenario.name}-"))
        began = time.monotonic()
        print(f"{scenario.fault:5} {scenario.name}, seed {scenario.seed} … ", end="", flush=True)
        try:
            played = play(scenario, folder)
        except Unreached as why:
            print(f"NOT REACHED: {why}")
            failed.append(_again(scenario))
            continue
        except Exception:  # noqa: BLE001 - shown, and the other scenarios are played all the same
            print(f"ENDED; its files: {folder}")
            traceback.print_exc()
            failed.append(_again(scenario))
            continue
        print(_told(played, time.monotonic() - began))
        fires += played.fires
        paths += played.report.paths
        if played.wrong:
            print("\n".join(f"      {line}" for line in played.wrong[:20]))
            print("\n".join(f"      | {line}" for line in played.report.story))
            print(f"      its files: {folder}/history")
            failed.append(_again(scenario))
        else:
            shutil.rmtree(folder)
    print(
        f"{fires} fires; " + ", ".join(f"{name} {count}" for name, count in sorted(paths.items()))
    )
    if failed:
        print("failed:\n  " + "\n  ".join(failed))
    return bool(failed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=main.__doc__)
    parser.add_argument("names", nargs="*", help="scenarios; none: all of them")
    parser.add_argument("--smoke", action="store_true", help="only those of the short run")
    parser.add_argument("--seed", type=int, default=0, help="another seed than the file's")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds each, from its own on")
    parser.add_argument("--hours", type=float, default=0, help="go on at random for so long")
    return parser.parse_args()


def _wanted(asked: argparse.Namespace) -> Iterator[Scenario]:
    known = load_all()
    unknown = [name for name in asked.names if name not in known]
    if unknown:
        sys.exit(f"no scenario {', '.join(unknown)}; there are {', '.join(known)}")
    chosen = [known[name] for name in asked.names] or list(known.values())
    chosen = [one for one in chosen if one.smoke or not asked.smoke]
    if not asked.hours:
        for scenario in chosen:
            first = asked.seed or scenario.seed
            for seed in range(first, first + asked.seeds):
                yield msgspec.structs.replace(scenario, seed=seed)
        return
    ends = time.monotonic() + asked.hours * 3_600
    random_ = random.Random(asked.seed or time.time_ns())
    while time.monotonic() < ends:
        yield msgspec.structs.replace(random_.choice(chosen), seed=random_.randrange(1, 1 << 31))


def _told(played: Played, seconds: float) -> str:
    late = sorted(late for kind in played.report.lateness_ms.values() for late in kind)
    worst = f"p50 {late[len(late) // 2]} max {late[-1]} ms late" if late else "no fire"
    verdict = "WRONG" if played.wrong else "holds"
    return (
        f"{verdict}: {played.fires} requests, {worst}, recovered in {played.recovered_s:.1f} s"
        f" ({seconds:.0f} s)"
    )


def _again(scenario: Scenario) -> str:
    return f"python -m tests.chaos {scenario.name} --seed {scenario.seed}"


if __name__ == "__main__":
    sys.exit(main())
