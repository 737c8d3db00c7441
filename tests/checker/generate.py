"""python -m tests.checker.generate EVENTS [FOLDER]: a right history of so many events.

With a folder the files are written, to be judged by `python -m tests.checker`; without one they are
judged in memory, and the seconds and the most memory that this took are printed.
"""

import argparse
import resource
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from domain.schedule.schedule import Cron
from tests.checker.check import check
from tests.checker.inputs import FILES, History, write
from tests.checker.product import history as kept_history
from tests.checker.product import projections
from tests.checker.scene import MINUTE, START, Scene, spec

FIRES: Final = 24
"""Of each job: one an hour, for a day; each has four events."""
HOUR: Final = 60 * MINUTE
ZONES: Final = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Sydney")


def right(events: int, *, views: bool = True) -> History:
    """Return a history of at least so many events in which nothing is wrong.

    Jobs fire hourly, each at a minute of its own; one fire in ten is made twice. `views`: with the
    rows of the due index, the heads and the run history.
    """
    scene = Scene()
    number = 0
    while len(scene.events) < events:
        scene.now = START
        scene.shard = number % 64
        minute, zone = number % 30, ZONES[number % len(ZONES)]
        text = f"{minute} * * * *"
        job = scene.define(spec(Cron(text, text, zone)))
        # Half an hour off: a zone may have its whole hours there.
        nominal = START + minute * MINUTE + (30 * MINUTE if zone == "Asia/Kolkata" else 0)
        nominal += HOUR if nominal <= START else 0
        run = scene.plan(job, nominal)
        for fire in range(FIRES):
            if (number + fire) % 10 == 0:
                scene.lease(run)
                scene.hit(run, 500)
                scene.fail(run)
            scene.fire(run)
            nominal += HOUR
            run = scene.plan(job, nominal, after=nominal - HOUR)
        number += 1
    found = scene.history(settled_at=scene.now, quiescent=views)
    if views:
        _with_views(found)
    return found


def _with_views(history: History) -> None:
    history.projections = [
        row for row in projections(history.events) if type(row).__name__ != "Standing"
    ]
    history.history = kept_history(history.events)
    history.scenario = msgspec.structs.replace(history.scenario, quiescent=False)


def main(argv: list[str]) -> int:
    """Generate, then write or judge."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.checker.generate", description="Make a right history, and judge it."
    )
    parser.add_argument("events", type=int)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--log-only", action="store_true", help="without views and run history")
    said = parser.parse_args(argv)
    history = right(said.events, views=not said.log_only)
    sizes = ", ".join(
        f"{len(part)} {name}" for name in FILES if (part := getattr(history, name)) and len(part)
    )
    print(f"made {sizes}", flush=True)
    if said.folder is not None:
        write(said.folder, history)
        return 0
    began, spent = time.perf_counter(), time.process_time()
    report = check(history)
    took, cpu = time.perf_counter() - began, time.process_time() - spent
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"judged {report.events} events in {took:.1f} s ({cpu:.1f} s of CPU), {peak:.0f} MB at most"
    )
    print(f"{sum(report.broken.values())} violations")
    return 1 if report.broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
