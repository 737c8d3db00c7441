"""What must be true of a world beside its log: marks, terms, views, and who was let in.

The ledger judges the log and the requests. Here is what only the world has seen.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from commandside.ports import ENTRY, Chunk, Published, Tick
from infra.memory.feed import MemoryFeed, MemoryPositions
from infra.memory.history import MemoryHistories, MemoryHistory
from infra.memory.views import MemoryBoardStore, MemoryParking
from projections.job_board import VIEW
from projections.runner import BoardView, HistoryView, Projector
from tests.simulation.nodes import Figures

if TYPE_CHECKING:
    from tests.simulation.world import World


class Watch:
    """Notes what is wrong at the moment in which it happens."""

    def __init__(self) -> None:
        self.wrongs: list[str] = []
        self._handed: set[tuple[bytes, int]] = set()

    def handed(self, chunk: Chunk, terms: dict[int, int]) -> None:
        """Note a chunk that the bus was given: its owner must be the shard's."""
        if 0 < chunk.term < terms[chunk.shard]:
            self.wrongs.append(
                f"shard {chunk.shard} was handed off under term {chunk.term},"
                f" {terms[chunk.shard]} is the owner's"
            )
        for run_id, _, _, version, _ in struct.iter_unpack(ENTRY, chunk.entries):
            self._handed.add((run_id, version))

    def marked(self, published: Sequence[Published]) -> None:
        """Note what is about to be marked: it must have been handed to the bus."""
        for done in published:
            for run_id, _, _, version, _ in struct.iter_unpack(ENTRY, done.chunk.entries):
                if (run_id, version) not in self._handed:
                    self.wrongs.append(
                        f"run {run_id.hex()} was marked at version {version} and never published"
                    )


def views(world: "World") -> Iterator[str]:
    """Return where the views are not what the log makes of them when it is read from the start."""
    positions, histories = MemoryPositions(), MemoryHistories()
    board = MemoryBoardStore(positions)
    projector = Projector(
        MemoryFeed(world.log),
        [BoardView(board), HistoryView(MemoryHistory(histories), positions)],
        positions,
        MemoryParking(),
        Figures(),
    )
    tick = Tick(world.database_ms(), world.host_us())
    projector.start(tick)
    while projector.run_one_batch(tick) == 0:
        pass
    live, fresh = world.histories.copies[""], histories.copies[""]
    if world.board.rows.get(VIEW, {}) != board.rows.get(VIEW, {}):
        yield "the job board is not what the log says"
    for name in ("attempts", "runs"):
        mine, right = getattr(live, name), getattr(fresh, name)
        for key in right:
            if mine.get(key) != right[key]:
                yield f"the history has other {name} than the log: {right[key]}"
                break
        if mine.keys() - right.keys():
            yield f"the history has {name} that the log has not"
