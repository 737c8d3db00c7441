"""The one reader of clocks. Decisions go by the database clock; a node only estimates it.

The estimate is what the database said last, carried on by the node's monotonic clock; so the
node's wall clock, and whoever sets it, decides nothing. When an answer contradicts the estimate,
one of the two clocks jumped, and until two answers agree this node neither decides nor leases
(protocol.md §10): a jump stops it for a moment instead of turning every job into a misfire.
"""

import time
from collections.abc import Callable
from typing import Final

OFFSET_MAX_MS: Final = 500
TRIP_MAX_MS: Final = 50
"""A slower answer says too little, once there was a better one."""
DOUBT_US: Final = 3_000_000
STALE_US: Final = 10_000_000
"""After so long without a good answer a slow one is better than none."""


def wall_ms() -> int:
    """Return the node's wall clock, ms since the epoch."""
    return time.time_ns() // 1_000_000


def mono_us() -> int:
    """Return the node's monotonic clock, microseconds from an arbitrary origin."""
    return time.monotonic_ns() // 1_000


class DatabaseClock:
    """Estimates the database clock from replies that carried it."""

    __slots__ = ("_doubted", "_known", "_mono_us", "_seen")

    def __init__(self, mono_us: Callable[[], int] = mono_us) -> None:
        """Go by the node's wall clock until the first reply."""
        self._mono_us = mono_us
        # Replaced whole: another thread must not see the instant of one answer and the clock of
        # another.
        self._known = wall_ms(), mono_us()
        self._seen = False
        self._doubted = False

    def heard(self, at: int, sent_us: int, received_us: int) -> None:
        """Learn from a reply that said `at` and was sent and received at these monotonic instants.

        The error is at most half of the round trip.
        """
        trip_ms = (received_us - sent_us) / 1_000
        before, before_us = self._known
        if self._seen and trip_ms > TRIP_MAX_MS and received_us - before_us < STALE_US:
            return
        said = round(at + trip_ms / 2)
        expected = before + (received_us - before_us) // 1_000
        self._doubted = self._seen and abs(said - expected) > OFFSET_MAX_MS + trip_ms
        self._known, self._seen = (said, received_us), True

    def now(self) -> int:
        """Return the database clock as estimated, ms."""
        at, us = self._known
        return at + (self._mono_us() - us) // 1_000

    @property
    def offset_ms(self) -> int:
        """How far the database clock is ahead of the node's wall clock."""
        return self.now() - wall_ms()

    @property
    def trusted(self) -> bool:
        """Whether the database has answered, and its last two answers agree with each other.

        A doubt that no answer settles ends with DOUBT_US: while the database is away nothing can be
        decided anyhow, and a role must not stop to listen to what is in flight.
        """
        return self._seen and not (self._doubted and self._mono_us() - self._known[1] < DOUBT_US)
