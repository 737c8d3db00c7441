"""A view built anew beside the live one, then put in its place.

The live projector goes on meanwhile and knows nothing of it. What it wrote into the old copy around
the swap is in the log up to the head that is read after the swap, so the new copy is read on to
there before the rebuild says that it is done. A rebuild that was cut off is started again.
"""

from typing import Protocol

from projections.ports import Copy, Feed, Lag, Parking, Positions, View
from projections.runner import Projector


class _Now(Protocol):
    @property
    def at(self) -> int: ...

    @property
    def mono_us(self) -> int: ...


class _Clock(Protocol):
    def __call__(self) -> _Now: ...


class Rebuild:
    """One rebuild: `copy` beside `live`, both of the same view under different names."""

    def __init__(
        self, feed: Feed, copy: Copy, live: View, positions: Positions, parking: Parking
    ) -> None:
        """Nothing is touched before `run`."""
        self._feed = feed
        self._copy = copy
        self._live = live
        self._positions = positions
        self._parking = parking

    def run(self, clock: _Clock, lag: Lag) -> dict[int, int]:
        """Rebuild, swap, and return the positions reached; raises Unavailable.

        A projector that runs meanwhile sets aside the streams it had parked until it is started
        again.
        """
        copy, live, ports = self._copy, self._live, (self._positions, self._parking, lag)
        self._positions.forget(copy.name)
        self._parking.forget(copy.name)
        copy.begin()
        aside = Projector(self._feed, [copy], *ports)
        aside.start(clock())
        self._catch_up(aside, clock)
        self._catch_up(aside, clock)  # the first took long; this one leaves little for after
        copy.swap()
        self._parking.adopt(copy.name, live.name)
        onward = Projector(self._feed, [live], *ports)
        onward.start_at(*aside.standing(copy.name))
        self._catch_up(onward, clock)
        reached, _ = onward.standing(live.name)
        self._positions.save(live.name, reached)
        self._positions.forget(copy.name)
        return reached

    def _catch_up(self, projector: Projector, clock: _Clock) -> None:
        """Read on to where the log ends now: an end, so that a busy log cannot hold us here."""
        head = self._feed.head()
        while not projector.reached(head):
            projector.run_one_batch(clock())
