"""The projector's process."""

from contextlib import ExitStack, closing

from commandside.commands.callback_reactor import CallbackView, ReactorPorts
from infra.clickhouse.store import ClickHouseHistory
from infra.postgres.callback_log import PostgresCallbackLog
from infra.postgres.feed import PostgresFeed
from infra.postgres.views import PostgresBoardStore, PostgresParking, PostgresPositions
from infra.roles.process import Process, loop
from infra.vault import TenantVault
from projections.runner import BoardView, HistoryView, Projector


def run(process: Process) -> int:
    """Apply the log to every view, and define callbacks, until told to stop."""
    clickhouse = process.settings.clickhouse
    with ExitStack() as stack:
        feed = stack.enter_context(closing(PostgresFeed(process.conninfo, process.shards)))
        positions = stack.enter_context(closing(PostgresPositions(process.conninfo)))
        parking = stack.enter_context(closing(PostgresParking(process.conninfo)))
        board = stack.enter_context(closing(PostgresBoardStore(process.conninfo)))
        store = stack.enter_context(closing(ClickHouseHistory(clickhouse.url, clickhouse.database)))

        def dead(runs: int) -> None:
            process.telemetry.count("dead_letters", runs)

        callbacks = stack.enter_context(
            closing(PostgresCallbackLog(process.conninfo, process.shards))
        )
        vault = stack.enter_context(closing(TenantVault(process.conninfo, process.keys.wrapping)))
        reactor = ReactorPorts(
            callbacks, vault, positions, process.faults, process.telemetry, process.now
        )
        views = (
            BoardView(board),
            HistoryView(store, positions, dead=dead),
            CallbackView(reactor),
        )
        projector = Projector(feed, views, positions, parking, process.telemetry)
        return loop(process, projector)
