"""A log that a test writes by hand, and a projector over memory views that reads it."""

from collections.abc import Mapping

from domain.catalogue import NAMES, DomainEvent
from domain.ports import Unavailable
from domain.run import events as re
from infra.memory.feed import MemoryPositions
from infra.memory.history import MemoryHistories, MemoryHistory, MemoryRuns
from infra.memory.views import MemoryBoardStore, MemoryParking
from projections.ports import Recorded, View
from projections.rows import BoardRow
from projections.runner import BoardView, HistoryView, Projector

TENANT = b"t" * 16
JOB = b"j" * 16
NOON = 1_790_000_000_000


class Tick:
    """An instant of both clocks."""

    def __init__(self, mono_us: int = 0, at: int = NOON) -> None:
        self.at = at
        self.mono_us = mono_us


class Log:
    """`projections.ports.Feed` over events that `write` adds."""

    def __init__(self, shards: int = 4) -> None:
        self.shards = shards
        self.away = False
        self.reads: list[dict[int, int]] = []
        self.limit = 1_000_000
        """A smaller page than the projector asks for."""
        self.asked = 0
        """Events of a shard that were asked for last."""
        self._events: list[Recorded] = []

    def write(self, stream_id: bytes, *events: DomainEvent | None, shard: int = 0) -> None:
        """Append events to a stream; None is one that this version cannot read."""
        for event in events:
            version = 1 + sum(r.stream_id == stream_id for r in self._events)
            name = NAMES[type(event)] if event is not None else "run.dreamt.v1"
            position = len(self._events) + 1
            self._events.append(Recorded(shard, position, stream_id, version, event, name))

    def read(self, after: Mapping[int, int], limit: int) -> list[Recorded]:
        if self.away:
            raise Unavailable("the log is away")
        self.reads.append(dict(after))
        self.asked = limit
        found: list[Recorded] = []
        for shard, position in sorted(after.items()):
            mine = [r for r in self._events if r.shard == shard and r.position > position]
            found += mine[: min(limit, self.limit)]
        return found

    def head(self) -> dict[int, int]:
        return {
            shard: max((r.position for r in self._events if r.shard == shard), default=0)
            for shard in range(self.shards)
        }


class Figures:
    """`projections.ports.Lag`: what was reported last, by view."""

    def __init__(self) -> None:
        self.lags: dict[str, int] = {}
        self.parks: dict[str, int] = {}

    def lag(self, view: str, ms: int) -> None:
        self.lags[view] = ms

    def parked(self, view: str, streams: int) -> None:
        self.parks[view] = streams


class Stage:
    """Both views in memory over one log."""

    def __init__(self, shards: int = 4) -> None:
        self.log = Log(shards)
        self.figures = Figures()
        self.positions = MemoryPositions()
        self.parking = MemoryParking()
        self.engine = MemoryHistories()
        self.board_store = MemoryBoardStore(self.positions)
        self.history = HistoryView(MemoryHistory(self.engine), self.positions)
        self.board = BoardView(self.board_store)

    def projector(self, *views: View) -> Projector:
        """Return a projector that has just been started, over both views if none is named."""
        chosen = views or (self.history, self.board)
        projector = Projector(self.log, chosen, self.positions, self.parking, self.figures)
        projector.start(Tick())
        return projector

    def runs(self) -> list[tuple[int, str]]:
        """Return nominal instant and status of the job's history, newest first."""
        page = MemoryRuns(self.engine).page(TENANT, JOB, None, 1_000)
        return [(line.run.nominal, line.run.status) for line in page]

    def jobs(self) -> dict[bytes, BoardRow]:
        """Return the live board."""
        return self.board_store.rows.get("job_board", {})


def run_id(number: int) -> bytes:
    """Return the id of run `number`."""
    return number.to_bytes(16, "big")


def fired(
    number: int, then: str = "succeeded", *, attempt: int = 1, at: int = NOON, cause: str = ""
) -> re.Fired:
    """Return the result of an attempt of run `number`."""
    return re.Fired(
        at,
        JOB,
        TENANT,
        0,
        NOON + number,
        NOON + number + 3,
        NOON + number + 10,
        attempt,
        2 * attempt,
        "ok" if then == "succeeded" else "failed",
        then,
        200 if then == "succeeded" else 503,
        cause=cause,
    )
