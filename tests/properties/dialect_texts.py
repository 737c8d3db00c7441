"""Random cron texts of every dialect with what they mean, made together and not read back.

The meaning is sets of numbers and a question about a date that `calendar` answers, so that it
shares nothing with the parser or the tables of the engine.
"""

from calendar import monthrange
from collections.abc import Callable
from datetime import date, datetime
from random import Random
from typing import NamedTuple, TypeAlias

DIALECTS = ("vixie", "k8s", "quartz", "aws", "spring", "systemd")
MONDAY_FIRST = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MONTHS = (
    *("jan", "feb", "mar", "apr", "may", "jun"),
    *("jul", "aug", "sep", "oct", "nov", "dec"),
)

Days: TypeAlias = Callable[[date], bool]


class Asked(NamedTuple):
    """A text in a dialect, and what it means."""

    text: str
    dialect: str
    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    months: frozenset[int]
    days: Days
    wildcard: bool

    def matches_day(self, local: date) -> bool:
        """The month and the day fields."""
        return local.month in self.months and self.days(local)

    def matches(self, local: datetime) -> bool:
        """All but the second."""
        return (
            local.minute in self.minutes
            and local.hour in self.hours
            and self.matches_day(local.date())
        )


class _Numbers(NamedTuple):
    text: str
    values: frozenset[int]


def draw(random: Random, dialect: str) -> Asked:
    """A text, most often one that matches on most days."""
    if dialect == "systemd":
        return _calendar_event(random)
    minutes = _field(random, 0, 59, star=0.25)
    hours = _field(random, 0, 23, star=0.35)
    months = _field(random, 1, 12, star=0.85)
    if months.text.isdigit() and random.random() < 0.5:
        months = _Numbers(MONTHS[int(months.text) - 1].upper(), months.values)
    second = _Numbers("0", frozenset({0}))
    if dialect in ("quartz", "spring") and random.random() < 0.4:
        value = random.randrange(60)
        second = _Numbers(str(value), frozenset({value}))
    if dialect in ("quartz", "aws"):
        day_text, weekday_text, days = _one_day_field(random, dialect)
    else:
        day_text, weekday_text, days = _two_day_fields(random, dialect)
    texts = [minutes.text, hours.text, day_text, months.text, weekday_text]
    if dialect in ("quartz", "spring"):
        texts.insert(0, second.text)
    if dialect == "aws":
        texts.append("*")
    return Asked(
        " ".join(texts),
        dialect,
        second.values,
        minutes.values,
        hours.values,
        months.values,
        days,
        wildcard=minutes.text.startswith("*") or hours.text.startswith("*"),
    )


def _field(random: Random, low: int, high: int, star: float) -> _Numbers:
    kind = random.random()
    if kind < star:
        return _Numbers("*", frozenset(range(low, high + 1)))
    if kind < star + 0.1:
        step = random.randint(1, high - low)
        return _Numbers(f"*/{step}", frozenset(range(low, high + 1, step)))
    parts = [_element(random, low, high) for _ in range(random.choice((1, 1, 1, 2, 3)))]
    values = frozenset(value for part in parts for value in part.values)
    return _Numbers(",".join(part.text for part in parts), values)


def _element(random: Random, low: int, high: int) -> _Numbers:
    first = random.randint(low, high)
    if random.random() < 0.6:
        return _Numbers(str(first), frozenset({first}))
    last = random.randint(first, high)
    if random.random() < 0.5:
        return _Numbers(f"{first}-{last}", frozenset(range(first, last + 1)))
    step = random.randint(1, high - low)
    return _Numbers(f"{first}-{last}/{step}", frozenset(range(first, last + 1, step)))


def _two_day_fields(random: Random, dialect: str) -> tuple[str, str, Days]:
    """vixie, k8s and spring: both, either, and which of them."""
    day_text, by_number = _day_of_month(random, dialect)
    weekday_text, by_name = _day_of_week(random, dialect)
    if dialect == "vixie":
        both = day_text.startswith("*") or weekday_text.startswith("*")
    else:
        stars = {"*", "*/1"} & {day_text, weekday_text}
        both = dialect == "spring" or bool(stars)
    if both:
        return day_text, weekday_text, lambda day: by_number(day) and by_name(day)
    return day_text, weekday_text, lambda day: by_number(day) or by_name(day)


def _one_day_field(random: Random, dialect: str) -> tuple[str, str, Days]:
    if random.random() < 0.5:
        text, days = _day_of_month(random, dialect)
        return text, "?", days
    text, days = _day_of_week(random, dialect)
    return "?", text, days


def _day_of_month(random: Random, dialect: str) -> tuple[str, Days]:
    marks: dict[str, Days] = {}
    before, near = random.randint(1, 5), random.randint(1, 31)
    if dialect in ("quartz", "spring"):
        marks = {
            f"L-{before}": lambda day: day.day == _length(day) - before,
            "LW": lambda day: day.day == _nearest(day, _length(day)),
        }
    if dialect in ("quartz", "spring", "aws"):
        marks |= {
            "L": lambda day: day.day == _length(day),
            f"{near}W": lambda day: near <= _length(day) and day.day == _nearest(day, near),
        }
    if dialect == "quartz":
        marks[f"L-{before}W"] = lambda day: day.day == _nearest(day, _length(day) - before)
    if marks and random.random() < 0.4:
        text = random.choice(sorted(marks))
        return text, marks[text]
    field = _field(random, 1, 31, star=0.6)
    return field.text, lambda day: day.day in field.values


def _day_of_week(random: Random, dialect: str) -> tuple[str, Days]:
    """Weekdays, whose numbers each dialect begins elsewhere."""
    sunday = 1 if dialect in ("quartz", "aws") else 0
    weekday = random.randrange(7)  # Sunday is 0
    number = random.choice((str(weekday + sunday), MONDAY_FIRST[(weekday + 6) % 7]))
    if dialect in ("quartz", "spring", "aws") and random.random() < 0.4:
        nth = random.randint(1, 5)
        if random.random() < 0.5:
            return (
                f"{number}L",
                lambda day: day.isoweekday() % 7 == weekday and day.day > _length(day) - 7,
            )
        return (
            f"{number}#{nth}",
            lambda day: day.isoweekday() % 7 == weekday and (day.day - 1) // 7 + 1 == nth,
        )
    if random.random() < 0.6:
        return "*", lambda _: True
    if dialect == "aws":
        return number, lambda day: day.isoweekday() % 7 == weekday
    field = _field(random, sunday, 6 + sunday, star=0)
    return field.text, lambda day: day.isoweekday() % 7 + sunday in field.values


def _length(day: date) -> int:
    return monthrange(day.year, day.month)[1]


def _nearest(day: date, wanted: int) -> int:
    """The day of Monday to Friday nearest to one in the same month, looking outwards."""
    for away in range(7):
        for near in (wanted - away, wanted + away):
            inside = 1 <= near <= _length(day)
            if inside and day.replace(day=near).isoweekday() <= 5:
                return near
    raise AssertionError


def _calendar_event(random: Random) -> Asked:
    minutes = _field(random, 0, 59, star=0.25)
    hours = _field(random, 0, 23, star=0.35)
    months = _field(random, 1, 12, star=0.85)
    value = random.randrange(60)
    weekdays: set[int] = set(range(1, 8))
    names = ""
    if random.random() < 0.3:
        low = random.randint(1, 7)
        high = random.randint(low, 7)
        weekdays = set(range(low, high + 1))
        names = f"{MONDAY_FIRST[low - 1].title()}..{MONDAY_FIRST[high - 1].title()} "
    mark, at_end = "-", False
    day = _field(random, 1, 31, star=0.6)
    if "*" not in day.text and "/" not in day.text and random.random() < 0.4:
        mark, at_end = "~", True

    def days(local: date) -> bool:
        number = _length(local) - local.day + 1 if at_end else local.day
        return local.isoweekday() in weekdays and number in day.values

    date_text = f"*-{_dotted(months.text, 1)}{mark}{_dotted(day.text, 1)}"
    time_text = f"{_dotted(hours.text, 0)}:{_dotted(minutes.text, 0)}:{value}"
    return Asked(
        f"{names}{date_text} {time_text}",
        "systemd",
        frozenset({value}),
        minutes.values,
        hours.values,
        months.values,
        days,
        wildcard=_dotted(minutes.text, 0) == "*" or _dotted(hours.text, 0) == "*",
    )


def _dotted(text: str, low: int) -> str:
    """A list as systemd writes it: two dots, and no step after a star or beyond its range."""
    elements = []
    for element in text.split(","):
        span, _, step = element.partition("/")
        first, _, last = span.partition("-")
        if span == "*":
            elements.append(f"{low}/{step}" if step else "*")
        elif step and int(step) > int(last) - int(first):
            elements.append(first)
        else:
            elements.append(element.replace("-", ".."))
    return ",".join(elements)
