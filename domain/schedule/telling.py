"""A schedule in plain words, and an instant as its clock shows it."""

import re
from datetime import datetime, timedelta
from typing import Final, assert_never

from domain.instant import LAST, SECOND, rfc3339
from domain.schedule import zone
from domain.schedule.fields import MONTHS
from domain.schedule.spec import Cron, Every, FixedDelay, OneTime, RRule, ScheduleSpec, Union

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - local time, which has no zone of its own
_PLAIN: Final = re.compile(r"[0-9*,/-]+(?: [0-9*,/-]+){4}")
_SECONDS: Final = ("quartz", "aws", "spring")
_SECONDS_FIELDS: Final = ("second", "minute", "hour", "day", "month", "weekday")
_NUMBER: Final = re.compile(r"(?<![/0-9])[0-9]+")
"""A number of a field that is not a step."""
_WHOLE_HOUR: Final = "0-59/"
_WEEKDAYS: Final = (
    *("Sunday", "Monday", "Tuesday", "Wednesday"),
    *("Thursday", "Friday", "Saturday", "Sunday"),
)
_UNITS: Final = {"Y": "year", "M": "month", "W": "week", "D": "day"}
_TIMES: Final = {"H": "hour", "M": "minute", "S": "second"}


def description(spec: ScheduleSpec) -> str:
    """Say when a schedule fires."""
    match spec:
        case OneTime(run_at):
            return f"once, at {rfc3339(run_at)}"
        case Cron():
            return f"{_cron(spec)}, in {spec.zone}"
        case Every():
            where = "" if spec.step_ms else f", in {spec.zone}"
            return f"every {_duration(spec.typed)}, counted from {rfc3339(spec.anchor)}{where}"
        case RRule():
            return f"by the rule {spec.text} from {rfc3339(spec.anchor)} on, in {spec.zone}"
        case Union():
            return "; and ".join(map(description, spec.parts))
        case FixedDelay():
            first = f", not before {rfc3339(spec.anchor)}" if spec.anchor else ""
            return f"{_duration(spec.typed, counted=True)} after the end of each run{first}"
        case _:
            assert_never(spec)


def zone_of(spec: ScheduleSpec) -> str:
    """Return the zone that a schedule goes by; of several parts, that of the first."""
    if isinstance(spec, Union):
        return spec.parts[0].zone
    return "UTC" if isinstance(spec, OneTime) else spec.zone


def local_text(spec: ScheduleSpec, at: int) -> str:
    """Return an instant (ms) as the clock of the schedule's zone shows it, with its offset."""
    offset_s = zone.load(zone_of(spec)).offset_s(at // 1000)
    if at + offset_s * SECOND > LAST:
        offset_s = 0  # the clock shows a year 10000, which has no text: the instant in UTC
    hours, rest = divmod(abs(offset_s), 3600)
    local = _EPOCH + timedelta(milliseconds=at, seconds=offset_s)
    shown = local.isoformat(timespec="milliseconds" if at % 1000 else "seconds")
    return f"{shown}{'-' if offset_s < 0 else '+'}{hours:02d}:{rest // 60:02d}"


def _cron(spec: Cron) -> str:
    plain = _five_fields(spec)
    if not _PLAIN.fullmatch(plain):
        kind = "calendar event" if spec.dialect == "systemd" else "cron"
        return f"{spec.dialect} {kind} {spec.typed!r}"
    minute, hour, day, month, weekday = plain.split(" ")
    words = [_time(minute, hour), _days(day, weekday)]
    if month != "*":
        words.append(f"in {_values(month, 'month', MONTHS, 1)}")
    return ", ".join(word for word in words if word)


def _five_fields(spec: Cron) -> str:
    """Return the classic fields that mean the same; where none do, what are not five."""
    fields = re.sub(r"(?<= )[?](?= |$)", "*", spec.text).split(" ")
    if spec.dialect == "aws":
        fields = ["0", *fields[:-1]] if fields[-1] == "*" else []  # its last field is a year
    if spec.dialect in _SECONDS and len(fields) == len(_SECONDS_FIELDS) and fields[0] == "0":
        _, minute, hour, day, month, weekday = fields
        if "*" not in (day, weekday):
            return ""  # both must match, which the classic fields cannot say
        if spec.dialect != "spring":
            weekday = _NUMBER.sub(lambda found: str(int(found[0]) - 1), weekday)
        fields = [minute, hour, day, month, weekday]
    if fields and fields[0].startswith(_WHOLE_HOUR):
        fields[0] = "*" + fields[0].removeprefix(_WHOLE_HOUR[:-1])
    return " ".join(fields)


def _time(minute: str, hour: str) -> str:
    hours = [] if set(hour) & set("*/-") else hour.split(",")
    if minute.isdigit() and hours:
        return f"at {_listed([f'{int(one):02d}:{int(minute):02d}' for one in hours], 'and')}"
    said = "every minute" if minute == "*" else f"at {_values(minute, 'minute')}"
    if minute.startswith("*/") and minute[2:].isdigit():
        said = f"every {minute[2:]} minutes"
    if hour == "*":
        return said if minute.startswith("*") else f"{said} of every hour"
    return f"{said} of {_values(hour, 'hour')}"


def _days(day: str, weekday: str) -> str:
    by_day = "" if day == "*" else f"on {_values(day, 'day')} of the month"
    by_weekday = "" if weekday == "*" else f"on {_values(weekday, 'weekday', _WEEKDAYS, 0)}"
    if by_day and by_weekday:
        both = day.startswith("*") or weekday.startswith("*")
        return f"{by_day} {'if it is' if both else 'and'} {by_weekday}"
    return by_day or by_weekday or "every day"


def _values(field: str, unit: str, names: tuple[str, ...] = (), low: int = 0) -> str:
    """Say a list of numbers, ranges and steps."""

    def name(number: str) -> str:
        return names[int(number) - low] if names else number

    said = []
    for element in field.split(","):
        span, _, step = element.partition("/")
        first, _, last = span.partition("-")
        if span == "*":
            said.append(f"every {step}. {unit}" if step else f"every {unit}")
            continue
        words = f"{name(first)} to {name(last)}" if last else name(first)
        said.append(f"every {step}. of {words}" if step else words)
    plain = not names and not field.startswith("*")
    return (f"{unit} " if plain else "") + _listed(said, "and")


def _duration(text: str, *, counted: bool = False) -> str:
    """Say a duration; a single unit that comes first is "hour" ("every hour") unless `counted`."""
    days, _, times = text[1:].partition("T")
    words: list[str] = []
    for part, units in ((days, _UNITS), (times, _TIMES)):
        for number, unit in re.findall(r"([0-9.,]+)([A-Z])", part):
            one, name = number.lstrip("0") == "1", units[unit]
            if one and not words and not counted:
                words.append(name)
            else:
                words.append(f"{number} {name}{'' if one and counted else 's'}")
    return _listed(words, "and")


def _listed(words: list[str], last: str) -> str:
    return f" {last} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
