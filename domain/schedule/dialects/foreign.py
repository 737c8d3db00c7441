"""Recognises what is no text of the dialect at all, and says where it belongs."""

import re
from typing import Final

from domain.schedule.dialects.grammar import WEEKDAYS, Grammar
from domain.schedule.dialects.interval import iso_duration

_ISO: Final = re.compile(r"P(?=[0-9T])[0-9WDYMTHS.]+")
_INSTANT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[Tt ].*)?")
_DAILY: Final = re.compile(
    r"(?:(?:every|each|on)\s+)?(?:(day|weekday|[a-z]{3,9}day)s?\s+)?(?:daily\s+)?(?:at\s+)?"
    r"([0-9]{1,2})(?::([0-5][0-9]))?\s*(am|pm|h|o'clock)?",
    re.IGNORECASE,
)
_CALENDAR: Final = re.compile(r"[^ ]*[0-9*]-[0-9*~/.,]+(?: .*)?|.*[0-9*]:[0-9*/].*|.*\.\..*")
_WORDS: Final = ("hourly", "daily", "midnight", "weekly", "monthly", "yearly", "annually")
_FEW: Final = 4  # parts, fewer than any dialect of fields takes
_HOURS: Final = 24
_NOON: Final = 12


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
        or _daily(text, grammar)
        or (_other(text, grammar) if len(parts) < _FEW else None)
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


def _daily(text: str, grammar: Grammar) -> str | None:
    """A time of day in words, such as 9:30, 9am or every monday at 9:00."""
    found = _DAILY.fullmatch(text)
    if found is None or text.isdigit():
        return None
    day, hour, minute, half = found[1], int(found[2]), int(found[3] or 0), (found[4] or "").lower()
    if half in ("am", "pm"):
        hour = hour % _NOON + (_NOON if half == "pm" else 0)
    named = "" if day is None or day.lower() == "day" else day[:3].lower()
    if hour >= _HOURS or (named and named != "wee" and named not in WEEKDAYS):
        return None
    weekdays = {"": "*", "wee": "MON-FRI"}.get(named, named.upper())
    anywhere = "?" if grammar.question == "one" else "*"
    days = ("*", "*", anywhere) if weekdays == "*" else (anywhere, "*", weekdays)
    fields = [str(minute), str(hour), *days]
    if grammar.fields[0].name == "second":
        fields.insert(0, "0")
    if grammar.name == "aws":
        fields.append("*")
    return f"{text!r} is a time of day in words: write {' '.join(fields)}"


def _other(text: str, grammar: Grammar) -> str | None:
    if _INSTANT.fullmatch(text):
        return f"{text!r} is one instant: use a job of type one_time with run_at"
    if text.lower() in _WORDS and grammar.words:
        return f"{text!r} needs its sign: write @{text.lower()}"
    if _CALENDAR.fullmatch(text) and not text.startswith("@"):
        return f'{text!r} looks like a calendar event: ask for "dialect": "systemd"'
    return None
