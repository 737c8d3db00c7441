"""Every zone of the data against a walk over every minute, in every dialect, both directions.

A triple is a text, a zone and an instant; each is asked for the next slot and for the newest one,
within 2024 to 2030. The number of triples is TOCSIN_SCHEDULE_TRIPLES, by default 5,000; the
nightly profile is TOCSIN_SCHEDULE_TRIPLES=200000. TOCSIN_SCHEDULE_SEED repeats a run; a failure
prints it.
"""

import os
from datetime import UTC, datetime, timedelta
from functools import cache
from math import ceil
from random import Random
from typing import NamedTuple

import pytest

from domain.schedule import zone
from domain.schedule.schedule import Cron, Plan, parse_cron, plan
from tests.properties.dialect_texts import DIALECTS, Asked, draw
from tests.properties.minute_walk import zone_info

TRIPLES = int(os.environ.get("TOCSIN_SCHEDULE_TRIPLES", "5000"))
SEED = int(os.environ.get("TOCSIN_SCHEDULE_SEED", "20261130"))
NIGHTLY = 100_000
CHUNKS = 12 if TRIPLES < NIGHTLY else 60  # a test may take five minutes, on a busy machine too
TEXTS, INSTANTS = (3, 3) if TRIPLES < NIGHTLY else (6, 8)
WINDOWS = ceil(TRIPLES / (len(zone.NAMES) * TEXTS * INSTANTS))
MARGIN = 4 * 60  # minutes: more than any gap of these years is wide
WIDE = 30 * 60  # minutes that are asked about
BEGIN_S = 1_704_067_200  # 2024-01-01
END_S = 1_924_992_000  # 2031-01-01
APART_S = 10 * 86_400  # two changes of one clock are further apart
DRAWS = 50


class Wall(NamedTuple):
    """The local time of each minute from `start_s` on, as a naive datetime."""

    start_s: int
    minutes: list[datetime]

    @property
    def asked(self) -> tuple[int, int]:
        """The seconds, from and to, in which all slots are known."""
        return self.start_s + MARGIN * 60, self.start_s + (MARGIN + WIDE) * 60


def wall(name: str, random: Random) -> Wall:
    """Thirty hours with their margins, most often around a jump of the zone's clock."""
    jumps = _jumps(name)
    middle = random.choice(jumps) if jumps and random.random() < 0.75 else 0
    middle = middle or random.randrange(BEGIN_S, END_S)
    start_s = (middle // 60 - MARGIN - random.randrange(60, WIDE - 60)) * 60
    info = zone_info(name)
    start = datetime.fromtimestamp(start_s, UTC)
    return Wall(
        start_s,
        [
            (start + timedelta(minutes=minute)).astimezone(info).replace(tzinfo=None, fold=0)
            for minute in range(2 * MARGIN + WIDE)
        ],
    )


@cache
def _jumps(name: str) -> tuple[int, ...]:
    """The instants of 2024 to 2030 at which the offset changes, found with `zoneinfo` alone."""
    found = []
    for low in range(BEGIN_S, END_S, APART_S):
        known, same, other = _offset(name, low), low, low + APART_S
        if _offset(name, other) != known:
            while other - same > 1:
                middle = (same + other) // 2
                same, other = (middle, other) if _offset(name, middle) == known else (same, middle)
            found.append(other)
    return tuple(found)


def _offset(name: str, second: int) -> timedelta | None:
    return datetime.fromtimestamp(second, UTC).astimezone(zone_info(name)).utcoffset()


def truth(asked: Asked, seen: Wall, gap: str, fold: str) -> list[int]:
    """Every slot of the wall in seconds, by looking at each of its minutes."""
    gap = gap or ("skip" if asked.wildcard else "next")
    fold = fold or ("both" if asked.wildcard else "first")
    passes: dict[datetime, list[int]] = {}
    found: set[int] = set()
    minute = timedelta(minutes=1)
    day: dict[object, bool] = {}
    for index, local in enumerate(seen.minutes):
        instant = seen.start_s + index * 60
        jumped = local - seen.minutes[index - 1] if index else minute
        if gap == "next" and minute < jumped <= minute + timedelta(hours=3):
            lost = (local - back * minute for back in range(1, jumped // minute))
            if any(asked.matches(time) for time in lost):
                found.add(instant)
        if local.minute not in asked.minutes or local.hour not in asked.hours:
            continue
        today = local.date()
        if today not in day:
            day[today] = asked.matches_day(today)
        if day[today]:
            passes.setdefault(local, []).append(instant)
    for instants in passes.values():
        kept = {"first": instants[:1], "last": instants[-1:], "both": instants}[fold]
        found.update(instant + second for instant in kept for second in asked.seconds)
    return sorted(found)


def compiled(random: Random, name: str, gap: str, fold: str) -> tuple[Asked, Plan]:
    """A random text that our parser takes; nearly all are taken."""
    for _ in range(DRAWS):
        asked = draw(random, random.choice(DIALECTS))
        spec = parse_cron(asked.text, name, dialect=asked.dialect, gap=gap, fold=fold)
        if isinstance(spec, Cron):
            return asked, plan(spec)
        assert "never matches" in spec.detail or "characters" in spec.detail, (asked.text, spec)
    raise AssertionError("no text was accepted")


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_zone_answers_as_a_walk_over_every_minute(chunk: int) -> None:
    random = Random(f"{SEED}/{chunk}")
    count = 0
    for name in zone.NAMES[chunk::CHUNKS]:
        for _ in range(WINDOWS):
            seen = wall(name, random)
            low, high = seen.asked
            for _ in range(TEXTS):
                gap = random.choice(("", "", "next", "skip"))
                fold = random.choice(("", "", "first", "last", "both"))
                asked, slots = compiled(random, name, gap, fold)
                known = truth(asked, seen, gap, fold)
                near = [slot for slot in known if low < slot < high] or [low]
                for _ in range(INSTANTS):
                    count += 1
                    t = random.choice((random.randrange(low, high), random.choice(near)))
                    said = (
                        f"{asked.dialect} {asked.text!r} in {name}, gap {gap!r}, fold {fold!r}, "
                        f"at {t}, seed {SEED}"
                    )
                    _agrees(slots, known, t, (low, high), said)
    assert count == len(zone.NAMES[chunk::CHUNKS]) * WINDOWS * TEXTS * INSTANTS


def _agrees(slots: Plan, known: list[int], t: int, span: tuple[int, int], said: str) -> None:
    low, high = span
    after = next((slot for slot in known if slot > t), high)
    until = max((slot for slot in known if slot <= t), default=low - 1)
    following, newest = slots.next_after(t * 1000), slots.last_until(t * 1000)
    if after < high:
        assert following == after * 1000, said
        assert slots.last_until(following) == following, said
        assert slots.last_until(following - 1) == newest, said
    else:
        assert following is None or following >= high * 1000, said
    if until >= low:
        assert newest == until * 1000, said
        assert slots.next_after(newest - 1) == newest, said
    else:
        assert newest is None or newest < low * 1000, said
