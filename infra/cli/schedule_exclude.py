"""`--exclude FILE` of `tocsin schedule`: calendars from files, read as those of tenants are."""

from pathlib import Path
from typing import Final

from commandside.definitions.calendar_body import EXCLUDE_MAX, read_calendar
from commandside.definitions.reading import read_object
from domain.problem import Problem
from domain.refusal import Refused
from domain.schedule.excluding import without
from domain.schedule.exclusion import Exclusion
from domain.schedule.schedule import Plan, ScheduleSpec
from infra.ics import read_ics

_BYTES_MAX: Final = 1024 * 1024


def plan_without(spec: ScheduleSpec, paths: list[str], at: int) -> Plan | tuple[Refused, ...]:
    """Compile a schedule without what the files exclude; `at` is now, in ms."""
    if len(paths) > EXCLUDE_MAX:
        return (Refused("/exclude", f"{len(paths)} files; at most {EXCLUDE_MAX}"),)
    found = []
    for path in paths:
        try:
            found.append(_read(path, at))
        except (OSError, UnicodeDecodeError) as error:
            return (Refused("/exclude", f"{path} cannot be read: {error}"),)
        except Problem as problem:
            said = [f"{one.pointer[1:]}: {one.detail}" for one in problem.errors]
            return tuple(
                Refused("/exclude", f"{path}: {detail}") for detail in said or [problem.detail]
            )
    return without(spec, 0, 0, tuple(found))


def _read(path: str, at: int) -> Exclusion:
    """Read an iCalendar file, or the JSON of `PUT /v1/calendars/NAME`."""
    with Path(path).open("rb") as file:
        raw = file.read(_BYTES_MAX + 1)
    if len(raw) > _BYTES_MAX:
        raise OSError(f"more than {_BYTES_MAX} bytes")
    is_json = raw.lstrip().startswith(b"{")
    body = read_object(raw) if is_json else {"ics": raw.decode("utf-8-sig")}
    return read_calendar(Path(path).name, body, read_ics, at)[0]
