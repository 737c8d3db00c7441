"""The oracle of the checker against a look at every single minute."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from domain.schedule.schedule import Cron, Every, Union
from tests.checker import oracle
from tests.properties import minute_walk

SEED = 20_270_115
ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "Africa/Casablanca",
    "Pacific/Apia",
)


def field(dice: random.Random, low: int, high: int) -> str:
    """Return a field of a cron text."""
    last = dice.randint(low, high)
    return dice.choice(("*", "*", f"*/{dice.randint(1, high)}", str(last), f"{low}-{last}"))


@pytest.mark.parametrize("zone", ZONES)
def test_it_has_the_slots_of_a_look_at_every_minute(zone: str) -> None:
    print(f"seed {SEED}")
    dice = random.Random(f"{SEED} {zone}")
    for _ in range(6):
        limits = ((0, 59), (0, 23), (1, 28), (1, 12), (0, 6))
        text = " ".join(field(dice, *limit) for limit in limits)
        gap, fold = dice.choice(("", "next", "skip")), dice.choice(("", "first", "last", "both"))
        # Near the changes of clocks of both hemispheres.
        start = datetime(2027, dice.choice((3, 4, 10, 11)), 1, tzinfo=UTC)
        end = start + timedelta(days=9)
        wanted = minute_walk.slots(text, zone, (start, end), gap, fold)
        cron = Cron(text, text, zone, "vixie", gap, fold)
        first, last = minute_walk.to_ms(start) - 1, minute_walk.to_ms(end) - 1
        found = oracle.of_schedule(cron, first, last)
        assert found == [minute_walk.to_ms(slot) for slot in wanted], (text, gap, fold)


def test_intervals_are_counted_from_their_anchor() -> None:
    every = Every("PT90S", 1_000, step_ms=90_000)
    assert oracle.of_schedule(every, 1_000, 181_000) == [91_000, 181_000]
    assert oracle.of_schedule(every, -90_000, 1_000) == [1_000]


def test_a_union_has_each_slot_once_and_is_unknown_with_a_part_that_is() -> None:
    hourly, daily = (Cron(t, t, "UTC") for t in ("0 * * * *", "0 0 * * *"))
    day = 86_400_000
    found = oracle.of_schedule(Union((hourly, daily)), 0, day)
    assert found == [hour * 3_600_000 for hour in range(1, 25)]
    monthly = Every("P1M", 0, months=1)
    assert oracle.of_schedule(Union((hourly, monthly)), 0, day) is None
