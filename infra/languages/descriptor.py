"""`commandside.commands.language.Teller` by `cron-descriptor`: everything asked is spelled out."""

import re
from functools import lru_cache
from typing import Final

from cron_descriptor import ExpressionDescriptor, Options
from cron_descriptor.Exception import FormatError

from domain.schedule import cron
from domain.schedule.spec import Cron, ScheduleSpec
from infra.languages.names import ENGLISH, LANGUAGES, Language
from infra.languages.plain import plain_text

_KEPT: Final = 1_024
_OPTIONAL: Final = re.compile(
    r"|.*\[grThen20\]|, (?:second|minute|hour|month|year) \{0\} through .*|At ?|AM|PM"
)
"""What a catalogue may lack: the library has another text for it, or none is needed."""
_ENGLISH_NAMES: Final = (*ENGLISH.weekdays, *ENGLISH.months)
_ANY_NAME: Final = re.compile("|".join(_ENGLISH_NAMES))


class _Untold(Exception):
    """The catalogue of this language lacks a phrase: the library would leave it out."""


class _Whole(ExpressionDescriptor):  # type: ignore[misc]  # the library ships no types
    """A sentence of which no part is left out."""

    def translate(self, message: str) -> str:
        found = str(super().translate(message))
        if not found and not _OPTIONAL.fullmatch(message):
            raise _Untold(message)
        return found


class CronTeller:
    """Tells cron schedules whose fields it can say without saying anything false."""

    languages: tuple[str, ...] = tuple(LANGUAGES)

    def tell(self, spec: ScheduleSpec, language: str) -> str | None:
        """Return a sentence in one of `languages`, or None."""
        if not isinstance(spec, Cron):
            return None
        said = _said(spec.text, spec.dialect, language)
        return said and (f"{said}, in {spec.zone}" if language == "en" else f"{said} ({spec.zone})")


@lru_cache(_KEPT)
def _said(text: str, dialect: str, language: str) -> str | None:
    plain = plain_text(cron.read(text, dialect), dialect)
    if plain is None:
        return None
    known = LANGUAGES[language]
    try:
        options = Options(locale_code=known.catalogue, use_24hour_time_format=True)
        said = _Whole(plain, options).get_description()
    except _Untold:
        return None
    except FormatError as error:
        if isinstance(error.__cause__, _Untold) or isinstance(error.__context__, _Untold):
            return None
        raise
    return _named(said, known)


def _named(said: str, language: Language) -> str:
    """Put the language's own names in the place of the English ones, which the library uses."""
    names = dict(zip(_ENGLISH_NAMES, (*language.weekdays, *language.months), strict=True))
    return _ANY_NAME.sub(lambda found: names[found[0]], said)
