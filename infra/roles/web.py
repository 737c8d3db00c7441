"""The processes that answer over HTTP: commands, queries, or both on one address."""

import asyncio
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import ExitStack, closing
from secrets import token_bytes
from typing import Final, Protocol

import uvicorn

from commandside.command_port import CommandLog
from commandside.commands.prompt import PromptLog
from commandside.definitions.definition import Bounds
from commandside.firing.hand_off import SelfHandOff
from commandside.ports import Unavailable
from domain.instant import DAY
from infra.clickhouse.runs import ClickHouseRuns
from infra.listening import free_port
from infra.objects.store import ObjectPayloadStore
from infra.postgres.board import PostgresBoard
from infra.postgres.calendars import PostgresCalendars
from infra.postgres.callback_defaults import PostgresCallbackDefaults
from infra.postgres.command_log import PostgresCommandLog
from infra.postgres.demand import PostgresDemand
from infra.postgres.payloads import PostgresPayloads
from infra.postgres.secret_store import PostgresSecretStore
from infra.postgres.tenants import PostgresKeys
from infra.request_heads import BoundedHeads
from infra.roles.process import Process
from infra.targets.connections import load_connections
from infra.vault import TenantVault
from infra.web import WebPorts, build_app, collector, tenant_calendars
from queryside.queries import Views

TURN_S: Final = 0.5
SWEEP_S: Final = 10.0
"""Between two looks for jobs that do not follow their calendars yet."""
COLLECT_S: Final = 60.0
"""Between two looks for large payloads that nothing needs any more."""
WRITERS: Final = 1
"""Connections that commands are appended on: with a second one, groups are half as large and cost a
third more; one carries 8,000 definitions a second."""
DRAIN_S: Final = 10
"""Requests in progress are answered within this when the API is told to stop."""


def run(process: Process) -> int:
    """Answer commands, and with `api.with_queries` queries as well."""
    return _serve(process, command=True, query=process.settings.api.with_queries)


def run_queries(process: Process) -> int:
    """Answer queries alone."""
    return _serve(process, command=False, query=True)


def _serve(process: Process, *, command: bool, query: bool) -> int:
    settings, conninfo = process.settings, process.conninfo
    port = settings.api.port if command else settings.api.query_port
    port = free_port(settings.api.host, port, "api.port" if command else "api.query_port")
    family = socket.AF_INET6 if ":" in settings.api.host else socket.AF_INET
    listener = socket.create_server((settings.api.host, port), family=family, backlog=1024)
    log = PostgresCommandLog(
        conninfo,
        process.keeper.clock,
        shards=process.shards,
        stripes=min(WRITERS, settings.log.stripes),
        say=process.unavailable,
    )
    keys = PostgresKeys(conninfo)
    with ExitStack() as stack:
        stack.enter_context(closing(listener))
        vault = stack.enter_context(closing(TenantVault(conninfo, process.keys.wrapping)))
        demand = stack.enter_context(closing(PostgresDemand(conninfo)))
        secrets = stack.enter_context(closing(PostgresSecretStore(conninfo, process.keys.wrapping)))
        views = None
        if query:
            board = stack.enter_context(closing(PostgresBoard(conninfo)))
            clickhouse = settings.clickhouse
            history = stack.enter_context(
                closing(ClickHouseRuns(clickhouse.url, clickhouse.database))
            )
            views = Views(board, history, board)
        appends: CommandLog = log
        turns: tuple[_Turning | _Sweeping, ...] = ()
        if command:
            queue = stack.enter_context(closing(process.queue(produces=True)))
            hand_off = SelfHandOff(queue, process.shards, process.telemetry)
            appends, turns = PromptLog(log, hand_off), (_Turning(hand_off),)
        grants = load_connections(settings).grants(settings.kafka.prefix)
        bounds = Bounds(settings.targets.rules, settings.schedules.min_interval_s, grants)
        calendars = stack.enter_context(closing(PostgresCalendars(conninfo)))
        callbacks = stack.enter_context(closing(PostgresCallbackDefaults(conninfo)))
        store = stack.enter_context(
            closing(ObjectPayloadStore(settings.payload_store, settings.payloads.endpoint))
        )
        written = stack.enter_context(closing(PostgresPayloads(conninfo)))
        ports = WebPorts(
            appends,
            keys,
            vault,
            secrets,
            views,
            demand,
            process.keys.root,
            process.now,
            token_bytes,
            calendars,
            callbacks,
            store,
            written,
            bounds,
            settings.dead_letters.kept_days * DAY,
            settings.payloads.inline_max_bytes,
            process.faults,
        )
        if command:
            turns += (
                _Sweeping(tenant_calendars(ports), "calendars", SWEEP_S, process.unavailable),
                _Sweeping(collector(ports), "payloads", COLLECT_S, process.unavailable),
            )
        app = build_app(
            ports,
            command=command,
            query=query,
            on_startup=(log.start, keys.start, *(turning.start for turning in turns)),
            on_shutdown=(*(turning.close for turning in turns), log.close, keys.close),
        )
        config = uvicorn.Config(
            app,
            http=BoundedHeads,
            loop="uvloop",
            lifespan="on",
            ws="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=DRAIN_S,
        )
        uvicorn.Server(config).run(sockets=[listener])
    return 0


class _Turning:
    """Lets a hand-off's clients do their work, in an event loop."""

    def __init__(self, hand_off: SelfHandOff) -> None:
        self._hand_off = hand_off
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._turn())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _turn(self) -> None:
        while True:
            self._hand_off.turn()
            await asyncio.sleep(TURN_S)


class _Swept(Protocol):
    """What is looked through again and again."""

    async def sweep(self) -> int:
        """Do what there is to do; raises Unavailable."""


class _Sweeping:
    """Looks for what commands that were cut off, or others, have left to do."""

    def __init__(
        self, swept: _Swept, name: str, every_s: float, say: Callable[[str], None]
    ) -> None:
        self._swept, self._name, self._every_s, self._say = swept, name, every_s, say
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._sweep())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _sweep(self) -> None:
        while True:
            try:
                await self._swept.sweep()
            except Unavailable as error:
                self._say(f"{self._name}: {error}; the next look is in {self._every_s:g} s")
            except Exception:  # noqa: BLE001 - a bug about one job: shown, the others were visited
                traceback.print_exc(file=sys.stderr)
            await asyncio.sleep(self._every_s)
