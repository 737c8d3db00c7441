"""What a refusal of a cron text says: the field, what was wrong, and what would be right."""

import re
from typing import Final

from domain.schedule.dialects.grammar import GRAMMARS, Field, Grammar
from domain.schedule.fields import Fields

_MARKS: Final = {
    "LW": "LW (last weekday)",
    "L": "L (last)",
    "W": "W (nearest weekday)",
    "#": "# (nth weekday)",
    "?": "? (no value)",
    "H": "H (hashed)",
    "~": "~ (random)",
}
_EXAMPLES: Final = {
    "vixie": "0 9 * * 1-5",
    "k8s": "0 9 * * 1-5",
    "robfig": "0 9 * * 1-5",
    "quartz": "0 0 9 ? * MON-FRI",
    "aws": "0 9 ? * MON-FRI *",
    "spring": "0 0 9 * * MON-FRI",
}
_SIX: Final = 6
_ALL_WEEKDAYS: Final = 0x7F
_SPELT: Final = 4  # digits of a step that is worth an answer
_WITH_MARKS: Final = "quartz, aws or spring"
_INSTEAD: Final = {
    "?": "write *",
    "H": "write a fixed value, and spread the fires with jitter_s",
    "~": "write a fixed value, and spread the fires with jitter_s",
}


def expected(grammar: Grammar) -> str:
    """How many fields there are, and which."""
    names = " ".join(field.name for field in grammar.fields)
    count = len(grammar.fields)
    if grammar.optional:
        return f"expected {count - grammar.optional} or {count} fields ({names})"
    return f"expected {count} fields ({names})"


def miscounted(parts: list[str], grammar: Grammar) -> str:
    """Too few or too many fields, and the dialect that was probably meant."""
    count = len(parts)
    said = f"{expected(grammar)}, {count} given"
    if any(part.startswith(",") or part.endswith(",") for part in parts):
        return f"{said}: a list has no blanks, such as MON,TUE"
    if count == len(GRAMMARS["vixie"].fields):
        return (
            f'{said}: leave out "dialect" if these are minute to day-of-week, or give all, '
            f"such as {_EXAMPLES[grammar.name]}"
        )
    if count < len(grammar.fields):
        return f"{said}: such as {_EXAMPLES[grammar.name]}"
    if grammar.name not in ("vixie", "k8s", "robfig"):
        return f"{said}: leave out the last, or see the other dialects ({known_dialects()})"
    if count > _SIX:
        meant = '"dialect": "quartz" for both'
    elif re.fullmatch(r"(19|2[01])[0-9]{2}(-[0-9]+)?", parts[-1]):
        meant = '"dialect": "aws" for a year at the end'
    elif "?" in parts:
        meant = '"dialect": "quartz" for seconds at the start, "aws" for a year at the end'
    else:
        meant = '"dialect": "spring" or "quartz" for seconds at the start, "aws" for a year'
    least = "; without them, leave out the first field" if parts[0] == "0" else ""
    return f"{said}: seconds or a year need a dialect asked for by name, {meant}{least}"


def not_understood(text: str, field: Field, grammar: Grammar) -> str:
    """Neither a number nor a name, or one that belongs elsewhere."""
    if text.upper() == "W" and "nW" in grammar.marks:
        return f"{text!r} in {field.name}: W needs a day before it, such as 15W"
    if text.upper() in _MARKS or not text.isalpha():
        for mark in _MARKS:
            if mark in text.upper():
                return foreign_mark(text, field, grammar)
    if text.isalpha():
        return _unknown_name(text, field, grammar)
    return (
        f"{text!r} in {field.name} is not understood: give *, numbers {field.low}-{field.high}, "
        "ranges, lists or steps such as */5"
    )


def _unknown_name(text: str, field: Field, grammar: Grammar) -> str:
    short = text[:3].lower()
    other = next(
        (
            other.name
            for other in grammar.fields
            if short in other.names and other.name != field.name
        ),
        None,
    )
    if field.names:
        listed = ", ".join(name.upper() for name in field.names)
        begun = [name for name in field.names if name.startswith(text.lower())]
        meant = ""
        if short in field.names or len(begun) == 1:
            meant = f"write {(begun or [short])[0].upper()}; "
        elif other is not None:
            meant = f"that is for the {other} field; "
        return f"unknown {field.name} name {text!r}: {meant}the names are {listed}"
    if other is not None:
        return (
            f"{text!r} in {field.name}: a name is for the {other} field; "
            f"give numbers {field.low}-{field.high} here"
        )
    return (
        f"{text!r} in {field.name} is not understood: give *, numbers {field.low}-{field.high}, "
        "ranges, lists or steps such as */5"
    )


def foreign_mark(text: str, field: Field, grammar: Grammar) -> str:
    """A mark that another dialect has, or that stands in the wrong field."""
    mark = next(mark for mark in _MARKS if mark in text.upper())
    said = f"{text!r} in {field.name}: {_MARKS[mark]} is not part of the {grammar.name} dialect"
    if grammar.marks and mark in ("L", "W", "LW", "#"):
        right = _right_place(mark, grammar)
        if mark in ("LW", "W") and right.startswith("write") and field.name == _place_of(mark):
            return f"{text!r} in {field.name} is not understood: {right}"
        return f"{said} here: {right}"
    if mark in _INSTEAD:
        asked = ', or ask for "dialect": "quartz" or "aws"' if mark == "?" else ""
        return f"{said}: {_INSTEAD[mark]}{asked}"
    return f'{said}: ask for a "dialect" by name that has it, {_WITH_MARKS}'


def _place_of(mark: str) -> str:
    return "day-of-week" if mark == "#" else "day-of-month"


def _right_place(mark: str, grammar: Grammar) -> str:
    forms = {
        "L": ("L", "L-n"),
        "LW": ("LW",),
        "W": ("nW",),
        "#": ("n#n",),
    }[mark]
    shown = {"L": "L", "L-n": "L-3", "LW": "LW", "nW": "15W", "n#n": "FRI#2"}
    has = [shown[form] for form in forms if form in grammar.marks]
    where = _place_of(mark)
    if not has:
        return f"{where} takes {', '.join(_shown(grammar))}"
    also = " and FRIL in day-of-week" if mark == "L" and "nL" in grammar.marks else ""
    return f"write {' or '.join(has)} in {where}{also}"


def _shown(grammar: Grammar) -> list[str]:
    shown = {"L": "L", "L-n": "L-3", "LW": "LW", "L-nW": "L-3W", "nW": "15W"}
    return [text for mark, text in shown.items() if mark in grammar.marks]


def listed_mark(text: str, field: Field, grammar: Grammar) -> str:
    """A mark within a list, in a dialect that has it alone only."""
    return (
        f"{text!r} in a list in {field.name}: the {grammar.name} dialect takes L, W and # alone "
        "only; define one job for each, or a union of schedules"
    )


def out_of_range(text: str, field: Field, grammar: Grammar) -> str:
    """A number that the field does not have."""
    said = f"{field.name} is {field.low}-{field.high}, not {text}"
    if field.name == "day-of-week":
        sunday = "0 or 7" if field.two_sundays else str(grammar.sunday)
        return f"{said}: Sunday is {sunday}, Saturday {6 + grammar.sunday}"
    if int(text[-9:]) == field.high + 1 and field.low == 0:
        unit = {"second": "minute", "minute": "hour", "hour": "day"}[field.name]
        return f"{said}: for the start of the next {unit} write 0"
    if field.low == 1 and text.strip("0") == "":
        return f"{said}: the first is 1, and any is *"
    return f"{said}: write a number from {field.low} to {field.high}, or * for any"


def step_too_large(text: str, field: Field) -> str:
    """A step that leaves one value only, and the interval that was probably meant."""
    said = f"a step of {text} is larger than the {field.name} field ({field.low}-{field.high})"
    top = f"give at most {field.largest_step}"
    if len(text) > _SPELT:
        return f"{said}: {top}"
    step = int(text)
    once = {
        "second": "once a minute at second 0",
        "minute": "once an hour at minute 0",
        "hour": "once a day at hour 0",
        "day-of-month": "once a month on day 1",
        "month": "once a year in January",
        "day-of-week": "once a week on the first day",
        "year": "in one year",
    }[field.name]
    unit = "day" if field.name.startswith("day") else field.name
    return (
        f"{said}: this would run {once}; "
        f'for every {step} {unit}s use {{"every": "{_spelt(step, unit)}"}}, or {top}'
    )


def _spelt(step: int, unit: str) -> str:
    """The duration, in the next larger unit if that leaves no rest."""
    if unit in ("month", "year", "day"):
        return f"P{step}{unit[0].upper()}"
    if unit == "hour" and step % 24 == 0:
        return f"P{step // 24}D"
    if unit != "hour" and step % 60 == 0:
        return f"PT{step // 60}{'H' if unit == 'minute' else 'M'}"
    return f"PT{step}{unit[0].upper()}"


def open_step(text: str, field: Field, span: tuple[int, int, int]) -> str:
    """A start with a step, whose end this dialect does not say."""
    low, high, step = span
    return (
        f"{text!r} in {field.name}: a step needs * or an explicit range, "
        f"such as {low}-{max(low, high)}/{step}"
    )


def backwards(text: str, field: Field, span: tuple[int, int, int]) -> str:
    """A range that ends before it starts, and the same values in order."""
    low, high, step = span
    top = field.top
    if field.name == "year":
        return f"the range {text!r} in year ends before it starts: write {high}-{low}"
    if step > 1:
        around = [*range(low, top + 1), *range(field.low, high + 1)][::step]
        right = ",".join(str(value) for value in sorted(around))
    elif field.two_sundays and high == 0:
        right = f"{low}-7"
    else:
        runs = ((low, top), (field.low, high))
        right = ",".join(f"{a}-{b}" if a < b else str(b) for a, b in runs if a <= b)
    return f"the range {text!r} in {field.name} ends before it starts: write {right}"


def never(fields: Fields, dialect: str) -> str:
    """A day that none of the months has, or that none of the years has."""
    asked = fields.asked
    if asked.numbers and asked.names == _ALL_WEEKDAYS and not fields.years:
        months = ",".join(str(month) for month in range(1, 13) if fields.months >> month & 1)
        last = {
            "systemd": "the last day of a month is ~01, such as *-02~01",
            **dict.fromkeys(("quartz", "aws", "spring"), "the last day of a month is L"),
        }.get(dialect, "the last day of a month is L in the dialects quartz, aws and spring")
        return f"never matches: day {asked.number_text} does not exist in month {months}; {last}"
    return f"never matches: no date has all that {fields.text!r} asks for"


def known_dialects() -> str:
    """The names that are accepted."""
    return ", ".join(sorted({*GRAMMARS, "systemd"}))
