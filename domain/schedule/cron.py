"""Five-field cron of the Vixie/Debian dialect: a strict parser into bit sets.

It accepts what that dialect defines and refuses the rest with what would be right; it never
guesses. `croniter` reads every accepted text as a second opinion: where the two disagree the text
is refused, since one of them would fire at the wrong time.
"""

import re
from itertools import pairwise
from typing import Final, NamedTuple

from croniter import CroniterError, croniter

_DAY_MINUTES: Final = 1_440
_EVERY_DAY: Final = 0xFFFFFFFE  # days 1 to 31
_FIVE_WEEKS: Final = sum(1 << 7 * week for week in range(6))  # and the one a month begins in
_LONGEST: Final = (0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()


_MONTHS: Final = (
    *("jan", "feb", "mar", "apr", "may", "jun"),
    *("jul", "aug", "sep", "oct", "nov", "dec"),
)
_WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: Final = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day-of-month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day-of-week", 0, 7, _WEEKDAYS),
)
_WORDS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_ELEMENT: Final = re.compile(r"(\*|[0-9]+|[A-Za-z]+)(?:-([0-9]+|[A-Za-z]+))?(?:/([0-9]+))?")
_DIGITS: Final = 6  # of a number, leading zeros included
_FOREIGN: Final = {
    "LW": "LW (last weekday)",
    "L": "L (last)",
    "W": "W (nearest weekday)",
    "#": "# (nth weekday)",
    "?": "? (no value)",
    "H": "H (hashed)",
    "~": "~ (random)",
}


class Wrong(Exception):
    """A text that is not accepted; the message says what would be right."""


class Fields(NamedTuple):
    """A parsed text: its canonical form, and the bit set of each field (Sunday is bit 0)."""

    text: str
    minutes: int
    hours: int
    days: int
    months: int
    weekdays: int

    @property
    def wildcard(self) -> bool:
        """Whether minute or hour begins with `*`, so that it follows the clock as it runs."""
        minute, hour = self.text.split(" ")[:2]
        return minute.startswith("*") or hour.startswith("*")

    @property
    def both_days(self) -> bool:
        """Whether both day fields must match, as one of them begins with `*`."""
        _, _, day, _, weekday = self.text.split(" ")
        return day.startswith("*") or weekday.startswith("*")

    @property
    def day_masks(self) -> tuple[int, ...]:
        """For a month whose first is weekday w: the bit set of days that match, by w."""
        weeks = self.weekdays * _FIVE_WEEKS
        named = [(weeks >> first) << 1 & _EVERY_DAY for first in range(7)]
        if self.both_days:
            return tuple(self.days & mask for mask in named)
        return tuple(self.days | mask for mask in named)

    @property
    def times(self) -> int:
        """The bit set of matching minutes of the day, 0 to 1439."""
        return sum(self.minutes << 60 * hour for hour in range(24) if self.hours >> hour & 1)

    @property
    def shortest_s(self) -> int:
        """The least distance of two slots within a day, or from one day into the next."""
        minutes = [minute for minute in range(_DAY_MINUTES) if self.times >> minute & 1]
        minutes.append(minutes[0] + _DAY_MINUTES)
        return 60 * min(after - before for before, after in pairwise(minutes))


def parse(text: str) -> Fields:
    """Read a text, or raise `Wrong`; the caller has bounded its length."""
    fields = read(text)
    if not _has_a_date(fields):
        _, _, day, month, _ = fields.text.split(" ")
        raise Wrong(f"never matches: day {day} does not exist in month {month}")
    _ask_croniter(fields)
    return fields


def read(text: str) -> Fields:
    """Read a text without asking whether it ever matches: enough for one that was parsed."""
    if not text.isascii() or not text.replace("\t", " ").isprintable():
        raise Wrong("only plain ASCII text with blanks or tabs between the fields")
    parts = text.split()
    if parts and parts[0].startswith("@"):
        parts = _word(parts)
    if parts and "=" in parts[0]:
        raise Wrong(f"{parts[0]!r} is not part of a schedule: name the zone in `timezone`")
    if len(parts) != len(_FIELDS):
        raise Wrong(_miscounted(len(parts)))
    found = [_read_field(part, field) for part, field in zip(parts, _FIELDS, strict=True)]
    return Fields(" ".join(canonical for canonical, _ in found), *(bits for _, bits in found))


def _miscounted(count: int) -> str:
    wanted = "expected 5 fields (minute hour day-of-month month day-of-week)"
    if count > len(_FIELDS):
        return f"{wanted}, {count} given: seconds or a year need a dialect asked for by name"
    return f"{wanted}, {count} given: such as 0 9 * * 1-5"


def _word(parts: list[str]) -> list[str]:
    word = parts[0].lower()
    if len(parts) == 1 and word in _WORDS:
        return _WORDS[word].split()
    if word == "@reboot":
        raise Wrong("@reboot names no time; give five fields or one of @hourly to @yearly")
    if word == "@every":
        raise Wrong("@every is an interval, not a cron schedule: give five fields")
    raise Wrong(f"{' '.join(parts)!r} is not a schedule: the words are {', '.join(_WORDS)}")


def _read_field(text: str, field: _Field) -> tuple[str, int]:
    """The canonical form and bit set of one field.

    A list becomes its values in order, a first `*` kept, as its place decides the day rule and
    the rule of clock changes.
    """
    elements = text.split(",")
    canonical, bits = _read_element(elements[0], field)
    if len(elements) > 1:
        starred = bits if canonical.startswith("*") else 0
        for element in elements[1:]:
            bits |= _read_element(element, field)[1]
        bits = _one_sunday(bits, field)
        runs = _runs(bits & ~starred)
        canonical = ",".join([canonical, *runs] if starred else runs)
    return canonical, _one_sunday(bits, field)


def _one_sunday(bits: int, field: _Field) -> int:
    return (bits | bits >> 7) & 0x7F if field.name == "day-of-week" else bits


def _runs(bits: int) -> list[str]:
    """The values of a bit set, neighbours joined to ranges."""
    runs = []
    while bits:
        low = (bits & -bits).bit_length() - 1
        length = (~(bits >> low) & -~(bits >> low)).bit_length() - 1
        runs.append(str(low) if length == 1 else f"{low}-{low + length - 1}")
        bits &= -1 << (low + length)
    return runs


def _read_element(text: str, field: _Field) -> tuple[str, int]:
    if not text:
        raise Wrong(f"empty list element in {field.name}")
    found = _ELEMENT.fullmatch(text)
    if found is None:
        raise Wrong(_not_understood(text, field))
    first, last, step_text = found.groups()
    step = 1 if step_text is None else _read_step(step_text, field)
    if first == "*":
        if last is not None:
            raise Wrong(f"{text!r} in {field.name}: * is the whole range and has no end")
        return ("*" if step == 1 else f"*/{step}"), _bits(field.low, field.high, step)
    low = _read_value(first, field)
    if last is None:
        if step_text is not None:
            high = 6 if field.name == "day-of-week" else field.high
            raise Wrong(
                f"{text!r} in {field.name}: a step needs * or an explicit range, "
                f"such as {low}-{max(low, high)}/{step}"
            )
        return str(low % 7 if field.name == "day-of-week" else low), 1 << low
    high = _read_value(last, field)
    if high < low:
        raise Wrong(_backwards(text, (low, high, step), field))
    if step > high - low:
        return str(low % 7 if field.name == "day-of-week" else low), 1 << low
    return f"{low}-{high}" + (f"/{step}" if step > 1 else ""), _bits(low, high, step)


def _bits(low: int, high: int, step: int) -> int:
    return sum(1 << value for value in range(low, high + 1, step))


def _read_step(text: str, field: _Field) -> int:
    step = int(text) if len(text) <= _DIGITS else -1
    if step == 0:
        raise Wrong(f"a step of 0 in {field.name}: a step is at least 1")
    if not 0 < step <= field.high - field.low:
        raise Wrong(
            f"a step of {text} is larger than the {field.name} field "
            f"({field.low}-{field.high}): it would match {field.low} only; "
            f"give at most {field.high - field.low}"
        )
    return step


def _read_value(text: str, field: _Field) -> int:
    if text.isdigit():
        value = int(text) if len(text) <= _DIGITS else -1
        if not field.low <= value <= field.high:
            raise Wrong(f"{field.name} is {field.low}-{field.high}, not {text}")
        return value
    if text.lower() in field.names:
        return field.names.index(text.lower()) + field.low
    raise Wrong(_not_understood(text, field))


def _not_understood(text: str, field: _Field) -> str:
    foreign = text.upper() in _FOREIGN or not text.isalpha()
    for mark, meaning in _FOREIGN.items():
        if foreign and mark in text.upper():
            return f"{text!r} in {field.name}: {meaning} is not part of the vixie dialect"
    if field.names and text.isalpha():
        listed = ", ".join(name.upper() for name in field.names)
        return f"unknown {field.name} name {text!r}: the names are {listed}"
    return (
        f"{text!r} in {field.name} is not understood: give *, numbers {field.low}-{field.high}, "
        "ranges, lists or steps such as */5"
    )


def _backwards(text: str, bounds: tuple[int, int, int], field: _Field) -> str:
    low, high, step = bounds
    top = 6 if field.name == "day-of-week" else field.high
    if step > 1:
        around = [*range(low, top + 1), *range(field.low, high + 1)][::step]
        right = ",".join(str(value) for value in sorted(around))
    elif field.name == "day-of-week" and high == 0:
        right = f"{low}-7"
    else:
        runs = ((low, top), (field.low, high))
        right = ",".join(f"{a}-{b}" if a < b else str(b) for a, b in runs if a <= b)
    return f"the range {text!r} in {field.name} ends before it starts: write {right}"


def _has_a_date(fields: Fields) -> bool:
    """Whether any day of any year matches; every month starts on each weekday some year."""
    masks = fields.day_masks
    return any(
        fields.months >> month & 1 and mask & ((2 << _LONGEST[month]) - 1)
        for month in range(1, 13)
        for mask in masks
    )


def _ask_croniter(fields: Fields) -> None:
    ours = (fields.minutes, fields.hours, fields.days, fields.months, fields.weekdays)
    try:
        expanded, nth = croniter.expand(fields.text)
    except CroniterError as error:
        raise Wrong(f"read differently by a second parser, so refused: {error}") from error
    for bits, values, field in zip(ours, expanded, _FIELDS, strict=True):
        high = 6 if field.name == "day-of-week" else field.high
        theirs = range(field.low, high + 1) if values == ["*"] else values
        if nth or bits != sum(1 << int(value) for value in theirs):
            raise Wrong(f"the {field.name} is read differently by a second parser, so refused")
