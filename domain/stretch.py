"""Many instants in few words: stretches of so many, so far apart (ms).

A list of slots that is stored must not be worked out again under other zone data or another cron
engine, so it is kept as values. A schedule that is regular takes a few words for a thousand slots.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec


class Stretch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`count` instants from `first` on, `step` apart."""

    first: int
    step: int
    count: int

    @property
    def last(self) -> int:
        """The last of them."""
        return self.first + self.step * (self.count - 1)


Stretches = tuple[Stretch, ...]
"""In order, and without a common instant."""


def stretches(instants: Sequence[int]) -> Stretches:
    """Return instants, which rise, as stretches."""
    found: list[Stretch] = []
    start = 0
    while start < len(instants):
        end = start + 1
        step = instants[end] - instants[start] if end < len(instants) else 0
        while end < len(instants) and instants[end] - instants[end - 1] == step:
            end += 1
        found.append(Stretch(instants[start], step, end - start))
        start = end
    return tuple(found)


def instants(held: Iterable[Stretch]) -> Iterator[int]:
    """Return the instants, in order."""
    for part in held:
        yield from (part.first + n * part.step for n in range(part.count))


def next_after(held: Iterable[Stretch], instant: int) -> int | None:
    """Return the first that is later than `instant`."""
    for part in held:
        if part.last > instant:
            return part.first + _until(part, instant) * part.step
    return None


def count_after(held: Iterable[Stretch], instant: int) -> int:
    """Return how many are later than `instant`."""
    return sum(part.count - _until(part, instant) for part in held)


def _until(part: Stretch, instant: int) -> int:
    """Return how many of a stretch are not later than `instant`."""
    if instant < part.first:
        return 0
    return part.count if instant >= part.last else (instant - part.first) // part.step + 1
