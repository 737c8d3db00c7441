"""Builds a view anew beside the live one, then puts it in its place: `projector --rebuild NAME`."""

from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Final

from commandside.ports import Tick
from infra import clock
from infra.clickhouse.store import ClickHouseHistory
from infra.postgres import migrate
from infra.postgres.feed import PostgresFeed
from infra.postgres.views import PostgresBoardStore, PostgresParking, PostgresPositions
from infra.settings import Settings, SettingsError
from projections import job_board, run_history
from projections.ports import Copy, Lag, Positions, View
from projections.rebuild import Rebuild
from projections.runner import BoardView, HistoryView

BESIDE: Final = "rebuild"
"""Name of the copy; only one rebuild of a view at a time."""

_Views = tuple[Copy, View]
_Open = Callable[[ExitStack, Settings, Positions], _Views]


def rebuild(name: str, settings: Settings, lag: Lag) -> int:
    """Rebuild the view `name`; return the log position it reached, the highest of all shards.

    Projector and readers may run meanwhile. Raises SettingsError for a view that does not exist,
    Unavailable where an engine is away: then it is started again from the beginning.
    """
    if name not in VIEWS:
        raise SettingsError(f"{name!r} is no view: there are {' and '.join(VIEWS)}")
    conninfo = settings.postgres.url
    shards = migrate.installed(conninfo).shards
    with ExitStack() as stack:
        feed = stack.enter_context(closing(PostgresFeed(conninfo, shards)))
        positions = stack.enter_context(closing(PostgresPositions(conninfo)))
        parking = stack.enter_context(closing(PostgresParking(conninfo)))
        copy, live = VIEWS[name](stack, settings, positions)
        live.prepare()
        reached = Rebuild(feed, copy, live, positions, parking).run(_tick, lag)
    return max(reached.values(), default=0)


def _tick() -> Tick:
    # Only for how far behind it says it is: the node's own clock is good enough.
    return Tick(clock.wall_ms(), clock.mono_us())


def _history(stack: ExitStack, settings: Settings, positions: Positions) -> _Views:
    url, database = settings.clickhouse.url, settings.clickhouse.database
    live = stack.enter_context(closing(ClickHouseHistory(url, database)))
    copy = stack.enter_context(closing(ClickHouseHistory(url, database, BESIDE)))
    beside = f"{run_history.VIEW}_{BESIDE}"
    return HistoryView(copy, positions, beside), HistoryView(live, positions)


def _board(stack: ExitStack, settings: Settings, _positions: Positions) -> _Views:
    store = stack.enter_context(closing(PostgresBoardStore(settings.postgres.url)))
    return BoardView(store, f"{job_board.VIEW}_{BESIDE}"), BoardView(store)


VIEWS: Final[dict[str, _Open]] = {run_history.VIEW: _history, job_board.VIEW: _board}
"""The views that can be rebuilt, by name."""
