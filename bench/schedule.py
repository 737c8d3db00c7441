"""What a cron schedule costs: reading a text, finding a known one, and the walk to the next slot.

The texts are the cron questions of `tests/cases`, and random ones of 128 characters; `croniter`
and `cronsim` answer the same in the same run. Times are of the CPU, so that other work on the
machine does not count.
"""

import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from importlib.resources import files
from pathlib import Path
from statistics import median
from typing import Any, Final
from zoneinfo import ZoneInfo

from croniter import CroniterError, croniter
from cronsim import CronSim, CronSimError

from domain.schedule import cron, schedule, zone
from domain.schedule.dialects import days
from domain.schedule.schedule import TEXT_LIMIT, Cron, Plan, parse_cron, plan

CASES: Final = Path(__file__).parents[1] / "tests" / "cases" / "cases.jsonl"
SEED: Final = 2026
STEPS: Final = 200
"""Slots that are walked for each text."""
REPEATS: Final = 20
BATCH: Final = 10  # calls between two looks at the clock, which costs half a microsecond
LONG_TEXTS: Final = 300
LIMITS: Final = {"next_us": 10, "new_text_us": 400, "known_text_us": 2, "worst_ms": 5}
"""What the figures are held to: medians over the cases, and the slowest of all texts."""
RANGES: Final = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
START_MS: Final = 1_767_225_600_000
RARE: Final = (
    ("0 0 30 2 *", "vixie", ""),
    ("0 0 29 2 *", "vixie", ""),
    ("0 0 29 2 */5", "vixie", ""),
    ("30 2 8 3 */7", "vixie", "skip"),
    ("30 2 8-14 3 */7", "vixie", "skip"),
    ("0 0 0 29 2 ? 2027-2099/4", "quartz", ""),
    ("0 0 0 ? 2 FRI#5", "quartz", ""),
    ("0 30 2 8 3 ? 2040-2099/2", "quartz", "skip"),
    ("Fri *-02-29", "systemd", ""),
)
"""Never, or once in 28 to 40 years; those of a gap are asked in New York."""


def measure() -> dict[str, Any]:
    """Return the figures of all three, and of the rarest and longest texts."""
    asked = _questions()
    ours = [one for one in asked if isinstance(parse_cron(*one), Cron)]
    return {
        "workload": "schedule",
        "texts": len(ours),
        "zone_data": zone.VERSION,
        "limits": LIMITS,
        "ours": {
            "next_us": _spread([_ours_next(*one) for one in ours]),
            "new_text_us": _spread([_ours_new(*one) for one in ours]),
            "new_text_of_known_fields_us": _spread([_ours_new(*one, fields=True) for one in ours]),
            "of_it_read_us": _spread(
                [_micros(partial(cron.read.__wrapped__, one[0])) for one in ours]
            ),
            "known_text_us": _spread([_micros(partial(parse_cron, *one)) for one in ours]),
        },
        "croniter": _other(ours, _croniter_new, _croniter_next),
        "cronsim": _other(ours, _cronsim_new, _cronsim_next),
        "worst_ms": _worst(),
    }


def _questions() -> list[tuple[str, str]]:
    """Text and zone of each cron question of the cases; a question counts once."""
    asked = [json.loads(line)["input"] for line in CASES.read_text().splitlines()]
    questions = [
        (case["schedule"], case["timezone"])
        for case in asked
        if isinstance(case.get("schedule"), str) and "timezone" in case
    ]
    return list(dict.fromkeys(questions))


def _spread(values: list[float]) -> dict[str, float]:
    return {"median": round(median(values), 2), "max": round(max(values), 2)}


def _micros(call: Callable[[], object], repeats: int = REPEATS) -> float:
    """The median cost of a call, in microseconds of CPU."""
    found = []
    for _ in range(repeats):
        begun = time.thread_time_ns()
        for _ in range(BATCH):
            call()
        found.append((time.thread_time_ns() - begun) / BATCH)
    return median(found) / 1000


def _ours_next(text: str, name: str) -> float:
    spec = parse_cron(text, name)
    assert isinstance(spec, Cron)
    return _walk(plan(spec))


def _walk(slots: Plan) -> float:
    """One step of a walk: each asks for a slot that was not asked for before."""
    t, steps = START_MS, 0
    begun = time.thread_time_ns()
    while steps < STEPS:
        following = slots.next_after(t)
        steps += 1
        if following is None:
            break
        t = following
    return (time.thread_time_ns() - begun) / 1000 / steps


def _forget() -> None:
    """Drop every text and table that was read; zones stay."""
    schedule._parse_cron.cache_clear()  # noqa: SLF001 - a text is new once only
    schedule.plan.cache_clear()
    cron.read.cache_clear()
    cron._agreed.clear()  # noqa: SLF001 - nor its fields
    for table in (days.numbers, days.weekdays, days.from_end):
        table.cache_clear()


def _ours_new(text: str, name: str, *, fields: bool = False) -> float:
    """A text that was not read before; with `fields`, other texts had the same ones."""
    zone.load(name)
    parse_cron(text, name)
    kept = dict(cron._agreed)  # noqa: SLF001 - see _forget
    found = []
    for _ in range(REPEATS):
        _forget()
        cron._agreed.update(kept if fields else {})  # noqa: SLF001 - see _forget
        begun = time.thread_time_ns()
        parse_cron(text, name)
        found.append(time.thread_time_ns() - begun)
    return median(found) / 1000


def _other(
    asked: list[tuple[str, str]],
    new: Callable[[str, str], object],
    step: Callable[[str, str], float],
) -> dict[str, Any]:
    """The same of another engine, over the texts that it takes."""
    nexts, news, refused = [], [], 0
    for text, name in asked:
        try:
            nexts.append(step(text, name))
        except (CroniterError, CronSimError, AssertionError):
            refused += 1
            continue
        news.append(_micros(partial(new, text, name)))
    return {"next_us": _spread(nexts), "new_text_us": _spread(news), "raises": refused}


def _start(name: str) -> datetime:
    return datetime.fromtimestamp(START_MS / 1000, UTC).astimezone(zone_info(name))


def zone_info(name: str) -> ZoneInfo:
    """The pinned zone for the other engines, which take it from the standard library."""
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def _croniter_new(text: str, name: str) -> croniter:
    return croniter(text, _start(name))


def _cronsim_new(text: str, name: str) -> CronSim:
    return CronSim(text, _start(name))


def _croniter_next(text: str, name: str) -> float:
    engine = _croniter_new(text, name)
    begun = time.thread_time_ns()
    for _ in range(STEPS):
        engine.get_next(datetime)
    return (time.thread_time_ns() - begun) / 1000 / STEPS


def _cronsim_next(text: str, name: str) -> float:
    engine, steps = _cronsim_new(text, name), 0
    begun = time.thread_time_ns()
    with suppress(StopIteration):
        for _ in range(STEPS):
            next(engine)
            steps += 1
    return (time.thread_time_ns() - begun) / 1000 / max(steps, 1)


def _worst() -> dict[str, float]:
    """The slowest answers: read and walked once, in ms."""
    _forget()
    rare = max(_answer_ms(text, "America/New_York", dialect, gap) for text, dialect, gap in RARE)
    long = max(_answer_ms(text, "America/New_York") for text in long_texts())
    noise = max(_answer_ms(text, "America/New_York") for text in _noise())
    return {"rare": round(rare, 2), "long": round(long, 2), "random": round(noise, 2)}


def _answer_ms(text: str, name: str, dialect: str = "vixie", gap: str = "") -> float:
    """The quickest of three new readings with the next slot: one can be disturbed."""
    found = []
    for _ in range(3):
        _forget()
        begun = time.thread_time_ns()
        spec = parse_cron(text, name, dialect=dialect, gap=gap)
        if isinstance(spec, Cron):
            plan(spec).next_after(START_MS)
            plan(spec).last_until(START_MS)
        found.append((time.thread_time_ns() - begun) / 1e6)
    return min(found)


def long_texts() -> Iterator[str]:
    """Accepted texts near the limit of characters, made of many lists."""
    source = random.Random(SEED)
    made = 0
    while made < LONG_TEXTS:
        fields = [_list(source, low, high) for low, high in RANGES]
        text = " ".join(fields)
        if TEXT_LIMIT - 30 <= len(text) <= TEXT_LIMIT:
            made += 1
            yield text


def _list(source: random.Random, low: int, high: int) -> str:
    elements = []
    for _ in range(source.randint(1, 9)):
        first = source.randint(low, high)
        last = source.randint(first, high)
        elements.append(source.choice((f"{first}", f"{first}-{last}", f"{first}-{last}/2")))
    return ",".join(elements)


def _noise() -> Iterator[str]:
    source = random.Random(SEED)
    for _ in range(LONG_TEXTS):
        yield "".join(source.choice("0123456789*/,-LW#?@ AMONSUN") for _ in range(TEXT_LIMIT))
