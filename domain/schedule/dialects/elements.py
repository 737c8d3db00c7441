"""Reads one field of a text: lists, ranges, steps, names and marks, into a bit set and rules."""

import re
from typing import Final, NamedTuple

from domain.schedule.dialects import days, sentences
from domain.schedule.dialects.days import Table
from domain.schedule.dialects.grammar import Field, Grammar, Mark
from domain.schedule.fields import Wrong

_ELEMENT: Final = re.compile(r"(\*|[0-9]+|[A-Za-z]+)(?:-([0-9]+|[A-Za-z]+))?(?:/([0-9]+))?")
_DAY_MARK: Final = re.compile(r"L(?:-([0-9]+))?(W)?|([0-9]+)W", re.IGNORECASE)
_WEEKDAY_MARK: Final = re.compile(
    r"(?P<last>[0-9]|[A-Z]{3})?L|(?P<day>[0-9]|[A-Z]{3})#(?P<nth>[0-9])", re.IGNORECASE
)
_LETTERS: Final = ("L", "LW", "W")
_DIGITS: Final = 6  # of a number, leading zeros included
_WEEKS: Final = 5
_LONGEST_MONTH: Final = 31
_SATURDAY: Final = 6


class Part(NamedTuple):
    """A field: its canonical form, its numbers as bits, and what needs the month to be known."""

    text: str
    bits: int
    tables: tuple[Table, ...] = ()


class Reader:
    """Reads the parts of texts of one dialect."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar

    def part(self, text: str, field: Field) -> Part:
        """Read a field, or raise `Wrong`.

        A list becomes its values in order, a first `*` kept, as its place decides the day rule
        and the rule of clock changes.
        """
        if text == "?" and self._grammar.question and field.name.startswith("day"):
            whole = "*" if self._grammar.question == "star" else "?"
            return Part(whole, _bits(field.low, field.high, 1))
        elements = text.split(",")
        first = self._element(elements[0], field)
        if len(elements) == 1:
            return first
        read = [first, *(self._element(element, field) for element in elements[1:])]
        marks = [part for part in read if part.tables]
        if field.name == "day-of-week" and "L" in text.upper().split(","):
            marks.append(Part("L", 0))
        if marks and not self._grammar.listed_marks:
            raise Wrong(sentences.listed_mark(marks[0].text, field, self._grammar))
        bits = 0
        for part in read:
            bits |= part.bits
        if self._grammar.joined == "star" and any(part.text == "*" for part in read):
            return Part("*", bits)
        starred = first.bits if first.text.startswith("*") else 0
        runs = _runs(_one_sunday(bits, field) & ~starred)
        texts = [*([first.text] if starred else []), *runs, *(part.text for part in marks)]
        return Part(",".join(texts), bits, tuple(table for part in marks for table in part.tables))

    def _element(self, text: str, field: Field) -> Part:
        if not text:
            raise Wrong(f"empty list element in {field.name}: leave out the comma or give a value")
        marked = self._marked(text, field)
        if marked is not None:
            return marked
        if text.startswith("/") and self._grammar.bare_steps:
            text = f"*{text}"
        found = _ELEMENT.fullmatch(text)
        if found is None:
            raise Wrong(sentences.not_understood(text, field, self._grammar))
        first, last, step_text = found.groups()
        if first.upper() in _LETTERS and first != text:
            raise Wrong(sentences.not_understood(text, field, self._grammar))
        step = 1 if step_text is None else self._step(step_text, text, field)
        if first == "*":
            if last is not None:
                raise Wrong(
                    f"{text!r} in {field.name}: * is the whole range and has no end: write *, "
                    f"or {field.low}-{last}"
                )
            return Part("*" if step == 1 else f"*/{step}", _bits(field.low, field.high, step))
        low = self._value(first, field)
        if last is not None:
            return self._range(text, field, (low, self._value(last, field), step))
        if step_text is None:
            return _single(low, field)
        high = field.top
        if not self._grammar.open_steps:
            raise Wrong(sentences.open_step(text, field, (low, high, step)))
        return self._range(text, field, (low, max(low, high), step))

    def _range(self, text: str, field: Field, span: tuple[int, int, int]) -> Part:
        low, high, step = span
        if field.names and field.names[-1] == "sun" and low == field.high > high:
            low = 0  # Sunday as a start is the first day
        if high < low:
            if not self._grammar.wraps or field.name == "year":
                raise Wrong(sentences.backwards(text, field, span))
            around = [*range(low, field.high + 1), *range(field.low, high + 1)][::step]
            bits = sum(1 << value for value in around)
            return Part(",".join(_runs(bits)), bits)
        if step > high - low:
            return _single(low, field)
        return Part(f"{low}-{high}" + (f"/{step}" if step > 1 else ""), _bits(low, high, step))

    def _step(self, text: str, whole: str, field: Field) -> int:
        if field.name == "day-of-week" and not self._grammar.weekday_steps:
            raise Wrong(
                f"{whole!r} in day-of-week: the {self._grammar.name} dialect has no steps of "
                "weekdays: list them, such as MON,WED,FRI"
            )
        step = int(text) if len(text) <= _DIGITS else -1
        if step == 0:
            raise Wrong(f"a step of 0 in {field.name}: a step is at least 1")
        if not 0 < step <= field.largest_step:
            raise Wrong(sentences.step_too_large(text, field))
        return step

    def _value(self, text: str, field: Field) -> int:
        if text.isdigit():
            value = int(text) if len(text) <= _DIGITS else -1
            if not field.low <= value <= field.high:
                raise Wrong(sentences.out_of_range(text, field, self._grammar))
            return value
        if text.lower() in field.names:
            return field.names.index(text.lower()) + field.first_name
        raise Wrong(sentences.not_understood(text, field, self._grammar))

    def _marked(self, text: str, field: Field) -> Part | None:
        """A mark that this dialect has; None if it is none, or not of this dialect."""
        if not self._grammar.marks:
            return None
        if field.name == "day-of-month":
            return self._day_mark(text, field)
        return self._weekday_mark(text, field) if field.name == "day-of-week" else None

    def _day_mark(self, text: str, field: Field) -> Part | None:
        found = _DAY_MARK.fullmatch(text)
        if found is None:
            return None
        before_text, weekday, day_text = found.groups()
        mark: Mark
        if day_text is not None:
            self._ask("nW", text, field)
            day = self._value(day_text, field)
            return Part(f"{day}W", 0, (days.nearest(day),))
        mark = "LW" if weekday else "L"
        if before_text is not None:
            mark = "L-nW" if weekday else "L-n"
        self._ask(mark, text, field)
        before = int(before_text or 0) if len(before_text or "") <= _DIGITS else _LONGEST_MONTH
        if before >= _LONGEST_MONTH or (before == 0 and before_text is not None):
            raise Wrong(
                f"{text!r} in {field.name}: L-1 to L-30 are days before the last, which is L"
            )
        canonical = ("L" if before == 0 else f"L-{before}") + ("W" if weekday else "")
        return Part(canonical, 0, ((days.last_nearest if weekday else days.last)(before),))

    def _weekday_mark(self, text: str, field: Field) -> Part | None:
        found = _WEEKDAY_MARK.fullmatch(text)
        if found is None:
            return None
        if found["nth"] is not None:
            self._ask("n#n", text, field)
            day, nth = self._value(found["day"], field), int(found["nth"])
            if not 1 <= nth <= _WEEKS:
                raise Wrong(
                    f"{text!r} in {field.name}: a month has its first (#1) to fifth (#5) of a "
                    "weekday"
                )
            return Part(f"{day}#{nth}", 0, (days.nth(self._weekday(day), nth),))
        if found["last"] is None:
            self._ask("L weekday", text, field)
            return _single(_SATURDAY + self._grammar.sunday, field)
        self._ask("nL", text, field)
        day = self._value(found["last"], field)
        return Part(f"{day}L", 0, (days.last_weekday(self._weekday(day)),))

    def _ask(self, mark: Mark, text: str, field: Field) -> None:
        if mark not in self._grammar.marks:
            raise Wrong(sentences.foreign_mark(text, field, self._grammar))

    def _weekday(self, number: int) -> int:
        return (number - self._grammar.sunday) % 7

    def weekdays(self, bits: int) -> int:
        """The numbers of the weekday field as a bit set with Sunday as bit 0."""
        return bits >> 1 if self._grammar.sunday else (bits | bits >> 7) & 0x7F


def _single(value: int, field: Field) -> Part:
    if field.two_sundays:
        value %= 7
    return Part(str(value), 1 << value)


def _bits(low: int, high: int, step: int) -> int:
    if step == 1:
        return (2 << high) - (1 << low)
    return sum(1 << value for value in range(low, high + 1, step))


def _one_sunday(bits: int, field: Field) -> int:
    return (bits | bits >> 7) & 0x7F if field.two_sundays else bits


def _runs(bits: int) -> list[str]:
    """The values of a bit set, neighbours joined to ranges."""
    runs = []
    while bits:
        low = (bits & -bits).bit_length() - 1
        length = (~(bits >> low) & -~(bits >> low)).bit_length() - 1
        runs.append(str(low) if length == 1 else f"{low}-{low + length - 1}")
        bits &= -1 << (low + length)
    return runs
