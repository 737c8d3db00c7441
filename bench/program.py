"""`tocsin bench` and `python -m bench`: runs a workload, prints a table, writes one JSON object."""

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

from bench import define, deliver, external, fires, hanging, pending, slow
from bench.stack import BenchError, sink, stack

SPIKE: Final = 20_000
STEADY_RATE: Final = 200
STEADY_SECONDS: Final = 60
DEFINE: Final = 20_000
SINGLES: Final = 4_000
INTERRUPTED: Final = 130
PENDING: Final = (10_000, 1_000_000)
CONCURRENCY: Final = 200
REPETITIONS: Final = 7
HELD: Final = 10_000
HANGING_SECONDS: Final = 20


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the words say; return the exit status: 1 if a fire was lost, early or doubled."""
    words = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, _leave)
    try:
        if words.workload == "external":
            return external.main()
        found = _WORKLOADS[words.workload](words)
    except BenchError as error:
        print(f"tocsin bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("tocsin bench: stopped, and everything that it had started", file=sys.stderr)
        return INTERRUPTED
    show(found)
    if words.json is not None:
        words.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if whole(found) else 1


def whole(found: dict[str, Any]) -> bool:
    """Say whether every fire came, once and not early."""
    parts = found.get("parts", [found])
    return all(not part.get(name) for part in parts for name in ("lost", "early", "duplicates"))


def show(found: dict[str, Any], indent: str = "") -> None:
    """Print a result as a table of two columns."""
    for name, value in found.items():
        if isinstance(value, dict):
            print(f"{indent}{name}")
            show(value, indent + "  ")
        elif isinstance(value, list):
            for part in value:
                print()
                show(part, indent)
        else:
            number = isinstance(value, int | float) and not isinstance(value, bool)
            shown = f"{value:,}" if number else value
            print(f"{indent}{name:<{34 - len(indent)}}{shown}")


def _parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="tocsin bench", description=__doc__)
    top.set_defaults(workload="all", json=None, quick=False)
    names = top.add_subparsers(dest="workload", metavar="WORKLOAD")
    everything = names.add_parser("all", help="define, spike, steady and pending, at their sizes")
    spike = names.add_parser("spike", help="n jobs at one instant")
    spike.add_argument("--n", type=int, default=SPIKE)
    steady = names.add_parser("steady", help="a rate for some seconds")
    steady.add_argument("--rate", type=float, default=STEADY_RATE)
    steady.add_argument("--seconds", type=float, default=STEADY_SECONDS)
    for command in (spike, steady, everything):
        command.add_argument(
            "--quick", action="store_true", help="due at once: the hand-off is not counted"
        )
    jobs = names.add_parser("define", help="definitions a second, NDJSON and one by one")
    jobs.add_argument("--n", type=int, default=DEFINE)
    jobs.add_argument("--singles", type=int, default=SINGLES)
    rows = names.add_parser("pending", help="a hand-off pass beside many pending rows")
    rows.add_argument("--sizes", type=int, nargs="+", default=list(PENDING))
    requests = names.add_parser("deliver", help="CPU a request, beside aiohttp and httpx")
    requests.add_argument("--concurrency", type=int, default=CONCURRENCY)
    requests.add_argument("--repetitions", type=int, default=REPETITIONS)
    hung = names.add_parser("slow", help="memory and CPU of thousands of calls that hang")
    hung.add_argument("--held", type=int, default=HELD)
    ten = names.add_parser("hanging", help="lateness at nine hosts beside one that hangs")
    ten.add_argument("--rate", type=float, default=STEADY_RATE)
    ten.add_argument("--seconds", type=float, default=HANGING_SECONDS)
    texts = names.add_parser("schedule", help="cron texts and slots, beside croniter and cronsim")
    names.add_parser("external", help="for a harness that compares: see bench/external.py")
    for command in (everything, spike, steady, jobs, rows, requests, hung, ten, texts):
        command.add_argument("--json", type=Path, metavar="FILE", help="write the result here")
    return top


def _fires(plan: fires.Plan) -> dict[str, Any]:
    for slower in fires.SLOWER:
        with sink() as receiver, stack() as running:
            rate = fires.warm_up(running, receiver) / slower
            try:
                return fires.measure(running, receiver, plan, rate)
            except fires.Overran as error:
                print(f"tocsin bench: {error}; again, with more time", file=sys.stderr)
    raise BenchError("this machine is too busy to define the jobs in time")


def _spike(words: argparse.Namespace) -> dict[str, Any]:
    return _fires(fires.Plan("spike", words.n, quick=words.quick))


def _steady(words: argparse.Namespace) -> dict[str, Any]:
    count = max(1, round(words.rate * words.seconds))
    return _fires(fires.Plan("steady", count, 1000 / words.rate, words.quick))


def _define(words: argparse.Namespace) -> dict[str, Any]:
    with stack() as running:
        return define.measure(running, words.n, words.singles)


def _pending(words: argparse.Namespace) -> dict[str, Any]:
    return pending.measure(words.sizes)


def _deliver(words: argparse.Namespace) -> dict[str, Any]:
    return deliver.measure(words.concurrency, words.repetitions)


def _slow(words: argparse.Namespace) -> dict[str, Any]:
    return slow.measure(words.held)


def _hanging(words: argparse.Namespace) -> dict[str, Any]:
    return hanging.measure(words.rate, words.seconds)


def _schedule(_words: argparse.Namespace) -> dict[str, Any]:
    from bench import schedule  # noqa: PLC0415 - it needs packages that only tests have

    return schedule.measure()


def _all(words: argparse.Namespace) -> dict[str, Any]:
    def with_words(**more: Any) -> argparse.Namespace:
        return argparse.Namespace(**{**vars(words), **more})

    return {
        "workload": "all",
        "parts": [
            _define(with_words(n=DEFINE, singles=SINGLES)),
            _spike(with_words(n=SPIKE)),
            _steady(with_words(rate=STEADY_RATE, seconds=STEADY_SECONDS)),
            _steady(with_words(rate=1_000, seconds=30)),
            _pending(with_words(sizes=list(PENDING))),
        ],
    }


def _leave(_number: int, _frame: FrameType | None) -> None:
    """End as a Ctrl-C does, so that everything started is stopped."""
    raise KeyboardInterrupt


_WORKLOADS: Final = {
    "all": _all,
    "spike": _spike,
    "steady": _steady,
    "define": _define,
    "pending": _pending,
    "deliver": _deliver,
    "schedule": _schedule,
    "slow": _slow,
    "hanging": _hanging,
}
