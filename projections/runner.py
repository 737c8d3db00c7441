"""The projector: reads the log shard by shard, in batches, and applies it to every view.

One read serves all views that stand at the same place. A view's positions are stored with its rows,
or after them, so a crash repeats a batch and never skips one; views bear repetition.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from projections.job_board import VIEW as BOARD
from projections.job_board import changes
from projections.ports import (
    BoardStore,
    Feed,
    HistoryStore,
    Lag,
    Parking,
    Positions,
    Recorded,
    View,
)
from projections.run_history import VIEW as HISTORY
from projections.run_history import rows

EVENTS_PER_SHARD: Final = 2_000
PERIOD_US: Final = 700_000
"""Between two passes that found little: larger inserts cost less per row."""
FULL_PASS: Final = 20_000
"""Events after which the next pass follows at once."""


class _Now(Protocol):
    @property
    def at(self) -> int: ...


class HistoryView:
    """Run history: rows first, positions after; a repeated insert collapses."""

    def __init__(self, store: HistoryStore, positions: Positions, name: str = HISTORY) -> None:
        """Write under `name`, so that a rebuild can stand beside the live one."""
        self.name = name
        self._store = store
        self._positions = positions

    def apply(self, batch: Sequence[Recorded], positions: dict[int, int]) -> None:
        """Insert the rows of `batch`, then store the positions."""
        attempts, runs = rows(batch)
        if attempts or runs:
            ends = "/".join(f"{shard}:{position}" for shard, position in sorted(positions.items()))
            self._store.write(attempts, runs, f"{self.name}/{batch[0].position}/{ends}")
        self._positions.save(self.name, positions)


class BoardView:
    """Job board: rows and positions in one transaction."""

    def __init__(self, store: BoardStore, name: str = BOARD) -> None:
        """Write under `name`."""
        self.name = name
        self._store = store

    def apply(self, batch: Sequence[Recorded], positions: dict[int, int]) -> None:
        """Apply the job events of `batch` and store the positions."""
        self._store.write(self.name, changes(batch), positions)


class Projector:
    """The projector role over any number of views."""

    def __init__(
        self, feed: Feed, views: Sequence[View], positions: Positions, parking: Parking, lag: Lag
    ) -> None:
        """Nothing is read before `start`."""
        self._feed = feed
        self._views = views
        self._positions = positions
        self._parking = parking
        self._lag = lag
        self._at: dict[str, dict[int, int]] = {}
        self._parked: dict[str, set[bytes]] = {}

    def start(self, tick: _Now) -> None:  # noqa: ARG002 - every role starts with a tick
        """Load where every view stands."""
        for view in self._views:
            self._at[view.name] = self._positions.load(view.name)
            self._parked[view.name] = self._parking.load(view.name)

    def run_one_batch(self, tick: _Now) -> int:
        """Apply one batch to every view; return after how many µs to come back."""
        after = {
            shard: min(self._at[view.name].get(shard, 0) for view in self._views)
            for shard in range(self._feed.shards)
        }
        batch = self._feed.read(after, EVENTS_PER_SHARD)
        for view in self._views:
            self._apply(view, batch, tick)
        return 0 if len(batch) >= FULL_PASS else PERIOD_US

    def drain(self, tick: _Now) -> bool:  # noqa: ARG002 - every role drains with a tick
        """Return at once: whatever is not applied is in the log."""
        return True

    def _apply(self, view: View, batch: Sequence[Recorded], tick: _Now) -> None:
        at = self._at[view.name]
        fresh = [r for r in batch if r.position > at.get(r.shard, 0)]
        if not fresh:
            self._lag.lag(view.name, 0)
            return
        readable = self._without_parked(view.name, fresh)
        positions = {r.shard: r.position for r in fresh}
        view.apply(readable, positions)
        at.update(positions)
        newest = next((r.event.at for r in reversed(readable) if r.event is not None), tick.at)
        self._lag.lag(view.name, max(0, tick.at - newest) if len(batch) >= FULL_PASS else 0)

    def _without_parked(self, name: str, fresh: Sequence[Recorded]) -> Sequence[Recorded]:
        """Park streams with an unknown event, and everything later of them."""
        parked = self._parked[name]
        if not parked and all(r.event is not None for r in fresh):
            return fresh
        kept: list[Recorded] = []
        aside: list[Recorded] = []
        for recorded in fresh:
            if recorded.event is None:
                parked.add(recorded.stream_id)
            (aside if recorded.stream_id in parked else kept).append(recorded)
        if aside:
            self._parking.park(name, aside)
        self._lag.parked(name, len(parked))
        return kept
