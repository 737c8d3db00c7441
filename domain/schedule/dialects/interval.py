"""Texts that ask for an interval, in any dialect, as the ISO 8601 duration that `every` takes."""

import re
from typing import Final

_GO: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(h|ms|m|s|us|µs|ns)")
_RATE: Final = re.compile(r"rate\(\s*([0-9]+)\s+(minute|hour|day)s?\s*\)", re.IGNORECASE)
_WORDS: Final = re.compile(
    r"every\s+([0-9]+)?\s*(second|minute|hour|day|week)s?|([0-9]+)\s*([smhdw])", re.IGNORECASE
)
_MS: Final = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_LONGEST: Final = 40
_LARGEST: Final = 10**9


def iso_duration(text: str) -> str | None:
    """The duration of `@every 1h30m`, `rate(5 minutes)` or `every 5 minutes`; None of others.

    Whole seconds only: a finer or endless duration is None too.
    """
    text = text.strip()[:_LONGEST]
    if text.lower().startswith("@every"):
        return _go(text[len("@every") :].strip())
    found = _RATE.fullmatch(text) or _WORDS.fullmatch(text)
    if found is None:
        return None
    groups = [group for group in found.groups() if group is not None]
    number, unit = (int(groups[0]), groups[1]) if len(groups) > 1 else (1, groups[0])
    return _spelt(number, unit[0].lower()) if 0 < number < _LARGEST else None


def _spelt(number: int, unit: str) -> str:
    return f"P{number}{unit.upper()}" if unit in "dw" else f"PT{number}{unit.upper()}"


def _go(text: str) -> str | None:
    """A duration as Go writes it, such as 1h30m10s."""
    parts = _GO.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    total = 0
    for number, unit in parts:
        if unit not in _MS or "." in number or len(number) > len(str(_LARGEST)):
            return None
        total += int(number) * _MS[unit]
    if total == 0 or total % 1000:
        return None
    seconds = total // 1000
    hours, minutes = seconds // 3600, seconds // 60 % 60
    spelt = "".join(
        f"{count}{unit}"
        for count, unit in ((hours, "H"), (minutes, "M"), (seconds % 60, "S"))
        if count
    )
    return f"PT{spelt}"
