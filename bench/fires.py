"""A measured run of fires: defined, handed off, due, delivered, projected to the head.

CPU per fire is that of all processes of Tocsin and its engines for the hand-off, and from half a
second before the first due instant until every view has read the last event. The quiet time in
between, in which entries wait in memory, is left out:

    define ── settle ──┬ hand-off ┬── waits ──┬ fires ── settled ┬
                       └ counted ─┘           └──── counted ─────┘

In a steady run hand-off and fires overlap, so that what runs before the first due instant is
counted whole, less the idle rate that was measured before it.
"""

import os
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from bench import cpu, figures
from bench.load import define_batch, one_time
from bench.stack import BenchError, Sink, Stack, wait_until_s

HORIZON_S: Final = 60.0
"""Due work is handed off this long before it is due (protocol.md: the horizon)."""
BEFORE_S: Final = 0.5
IDLE_S: Final = 4.0
WARM_UP: Final = 1_000
WARM_UP_TIMEOUT_S: Final = 60.0
DRAIN_TIMEOUT_S: Final = 120.0
HANDED_OFF: Final = "tocsin_rows_handed_off_total"
POLL_S: Final = 0.1


class Plan(NamedTuple):
    """What is due when: all at one instant, or one every `step_ms`; quick: hand-off not counted."""

    workload: str
    fires: int
    step_ms: float = 0.0
    quick: bool = False

    @property
    def seconds(self) -> float:
        """From the first due instant to the last."""
        return self.fires * self.step_ms / 1000


class Cpu(NamedTuple):
    """CPU seconds by process, of the machine, and when they were read."""

    names: dict[str, float]
    machine: float
    at_s: float


Ready = Callable[[], None]

SLOWER: Final = (1.0, 3.0, 9.0)
"""A run that was overrun is begun anew, with a lead for a rate that many times lower."""


class Overran(BenchError):
    """The jobs were not all defined before the hand-off had to begin."""


def warm_up(stack: Stack, sink: Sink, count: int = WARM_UP) -> float:
    """Fire some jobs once, so that caches and plans are made; return how many defined a second."""
    due_ms = time.time_ns() // 1_000_000 + 1_500
    jobs = [one_time(sink.url, f"warm{n}", due_ms) for n in range(count)]
    rate = define_batch(stack.api, stack.headers, jobs)
    if not sink.await_all(count, time.time() + WARM_UP_TIMEOUT_S):
        raise BenchError(f"warming up: {sink.distinct()} of {count} fires came")
    stack.settle()
    sink.reset()
    return rate


def measure(
    stack: Stack, sink: Sink, plan: Plan, rate: float, ready: Ready | None = None
) -> dict[str, Any]:
    """Define, wait, and measure; `rate` is how many are defined a second.

    `ready` is called when everything is defined and the hand-off begins.
    """
    ahead_s = BEFORE_S + (2.0 if plan.quick else HORIZON_S + IDLE_S + 3.0)
    first_s = float(int(time.time() + plan.fires / rate * 1.5 + 3.0 + ahead_s) + 1)
    jobs = [
        one_time(sink.url, f"j{n}", round(first_s * 1000 + n * plan.step_ms))
        for n in range(plan.fires)
    ]
    handed_off = stack.metric("scheduler", HANDED_OFF) + plan.fires
    define_per_s = define_batch(stack.api, stack.headers, jobs)
    stack.analyze()
    stack.settle()
    if time.time() > first_s - ahead_s + IDLE_S:
        raise Overran("defining took longer than its rate had promised")
    parts: list[tuple[Cpu, Cpu]] = []
    idle: dict[str, float] = {}
    if plan.quick:
        wait_until_s(first_s - BEFORE_S)
    else:
        parts, idle = _lead_in(stack, plan, first_s, handed_off, ready)
    before, sink_before_s = _cpu(stack), sink.cpu_s()
    last_s = first_s + plan.seconds
    complete = sink.await_all(plan.fires, last_s + DRAIN_TIMEOUT_S)
    stack.settle()
    parts.append((before, _cpu(stack)))
    sink_s = sink.cpu_s() - sink_before_s
    report = sink.report(plan.fires)
    found = _result(plan, report, parts, idle)
    if sink_s:
        # What the sink needs for a fire is the same work in every run: in a slow phase of the
        # machine both figures grow, and their ratio does not.
        found["sink_cpu_us_per_fire"] = round(sink_s / max(report["distinct"], 1) * 1e6, 1)
        found["cpu_in_sinks"] = round(found["cpu_s"] / sink_s, 2)
    return found | {
        "complete": complete,
        "define_per_s": round(define_per_s, 1),
        "versions": stack.versions,
    }


def _lead_in(
    stack: Stack, plan: Plan, first_s: float, handed_off: float, ready: Ready | None
) -> tuple[list[tuple[Cpu, Cpu]], dict[str, float]]:
    """Measure the hand-off; return its part, and CPU seconds that it would have idled away."""
    wait_until_s(first_s - HORIZON_S - BEFORE_S - IDLE_S)
    idling = _cpu(stack)
    wait_until_s(first_s - HORIZON_S - BEFORE_S)
    began = _cpu(stack)
    if ready is not None:
        wait_until_s(first_s - HORIZON_S + 0.2)
        ready()
    ends_s = first_s - BEFORE_S
    if plan.step_ms:
        wait_until_s(ends_s)
        ended = _cpu(stack)
        share = (ended.at_s - began.at_s) / (began.at_s - idling.at_s)
        spent = cpu.spent(idling.names, began.names)
        return [(began, ended)], {name: seconds * share for name, seconds in spent.items()}
    while stack.metric("scheduler", HANDED_OFF) < handed_off and time.time() < ends_s:
        time.sleep(POLL_S)
    ended = _cpu(stack)
    wait_until_s(ends_s)
    return [(began, ended)], {}


def _cpu(stack: Stack) -> Cpu:
    return Cpu(stack.cpu(), cpu.busy_s(), time.time())


def _result(
    plan: Plan, report: dict[str, Any], parts: list[tuple[Cpu, Cpu]], idle: dict[str, float]
) -> dict[str, Any]:
    spent: dict[str, float] = {name: -seconds for name, seconds in idle.items()}
    for before, after in parts:
        for name, seconds in cpu.spent(before.names, after.names).items():
            spent[name] = spent.get(name, 0.0) + seconds
    before, after = parts[-1]
    window_s = after.at_s - before.at_s
    machine = (after.machine - before.machine) / window_s / (os.cpu_count() or 1)
    fires = report["distinct"]
    kept = ("fires_per_s", "lateness_ms", "drain_s", "duplicates", "lost", "early")
    return {
        "workload": plan.workload,
        "n": plan.fires,
        "rate": round(1000 / plan.step_ms, 1) if plan.step_ms else 0,
        **{name: report.get(name) for name in kept},
        "fired": fires,
        "early_ms_max": report.get("early_ms_max"),
        "cpu_us_per_fire": round(sum(spent.values()) / max(fires, 1) * 1e6, 1),
        "cpu_us_per_fire_by_process": figures.per_fire(spent, fires),
        "cpu_s": round(sum(spent.values()), 3),
        "hand_off_counted": not plan.quick,
        "hand_off_s": None if len(parts) == 1 or plan.step_ms else _length_s(parts[0]),
        "window_s": round(window_s, 2),
        "machine_busy": round(machine, 3),
        "cores": os.cpu_count(),
    }


def _length_s(part: tuple[Cpu, Cpu]) -> float:
    return round(part[1].at_s - part[0].at_s, 2)
