"""The ports of projections: the log as a feed of shards, the views, and where each view stands.

Every call raises `domain.ports.Unavailable` where its engine is away: what was to be written may or
may not have been, and is written again.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import msgspec

from domain.catalogue import DomainEvent
from projections.rows import AttemptRow, BoardChange, RunRow


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """An event in the log. `event` is None where this version cannot read it."""

    shard: int
    position: int
    stream_id: bytes
    version: int
    event: DomainEvent | None
    name: str = ""


PASSED_OVER: Final = "run.leased.v1"
"""The name of the one event that no view looks at: `Fired` repeats what it says, and a third of
all events need not be sent and decoded."""


class Feed(Protocol):
    """The log, shard by shard, in commit order within each."""

    shards: int

    def read(self, after: Mapping[int, int], limit: int) -> list[Recorded]:
        """Return up to `limit` events of each shard whose position is > `after[shard]`.

        Left out are those of PASSED_OVER, but for a shard's last one of the page: where a reader
        then stands is told by what it was given.
        """

    def head(self) -> dict[int, int]:
        """Return the last position of each shard, 0 for an empty one."""


class Positions(Protocol):
    """Where a view stands in each shard; the one tracker of all views."""

    def load(self, view: str) -> dict[int, int]:
        """Return shard → position of a view; shards never read are absent."""

    def save(self, view: str, positions: Mapping[int, int]) -> None:
        """Store positions after the rows they cover are durable; never moves one back."""

    def forget(self, view: str) -> None:
        """Start a view from the beginning."""


class HistoryStore(Protocol):
    """One copy of the run history; a row may arrive twice, the higher position stays."""

    def missing(self) -> bool:
        """Tell whether it is not there: new, or lost with all that it held."""

    def prepare(self) -> None:
        """Create what is missing."""

    def begin(self) -> None:
        """Drop this copy and create it empty: a rebuild starts."""

    def swap(self) -> None:
        """Put this copy in the place of the live one, which is dropped."""

    def write(self, attempts: Sequence[AttemptRow], runs: Sequence[RunRow], token: str) -> None:
        """Insert rows; the same token within a while is the same insert."""


class BoardStore(Protocol):
    """Where the job board is kept, with its positions in the same transaction."""

    def write(
        self, view: str, changes: Sequence[BoardChange], positions: Mapping[int, int]
    ) -> None:
        """Apply changes (an older version never replaces a newer one) and save the positions."""

    def begin(self, view: str) -> None:
        """Remove the rows of a view: a rebuild starts."""

    def swap(self, view: str, live: str) -> None:
        """Put the rows of `view` in the place of those of `live`, which are removed."""


class Parking(Protocol):
    """Streams that a view cannot read on: kept, alarmed, never skipped in silence."""

    def load(self, view: str) -> set[bytes]:
        """Return the parked streams of a view."""

    def park(self, view: str, events: Sequence[Recorded]) -> None:
        """Keep these events of parked streams, before the view's position passes them."""

    def forget(self, view: str) -> None:
        """Drop what is parked of a view."""

    def adopt(self, view: str, live: str) -> None:
        """Let what is parked of `view` be what is parked of `live`."""


class View(Protocol):
    """One projection: a batch is applied durably together with, or before, its positions."""

    name: str

    def prepare(self) -> None:
        """Make sure that it can be written; a view that was lost forgets its positions first."""

    def apply(self, batch: Sequence[Recorded], positions: Mapping[int, int]) -> None:
        """Make the rows of `batch` durable, then the positions. Bears repetition."""


class Copy(View, Protocol):
    """A second copy of a view, built beside the live one."""

    def begin(self) -> None:
        """Empty the copy."""

    def swap(self) -> None:
        """Put the copy in the place of the live one."""


class Lag(Protocol):
    """Where the projector says how far behind it is."""

    def lag(self, view: str, ms: int) -> None:
        """Report the age of the newest event applied, ms; 0 when at the head."""

    def parked(self, view: str, streams: int) -> None:
        """Report how many streams are parked: alert above zero."""
