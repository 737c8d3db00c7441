"""Jobs that ask for the emptiest second, defined on real Postgres by several at a time."""

import asyncio
from collections import Counter
from math import ceil
from secrets import token_bytes
from typing import Any

import psycopg

from commandside.commands.asked import Done, Sent
from commandside.commands.calendars import TenantCalendars
from commandside.commands.jobs import Jobs
from commandside.commands.payloads import Payloads
from commandside.commands.secret_keeper import SecretKeeper
from commandside.definitions.definition import Bounds, Definitions
from domain.opaque import POSITION, Seal
from domain.schedule import zone
from domain.tenant import SCOPES, Caller
from infra.clock import DatabaseClock, wall_ms
from infra.faults import NoFaults
from infra.ics import read_ics
from infra.memory.calendars import MemoryCalendars
from infra.memory.payloads import MemoryPayloadList, MemoryPayloadStore
from infra.memory.secret_store import MemorySecretStore
from infra.memory.vault import MemoryVault
from infra.postgres.command_log import PostgresCommandLog

JOBS = 240
WINDOW_S = 30
BODY: dict[str, Any] = {
    "type": "recurring",
    "schedule": "0 0 1 1 *",
    "timezone": "UTC",
    "target": {"kind": "http", "url": "https://hooks.example.com/"},
    "jitter_s": WINDOW_S - 1,
    "placement": "emptiest",
}


def test_definitions_side_by_side_fill_the_window_evenly(log_database: str) -> None:
    async def define() -> None:
        log = PostgresCommandLog(log_database, DatabaseClock())
        await log.start()
        jobs = Jobs(
            log,
            MemoryVault(),
            SecretKeeper(MemorySecretStore(wall_ms)),
            Definitions(Bounds()),
            TenantCalendars(MemoryCalendars(wall_ms), log, read_ics, wall_ms),
            Payloads(MemoryPayloadStore(), MemoryPayloadList(wall_ms), NoFaults()),
            now=wall_ms,
            new_id=token_bytes,
            positions=Seal(bytes(32), POSITION),
            zone_data=zone.VERSION,
        )
        caller = Caller(b"t" * 16, "kid", SCOPES)
        try:
            groups = [
                [Sent(BODY, None, b"%d %d" % (group, n)) for n in range(JOBS // 8)]
                for group in range(8)
            ]
            made = await asyncio.gather(*(jobs.define_all(caller, group) for group in groups))
            assert all(isinstance(done, Done) for group in made for done in group)
        finally:
            await log.close()

    asyncio.run(define())
    with psycopg.connect(log_database) as connection:
        rows = connection.execute("select due_at from due_index").fetchall()
    seconds = Counter(due_at // 1_000 for (due_at,) in rows)
    assert seconds.total() == JOBS
    assert max(seconds.values()) <= ceil(JOBS / WINDOW_S) + 1
