"""`every` with `from: completion`: a fixed delay from the end of one run to the next.

Its slots are not on any clock: the decision that ends an occurrence says when the next one is, and
writes it down. So none is ever missed: one that comes late fires late, and nothing else has passed.
"""

from typing import Final

from domain.instant import LAST
from domain.refusal import Refused
from domain.schedule.clock import FINER, refuse_clock
from domain.schedule.every import DURATION_LIMIT, read_anchor, read_duration
from domain.schedule.spec import FixedDelay

COMPLETION: Final = "completion"
ORIGINS: Final = ("anchor", COMPLETION)
"""What `every` is counted from."""


def parse_delay(  # noqa: PLR0913 - each is a field of the define body
    every: str,
    anchor: str | None,
    timezone: str,
    *,
    gap: str = "",
    fold: str = "",
    min_interval_s: int = 60,
) -> FixedDelay | Refused:
    """Read a delay; `anchor` (RFC 3339) is the instant before which nothing fires, None for none.

    `min_interval_s` is the least distance of two fires.
    """
    refused = refuse_clock(timezone, gap, fold)
    if refused is not None:
        return refused
    try:
        _, days, step_ms = read_duration(every)
    except ValueError as error:
        return Refused("/every", f"{every[:DURATION_LIMIT]!r} is not accepted: {error}")
    if not step_ms:
        hours = f": for {days} days of 24 hours write PT{24 * days}H" if days else ""
        return Refused(
            "/every",
            f"{every!r} is counted on the calendar, whose days and months differ in length; after "
            f"a completion give hours, minutes and seconds{hours}",
        )
    if step_ms < min_interval_s * 1000:
        return Refused(
            "/every",
            f"{every!r} is less than {min_interval_s} s, the least distance of two fires here: "
            f"give at least PT{min_interval_s}S, or {FINER}",
        )
    if gap or fold:
        return Refused("/dst", f"{every!r} is counted on absolute time, where no hour is missing")
    start = 0 if anchor is None else read_anchor(anchor, timezone, whole_s=False)
    if isinstance(start, Refused):
        return start
    return FixedDelay(every, step_ms, start, timezone)


class DelayPlan:
    """What follows an end. Unlike in other plans, each instant has an answer of its own.

    It is asked once for each end, with the instant of that end, and no slot of it ever passes.
    """

    __slots__ = ("_first", "_last", "_step")

    def __init__(self, spec: FixedDelay, first: int = 0, last: int = LAST) -> None:
        """Nothing fires before `first` or after `last` (ms)."""
        self._step = spec.step_ms
        self._first = max(spec.anchor, first)
        self._last = last

    def next_after(self, t: int) -> int | None:
        """When to fire after an end at `t`, or None: never again."""
        slot = self._first if t < self._first else t + self._step
        return slot if slot <= self._last else None

    def last_until(self, t: int) -> int | None:  # noqa: ARG002 - as every plan answers
        """Nothing passes."""
        return None


def said_of_delay(spec: FixedDelay) -> tuple[str, ...]:
    """What a person may not expect of a fixed delay."""
    return (
        f"the first run is {spec.typed} after now, unless starts_at or anchor is still to come",
        "later times depend on how long runs take: each counts from the end of the one before",
    )
