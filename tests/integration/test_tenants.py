"""Tenants and keys on a real Postgres."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from commandside.keys import KeyRing
from domain.tenant import JOBS_READ, SCOPES, Caller
from infra.clock import wall_ms
from infra.postgres.tenants import PostgresKeys, TenantError, Tenants
from infra.vault import MasterKeyError, TenantVault, check_master, master_key, pepper


@pytest.fixture
def master(tmp_path: Path) -> bytes:
    return master_key(tmp_path / "master.key", create=True)


@pytest.fixture
def tenants(log_database: str, master: bytes) -> Iterator[Tenants]:
    with closing(Tenants(log_database, master)) as found:
        yield found


def caller(conninfo: str, master: bytes, authorization: str) -> Caller | None:
    async def ask() -> Caller | None:
        keys = PostgresKeys(conninfo)
        await keys.start()
        try:
            ring = KeyRing(keys, pepper(master), wall_ms)
            return await ring.caller(authorization)
        finally:
            await keys.close()

    return asyncio.run(ask())


def test_a_key_lets_its_tenant_in_with_its_scopes(
    tenants: Tenants, log_database: str, master: bytes
) -> None:
    key = tenants.create_key("acme", scopes=(JOBS_READ,))
    found = caller(log_database, master, f"Bearer {key}")
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


def test_a_revoked_key_lets_nobody_in(tenants: Tenants, log_database: str, master: bytes) -> None:
    key = tenants.create_key("acme")
    assert tenants.revoke(key.split("_")[2])
    assert caller(log_database, master, f"Bearer {key}") is None
    assert [listed.revoked_at is not None for listed in tenants.listed()] == [True]


def test_another_secret_under_a_known_id_lets_nobody_in(
    tenants: Tenants, log_database: str, master: bytes
) -> None:
    first, second = tenants.create_key("acme"), tenants.create_key("acme")
    forged = "_".join((*first.split("_")[:3], *second.split("_")[3:]))
    assert caller(log_database, master, f"Bearer {forged}") is None


def test_making_a_tenant_twice_keeps_its_encryption_key(
    tenants: Tenants, log_database: str, master: bytes
) -> None:
    tenant = tenants.ensure("acme")
    with closing(TenantVault(log_database, master)) as vault:
        sealed = vault.seal(tenant, bytes(16), b"plain")
    assert tenants.ensure("acme") == tenant
    with closing(TenantVault(log_database, master)) as vault:
        assert vault.open(tenant, bytes(16), sealed) == b"plain"


def test_a_master_key_in_no_folder_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(MasterKeyError, match=r"No such file.*keys\.master_file"):
        master_key(tmp_path / "nowhere" / "master.key", create=True)


def test_a_master_key_that_the_keys_are_not_under_is_refused(
    tenants: Tenants, log_database: str, master: bytes
) -> None:
    check_master(log_database, bytes(32))  # nothing is under any key yet
    tenants.ensure("acme")
    check_master(log_database, master)
    with pytest.raises(MasterKeyError, match=r"keys\.master_file"):
        check_master(log_database, bytes(32))


def test_an_unknown_scope_is_refused_by_name(tenants: Tenants) -> None:
    with pytest.raises(TenantError, match="jobs:delete"):
        tenants.create_key("acme", scopes=("jobs:delete", SCOPES[0]))
