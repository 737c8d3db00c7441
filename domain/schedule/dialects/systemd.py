"""systemd's calendar events: `[weekdays] [[year-]month-day] [hour:minute[:second]]`.

`..` is a range, `/` a repetition, `~` counts days from the end of the month. What systemd takes
and is refused here: fractions of a second, and a zone at the end, which `timezone` names.
"""

import re
from typing import Final, NamedTuple

from domain.schedule.dialects import days
from domain.schedule.dialects.grammar import WEEKDAYS
from domain.schedule.fields import FIRST_YEAR, LAST_YEAR, DayFields, Fields, Wrong

_WORDS: Final = {
    "minutely": "*-*-* *:*:00",
    "hourly": "*-*-* *:00:00",
    "daily": "*-*-* 00:00:00",
    "weekly": "Mon *-*-* 00:00:00",
    "monthly": "*-*-01 00:00:00",
    "quarterly": "*-01,04,07,10-01 00:00:00",
    "semiannually": "*-01,07-01 00:00:00",
    "semi-annually": "*-01,07-01 00:00:00",
    "yearly": "*-01-01 00:00:00",
    "annually": "*-01-01 00:00:00",
}
_FORM: Final = "[weekdays] [year-month-day] [hour:minute:second], such as Mon..Fri 09:00"
_FULL: Final = (
    *("sunday", "monday", "tuesday", "wednesday"),
    *("thursday", "friday", "saturday"),
)
_VALUE: Final = re.compile(r"([0-9]{1,5})(?:\.\.([0-9]{1,5}))?(?:/([0-9]{1,5}))?")
_ZONE: Final = re.compile(r"[A-Za-z]+(?:[/_+-][A-Za-z0-9_+/-]+)?")
_FRACTION: Final = re.compile(r"[0-9]\.[0-9]")
_SHORT_YEAR: Final = 100
_CENTURY_FROM: Final = 70  # 70 is 1970, 69 is 2069
_ALL_DAYS: Final = 0xFFFFFFFE
_ALL_WEEKDAYS: Final = 0x7F
_FROM_MONDAY: Final = (1, 2, 3, 4, 5, 6, 0)


class _Component(NamedTuple):
    """The numbers of one place: their text and bits; `*` has all bits."""

    text: str
    bits: int


class _Place(NamedTuple):
    name: str
    low: int
    high: int
    digits: int = 2

    def all(self) -> _Component:
        return _Component("*", (2 << self.high) - (1 << self.low))


_YEAR: Final = _Place("year", FIRST_YEAR, LAST_YEAR, 4)
_MONTH: Final = _Place("month", 1, 12)
_DAY: Final = _Place("day", 1, 31)
_HOUR: Final = _Place("hour", 0, 23)
_MINUTE: Final = _Place("minute", 0, 59)
_SECOND: Final = _Place("second", 0, 59)


def read_calendar_event(text: str) -> Fields:
    """Read a calendar event, or raise `Wrong`."""
    if not text.isascii() or not text.replace("\t", " ").isprintable():
        raise Wrong("only plain ASCII text with blanks or tabs between the parts")
    parts = _WORDS.get(text.strip().lower(), text).split()
    if not parts:
        raise Wrong(f"an empty calendar event: give {_FORM}")
    weekdays, parts = _weekdays(parts)
    date_text, time_text = _date_and_time(parts)
    year, month, day, from_end = _date(date_text)
    hour, minute, second = _time(time_text)
    names = "" if weekdays == _ALL_WEEKDAYS else f"{_named(weekdays)} "
    mark = "~" if from_end else "-"
    canonical = (
        f"{names}{year.text}-{month.text}{mark}{day.text} {hour.text}:{minute.text}:{second.text}"
    )
    by_number = days.from_end(day.bits) if from_end else days.numbers(day.bits)
    return Fields(
        canonical,
        second.bits,
        minute.bits,
        hour.bits,
        month.bits,
        days.both(by_number, days.weekdays(weekdays)),
        0 if year.text == "*" else year.bits >> FIRST_YEAR,
        minute.text,
        hour.text,
        DayFields(
            f"{'~' if from_end else ''}{day.text}",
            names.strip() or "any day",
            0 if from_end else day.bits,
            weekdays,
            either=False,
        ),
    )


def _weekdays(parts: list[str]) -> tuple[int, list[str]]:
    """The weekdays at the start, all if there are none, and the parts after them."""
    if len(parts) > 1 and _ZONE.fullmatch(parts[-1]) and not parts[-2].endswith(","):
        raise Wrong(
            f"{parts[-1]!r} is not part of a schedule: leave it out, and name the zone in "
            f'`timezone`: "timezone": "{parts[-1]}"'
        )
    bits, at = 0, 0
    while at < len(parts) and parts[at][0].isalpha():
        listed = parts[at].rstrip(",").split(",")
        for element in listed:
            bits |= _weekday_range(element, parts[at])
        at += 1
        if not parts[at - 1].endswith(","):
            break
    return bits or _ALL_WEEKDAYS, parts[at:]


def _weekday_range(text: str, whole: str) -> int:
    first, dots, last = text.replace("-", "..", 1).partition("..")
    low, high = _weekday(first, whole), _weekday(last if dots else first, whole)
    if high < low:
        listed = ",".join(
            WEEKDAYS[_FROM_MONDAY[day]].title() for day in (*range(low, 7), *range(high + 1))
        )
        raise Wrong(f"the range {text!r} of weekdays ends before it starts: write {listed}")
    return sum(1 << _FROM_MONDAY[day] for day in range(low, high + 1))


def _weekday(text: str, whole: str) -> int:
    """The place of a weekday in a week that begins on Monday."""
    name = text.lower()
    for index, (short, full) in enumerate(zip(WEEKDAYS, _FULL, strict=True)):
        if name in (short, full):
            return (index + 6) % 7
    words = ", ".join(_WORDS)
    raise Wrong(
        f"{whole!r} is neither a weekday (Mon, Tue … or Monday …) nor one of {words}: give {_FORM}"
    )


def _named(bits: int) -> str:
    """Weekdays as systemd writes them: Mon..Wed,Sun."""
    order = [day for day in range(7) if bits >> _FROM_MONDAY[day] & 1]
    runs: list[list[int]] = []
    for day in order:
        if runs and runs[-1][-1] == day - 1:
            runs[-1].append(day)
        else:
            runs.append([day])
    names = [[WEEKDAYS[_FROM_MONDAY[day]].title() for day in run] for run in runs]
    return ",".join(
        f"{run[0]}..{run[-1]}" if len(run) > 2 else ",".join(run)  # noqa: PLR2004 - two stay apart
        for run in names
    )


def _date_and_time(parts: list[str]) -> tuple[str, str]:
    if len(parts) > 2 or (len(parts) == 2 and (":" in parts[0] or ":" not in parts[1])):  # noqa: PLR2004 - a date and a time
        raise Wrong(f"{' '.join(parts)!r} is not understood: give {_FORM}")
    date_text = next((part for part in parts if ":" not in part), "*-*-*")
    return date_text, next((part for part in parts if ":" in part), "00:00:00")


def _date(text: str) -> tuple[_Component, _Component, _Component, bool]:
    head, tilde, tail = text.partition("~")
    texts = [*head.split("-"), tail] if tilde else text.split("-")
    if len(texts) == 2:  # noqa: PLR2004 - month and day
        texts.insert(0, "*")
    if len(texts) != 3 or "~" in tail:  # noqa: PLR2004 - year, month and day
        raise Wrong(f"{text!r} is no date: give year-month-day, such as *-*-01 or *-02~03")
    year = _YEAR.all() if texts[0] == "*" else _component(_full_years(texts[0]), _YEAR)
    month = _component(texts[1], _MONTH)
    from_end = bool(tilde) and texts[2] != "*"
    return year, month, _component(texts[2], _DAY, from_end=from_end), from_end


def _full_years(text: str) -> str:
    """Years of two digits are of this century, or of the last from 70 on."""

    def full(found: re.Match[str]) -> str:
        year = int(found[0])
        if year >= _SHORT_YEAR:
            return found[0]
        return str(year + (1900 if year >= _CENTURY_FROM else 2000))

    return re.sub(r"(?<![/0-9])[0-9]+", full, text)


def _time(text: str) -> tuple[_Component, _Component, _Component]:
    texts = text.split(":")
    if len(texts) == 2:  # noqa: PLR2004 - hour and minute
        texts.append("00")
    if len(texts) != 3:  # noqa: PLR2004 - hour, minute and second
        raise Wrong(f"{text!r} is no time of day: give hour:minute:second, such as 09:30:00")
    hour, minute, second = texts
    return _component(hour, _HOUR), _component(minute, _MINUTE), _component(second, _SECOND)


def _component(text: str, place: _Place, *, from_end: bool = False) -> _Component:
    if text == "*":
        return place.all()
    read = [_element(element, place, from_end=from_end) for element in text.split(",")]
    if len(read) == 1:
        return read[0]
    bits = 0
    for component in read:
        bits |= component.bits
    return _Component(",".join(_runs(bits, place)), bits)


def _element(text: str, place: _Place, *, from_end: bool) -> _Component:
    found = _VALUE.fullmatch(text)
    if found is None:
        raise Wrong(_not_understood(text, place))
    low, high = int(found[1]), int(found[2] or found[1])
    step = int(found[3]) if found[3] is not None else None
    for value in (low, high):
        if not place.low <= value <= place.high:
            raise Wrong(f"{place.name} is {place.low}-{place.high}, not {value}")
    if high < low:
        raise Wrong(
            f"the range {text!r} in {place.name} ends before it starts: write {high}..{low}, or "
            f"{low}..{place.high},{place.low}..{high}"
        )
    shown = f"{low:0{place.digits}}"
    if found[2] is not None:
        shown += f"..{high:0{place.digits}}"
    if step is None:
        return _Component(shown, (2 << high) - (1 << low))
    if from_end:
        span = range(high, low - 1 if found[2] is not None else place.low - 1, -max(step, 1))
        room = high - (low if found[2] is not None else place.low)
    else:
        last = high if found[2] is not None else place.high
        span, room = range(low, last + 1, max(step, 1)), last - low
    if not 1 <= step <= room:
        raise Wrong(
            f"{text!r} in {place.name}: a repetition of {step} never comes; "
            + (f"give 1 to {room}" if room else f"write {low:0{place.digits}}")
        )
    return _Component(f"{shown}/{step}", sum(1 << value for value in span))


def _not_understood(text: str, place: _Place) -> str:
    said = f"{text!r} in {place.name} is not understood"
    if text.startswith("*/"):
        return f"{said}: write {place.low:0{place.digits}}{text[1:]}"
    if _FRACTION.search(text):
        right = "give whole seconds" if place.name == "second" else "a range has two dots: 1..5"
        return f"{said}: {right}"
    if re.fullmatch(r"[0-9]+-[0-9]+", text):
        return f"{said}: a range is written with two dots, {text.replace('-', '..')}"
    return f"{said}: give *, numbers {place.low}-{place.high}, lists, ranges such as 1..5 or 0/15"


def _runs(bits: int, place: _Place) -> list[str]:
    """The values of a bit set, three neighbours or more joined to a range."""
    runs = []
    while bits:
        low = (bits & -bits).bit_length() - 1
        length = (~(bits >> low) & -~(bits >> low)).bit_length() - 1
        first, last = f"{low:0{place.digits}}", f"{low + length - 1:0{place.digits}}"
        runs.append(first if length == 1 else f"{first}..{last}")
        bits &= -1 << (low + length)
    return runs
