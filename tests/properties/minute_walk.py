"""The oracle of cron schedules: look at every minute of absolute time with `zoneinfo`.

It shares no code with the engine: fields are sets of numbers, and a clock change is seen as two
minutes that do not follow each other on the wall clock.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
LIMITS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


@cache
def zone_info(name: str) -> ZoneInfo:
    """The zone of the pinned data, never the machine's."""
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def numbers(text: str, low: int, high: int) -> set[int]:
    """The values of a field without names."""
    found: set[int] = set()
    for element in text.split(","):
        span, _, step = element.partition("/")
        first, _, last = (f"{low}-{high}" if span == "*" else span).partition("-")
        found.update(range(int(first), int(last or first) + 1, int(step or 1)))
    return found


class Expression:
    """A five-field text as sets of numbers."""

    def __init__(self, text: str) -> None:
        self.parts = text.split()
        fields = [numbers(part, *limit) for part, limit in zip(self.parts, LIMITS, strict=True)]
        self.minutes, self.hours, self.days, self.months, weekdays = fields
        self.weekdays = {day % 7 for day in weekdays}
        self.wildcard = self.parts[0].startswith("*") or self.parts[1].startswith("*")
        self.both = self.parts[2].startswith("*") or self.parts[4].startswith("*")

    def matches_day(self, local: datetime) -> bool:
        """The month and the two day fields."""
        by_number = local.day in self.days
        by_name = local.isoweekday() % 7 in self.weekdays
        days = (by_number and by_name) if self.both else (by_number or by_name)
        return local.month in self.months and days

    def matches(self, local: datetime) -> bool:
        """All five fields."""
        return local.minute in self.minutes and local.hour in self.hours and self.matches_day(local)


def slots(
    text: str, zone: str, window: tuple[datetime, datetime], gap: str = "", fold: str = ""
) -> list[datetime]:
    """Every slot in [start, end), both whole minutes of UTC."""
    expression = Expression(text)
    gap = gap or ("skip" if expression.wildcard else "next")
    fold = fold or ("both" if expression.wildcard else "first")
    margin = timedelta(days=2)
    seconds = int((window[1] - window[0] + 2 * margin).total_seconds())
    begin = window[0] - margin
    passes: dict[datetime, list[datetime]] = {}
    made_up: set[datetime] = set()
    info = zone_info(zone)
    before: datetime | None = None
    for offset in range(0, seconds, 60):
        instant = begin + timedelta(seconds=offset)
        local = instant.astimezone(info).replace(tzinfo=None, fold=0)
        passes.setdefault(local, []).append(instant)
        if (
            gap == "next"
            and before is not None
            and MINUTE < local - before <= MINUTE + timedelta(hours=3)
            and any(expression.matches(lost) for lost in _between(before, local))
        ):
            made_up.add(instant)
        before = local
    found = set(made_up)
    for local, instants in passes.items():
        if expression.matches(local):
            found.update({"first": instants[:1], "last": instants[-1:], "both": instants}[fold])
    return sorted(slot for slot in found if window[0] <= slot < window[1])


def _between(before: datetime, after: datetime) -> Iterator[datetime]:
    local = before + MINUTE
    while local < after:
        yield local
        local += MINUTE


def to_ms(instant: datetime) -> int:
    """Milliseconds since the epoch."""
    return int((instant - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1))


def from_s(instant_s: int) -> datetime:
    """An instant in UTC, at the minute it lies in."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(minutes=instant_s // 60)
