"""CPU time from /proc: own time and that of dead children, of every process below a named one."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
PROC: Final = Path("/proc")
OTHER: Final = "other"


class Process(NamedTuple):
    """A process: its parent, and its CPU seconds with those of its dead and awaited children."""

    parent: int
    cpu_s: float


Table = dict[int, Process]


def parse_stat(text: str) -> Process:
    """Read a line of /proc/<pid>/stat; the name in it may hold blanks and brackets."""
    fields = text.rpartition(")")[2].split()
    # After the name: state, ppid, … utime, stime, cutime, cstime (fields 14 to 17 of proc(5)).
    return Process(int(fields[1]), sum(map(int, fields[11:15])) / TICKS_PER_S)


def table() -> Table:
    """Return every process of the machine."""
    found: Table = {}
    for entry in os.scandir(PROC):
        if not entry.name.isdigit():
            continue
        try:
            found[int(entry.name)] = parse_stat((PROC / entry.name / "stat").read_text())
        except (FileNotFoundError, ProcessLookupError):
            # It ended between the listing and the reading: its parent has its time.
            continue
    return found


def by_name(processes: Table, names: Mapping[str, int]) -> dict[str, float]:
    """Return CPU seconds of named processes and all below them.

    A process that is below several named ones counts for the nearest.
    """
    named = {pid: name for name, pid in names.items()}
    total = dict.fromkeys(names, 0.0)
    for pid in processes:
        at, seen = pid, 0
        # Bounded, since a table read while processes come and go may hold a circle.
        while at not in named and at in processes and seen < len(processes):
            at, seen = processes[at].parent, seen + 1
        if at in named:
            total[named[at]] += processes[pid].cpu_s
    return total


def spent(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return what each has used in between.

    Of a name whose process was replaced only the new one is known here; what the old one used has
    gone to its parent, so that the sum over all names stays true.
    """
    return {
        name: seconds - before.get(name, 0.0) if seconds >= before.get(name, 0.0) else seconds
        for name, seconds in after.items()
    }


def busy_s() -> float:
    """Return CPU seconds that the whole machine has been busy since it started."""
    fields = [int(field) for field in (PROC / "stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle, waiting = fields[3], fields[4]
    return (sum(fields) - idle - waiting) / TICKS_PER_S
