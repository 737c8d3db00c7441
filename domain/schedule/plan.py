"""The plan of a schedule answers its slots; the checks here hold for every kind.

All instants are whole milliseconds since the epoch, UTC.
"""

from typing import Final, Protocol

COUNT_LIMIT: Final = 1_000
"""Passed slots are counted up to here, so that a decision's work is bounded."""


class ScheduleBreach(Exception):
    """A plan raised, or answered a slot that is not after the instant asked about: parks the job.

    A bug, or a zone that the pinned data have no longer. Whatever it is, it is this job's alone.
    """


class Plan(Protocol):
    """The slots of a schedule, in ms. Two plans are equal only if they are the same one."""

    def __hash__(self) -> int: ...

    def next_after(self, t: int) -> int | None:
        """The first slot strictly after `t`, or None: never again."""
        ...

    def last_until(self, t: int) -> int | None:
        """The newest slot at or before `t`, or None: none yet."""
        ...


class Forward:
    """Any plan, with the one check that no schedule ever answers an instant again.

    It remembers its last two answers with the instants they are true for: a link and its jitter
    ask for two slots in a row, and jobs of one schedule ask alike.
    """

    __slots__ = ("_inner", "_known")

    def __init__(self, inner: Plan) -> None:
        self._inner = inner
        self._known: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0))

    def next_after(self, t: int) -> int | None:
        """The first slot after `t`, or None."""
        # One read of the pair: another thread may replace it.
        newer, older = self._known
        if newer[0] <= t < newer[1]:
            return newer[1]
        if older[0] <= t < older[1]:
            return older[1]
        try:
            slot = self._inner.next_after(t)
        except Exception as error:
            raise breach(f"no slot after {t}", error) from error
        if slot is None:
            return None
        if slot <= t:
            raise ScheduleBreach(f"next slot {slot} is not after {t}")
        self._known = ((t, slot), newer)
        return slot

    def last_until(self, t: int) -> int | None:
        """The newest slot at or before `t`, or None."""
        try:
            slot = self._inner.last_until(t)
        except Exception as error:
            raise breach(f"no slot until {t}", error) from error
        if slot is not None and slot > t:
            raise ScheduleBreach(f"newest slot {slot} is after {t}")
        return slot


def breach(asked: str, error: Exception) -> ScheduleBreach:
    """Name what was asked: one job's schedule must not end who works for all of them."""
    return ScheduleBreach(f"{asked}: {type(error).__name__}: {error}")


def passed(
    slots: Plan, after: int, until: int, limit: int = COUNT_LIMIT
) -> tuple[int, int, int | None] | None:
    """The slots in (after, until]: first, last and how many; None if there is none.

    First and last are exact; the count is exact up to `limit`, and None beyond.
    """
    first = slots.next_after(after)
    if first is None or first > until:
        return None
    last = slots.last_until(until)
    if last is None or last < first:
        raise ScheduleBreach(f"slot {first} is in ({after}, {until}], but the newest is {last}")
    slot, count = first, 1
    while slot < last:
        if count == limit:
            return first, last, None
        following = slots.next_after(slot)
        if following is None or following > last:
            raise ScheduleBreach(f"no slot after {slot}, but {last} is one")
        slot, count = following, count + 1
    return first, last, count
