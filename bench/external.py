"""The same fires as a command that a harness starts beside others; it brings the sink.

The harness gives SINK_URL, WORKLOAD, N, RATE (0: all at one instant). This prints READY when
everything is defined and the first is due within a minute, waits until its standard input closes,
and prints one line of JSON. `cpu_s` is counted as in bench/fires.py: hand-off, fires and
projection to the head, without the quiet time before the first due instant, which a scheduler
that is polled does not have either.
"""

import json
import os
import sys
import time
from typing import Any, Final

from bench import fires, pending
from bench.load import define_singly, one_time
from bench.stack import BenchError, Sink, Stack, stack, stopped_reading

SINGLES: Final = 500
SINGLES_TIMEOUT_S: Final = 60.0
STDIN_TIMEOUT_S: Final = 600.0
PENDING: Final = {"W4": 1_000_000}
DAY_MS: Final = 86_400_000


def main() -> int:
    """Run one workload as the environment says."""
    sink = Sink(os.environ["SINK_URL"])
    workload = os.environ.get("WORKLOAD", "W1")
    rate = float(os.environ.get("RATE", "0"))
    plan = fires.Plan(workload, int(os.environ["N"]), 1000 / rate if rate else 0.0)
    for slower in fires.SLOWER:
        try:
            found = _run(sink, plan, slower)
        except fires.Overran as error:
            print(f"again, with more time: {error}", file=sys.stderr)
        else:
            print(json.dumps(found), flush=True)
            return 0
    return 1


def _run(sink: Sink, plan: fires.Plan, slower: float) -> dict[str, Any]:
    with stack() as running:
        define_rate = fires.warm_up(running, sink) / slower
        single_per_s = _singly(running, sink)
        if plan.workload in PENDING:
            now_ms = time.time_ns() // 1_000_000
            pending.insert(running.postgres, PENDING[plan.workload], now_ms + DAY_MS, DAY_MS)
            running.analyze()
        found = fires.measure(running, sink, plan, define_rate, lambda: print("READY", flush=True))
        stopped_reading(STDIN_TIMEOUT_S)
    return _answer(found, single_per_s)


def _singly(running: Stack, sink: Sink) -> float:
    due_ms = time.time_ns() // 1_000_000 + 2_000
    jobs = [one_time(sink.url, f"one{n}", due_ms) for n in range(SINGLES)]
    rate = define_singly(running.api, running.headers, jobs)
    if not sink.await_all(SINGLES, time.time() + SINGLES_TIMEOUT_S):
        raise BenchError(f"{sink.distinct()} of {SINGLES} single jobs fired")
    running.settle()
    sink.reset()
    return rate


def _answer(found: dict[str, Any], single_per_s: float) -> dict[str, Any]:
    kept = ("define_per_s", "cpu_s", "cpu_us_per_fire_by_process", "hand_off_s")
    return {name: found[name] for name in kept} | {"single_per_s": round(single_per_s, 1)}
