"""The log in memory as projections read it, and where each view stands."""

from bisect import bisect_right
from collections.abc import Mapping
from operator import attrgetter

from domain.catalogue import decode
from infra.memory.log import MemoryLog
from projections.ports import PASSED_OVER, Recorded

_position = attrgetter("position")


class MemoryFeed:
    """`projections.ports.Feed`."""

    def __init__(self, log: MemoryLog) -> None:
        """Use a log that others write."""
        self.shards = log.shards
        self._log = log

    def read(self, after: Mapping[int, int], limit: int) -> list[Recorded]:
        """Return up to `limit` events of each shard whose position is > `after[shard]`."""
        found = []
        for shard, position in sorted(after.items()):
            events = self._log.feed[shard]
            start = bisect_right(events, position, key=_position)
            page = events[start : start + limit]
            found += [
                Recorded(shard, w.position, w.stream_id, w.version, decode(w.name, w.data), w.name)
                for w in page
                if w.name != PASSED_OVER or w is page[-1]
            ]
        return found

    def head(self) -> dict[int, int]:
        """Return the last position of each shard, 0 for an empty one."""
        return {
            shard: events[-1].position if events else 0
            for shard, events in enumerate(self._log.feed)
        }


class MemoryPositions:
    """`projections.ports.Positions`."""

    def __init__(self) -> None:
        self._views: dict[str, dict[int, int]] = {}

    def load(self, view: str) -> dict[int, int]:
        """Return shard → position of a view."""
        return dict(self._views.get(view, {}))

    def save(self, view: str, positions: Mapping[int, int]) -> None:
        """Move positions on, never back."""
        mine = self._views.setdefault(view, {})
        for shard, position in positions.items():
            mine[shard] = max(position, mine.get(shard, 0))

    def forget(self, view: str) -> None:
        """Start a view from the beginning."""
        self._views.pop(view, None)
