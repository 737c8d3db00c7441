"""How close the parts of a union come to each other, found by walking some of its slots."""

from functools import lru_cache
from typing import Final

from domain.instant import MINUTE, SECOND, rfc3339
from domain.refusal import Refused
from domain.schedule import cron
from domain.schedule.clock import FINER
from domain.schedule.schedule import ScheduleBreach, plan
from domain.schedule.spec import Cron, Part, Union

STEPS: Final = 1_000
"""Slots that are walked, so that an answer takes some milliseconds at the most."""
_SINCE: Final = 1_767_225_600_000
"""2026-01-01T00:00Z: the same union is judged alike whenever it is asked for."""
_KEPT: Final = 1_024


@lru_cache(_KEPT)
def refuse_close(union: Union, min_interval_s: int) -> Refused | None:
    """Refuse a union two of whose slots are closer than is allowed; None where none is found."""
    least = min_interval_s * SECOND
    if least <= SECOND or (least <= MINUTE and all(map(_on_the_minute, union.parts))):
        return None
    slots = plan(union)
    anchors = [part.anchor for part in union.parts if not isinstance(part, Cron)]
    try:
        slot = slots.next_after(max(_SINCE, *anchors, 0) - 1)
        for _ in range(STEPS):
            following = None if slot is None else slots.next_after(slot)
            if slot is None or following is None:
                return None
            if following - slot < least:
                return Refused(
                    "/schedules",
                    f"two parts fire {(following - slot) / SECOND:g} s apart, at {rfc3339(slot)} "
                    f"and {rfc3339(following)}; at least {min_interval_s} s are allowed: move one "
                    f"of them, or {FINER}",
                )
            slot = following
    except ScheduleBreach:
        return None  # its own refusal, or warning, says more
    return None


def _on_the_minute(part: Part) -> bool:
    """Whether a part fires with whole minutes of its clock; clocks differ by whole minutes now."""
    return isinstance(part, Cron) and cron.read(part.text, part.dialect).seconds == 1
