"""Time zones from the pinned `tzdata` package: for each, the instants at which its clock jumps.

The operating system's copy is never read: it can be a year older, and would differ by host.
A zone file (RFC 9636) holds jumps up to some year and a rule for all later ones. The rule is
written out up to 2501; beyond, the calendar of 400 years repeats (`CYCLE_S`), so that a table is
finite and right up to the year 9999. Jumps before 1970 are not kept: no slot lies there.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from datetime import date
from functools import cache
from importlib import import_module
from importlib.resources import files
from itertools import pairwise
from struct import unpack_from
from typing import Final

from domain.instant import EPOCH_ORDINAL

VERSION: Final[str] = import_module("tzdata").IANA_VERSION
"""Version of the zone data, such as 2026f: part of every answer about the future."""
CYCLE_S: Final = 146_097 * 86_400
"""Seconds of 400 years, a whole number of weeks: the calendar and every rule repeat."""
CYCLE_END_S: Final = 16_725_225_600
"""2500-01-01T00:00:00Z: instants from here on are looked up a whole number of cycles earlier."""

_DATA: Final = files("tzdata")
NAMES: Final[tuple[str, ...]] = tuple(
    sorted(set(_DATA.joinpath("zones").read_text("ascii").split()) - {"Factory"})
)
"""The names that are accepted, spelt like this. `Factory` means "not set", so it is none."""

_BEFORE_ALL_S: Final = -(1 << 50)
_LAST_RULE_YEAR: Final = 2501
_DAY_S: Final = 86_400
_EXAMPLES: Final = "such as Europe/Berlin or America/New_York"


class Zone:
    """Stretches of constant offset: `starts[i]` (UTC seconds) and `offsets[i]` (seconds east).

    The first stretch begins before all instants; a local time is the instant plus the offset.
    """

    __slots__ = ("name", "offsets", "starts")

    def __init__(self, name: str, starts: list[int], offsets: list[int]) -> None:
        self.name = name
        self.starts = starts
        self.offsets = offsets

    def index(self, instant_s: int) -> int:
        """The stretch that holds an instant before 2501."""
        return bisect_right(self.starts, instant_s) - 1

    def offset_s(self, instant_s: int) -> int:
        """Seconds east of UTC at an instant, any year."""
        if instant_s >= CYCLE_END_S:
            instant_s -= ((instant_s - CYCLE_END_S) // CYCLE_S + 1) * CYCLE_S
        return self.offsets[bisect_right(self.starts, instant_s) - 1]


@cache  # bounded by the number of names
def load(name: str) -> Zone:
    """The zone of a name in `NAMES`."""
    if name not in _KNOWN:
        raise KeyError(name)
    starts, offsets = _table(_DATA.joinpath("zoneinfo", *name.split("/")).read_bytes())
    return Zone(name, starts, offsets)


def refusal(name: str) -> str | None:
    """None for a known name, else a sentence with the name that was probably meant."""
    if name in _KNOWN:
        return None
    guess = _GUESSES.get(name.strip().replace(" ", "_").casefold())
    meant = f"did you mean {guess}?" if guess else f"give one of the list, {_EXAMPLES}"
    return f"{name!r} is not a known IANA time zone: {meant}"


_KNOWN: Final = frozenset(NAMES)
_GUESSES: Final = {name.rpartition("/")[2].casefold(): name for name in reversed(NAMES)} | {
    name.casefold(): name for name in NAMES
}


@cache  # zones under several names have one file, byte for byte
def _table(data: bytes) -> tuple[list[int], list[int]]:
    jumps, footer = _read_file(data)
    last_s = jumps[-1][0] if len(jumps) > 1 else 0
    jumps += [jump for jump in _rule_jumps(footer) if jump[0] > last_s]
    kept = [jump for before, jump in pairwise(jumps) if jump[0] > 0 and jump[1] != before[1]]
    in_force = [offset for start, offset in jumps if start <= 0][-1]
    starts = [_BEFORE_ALL_S, *(start for start, _ in kept)]
    return starts, [in_force, *(offset for _, offset in kept)]


def _read_file(data: bytes) -> tuple[list[tuple[int, int]], str]:
    """The jumps of a TZif file as (instant, offset after) and its rule for later ones."""
    _, isutc, isstd, leap, times, types, chars = unpack_from(">5s15x6l", data)
    base = 44 + times * 5 + types * 6 + chars + leap * 8 + isstd + isutc
    magic, isutc, isstd, leap, times, types, chars = unpack_from(">5s15x6l", data, base)
    assert magic[:4] == b"TZif", "not a zone file"
    assert magic[4:] >= b"2", "a zone file without 64-bit instants"
    assert leap == 0, "a zone file that counts leap seconds"
    base += 44
    instants = unpack_from(f">{times}q", data, base)
    kinds = unpack_from(f">{times}B", data, base + times * 8)
    base += times * 9
    offsets = [unpack_from(">l", data, base + 6 * kind)[0] for kind in range(types)]
    footer = data[base + types * 6 + chars + isstd + isutc :].decode("ascii").strip("\n")
    jumps = [(instant, offsets[kind]) for instant, kind in zip(instants, kinds, strict=True)]
    return [(_BEFORE_ALL_S, offsets[0]), *jumps], footer


_RULE: Final = re.compile(
    r"(?:[A-Za-z]+|<[A-Za-z0-9+-]+>)(?P<std>[0-9:+-]+)"
    r"(?:(?:[A-Za-z]+|<[A-Za-z0-9+-]+>)(?P<dst>[0-9:+-]*),(?P<start>[^,]+),(?P<end>[^,]+))?"
)
_DATE: Final = re.compile(r"M([0-9]+)\.([1-5])\.([0-6])(?:/([0-9:+-]+))?")


@cache  # under a hundred distinct rules in the data
def _rule_jumps(footer: str) -> tuple[tuple[int, int], ...]:
    """Every jump of a zone's rule from 1970 to 2501 as (instant, offset after), in order."""
    rule = _RULE.fullmatch(footer)
    assert rule is not None, f"not a rule we can read: {footer}"
    standard_s = -_seconds(rule["std"])
    if rule["start"] is None:
        return ()
    summer_s = -_seconds(rule["dst"]) if rule["dst"] else standard_s + 3600
    starts = ((instant - standard_s, summer_s) for instant in _yearly(rule["start"]))
    ends = ((instant - summer_s, standard_s) for instant in _yearly(rule["end"]))
    return tuple(sorted((*starts, *ends)))


def _yearly(text: str) -> Iterator[int]:
    """The local seconds of a date such as M3.2.0/2 (second Sunday of March, 02:00) by year."""
    found = _DATE.fullmatch(text)
    assert found is not None, f"not a date we can read: {text}"
    month, week, weekday = int(found[1]), int(found[2]), int(found[3])
    time_s = _seconds(found[4]) if found[4] else 7200
    for year in range(1970, _LAST_RULE_YEAR + 1):
        first = date(year, month, 1).toordinal()
        length = date(year + month // 12, month % 12 + 1, 1).toordinal() - first
        day = (weekday - first) % 7 + 7 * (week - 1)
        if day >= length:
            day -= 7
        yield (first + day - EPOCH_ORDINAL) * _DAY_S + time_s


def _seconds(text: str) -> int:
    """Seconds of [+-]hh[:mm[:ss]]."""
    parts = [int(part) for part in text.lstrip("+-").split(":")]
    total = sum(part * unit for part, unit in zip(parts, (3600, 60, 1), strict=False))
    return -total if text.startswith("-") else total
