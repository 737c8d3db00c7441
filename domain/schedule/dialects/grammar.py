"""The dialects that are written in fields between blanks, as values."""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from domain.schedule.fields import FIRST_YEAR


class Field(NamedTuple):
    """One field: the numbers it takes, and its names, which count from `first_name`."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    first_name: int = 0

    @property
    def two_sundays(self) -> bool:
        """Whether this is a weekday field in which 0 and 7 are both Sunday."""
        return self.high - self.low == len(WEEKDAYS)

    @property
    def top(self) -> int:
        """The highest number that no other one means too."""
        return self.high - self.two_sundays

    @property
    def largest_step(self) -> int:
        """The largest step: 59 minutes, 23 hours, but 31 days and 12 months, as both are there."""
        return self.high - self.low + (self.low == 1)


Mark = Literal["L", "L-n", "LW", "L-nW", "nW", "L weekday", "nL", "n#n"]
"""L, L-3, LW, L-3W and 15W of a day of the month; L, 5L and 5#3 of a weekday."""


class Grammar(NamedTuple):
    """What a dialect takes."""

    name: str
    fields: tuple[Field, ...]
    sunday: Literal[0, 1] = 0
    """The number of Sunday."""
    words: Mapping[str, str] = {}
    optional: int = 0
    """How many of the last fields may be left out."""
    marks: frozenset[Mark] = frozenset()
    listed_marks: bool = False
    """Whether a list may hold marks."""
    open_steps: bool = False
    """Whether 5/15 is 5-59/15."""
    bare_steps: bool = False
    """Whether /15 is */15."""
    wraps: bool = False
    """Whether 22-2 is 22,23,0,1,2."""
    weekday_steps: bool = True
    question: Literal["", "star", "one"] = ""
    """`?` is `*` in a day field, or has to be in one of the two, the other being what counts."""
    joined: Literal["begins", "star", "both"] = "both"
    """Both day fields must match: if one begins with `*`, if one is `*`, or always."""

    @property
    def first_of_month(self) -> int:
        """The place of day-of-month among the fields."""
        return [field.name for field in self.fields].index("day-of-month")


MONTHS: Final = (
    *("jan", "feb", "mar", "apr", "may", "jun"),
    *("jul", "aug", "sep", "oct", "nov", "dec"),
)
WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
WEEKDAYS_FROM_MONDAY: Final = (*WEEKDAYS[1:], "sun")

_SECOND: Final = Field("second", 0, 59)
_MINUTE: Final = Field("minute", 0, 59)
_HOUR: Final = Field("hour", 0, 23)
_DAY: Final = Field("day-of-month", 1, 31)
_MONTH: Final = Field("month", 1, 12, MONTHS, 1)
_WEEKDAY: Final = Field("day-of-week", 0, 7, WEEKDAYS)
_TO_SIX: Final = Field("day-of-week", 0, 6, WEEKDAYS)
_TO_SUNDAY: Final = Field("day-of-week", 0, 7, WEEKDAYS_FROM_MONDAY, 1)
_FROM_ONE: Final = Field("day-of-week", 1, 7, WEEKDAYS, 1)

_WORDS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

VIXIE: Final = Grammar(
    "vixie", (_MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY), words=_WORDS, joined="begins"
)
K8S: Final = Grammar(
    "k8s",
    (_MINUTE, _HOUR, _DAY, _MONTH, _TO_SIX),
    words=_WORDS,
    open_steps=True,
    question="star",
    joined="star",
)
QUARTZ: Final = Grammar(
    "quartz",
    (_SECOND, _MINUTE, _HOUR, _DAY, _MONTH, _FROM_ONE, Field("year", FIRST_YEAR, 2099)),
    sunday=1,
    optional=1,
    marks=frozenset({"L", "L-n", "LW", "L-nW", "nW", "L weekday", "nL", "n#n"}),
    open_steps=True,
    bare_steps=True,
    wraps=True,
    question="one",
)
AWS: Final = Grammar(
    "aws",
    (_MINUTE, _HOUR, _DAY, _MONTH, _FROM_ONE, Field("year", FIRST_YEAR, 2199)),
    sunday=1,
    marks=frozenset({"L", "nW", "L weekday", "nL", "n#n"}),
    open_steps=True,
    weekday_steps=False,
    question="one",
)
SPRING: Final = Grammar(
    "spring",
    (_SECOND, _MINUTE, _HOUR, _DAY, _MONTH, _TO_SUNDAY),
    words={word: f"0 {text}" for word, text in _WORDS.items()},
    marks=frozenset({"L", "L-n", "LW", "nW", "nL", "n#n"}),
    listed_marks=True,
    open_steps=True,
    question="star",
)
GRAMMARS: Final[Mapping[str, Grammar]] = {
    "vixie": VIXIE,
    "k8s": K8S,
    "robfig": K8S._replace(name="robfig"),
    "quartz": QUARTZ,
    "aws": AWS,
    "spring": SPRING,
}
