"""The projector: reads the log shard by shard, in batches, and applies it to every view.

Views that have caught up share one read. A view that is behind, or whose engine is away, is read
for by itself, so that it holds up no other. A view's positions are stored with its rows, or after
them, so a crash repeats a batch and never skips one; views bear repetition.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Final, Protocol

from domain.ports import Unavailable
from domain.run.events import DEAD
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

EVENTS_MAX: Final = 65_536
"""Events of one read, all shards together: about 16,000 fires, and under 100 MB."""
FULL: Final = 16_384
"""Events of a read after which the next follows at once."""
PERIOD_US: Final = 1_000_000
"""Between two passes that found little: an insert costs the engine 10 ms, however small it is."""
RETRY_US: Final = 200_000
RETRY_MAX_US: Final = 10_000_000
"""A view whose engine is away is tried again after this, doubling up to the second."""


class _Now(Protocol):
    @property
    def at(self) -> int: ...

    @property
    def mono_us(self) -> int: ...


class HistoryView:
    """Run history: rows first, positions after; a repeated insert collapses."""

    def __init__(
        self,
        store: HistoryStore,
        positions: Positions,
        name: str = HISTORY,
        dead: Callable[[int], None] | None = None,
    ) -> None:
        """Keep positions under `name`, so that a rebuild can stand beside the live one.

        `dead` is told how many runs of a batch ended dead, once they are kept.
        """
        self._dead = dead
        self.name = name
        self._store = store
        self._positions = positions

    def prepare(self) -> None:
        """Create the tables; where they were lost, the log is read from its beginning."""
        if self._store.missing():
            self._positions.forget(self.name)
            self._store.prepare()

    def apply(self, batch: Sequence[Recorded], positions: Mapping[int, int]) -> None:
        """Insert the rows of `batch`, then store the positions."""
        attempts, runs = rows(batch)
        if attempts or runs:
            self._store.write(attempts, runs, _token(self.name, batch))
        self._positions.save(self.name, positions)
        if self._dead is not None:
            self._dead(sum(run.status == DEAD for run in runs))

    def begin(self) -> None:
        """Empty this copy."""
        self._store.begin()

    def swap(self) -> None:
        """Put this copy in the place of the live one."""
        self._store.swap()


def _token(name: str, batch: Sequence[Recorded]) -> str:
    """Return what names an insert: the same events of the same view, and only they."""
    positions = array("q", [recorded.position for recorded in batch])
    return f"{name}/{blake2b(positions.tobytes(), digest_size=16).hexdigest()}"


class BoardView:
    """Job board: rows and positions in one transaction."""

    def __init__(self, store: BoardStore, name: str = BOARD) -> None:
        """Write under `name`."""
        self.name = name
        self._store = store

    def prepare(self) -> None:
        """Nothing: its tables come with the log's."""

    def apply(self, batch: Sequence[Recorded], positions: Mapping[int, int]) -> None:
        """Apply the job events of `batch` and store the positions."""
        self._store.write(self.name, changes(batch), positions)

    def begin(self) -> None:
        """Empty this copy."""
        self._store.begin(self.name)

    def swap(self) -> None:
        """Put this copy in the place of the live one."""
        self._store.swap(self.name, BOARD)


class _Reader:
    """Where one view stands, and whether it is read for by itself."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.ready = False
        self.at: dict[int, int] = {}
        self.parked: set[bytes] = set()
        self.apart = True
        self.retry_us = RETRY_US
        self.not_before_us = 0


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
        self._readers: list[_Reader] = []

    def start(self, tick: _Now) -> None:  # noqa: ARG002 - every role starts with a tick
        """Begin; each view is prepared by its first batch, so that one cannot hold up another."""
        self._readers = [_Reader(view) for view in self._views]

    def start_at(self, positions: Mapping[int, int], parked: set[bytes]) -> None:
        """Begin every view from these positions, whatever is stored."""
        self._readers = [_Reader(view) for view in self._views]
        for reader in self._readers:
            reader.ready = True
            reader.at = dict(positions)
            reader.parked = set(parked)

    def run_one_batch(self, tick: _Now) -> int:
        """Apply one batch to every view; return after how many µs to come back.

        Raises Unavailable after the other views were served, where one could not be.
        """
        rest = PERIOD_US
        away: Unavailable | None = None
        for group in self._groups(tick):
            batch: Sequence[Recorded] | None = None
            for reader in group:
                try:
                    self._ready(reader)
                    batch = self._read(group) if batch is None else batch
                    self._apply(reader, batch, tick, full=len(batch) >= FULL)
                except Unavailable as error:
                    self._hold(reader, batch or (), tick)
                    away = error
            if batch is not None and len(batch) >= FULL:
                rest = 0
        if away is not None:
            raise away
        return rest

    def drain(self, tick: _Now) -> bool:  # noqa: ARG002 - every role drains with a tick
        """Return at once: whatever is not applied is in the log."""
        return True

    def reached(self, positions: Mapping[int, int]) -> bool:
        """Tell whether every view has applied the log up to these positions."""
        return all(
            reader.at.get(shard, 0) >= position
            for reader in self._readers
            for shard, position in positions.items()
        )

    def standing(self, view: str) -> tuple[dict[int, int], set[bytes]]:
        """Return positions and parked streams of a view, as of the last batch."""
        reader = next(r for r in self._readers if r.view.name == view)
        return dict(reader.at), set(reader.parked)

    def _ready(self, reader: _Reader) -> None:
        """Prepare a view and load where it stands, once, and again after its engine was away."""
        if not reader.ready:
            name = reader.view.name
            reader.view.prepare()
            reader.at = self._positions.load(name)
            reader.parked = self._parking.load(name)
            reader.ready = True
            self._lag.parked(name, len(reader.parked))

    def _groups(self, tick: _Now) -> list[list[_Reader]]:
        """Return who is read for together; a view that waits for its engine is left out."""
        together = [r for r in self._readers if not r.apart]
        apart = [[r] for r in self._readers if r.apart and r.not_before_us <= tick.mono_us]
        return [together, *apart] if together else apart

    def _read(self, group: Sequence[_Reader]) -> list[Recorded]:
        after = {
            shard: min(reader.at.get(shard, 0) for reader in group)
            for shard in range(self._feed.shards)
        }
        return self._feed.read(after, max(1, EVENTS_MAX // self._feed.shards))

    def _apply(self, reader: _Reader, batch: Sequence[Recorded], tick: _Now, *, full: bool) -> None:
        name = reader.view.name
        fresh = [r for r in batch if r.position > reader.at.get(r.shard, 0)]
        newest = 0
        if fresh:
            readable = self._without_parked(reader, fresh)
            positions = {r.shard: r.position for r in fresh}
            reader.view.apply(readable, positions)
            reader.at.update(positions)
            newest = max((r.event.at for r in readable if r.event is not None), default=0)
        reader.apart = reader.apart and full
        reader.retry_us = RETRY_US
        self._lag.lag(name, max(0, tick.at - newest) if full and newest else 0)

    def _hold(self, reader: _Reader, batch: Sequence[Recorded], tick: _Now) -> None:
        """Leave a view alone for a while: its engine is away."""
        waiting = (r for r in batch if r.position > reader.at.get(r.shard, 0) and r.event)
        oldest = min((r.event.at for r in waiting if r.event is not None), default=tick.at)
        self._lag.lag(reader.view.name, max(0, tick.at - oldest))
        reader.ready = False  # it may come back empty
        reader.apart = True
        reader.not_before_us = tick.mono_us + reader.retry_us
        reader.retry_us = min(2 * reader.retry_us, RETRY_MAX_US)

    def _without_parked(self, reader: _Reader, fresh: Sequence[Recorded]) -> Sequence[Recorded]:
        """Park streams with an event that cannot be read, and everything later of them."""
        parked = reader.parked
        if not parked and all(r.event is not None for r in fresh):
            return fresh
        kept: list[Recorded] = []
        aside: list[Recorded] = []
        unreadable: set[bytes] = set()
        for recorded in fresh:
            if recorded.event is None:
                unreadable.add(recorded.stream_id)
            gone = recorded.stream_id in parked or recorded.stream_id in unreadable
            (aside if gone else kept).append(recorded)
        if aside:
            self._parking.park(reader.view.name, aside)
            parked |= unreadable
        self._lag.parked(reader.view.name, len(parked))
        return kept
