"""What every schedule that goes by a local clock may say of it: a zone, and rules for its jumps."""

from typing import Final

from domain.refusal import Refused
from domain.schedule import walk, zone

FINER: Final = "ask your operator for less (schedules.min_interval_s)"
"""What is said of a schedule that fires too often."""
ZONE_LIMIT: Final = 64
"""Characters of a zone name that are looked at; the longest real one has 32."""


def refuse_clock(timezone: str, gap: str, fold: str) -> Refused | None:
    """None where zone, gap and fold are known; empty `gap` and `fold` ask for the default."""
    if gap and gap not in walk.GAPS:
        return Refused("/dst/gap", f"{gap!r} is not one of {', '.join(walk.GAPS)}")
    if fold and fold not in walk.FOLDS:
        return Refused("/dst/fold", f"{fold!r} is not one of {', '.join(walk.FOLDS)}")
    if len(timezone) > ZONE_LIMIT:
        return Refused("/timezone", "not a known IANA time zone, such as Europe/Berlin")
    unknown = zone.refusal(timezone)
    return None if unknown is None else Refused("/timezone", unknown)
