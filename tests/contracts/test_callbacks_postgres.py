"""Callbacks in a real Postgres keep the contract."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from commandside.ports import Unavailable, Vault
from domain.envelope import Decision
from infra.ids import new_secret
from infra.keys.masters import one_master
from infra.keys.wrapping import tenant_context, unlock
from infra.postgres.callback_defaults import ALONE, PostgresCallbackDefaults
from infra.postgres.callback_log import PostgresCallbackLog
from infra.postgres.due_index import PostgresDueIndex
from infra.postgres.feed import PostgresFeed
from infra.vault import TenantVault
from tests.contracts.callbacks import OTHER, CallbacksContract
from tests.contracts.jobs import TENANT
from tests.engines.databases import SHARDS


class OnPostgres:
    """All of it on one database."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._wrapping = unlock(conninfo, one_master(bytes(range(32)))).wrapping
        self.shards = SHARDS
        self.feed = PostgresFeed(conninfo, SHARDS)
        self.defaults = PostgresCallbackDefaults(conninfo)
        self.log = PostgresCallbackLog(conninfo, SHARDS)
        self._vaults = [TenantVault(conninfo, self._wrapping)]
        self._index = PostgresDueIndex(conninfo, SHARDS)
        with psycopg.connect(conninfo) as connection:
            number = self._wrapping.newest(connection)
            for tenant_id, name in ((TENANT, "acme"), (OTHER, "other")):
                context = tenant_context(tenant_id, 1)
                wrapped = self._wrapping.wrap(connection, number, new_secret(), context)
                connection.execute(
                    "insert into tenants values (%s, %s, tocsin_now())", (tenant_id.hex(), name)
                )
                connection.execute(
                    "insert into tenant_keys values (%s, 1, %s, tocsin_now(), %s)",
                    (tenant_id.hex(), wrapped, number),
                )

    @property
    def vault(self) -> Vault:
        return self._vaults[-1]

    def now(self) -> int:
        with psycopg.connect(self._conninfo) as connection:
            found = connection.execute("select tocsin_now()").fetchone()
        assert found is not None
        return int(found[0])

    def tick(self) -> None:
        before = self.now()
        while self.now() == before:
            pass

    def append(self, decision: Decision) -> None:
        assert self._index.append([decision], self.now() + 5_000) == [True]

    def destroy(self, tenant_id: bytes) -> None:
        with psycopg.connect(self._conninfo) as connection:
            connection.execute("delete from tenant_keys where tenant_id = %s", (tenant_id.hex(),))
        # A process that has used the key keeps it: another one finds it gone.
        self._vaults.append(TenantVault(self._conninfo, self._wrapping))

    def close(self) -> None:
        for vault in self._vaults:
            vault.close()
        for port in (self.feed, self.defaults, self.log, self._index):
            port.close()


@pytest.fixture
def bench(log_database: str) -> Iterator[OnPostgres]:
    found = OnPostgres(log_database)
    yield found
    found.close()


class TestPostgresCallbacks(CallbacksContract):
    pass


def test_a_postgres_that_does_not_answer_is_unavailable() -> None:
    nowhere = "host=127.0.0.1 port=1 dbname=x"
    with pytest.raises(Unavailable):
        PostgresCallbackLog(nowhere, SHARDS).concerned([TENANT], [])
    with pytest.raises(Unavailable):
        asyncio.run(PostgresCallbackDefaults(nowhere).current(TENANT))


_WAITS = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
PATIENCE_S = 10


def test_the_first_default_is_seen_by_whoever_reads_an_end_after_it(
    bench: OnPostgres, log_database: str
) -> None:
    """Its instant is taken before its commit: an end in between must not be passed over."""
    putting = psycopg.connect(log_database)
    watching = psycopg.connect(log_database, autocommit=True)
    with putting, watching, ThreadPoolExecutor(2) as readers:
        putting.execute(ALONE)
        putting.execute(
            "insert into callback_defaults (tenant_id, version, content, at, actor)"
            " values (%s, 1, '\\x90', tocsin_now(), 'k')",
            (TENANT.hex(),),
        )
        other = PostgresCallbackLog(log_database, SHARDS)
        in_use = readers.submit(bench.log.in_use)
        concerned = readers.submit(other.concerned, [TENANT, OTHER], [])
        until = time.monotonic() + PATIENCE_S
        while not (in_use.done() or concerned.done()) and time.monotonic() < until:
            (waiting,) = watching.execute(_WAITS).fetchone() or (0,)
            if waiting == 2:
                break
        putting.commit()
        assert in_use.result()
        assert concerned.result() == ({TENANT}, set())
        other.close()
