"""The store of secrets in a real Postgres."""

import time
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from commandside.ports import KeyGone
from commandside.secret_port import SecretMissing
from infra.keys.masters import one_master
from infra.keys.wrapping import Unlocked, unlock
from infra.postgres.secret_store import PostgresSecretStore
from infra.postgres.tenants import Tenants
from infra.secret_ring import Ring
from tests.contracts.secret_store import SecretStoreContract


class TestPostgresSecretStore(SecretStoreContract):
    """In Postgres."""

    @pytest.fixture
    def keys(self, log_database: str) -> Unlocked:
        return unlock(log_database, one_master(bytes(range(32))))

    @pytest.fixture(autouse=True)
    def _tenants(self, log_database: str, keys: Unlocked) -> None:
        with closing(Tenants(log_database, keys)) as tenants:
            self.tenant, self.other = tenants.ensure("acme"), tenants.ensure("other")
        # A tenant has a key from the first; the suite begins without one.
        with psycopg.connect(log_database) as connection:
            connection.execute("delete from signing_keys")

    @pytest.fixture
    def store(self, log_database: str, keys: Unlocked) -> Iterator[PostgresSecretStore]:
        with closing(PostgresSecretStore(log_database, keys.wrapping)) as store:
            yield store

    @pytest.fixture
    def elsewhere(self, log_database: str, keys: Unlocked) -> Iterator[PostgresSecretStore]:
        with closing(PostgresSecretStore(log_database, keys.wrapping)) as store:
            yield store

    def now_s(self) -> int:
        return int(time.time())

    def test_no_secret_is_in_the_database_as_it_is(
        self, store: PostgresSecretStore, log_database: str
    ) -> None:
        store.put_secret(self.tenant, "crm", b"open sesame")
        with psycopg.connect(log_database) as connection:
            rows = connection.execute("select sealed from tenant_secrets").fetchall()
        assert rows
        assert all(b"sesame" not in bytes(sealed) for (sealed,) in rows)

    def test_calls_that_name_what_is_missing_do_not_ask_the_database_each(
        self,
        store: PostgresSecretStore,
        elsewhere: PostgresSecretStore,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A dispatcher waits for each question, and with it the calls of all tenants."""
        asked: list[bytes] = []
        opened = PostgresSecretStore._opened

        def counted(self: PostgresSecretStore, tenant_id: bytes) -> Ring:
            asked.append(tenant_id)
            return opened(self, tenant_id)

        monkeypatch.setattr(PostgresSecretStore, "_opened", counted)
        now = self.now_s()
        for _ in range(100):
            with pytest.raises(SecretMissing):
                store.value(self.tenant, "never", now)
        assert len(asked) <= 2
        elsewhere.put_secret(self.tenant, "never", b"x")
        assert store.value(self.tenant, "never", now + 1) == b"x"

    def test_the_end_of_the_tenants_key_is_the_end_of_its_secrets(
        self, store: PostgresSecretStore, elsewhere: PostgresSecretStore, log_database: str
    ) -> None:
        store.put_secret(self.tenant, "crm", b"open sesame")
        with psycopg.connect(log_database) as connection:
            connection.execute("delete from tenant_keys where tenant_id = %s", (self.tenant.hex(),))
        with pytest.raises(KeyGone):
            elsewhere.value(self.tenant, "crm", self.now_s())
