"""Tenants and keys on a real Postgres."""

import asyncio
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from commandside.commands.keys import KeyRing
from domain.tenant import JOBS_READ, SCOPES, Caller
from infra.clock import wall_ms
from infra.keys.masters import one_master
from infra.keys.wrapping import Unlocked, unlock
from infra.postgres.tenants import PostgresKeys, TenantError, Tenants
from infra.vault import TenantVault, pepper


@pytest.fixture
def keys(log_database: str) -> Unlocked:
    return unlock(log_database, one_master(bytes(range(32))))


@pytest.fixture
def tenants(log_database: str, keys: Unlocked) -> Iterator[Tenants]:
    with closing(Tenants(log_database, keys)) as found:
        yield found


def caller(conninfo: str, keys: Unlocked, authorization: str) -> Caller | None:
    async def ask() -> Caller | None:
        stored = PostgresKeys(conninfo)
        await stored.start()
        try:
            ring = KeyRing(stored, pepper(keys.root), wall_ms)
            return await ring.caller(authorization)
        finally:
            await stored.close()

    return asyncio.run(ask())


def test_a_key_lets_its_tenant_in_with_its_scopes(
    tenants: Tenants, log_database: str, keys: Unlocked
) -> None:
    key = tenants.create_key("acme", scopes=(JOBS_READ,))
    found = caller(log_database, keys, f"Bearer {key}")
    assert found is not None
    assert (found.tenant_id, found.scopes) == (tenants.ensure("acme"), (JOBS_READ,))


def test_the_secret_of_a_key_is_nowhere_in_the_database(
    tenants: Tenants, log_database: str
) -> None:
    key = tenants.create_key("acme")
    secret = key.split("_")[3]
    with psycopg.connect(log_database) as connection:
        stored = str(connection.execute("select k::text from api_keys k").fetchall())
    assert key.split("_")[2] in stored
    assert secret not in stored


def test_a_revoked_key_lets_nobody_in(tenants: Tenants, log_database: str, keys: Unlocked) -> None:
    key = tenants.create_key("acme")
    assert tenants.revoke(key.split("_")[2])
    assert caller(log_database, keys, f"Bearer {key}") is None
    assert [listed.revoked_at is not None for listed in tenants.listed()] == [True]


def test_another_secret_under_a_known_id_lets_nobody_in(
    tenants: Tenants, log_database: str, keys: Unlocked
) -> None:
    first, second = tenants.create_key("acme"), tenants.create_key("acme")
    forged = "_".join((*first.split("_")[:3], *second.split("_")[3:]))
    assert caller(log_database, keys, f"Bearer {forged}") is None


def test_making_a_tenant_twice_keeps_its_encryption_key(
    tenants: Tenants, log_database: str, keys: Unlocked
) -> None:
    tenant = tenants.ensure("acme")
    with closing(TenantVault(log_database, keys.wrapping)) as vault:
        sealed = vault.seal(tenant, bytes(16), b"plain")
    assert tenants.ensure("acme") == tenant
    with closing(TenantVault(log_database, keys.wrapping)) as vault:
        assert vault.open(tenant, bytes(16), sealed) == b"plain"


def test_an_unknown_scope_is_refused_by_name(tenants: Tenants) -> None:
    with pytest.raises(TenantError, match="jobs:delete"):
        tenants.create_key("acme", scopes=("jobs:delete", SCOPES[0]))
