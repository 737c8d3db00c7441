"""Other people's cron engines as second opinions, where they mean the same.

`cronsim` follows Debian too; its walk over clock changes is compared for texts of fixed time only
and in zones with ordinary changes. `croniter` is compared for what a text means, not for when.
"""

import re
from datetime import datetime, timedelta

from croniter import croniter
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from domain.schedule.cron import read
from domain.schedule.schedule import Cron, parse_cron, plan
from tests.properties.minute_walk import from_s, to_ms, zone_info
from tests.properties.test_schedule_walk import SLOW, texts

COMPARED = 5
YEARS_AHEAD = timedelta(days=365 * 45)
ORDINARY_ZONES = ("America/New_York", "Europe/Berlin", "Australia/Sydney", "Asia/Tokyo")

starts = st.integers(631_152_000, 2_840_140_800).map(from_s)  # 1990 to 2060


def _one_value_range(text: str) -> bool:
    """Whether a range has equal ends: croniter reads 5-5, and cronsim 5-5/2, as far more."""
    spans = re.findall(r"([0-9]+)-([0-9]+)", text)
    return any(int(low) == int(high) for low, high in spans)


@SLOW
@given(texts, starts, st.booleans())
def test_cronsim_finds_the_same_slots_in_utc(text: str, start: datetime, back: bool) -> None:
    spec = parse_cron(text, "UTC")
    if not isinstance(spec, Cron) or _one_value_range(text):
        return
    ours, theirs, t = plan(spec), CronSim(text, start, reverse=back), to_ms(start)
    for _ in range(COMPARED):
        slot = ours.last_until(t - 1) if back else ours.next_after(t)
        if slot is None or slot > to_ms(start + YEARS_AHEAD) or slot < 10**11:
            return
        assert to_ms(next(theirs)) == slot
        t = slot


@SLOW
@given(texts, starts, st.sampled_from(ORDINARY_ZONES))
def test_cronsim_finds_the_same_slots_of_fixed_times_over_clock_changes(
    text: str, start: datetime, name: str
) -> None:
    spec = parse_cron(text, name)
    if not isinstance(spec, Cron) or read(text).wildcard or _one_value_range(text):
        return
    ours, t = plan(spec), to_ms(start)
    theirs = CronSim(text, start.astimezone(zone_info(name)))
    for _ in range(COMPARED):
        slot = ours.next_after(t)
        if slot is None or slot > to_ms(start + YEARS_AHEAD):
            return
        assert to_ms(next(theirs)) == slot
        t = slot


@SLOW
@given(texts)
def test_croniter_reads_the_same_numbers(text: str) -> None:
    spec = parse_cron(text, "UTC")
    if not isinstance(spec, Cron) or _one_value_range(text):
        return
    fields = read(text)
    asked = fields.asked
    ours = (fields.minutes, fields.hours, asked.numbers, fields.months, asked.names)
    expanded, _ = croniter.expand(text)
    lows, highs = (0, 0, 1, 1, 0), (59, 23, 31, 12, 6)
    for bits, values, low, high in zip(ours, expanded, lows, highs, strict=True):
        named = range(low, high + 1) if "*" in values else {int(v) for v in values}
        assert bits == sum(1 << value for value in named)
