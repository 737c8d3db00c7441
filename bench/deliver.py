"""What a request of our deliverer costs, beside aiohttp and httpx in the same run.

Each measurement is a process of its own (bench/deliver_client.py) against one sink in another; they
take turns, so that a slow phase of the machine meets all of them, and medians are shown. The sink's
own CPU for a request is the same work in every run: in a slow phase it grows too, and the ratio to
it does not.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from statistics import median
from typing import Any, Final

from bench.stack import BenchError, Sink, sink

CLIENTS: Final = ("tocsin", "aiohttp", "httpx")
REQUESTS: Final = {"tocsin": 10_000, "aiohttp": 4_000, "httpx": 150}
"""The slower a client, the fewer: a measurement takes some seconds."""
LIMIT_US: Final = 80
RUN_TIMEOUT_S: Final = 120


def measure(concurrency: int, repetitions: int, clients: Sequence[str] = CLIENTS) -> dict[str, Any]:
    """Return the medians of each client; ours is always among them."""
    found: dict[str, list[dict[str, float]]] = {client: [] for client in clients}
    sinks: list[float] = []
    with sink() as receiver:
        for _ in range(repetitions):
            for client in clients:
                before = receiver.cpu_s()
                one = _run(client, receiver, concurrency)
                found[client].append(one)
                if client == "tocsin":
                    sinks.append((receiver.cpu_s() - before) / one["requests"] * 1e6)
                receiver.reset()
    sink_us = median(sinks)
    ours = median(one["us"] for one in found["tocsin"])
    return {
        "workload": "deliver",
        "concurrency": concurrency,
        "repetitions": repetitions,
        "limit_us": LIMIT_US,
        "cpu_us_per_request": {
            client: round(median(one["us"] for one in runs), 1) for client, runs in found.items()
        },
        "cpu_us_per_request_min": {
            client: round(min(one["us"] for one in runs), 1) for client, runs in found.items()
        },
        "requests_per_s": {
            client: round(median(one["per_s"] for one in runs)) for client, runs in found.items()
        },
        "sink_cpu_us_per_request": round(sink_us, 1),
        "cpu_in_sinks": round(ours / sink_us, 2) if sink_us else None,
    }


def _run(client: str, receiver: Sink, concurrency: int) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.deliver_client", client, receiver.url]
    command += ["--requests", str(REQUESTS[client]), "--concurrency", str(concurrency)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise BenchError(f"{client}: {done.stderr[-1000:]}")
    one: dict[str, float] = json.loads(done.stdout)
    return one
