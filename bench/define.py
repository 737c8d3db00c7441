"""How many jobs can be defined a second, and what one costs."""

import time
from typing import Any, Final

from bench import cpu, figures
from bench.load import define_batch, define_singly, hourly, one_time
from bench.stack import Stack

DAY_MS: Final = 86_400_000
SINK: Final = "http://127.0.0.1:8080"
"""Nothing is called: every job is due a day ahead."""


def measure(stack: Stack, count: int, singles: int) -> dict[str, Any]:
    """Define one-time and recurring jobs as NDJSON, then one-time jobs one by one."""
    due_ms = time.time_ns() // 1_000_000 + DAY_MS
    define_batch(stack.api, stack.headers, [one_time(SINK, "warm", due_ms)] * 500)
    define_singly(stack.api, stack.headers, [one_time(SINK, "warm", due_ms)] * 100)
    batch = [one_time(SINK, "same", due_ms + n) for n in range(count)]
    recurring = [hourly(SINK, n) for n in range(count)]
    found: dict[str, Any] = {"workload": "define", "n": count, "singles": singles}
    for name, jobs, send in (
        ("batch", batch, define_batch),
        ("batch_recurring", recurring, define_batch),
        ("single", batch[:singles], define_singly),
    ):
        stack.settle()
        before = stack.cpu()
        found[f"{name}_per_s"] = round(send(stack.api, stack.headers, jobs), 1)
        stack.settle()
        spent = cpu.spent(before, stack.cpu())
        found[f"{name}_cpu_us"] = round(sum(spent.values()) / len(jobs) * 1e6, 1)
        found[f"{name}_cpu_us_by_process"] = figures.per_fire(spent, len(jobs))
    return found | {"versions": stack.versions}
