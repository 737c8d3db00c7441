"""Cron texts: a strict parser into bit sets, in dialects that are asked for by name.

It accepts what a dialect defines and refuses the rest with what would be right; it never guesses.
`croniter` reads every accepted classic text as a second opinion: where the two disagree the text
is refused, since one of them would fire at the wrong time.
"""

from functools import lru_cache
from typing import Final

from croniter import CroniterError, croniter

from domain.schedule.dialects import sentences
from domain.schedule.dialects.grammar import GRAMMARS
from domain.schedule.dialects.reading import read_fields
from domain.schedule.dialects.systemd import read_calendar_event
from domain.schedule.fields import Fields, Wrong

DIALECTS: Final = (*GRAMMARS, "systemd")
"""The names that can be asked for."""

_KEPT: Final = 512  # texts just read: a definition is compiled after it was judged
_CLASSIC: Final = ("vixie", "k8s", "robfig")
_AGREED_KEPT: Final = 4_096
_NOTHING_NEW: Final = ["*"] * 5
_agreed: dict[tuple[int, str], None] = {}  # fields that both read alike, by their place
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
        raise Wrong(sentences.never(fields, dialect))
    if dialect in _CLASSIC:
        _ask_croniter(fields)
    return fields


@lru_cache(_KEPT)
def read(text: str, dialect: str = "vixie") -> Fields:
    """Read a text without asking whether it ever matches: enough for one that was parsed."""
    return read_calendar_event(text) if dialect == "systemd" else read_fields(text, dialect)


def _ask_croniter(fields: Fields) -> None:
    """Refuse a text whose numbers `croniter` reads otherwise; it is asked once about each field."""
    asked = fields.asked
    ours = (fields.minutes, fields.hours, asked.numbers, fields.months, asked.names)
    texts = fields.text.split(" ")
    new = [text if (at, text) not in _agreed else "*" for at, text in enumerate(texts)]
    if new == _NOTHING_NEW:
        return
    try:
        expanded, nth = croniter.expand(" ".join(new))
    except CroniterError as error:
        raise Wrong(f"read differently by a second parser, so refused: {error}") from error
    for at, (values, (name, low, high)) in enumerate(zip(expanded, _ASKED, strict=True)):
        theirs = range(low, high + 1) if values == ["*"] else values
        known = new[at] == "*" != texts[at]
        if nth or (not known and ours[at] != sum(1 << int(value) for value in theirs)):
            raise Wrong(f"the {name} is read differently by a second parser, so refused")
    if len(_agreed) > _AGREED_KEPT:
        _agreed.clear()
    _agreed.update(dict.fromkeys(enumerate(texts)))
