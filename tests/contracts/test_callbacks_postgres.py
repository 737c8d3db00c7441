"""Callbacks in a real Postgres keep the contract."""

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from commandside.ports import Unavailable, Vault
from domain.envelope import Decision
from infra.ids import new_secret
from infra.keys.masters import one_master
from infra.keys.wrapping import tenant_context, unlock
from infra.postgres.callback_defaults import PostgresCallbackDefaults
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
