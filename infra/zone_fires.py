"""The fires of schedules under this process' zone data; a process of its own, for other data.

    PYTHONPATH=FOLDER_OF_ANOTHER_TZDATA python -m infra.zone_fires FROM UNTIL < schedules > fires

Zone data are a package and are loaded once, so two versions need two processes. MessagePack both
ways: in a list of schedules, out the version of the data and, for each schedule, its slots.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from domain.schedule import zone
from domain.schedule.plan import ScheduleBreach
from domain.schedule.schedule import plan
from domain.schedule.spec import ScheduleSpec

SLOTS_MAX: Final = 20_000
"""Of one schedule: what fires more often than every half an hour is not followed for a year."""
TIMEOUT_S: Final = 600.0
ROOT: Final = Path(__file__).parents[1]


class Fires(msgspec.Struct, frozen=True, array_like=True):
    """What a version of the zone data makes of schedules; None where it cannot."""

    zone_data: str
    slots: list[list[int] | None]


def fires(schedules: Sequence[ScheduleSpec], after: int, until: int) -> Fires:
    """Return the first slots of each schedule in (after, until]."""
    return Fires(zone.VERSION, [_slots(schedule, after, until) for schedule in schedules])


def fires_with(folder: Path, schedules: Sequence[ScheduleSpec], after: int, until: int) -> Fires:
    """Return the same under the `tzdata` package in a folder; raises ValueError where none is."""
    if not (folder / "tzdata" / "zoneinfo").is_dir():
        raise ValueError(
            f"{folder} has no tzdata package: pip install --target {folder} tzdata==VERSION"
        )
    words = (sys.executable, "-m", "infra.zone_fires", str(after), str(until))
    done = subprocess.run(  # noqa: S603 - this program itself
        words,
        input=msgspec.msgpack.encode(list(schedules)),
        capture_output=True,
        check=True,
        timeout=TIMEOUT_S,
        cwd=ROOT,
        env={"PYTHONPATH": f"{folder}:{ROOT}"},
    )
    return msgspec.msgpack.decode(done.stdout, type=Fires)


def _slots(schedule: ScheduleSpec, after: int, until: int) -> list[int] | None:
    found: list[int] = []
    try:
        slots = plan(schedule)
        slot = slots.next_after(after)
        while slot is not None and slot <= until and len(found) < SLOTS_MAX:
            found.append(slot)
            slot = slots.next_after(slot)
    except ScheduleBreach:
        return None
    return found


def main() -> None:
    """Answer what is on standard input."""
    schedules = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=list[ScheduleSpec])
    after, until = map(int, sys.argv[1:3])
    sys.stdout.buffer.write(msgspec.msgpack.encode(fires(schedules, after, until)))


if __name__ == "__main__":
    main()
