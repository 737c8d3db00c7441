"""What one host that hangs does to nine that answer: their lateness alone, and beside it.

The whole of Tocsin runs, as `tocsin up` starts it. All ten hosts are asked for as much, and the
calls of the tenth hang until their time is over.
"""

import json
import subprocess
import sys
import time
from typing import Any, Final
from urllib.parse import urlsplit

from bench.fires import warm_up
from bench.load import PAYLOAD, define_batch, instant, one_time
from bench.stack import BenchError, Sink, Stack, sink, stack

ANY: Final = "0.0.0.0"  # noqa: S104 - each loopback address
WELL: Final = 9
LEAD_S: Final = 4.0
HANG_S: Final = 10
DRAIN_S: Final = 60.0
LIMIT: Final = 2.0


def measure(rate: float, seconds: float) -> dict[str, Any]:
    """Fire at nine hosts at a rate, all together, and then once more beside the tenth."""
    with (
        subprocess.Popen(
            [sys.executable, "-m", "bench.slow_sink"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as hung,
        sink(ANY) as every,
        stack() as running,
    ):
        assert hung.stdin is not None
        assert hung.stdout is not None
        receiver = Sink(every.url.replace(ANY, "127.0.0.1"))
        try:
            place = f"http://127.0.0.{WELL + 1}:{hung.stdout.readline().strip()}/slow"
            warm_up(running, receiver)
            count = round(rate * seconds)
            alone = _fires(running, receiver, count, seconds, "")
            beside = _fires(running, receiver, count, seconds, place)
            hung.stdin.write("held\n")
            hung.stdin.flush()
            held = int(hung.stdout.readline())
        finally:
            hung.stdin.close()
    ratio = beside["lateness_ms"]["p99"] / max(alone["lateness_ms"]["p99"], 0.001)
    return {
        "workload": "hanging",
        "rate": rate,
        "p99_ratio": round(ratio, 2),
        "limit": LIMIT,
        "hanging_calls_at_the_end": held,
        "parts": [{"part": "alone", **alone}, {"part": "beside one that hangs", **beside}],
    }


def _fires(
    running: Stack, receiver: Sink, count: int, seconds: float, hanging: str
) -> dict[str, Any]:
    port = urlsplit(receiver.url).port
    receiver.reset()
    first_ms = round((time.time() + LEAD_S + count / 1_000) * 1000)
    dues = [first_ms + round(n * seconds * 1000 / count) for n in range(count)]
    jobs = [
        one_time(f"http://127.0.0.{1 + n % WELL}:{port}", f"j{n}", due)
        for n, due in enumerate(dues)
    ]
    if hanging:
        jobs += [_hanging(hanging, due) for due in dues[::WELL]]
    define_batch(running.api, running.headers, jobs)
    if time.time() * 1000 > first_ms:
        raise BenchError("this machine is too busy to define the jobs in time")
    receiver.await_all(count, dues[-1] / 1000 + DRAIN_S)
    report = receiver.report(count)
    return {
        name: report[name] for name in ("lateness_ms", "distinct", "lost", "duplicates", "early")
    }


def _hanging(url: str, due_ms: int) -> bytes:
    job = {
        "type": "one_time",
        "run_at": instant(due_ms),
        "target": {"kind": "http", "url": url, "method": "POST"},
        "payload": PAYLOAD,
        "timeout_s": HANG_S,
        "retry": {"max_attempts": 1},
    }
    return json.dumps(job, separators=(",", ":")).encode()
