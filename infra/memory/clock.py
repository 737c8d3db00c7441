"""Time that a test moves: the database clock and a node's monotonic clock, together."""

from commandside.ports import Tick


class VirtualClock:
    """Starts at an instant (ms) and moves only when it is told to."""

    def __init__(self, at: int) -> None:
        self._us = at * 1_000

    def now(self) -> int:
        """Return the database clock, ms since the epoch."""
        return self._us // 1_000

    def mono_us(self) -> int:
        """Return the monotonic clock, µs."""
        return self._us

    def tick(self) -> Tick:
        """Return what a role is run with at this instant."""
        return Tick(self._us // 1_000, self._us)

    def advance_us(self, by: int) -> None:
        """Move on; time never goes back."""
        assert by >= 0, by
        self._us += by

    def advance_ms(self, by: int) -> None:
        """Move on by milliseconds."""
        self.advance_us(by * 1_000)
