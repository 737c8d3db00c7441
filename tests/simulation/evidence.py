"""What a played scenario left behind, as the history checker reads it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from infra.memory.log import Written
from projections.job_board import VIEW as BOARD
from projections.run_history import VIEW as HISTORY
from tests.checker import memory
from tests.checker.inputs import Board, Fault, History, Hit, Row, Scenario, Standing, Stored
from tests.simulation.targets import named
from tests.simulation.world import START

if TYPE_CHECKING:
    from tests.simulation.play import Play

LATE_MS = 4_000
"""Lateness without a fault: here processes look for news a hundred times less often."""
ALWAYS: dict[str, str] = {
    "log": "postgres",
    "index": "postgres",
    "message": "broker",
    "delay": "broker",
    "command": "api",
    "view": "projector",
}
"""What a kind of weather takes away, all the time."""


def history_of(play: "Play") -> History:
    """Return everything that is known of a run."""
    world = play.world
    live = world.histories.copies[""]
    return History(
        events=[_stored(shard, w) for shard, feed in enumerate(world.log.feed) for w in feed],
        hits=sorted(_hits(play), key=lambda hit: hit.at_us),
        clients=play.clients.operations,
        faults=[*_weather(play), *play.faults],
        projections=[*memory.projections(world.log), *_views(play)],
        history=memory.history(live.attempts.values(), live.runs.values()),
        scenario=Scenario(
            name=" ".join(play.scenario.features),
            seed=play.scenario.seed,
            command=f"make simulate SEEDS={play.scenario.seed}-{play.scenario.seed}",
            settled_at=play.end,
            ended_at=world.clock.now(),
            quiescent=True,
            late_ms=LATE_MS,
        ),
    )


def _stored(shard: int, w: Written) -> Stored:
    return Stored(shard, w.position, w.stream_id, w.version, w.name, w.data, w.committed_at)


def _hits(play: "Play") -> Iterator[Hit]:
    for deliverer in play.world.deliverers:
        for hit in deliverer.hits:
            status = hit.status or play.targets.lost.get(named(hit.call), 0)
            yield memory.hit_of(hit.call, hit.at_us, status, hit.answered_us)


def _views(play: "Play") -> Iterator[Row]:
    world = play.world
    for row in world.board.rows.get(BOARD, {}).values():
        yield Board(*msgspec.structs.astuple(row))
    for view in (BOARD, HISTORY):
        for shard, position in sorted(world.positions.load(view).items()):
            yield Standing(view, shard, position)


def _weather(play: "Play") -> Iterator[Fault]:
    weather, targets = play.scenario.weather, play.scenario.targets
    for field, kind in ALWAYS.items():
        if getattr(weather, field):
            yield Fault(kind, field, START, play.end)
    if any(targets):
        yield Fault("target", "targets", START, play.end)
