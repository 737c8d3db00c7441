"""Instants are whole milliseconds since the epoch, UTC, as `int`; this module converts them."""

from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_ORDINAL: Final = EPOCH.toordinal()
"""Of a `date`: less this, it is the number of days since the epoch."""
LAST: Final = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z, the last instant that RFC 3339 can say: no slot lies beyond."""

SECOND: Final = 1_000
MINUTE: Final = 60_000
HOUR: Final = 3_600_000
DAY: Final = 86_400_000


def rfc3339(at: int) -> str:
    """Return `at` (ms) as RFC 3339 in UTC, for example `2026-03-14T09:00:00.000Z`.

    What lies beyond `LAST` is said as `LAST`: no list fails for one instant in it.
    """
    day, ms = divmod(min(at, LAST), DAY)
    minutes, ms = divmod(ms, MINUTE)
    return (
        f"{_day(day)}T{minutes // 60:02d}:{minutes % 60:02d}:{ms // SECOND:02d}.{ms % SECOND:03d}Z"
    )


# Kept, because instants that are shown together share their days.
@lru_cache(4_096)
def _day(day: int) -> str:
    return date.fromordinal(EPOCH_ORDINAL + day).isoformat()
