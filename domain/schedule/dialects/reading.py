"""Reads a text of fields between blanks, in a dialect, into `Fields`."""

from typing import Final

from domain.schedule.dialects import days, sentences
from domain.schedule.dialects.elements import Part, Reader
from domain.schedule.dialects.foreign import recognised
from domain.schedule.dialects.grammar import GRAMMARS, Grammar
from domain.schedule.fields import FIRST_YEAR, DayFields, Fields, Wrong

_READERS: Final = {name: Reader(grammar) for name, grammar in GRAMMARS.items()}
_SECOND_ZERO: Final = Part("0", 1)
_EVERY_YEAR: Final = Part("*", 0)
_DASHES: Final = "\u2010\u2011\u2012\u2013\u2014\u2212"
_BEGINS: Final = "0123456789*"  # of a first field: of nothing else that has as many parts
_ALL_DAYS: Final = 0xFFFFFFFE
_ALL_WEEKDAYS: Final = 0x7F


def read_fields(text: str, dialect: str) -> Fields:
    """Read a text in a dialect of `GRAMMARS`, or raise `Wrong`."""
    grammar, reader = GRAMMARS[dialect], _READERS[dialect]
    texts = _split(text, grammar)
    parts = {
        field.name: reader.part(part, field)
        for part, field in zip(texts, grammar.fields, strict=False)
    }
    if grammar.question == "one":
        _refuse_both(texts, grammar)
    day, weekday = parts["day-of-month"], parts["day-of-week"]
    year = parts.get("year", _EVERY_YEAR)
    canonical = [part.text for name, part in parts.items() if name != "year"]
    if year.text != "*" or grammar.optional == 0:
        canonical += [parts["year"].text] if "year" in parts else []
    weekdays = reader.weekdays(weekday.bits)
    asked = DayFields(
        day.text,
        weekday.text,
        0 if day.tables else day.bits,
        0 if weekday.tables else weekdays,
        either=not _both(day.text, weekday.text, grammar),
    )
    return Fields(
        " ".join(canonical),
        parts.get("second", _SECOND_ZERO).bits,
        parts["minute"].bits,
        parts["hour"].bits,
        parts["month"].bits,
        _days(day, weekday._replace(bits=weekdays), either=asked.either),
        0 if year.text == "*" else year.bits >> FIRST_YEAR,
        parts["minute"].text,
        parts["hour"].text,
        asked,
    )


def _split(text: str, grammar: Grammar) -> list[str]:
    for character in text:
        if not " " <= character <= "~" and character != "\t":
            instead = ": write -" if character in _DASHES else ""
            raise Wrong(
                f"{character!r} is not allowed{instead}: only plain ASCII text with blanks or "
                "tabs between the fields"
            )
    parts = text.split()
    if grammar.name == "aws":
        parts = _unwrapped(text, parts)
    if parts and parts[0].startswith("@") and grammar.words:
        word = grammar.words.get(parts[0].lower())
        if len(parts) == 1 and word is not None:
            return word.split()
    least = len(grammar.fields) - grammar.optional
    counted = least <= len(parts) <= len(grammar.fields)
    if counted and parts[0][0] in _BEGINS:
        return parts
    meant = recognised(parts, grammar)
    if meant is not None:
        raise Wrong(meant)
    if not counted:
        raise Wrong(sentences.miscounted(parts, grammar))
    return parts


def _unwrapped(text: str, parts: list[str]) -> list[str]:
    """The fields of cron(…), which is how this dialect's own pages write them."""
    inner = text.strip()
    if inner.startswith("cron(") and inner.endswith(")"):
        return inner[len("cron(") : -1].split()
    return parts


def _refuse_both(texts: list[str], grammar: Grammar) -> None:
    """One of the day fields has to be `?`, and only one."""
    at = grammar.first_of_month
    day, weekday = texts[at], texts[at + 2]
    if (day == "?") != (weekday == "?"):
        return
    right = [*texts]
    if day == "?":
        right[at] = "*"
        said = "one of day-of-month and day-of-week has to be given"
    else:
        right[at if day == "*" else at + 2] = "?"
        said = (
            f"the {grammar.name} dialect cannot match day-of-month and day-of-week together: "
            "one of them has to be ?"
        )
    raise Wrong(f"{said}: write {' '.join(right)}")


def _both(day: str, weekday: str, grammar: Grammar) -> bool:
    if grammar.joined == "begins":
        return day.startswith("*") or weekday.startswith("*")
    return grammar.joined == "both" or "*" in (day, weekday)


def _days(day: Part, weekday: Part, *, either: bool) -> days.Table:
    """The table of matching days; a field that is everything is not looked at."""
    by_number = days.either(*day.tables, days.numbers(day.bits))
    by_name = days.either(*weekday.tables, days.weekdays(weekday.bits))
    if either:
        return days.either(by_number, by_name)
    if not weekday.tables and weekday.bits == _ALL_WEEKDAYS:
        return by_number
    if not day.tables and day.bits == _ALL_DAYS:
        return by_name
    return days.both(by_number, by_name)
