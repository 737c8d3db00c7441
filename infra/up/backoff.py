"""How long to wait before something that ended by itself is started again."""

from typing import Final

FIRST_US: Final = 200_000
MAX_US: Final = 15_000_000
STEADY_US: Final = 60_000_000
"""What ran for this long had recovered: its next pause is a short one again."""


class Backoff:
    """Pauses that double while starts fail one after the other."""

    def __init__(self) -> None:
        self._next_us = FIRST_US

    def pause_us(self, ran_us: int) -> int:
        """Return the pause after a run of `ran_us`."""
        if ran_us >= STEADY_US:
            self._next_us = FIRST_US
        pause, self._next_us = self._next_us, min(self._next_us * 2, MAX_US)
        return pause
