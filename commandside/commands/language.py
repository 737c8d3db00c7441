"""The language in which a schedule is told: asked for by name, else what the client accepts."""

import re
from collections.abc import Mapping
from typing import Any, Final, Protocol

from domain.problem import invalid
from domain.refusal import Refused
from domain.schedule.spec import ScheduleSpec, Union
from domain.schedule.telling import description

ENGLISH: Final = "en"
FIELD: Final = "language"
_ACCEPT_LENGTH_MAX: Final = 512
_RANGE: Final = re.compile(
    r"\s*([A-Za-z]{2,3}(?:-[A-Za-z0-9]{2,8})*)\s*(?:;\s*q=([01](?:\.\d*)?))?"
)


class Teller(Protocol):
    """Tells schedules in several languages, English among them."""

    languages: tuple[str, ...]

    def tell(self, spec: ScheduleSpec, language: str) -> str | None:
        """Return a sentence in one of `languages`, or None where it could only say it wrongly."""
        ...


def told(teller: Teller, spec: ScheduleSpec, language: str) -> tuple[str, str]:
    """Return a schedule in words, and their language: English where there are no others."""
    parts = spec.parts if isinstance(spec, Union) else (spec,)
    said = [teller.tell(part, language) for part in parts]
    whole = [one for one in said if one is not None]
    if language != ENGLISH and len(whole) == len(said):
        return "; ".join(whole), language
    first, *others = (teller.tell(part, ENGLISH) or description(part) for part in parts)
    return "; and ".join((first, *(one[:1].lower() + one[1:] for one in others))), ENGLISH


def language_of(body: Mapping[str, Any], accepts: str, teller: Teller) -> str:
    """Return the language asked for; raises Problem for a named one that there is not.

    `accepts` is an Accept-Language header, of which nothing is refused.
    """
    if FIELD in body:
        named = body[FIELD]
        found = known(named, teller) if isinstance(named, str) else ""
        if not found:
            listed = ", ".join(teller.languages)
            raise invalid((Refused(f"/{FIELD}", f"one of {listed}"),))
        return found
    ranges = [_RANGE.fullmatch(one) for one in accepts[:_ACCEPT_LENGTH_MAX].split(",")]
    wanted = sorted((r for r in ranges if r), key=lambda r: -float(r[2] or 1))
    accepted = (known(r[1], teller) for r in wanted if float(r[2] or 1))
    return next((one for one in accepted if one), ENGLISH)


def known(tag: str, teller: Teller) -> str:
    """Return the language that a tag such as de-AT means, empty for one that there is not."""
    low = tag.lower()
    if low.startswith(("zh-hant", "zh-hk", "zh-mo")):
        low = "zh-tw"
    low = {"no": "nb"}.get(low, low)
    by_tag = {language.lower(): language for language in teller.languages}
    return by_tag.get(low) or by_tag.get(low.partition("-")[0], "")
