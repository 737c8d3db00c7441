"""How many calls a target host may have at once, and how many of them retries, by how it answers.

    closed ─half of ten or more answers say that it is strained─► open ─pause─► on trial
       ▲                                                           ▲               │ │
       └── as many at once as its share ◄── one more for each other ┼───────────────┘ │
                                                                   └─ strained again ┘

Strained is who answers 429, 502, 503 or 504, or not at all. Whoever answers a trial otherwise, and
be it with 404, has room for more. An open breaker lets nothing begin for a second, and for twice
as long after each trial that fails, up to a minute. A trial begins with one call, so what has piled
up does not fall upon a host that has just come back.

A host that fails a third of its calls, in whatever way, gets one retry for five first attempts, and
one a second beside: whoever fails half the time for hours is not called twice as often for it.
"""

from typing import Final

STRAINED: Final = frozenset({429, 502, 503, 504})
"""Statuses that ask for less."""
UNREACHED: Final = frozenset({"timeout", "connect", "reset"})
"""Errors that say the same."""
STRAINED_MIN: Final = 10
"""Fewer prove nothing: a job that fires now and then keeps to its own retry policy."""
BUCKET_US: Final = 5_000_000
"""What has been counted is forgotten after two of these."""
PAUSE_US: Final = 1_000_000
PAUSE_US_MAX: Final = 60_000_000
FIRSTS_A_RETRY: Final = 5
RETRIES_FREE: Final = 10
"""In two buckets: one a second, where there are no first attempts."""
FAILED_OF: Final = 3
"""One failure in so many answers, and the budget of retries counts."""


class Breaker:
    """What one host may be asked. `limit`: calls at once, `share` while it is closed."""

    __slots__ = (
        *("_before", "_bucket_us", "_now", "_pause_us", "_since_us", "_until_us"),
        *("limit", "share"),
    )

    def __init__(self, share: int) -> None:
        self.share = share
        self.limit = share
        # Good answers, strained ones, other failures, first attempts, retries.
        self._now = [0, 0, 0, 0, 0]
        self._before = [0, 0, 0, 0, 0]
        self._bucket_us = self._until_us = self._pause_us = self._since_us = 0

    @property
    def is_closed(self) -> bool:
        """The host may have its whole share."""
        return self.limit == self.share

    def is_calm(self, now_us: int) -> bool:
        """Tell whether nothing is known of the host that matters: good answers do not."""
        if not self.is_closed and (not self.limit or now_us - self._since_us < 2 * BUCKET_US):
            return False
        _, strained, failed, _, retries = self._counts()
        return not (strained or failed or retries)

    @property
    def is_spent(self) -> bool:
        """Tell whether no retry may begin."""
        good, strained, failed, firsts, retries = self._counts()
        if retries < RETRIES_FREE + firsts // FIRSTS_A_RETRY:
            return False
        return FAILED_OF * (strained + failed) >= good + strained + failed

    def began(self, *, retry: bool) -> None:
        """Count a call that begins."""
        self._now[4 if retry else 3] += 1

    def landed(self, status: int, error: str, took_us: int, now_us: int) -> bool:
        """Count an answer; returns whether the breaker has opened by it."""
        if status not in STRAINED and error not in UNREACHED:
            # A queue's answer has no status.
            is_good = 200 <= status < 300 or not (status or error)  # noqa: PLR2004 - HTTP's own
            self._now[0 if is_good else 2] += 1
            if self.limit and not self.is_closed and now_us - took_us >= self._since_us:
                self.limit += 1
                if self.limit == self.share:
                    self._pause_us = 0
            return False
        self._now[1] += 1
        if not self.limit or now_us - took_us < self._since_us:
            return False  # it began before the breaker opened
        good, strained = self._counts()[:2]
        if strained < (STRAINED_MIN if self.is_closed else 1) or strained < good:
            return False
        self._pause_us = min(max(2 * self._pause_us, PAUSE_US), PAUSE_US_MAX)
        self._until_us = now_us + self._pause_us
        self.limit = 0
        return True

    def turn(self, now_us: int) -> None:
        """Take the time: forget what is old, and begin a trial when a pause is over."""
        if now_us - self._bucket_us >= BUCKET_US:
            self._before = self._now
            self._now = [0, 0, 0, 0, 0]
            self._bucket_us = now_us
        if not self.limit and now_us >= self._until_us:
            self.limit, self._since_us = 1, now_us
            self._now = [0, 0, 0, *self._now[3:]]
            self._before = [0, 0, 0, *self._before[3:]]

    def _counts(self) -> list[int]:
        return [now + before for now, before in zip(self._now, self._before, strict=True)]
