"""Random recurrence rules: our dates are those of python-dateutil, forwards and backwards.

Left out is what it is known to read otherwise: a position (BYSETPOS) within a first week of which a
part lies before the start, plain weekdays beside counted ones, and the weeks that belong to two
years: it takes the length of the wrong year for the number of the last one.
"""

from datetime import datetime, timedelta
from itertools import islice, pairwise
from random import Random

import pytest
from dateutil.rrule import rrulestr

from domain.schedule.fields import Wrong
from domain.schedule.recurrence import Recurrence, TooRare
from domain.schedule.rrule import _parse, _rule
from domain.schedule.walk import NONE_AFTER, NONE_BEFORE

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - local time, which has no zone of its own
WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
RULES_A_SEED = 60
DATES = 12


def numbers(draw: Random, high: int, *, low: int = 1, ends: bool = False) -> str:
    """Return up to three numbers, some counted from the end."""
    signs = (1, -1) if ends else (1,)
    chosen = [draw.randint(low, high) * draw.choice(signs) for _ in range(draw.randint(1, 3))]
    return ",".join(map(str, chosen))


def random_rule(draw: Random) -> str:
    """Return a rule of parts that go together."""
    freq = draw.choice(["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY"])
    parts = [f"FREQ={freq}", f"INTERVAL={draw.choice([1, 1, 1, 2, 3, 5, 7, 24])}"]
    weeks = freq == "YEARLY" and draw.random() < 0.2
    by_month = freq in ("YEARLY", "MONTHLY")
    if draw.random() < 0.3:
        parts.append(f"BYMONTH={numbers(draw, 12)}")
    if draw.random() < 0.3 and freq != "WEEKLY":
        parts.append(f"BYMONTHDAY={numbers(draw, 31, ends=True)}")
    if draw.random() < 0.15 and freq in ("YEARLY", "HOURLY", "MINUTELY"):
        parts.append(f"BYYEARDAY={numbers(draw, 366, ends=True)}")
    if weeks:
        parts.append(f"BYWEEKNO={numbers(draw, 51, low=2)}")
    if draw.random() < 0.4:
        counted = by_month and not weeks and draw.random() < 0.5
        count = draw.choice(["1", "2", "4", "5", "-1", "-2"]) if counted else ""
        chosen = draw.sample(WEEKDAYS, draw.randint(1, 3))
        parts.append(f"BYDAY={','.join(count + day for day in chosen)}")
    if draw.random() < 0.3:
        parts.append(f"BYHOUR={numbers(draw, 23, low=0)}")
    if draw.random() < 0.3:
        parts.append(f"BYMINUTE={numbers(draw, 59, low=0)}")
    if draw.random() < 0.25 and freq in ("YEARLY", "MONTHLY", "DAILY") and len(parts) > 2:
        parts.append(f"BYSETPOS={numbers(draw, 3, ends=True)}")
    if draw.random() < 0.3:
        parts.append(f"WKST={draw.choice(WEEKDAYS)}")
    return ";".join(parts)


def ours(found: Recurrence, start_s: int, until: datetime) -> list[int]:
    """Return our first dates, in local seconds."""
    dates: list[int] = []
    at = start_s
    while len(dates) < DATES:
        at = found.first_from(at)
        if at == NONE_AFTER or EPOCH + timedelta(seconds=at) > until:
            break
        dates.append(at)
        at += 1
    return dates


@pytest.mark.parametrize("seed", range(8))
def test_our_dates_are_those_of_dateutil(seed: int) -> None:
    draw, compared = Random(seed), 0
    for _ in range(RULES_A_SEED):
        text = random_rule(draw)
        start = datetime(  # noqa: DTZ001 - local time
            draw.randint(1995, 2030), draw.randint(1, 12), draw.randint(1, 28), draw.randint(0, 23)
        )
        start_s = int((start - EPOCH).total_seconds())
        found = Recurrence(_rule(_parse(text), start_s), start_s)
        try:
            dates = ours(found, start_s, start + timedelta(days=4_000))
            theirs = rrulestr(text, dtstart=start)
        except (TooRare, ValueError):
            continue  # a rule that ends at our bound, or one that dateutil knows never matches
        if not dates:
            continue  # dateutil would look for one up to the year 9999
        compared += 1
        wanted = [int((date - EPOCH).total_seconds()) for date in islice(theirs, len(dates))]
        assert dates == wanted, (text, start)
        for before, date in pairwise([NONE_BEFORE, *dates]):
            assert found.last_to(date) == date, (text, start)
            assert found.last_to(date - 1) == before, (text, start)
    assert compared > RULES_A_SEED // 2


def test_a_random_text_is_answered_or_refused() -> None:
    draw = Random(3)
    letters = "FREQ=DAILY;BYMONTHWEKNOSUP0123456789,-+ \t\u00e9"
    for _ in range(2_000):
        text = "".join(draw.choices(letters, k=draw.randint(0, 40)))
        try:
            _rule(_parse(f"FREQ=DAILY;{text}"), 0)
        except Wrong:
            continue
