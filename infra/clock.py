"""The one reader of clocks. Decisions go by the database clock; a node only estimates it.

The estimate is the node's wall clock plus an offset measured against the database. A node whose
offset is beyond a bound neither decides nor leases (protocol.md §10): a jump of either clock stops
it instead of turning every job into a misfire.
"""

import time
from typing import Final

OFFSET_MAX_MS: Final = 500


def wall_ms() -> int:
    """Return the node's wall clock, ms since the epoch."""
    return time.time_ns() // 1_000_000


def mono_us() -> int:
    """Return the node's monotonic clock, microseconds from an arbitrary origin."""
    return time.monotonic_ns() // 1_000


class DatabaseClock:
    """Estimates the database clock from replies that carried it."""

    __slots__ = ("_offset_ms", "_seen")

    def __init__(self) -> None:
        """Trust the node's clock until the first reply."""
        self._offset_ms = 0
        self._seen = False

    def heard(self, at: int, sent_us: int, received_us: int) -> None:
        """Learn from a reply that said `at` and was sent and received at these monotonic instants.

        The error is at most half of the round trip; a slow reply teaches nothing.
        """
        trip_ms = (received_us - sent_us) / 1_000
        if self._seen and trip_ms > OFFSET_MAX_MS / 10:
            return
        self._offset_ms = round(at + trip_ms / 2) - wall_ms()
        self._seen = True

    def now(self) -> int:
        """Return the database clock as estimated, ms."""
        return wall_ms() + self._offset_ms

    @property
    def offset_ms(self) -> int:
        """How far the database clock is ahead of the node's."""
        return self._offset_ms

    @property
    def trusted(self) -> bool:
        """Whether node and database agree well enough to decide."""
        return abs(self._offset_ms) <= OFFSET_MAX_MS
