"""What projections keep, in memory: parked streams and the job board."""

from collections.abc import Mapping, Sequence

import msgspec

from projections.ports import Positions, Recorded
from projections.rows import BoardChange, BoardRow


class MemoryParking:
    """`projections.ports.Parking`."""

    def __init__(self) -> None:
        self.events: dict[str, dict[tuple[bytes, int], Recorded]] = {}

    def load(self, view: str) -> set[bytes]:
        """Return the parked streams of a view."""
        return {stream_id for stream_id, _ in self.events.get(view, {})}

    def park(self, view: str, events: Sequence[Recorded]) -> None:
        """Keep these events."""
        kept = self.events.setdefault(view, {})
        kept.update(((event.stream_id, event.version), event) for event in events)

    def forget(self, view: str) -> None:
        """Drop what is parked of a view."""
        self.events.pop(view, None)

    def adopt(self, view: str, live: str) -> None:
        """Let what is parked of `view` be what is parked of `live`."""
        self.events[live] = self.events.pop(view, {})


class MemoryBoardStore:
    """`projections.ports.BoardStore`: rows by view and job."""

    def __init__(self, positions: Positions) -> None:
        """Save positions where the other views do."""
        self.rows: dict[str, dict[bytes, BoardRow]] = {}
        self._positions = positions

    def write(
        self, view: str, changes: Sequence[BoardChange], positions: Mapping[int, int]
    ) -> None:
        """Apply changes in order and save the positions."""
        rows = self.rows.setdefault(view, {})
        for change in changes:
            old = rows.get(change.job_id)
            if old is not None and old.version >= change.version:
                continue
            if isinstance(change, BoardRow):
                rows[change.job_id] = msgspec.structs.replace(
                    change,
                    status=change.status or (old.status if old else ""),
                    defined_at=change.defined_at or (old.defined_at if old else 0),
                    key=change.key or (old.key if old else ""),
                )
            elif old is not None:
                rows[change.job_id] = msgspec.structs.replace(
                    old,
                    version=change.version,
                    status=change.status or old.status,
                    changed_at=change.changed_at or old.changed_at,
                )
        self._positions.save(view, positions)

    def begin(self, view: str) -> None:
        """Remove the rows of a view."""
        self.rows.pop(view, None)

    def swap(self, view: str, live: str) -> None:
        """Put the rows of `view` in the place of those of `live`."""
        self.rows[live] = self.rows.pop(view, {})
