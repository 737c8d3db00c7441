"""Recognises what is no text of the dialect at all, and says where it belongs."""

import re
from typing import Final

from domain.schedule.dialects.grammar import Grammar
from domain.schedule.dialects.interval import iso_duration

_ISO: Final = re.compile(r"P(?=[0-9T])[0-9WDYMTHS.]+")
_INSTANT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[Tt ].*)?")
_CLOCK: Final = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")
_CALENDAR: Final = re.compile(r"[^ ]*[0-9*]-[0-9*~/.,]+(?: .*)?|.*[0-9*]:[0-9*/].*|.*\.\..*")
_FEW: Final = 3  # parts that no dialect of fields takes
_LATER: Final = {
    "minutely": "* * * * *",
    "hourly": "0 * * * *",
    "daily": "0 0 * * *",
    "weekly": "0 0 * * 0",
    "monthly": "0 0 1 * *",
    "yearly": "0 0 1 1 *",
}


def recognised(parts: list[str], grammar: Grammar) -> str | None:
    """What a text that is none of this dialect is, and what would be right; None if it may be."""
    if not parts:
        return None
    text = " ".join(parts)
    first = parts[0]
    return (
        _zone(first)
        or _word(text, first, grammar)
        or _interval(text)
        or _wrapped(text, grammar)
        or (None if len(parts) > _FEW else _other(text))
    )


def _zone(first: str) -> str | None:
    if "=" not in first or first.upper().startswith(("RRULE", "FREQ")):
        return None
    name, _, zone = first.partition("=")
    if name.upper() in ("TZ", "CRON_TZ") and zone:
        return (
            f"{first!r} is not part of a schedule: leave it out, and name the zone in `timezone`: "
            f'"timezone": "{zone}"'
        )
    return f"{first!r} is not part of a schedule: name the zone in `timezone`"


def _word(text: str, first: str, grammar: Grammar) -> str | None:
    word = first.lower()
    if not word.startswith("@"):
        return None
    if word == "@every":
        duration = iso_duration(text)
        right = f'use {{"every": "{duration}"}}' if duration else 'such as {"every": "PT90M"}'
        return f"{text!r} is an interval, not a cron schedule: {right}"
    if word == "@reboot":
        return "@reboot names no time; give fields or one of @hourly to @yearly"
    if not grammar.words:
        return (
            f"{text!r} is not part of the {grammar.name} dialect: give its fields "
            f"({' '.join(field.name for field in grammar.fields)})"
        )
    return f"{text!r} is not a schedule: the words are {', '.join(grammar.words)}"


def _interval(text: str) -> str | None:
    duration = iso_duration(text)
    if duration is None and _ISO.fullmatch(text):
        duration = text
    if duration is not None:
        return f'{text!r} is an interval, not a cron schedule: use {{"every": "{duration}"}}'
    if text.upper().startswith(("RRULE:", "FREQ=")):
        return f'{text!r} is a recurrence rule: give it as {{"rrule": …}}, not as a cron schedule'
    return None


def _wrapped(text: str, grammar: Grammar) -> str | None:
    if text.startswith("at("):
        return f"{text!r} is one instant: use a job of type one_time with run_at"
    if text.startswith("cron(") and grammar.name != "aws":
        return f'{text!r} is of another dialect: ask for "dialect": "aws"'
    return None


def _other(text: str) -> str | None:
    if _INSTANT.fullmatch(text):
        return f"{text!r} is one instant: use a job of type one_time with run_at"
    clock = _CLOCK.fullmatch(text)
    if clock is not None:
        return f"{text!r} is a time of day: write {int(clock[2])} {int(clock[1])} * * *"
    if text.lower() in _LATER:
        return f"{text!r} is not a schedule: write {_LATER[text.lower()]}"
    if _CALENDAR.fullmatch(text) and not text.startswith("@"):
        return f'{text!r} looks like a calendar event: ask for "dialect": "systemd"'
    return None
