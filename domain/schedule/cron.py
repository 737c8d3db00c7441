"""Cron texts: a strict parser into bit sets, in dialects that are asked for by name.

It accepts what a dialect defines and refuses the rest with what would be right; it never guesses.
`croniter` reads every accepted classic text as a second opinion: where the two disagree the text
is refused, since one of them would fire at the wrong time.
"""

from typing import Final

from croniter import CroniterError, croniter

from domain.schedule.dialects import sentences
from domain.schedule.dialects.grammar import GRAMMARS
from domain.schedule.dialects.reading import read_fields
from domain.schedule.dialects.systemd import read_calendar_event
from domain.schedule.fields import Fields, Wrong

DIALECTS: Final = (*GRAMMARS, "systemd")
"""The names that can be asked for."""

_CLASSIC: Final = ("vixie", "k8s", "robfig")
_ASKED: Final = (
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day-of-month", 1, 31),
    ("month", 1, 12),
    ("day-of-week", 0, 6),
)


def parse(text: str, dialect: str = "vixie") -> Fields:
    """Read a text of a known dialect, or raise `Wrong`; the caller has bounded its length."""
    fields = read(text, dialect)
    if not fields.has_a_date():
        raise Wrong(sentences.never(fields))
    if dialect in _CLASSIC:
        _ask_croniter(fields)
    return fields


def read(text: str, dialect: str = "vixie") -> Fields:
    """Read a text without asking whether it ever matches: enough for one that was parsed."""
    return read_calendar_event(text) if dialect == "systemd" else read_fields(text, dialect)


def _ask_croniter(fields: Fields) -> None:
    asked = fields.asked
    ours = (fields.minutes, fields.hours, asked.numbers, fields.months, asked.names)
    try:
        expanded, nth = croniter.expand(fields.text)
    except CroniterError as error:
        raise Wrong(f"read differently by a second parser, so refused: {error}") from error
    for bits, values, (name, low, high) in zip(ours, expanded, _ASKED, strict=True):
        theirs = range(low, high + 1) if values == ["*"] else values
        if nth or bits != sum(1 << int(value) for value in theirs):
            raise Wrong(f"the {name} is read differently by a second parser, so refused")
