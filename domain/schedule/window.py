"""The part of a schedule that lies between two instants."""

from domain.schedule.plan import Plan


class Window:
    """The slots of a plan from `first` to `last`, both included (ms)."""

    __slots__ = ("_first", "_inner", "_last")

    def __init__(self, inner: Plan, first: int, last: int) -> None:
        self._inner = inner
        self._first = first
        self._last = last

    def next_after(self, t: int) -> int | None:
        """The first slot after `t` inside the window, or None."""
        slot = self._inner.next_after(max(t, self._first - 1))
        return slot if slot is not None and slot <= self._last else None

    def last_until(self, t: int) -> int | None:
        """The newest slot at or before `t` inside the window, or None."""
        slot = self._inner.last_until(min(t, self._last))
        return slot if slot is not None and slot >= self._first else None
