"""Instants are whole milliseconds since the epoch, UTC, as `int`; this module converts them."""

from datetime import UTC, datetime, timedelta
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
    seconds, ms = divmod(min(at, LAST), SECOND)
    return f"{_second(seconds)}.{ms:03d}Z"


# Kept, because many fires share a second, and a minute of fires has sixty of them.
@lru_cache(4_096)
def _second(seconds: int) -> str:
    return (EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()
