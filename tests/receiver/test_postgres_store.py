"""The store in Postgres, on the real one."""

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg_pool import ConnectionPool

from infra.embedded.postgres import EmbeddedPostgres
from tests.receiver.store_contract import FIRST, KEEP_MS, SECOND, THREADS, StoreContract
from tocsin_receiver import PostgresStore, one_connection
from tocsin_receiver.postgres_store import DDL


@pytest.fixture(scope="module")
def with_table(postgres: EmbeddedPostgres) -> str:
    """A database with the kit's table, for all tests of this module."""
    with psycopg.connect(postgres.conninfo, autocommit=True) as admin:
        admin.execute("create database tocsin_receiver")
    conninfo = make_conninfo(postgres.conninfo, dbname="tocsin_receiver")
    with psycopg.connect(conninfo) as connection:
        # Twice, as migrations may.
        connection.execute(DDL.encode())
        connection.execute(DDL.encode())
    return conninfo


@pytest.fixture
def prepared(with_table: str) -> str:
    """The database, with the table empty."""
    with psycopg.connect(with_table) as connection:
        connection.execute("truncate tocsin_deliveries")
    return with_table


class TestPostgresStoreOnAPool(StoreContract):
    @pytest.fixture
    def store(self, prepared: str) -> Iterator[PostgresStore]:
        with ConnectionPool(prepared, min_size=THREADS, max_size=THREADS) as pool:
            yield PostgresStore(pool.connection)

    def test_what_is_forgotten_is_taken_anew_and_purged(
        self, store: PostgresStore, prepared: str
    ) -> None:
        for key in ("a", "b", "c"):
            assert store.swap(key, None, FIRST, KEEP_MS)
        with psycopg.connect(prepared) as connection:
            # As if their time were over.
            connection.execute("update tocsin_deliveries set forget_at = now() where key <> 'c'")
        assert store.load("a") is None
        assert store.swap("a", None, SECOND, KEEP_MS)
        assert store.load("a") == SECOND
        assert (store.purge(), store.purge()) == (1, 0)
        assert store.load("c") == FIRST


class TestPostgresStoreOnOneConnection(StoreContract):
    @pytest.fixture(params=[False, True])
    def store(self, request: pytest.FixtureRequest, prepared: str) -> Iterator[PostgresStore]:
        with psycopg.connect(prepared, autocommit=request.param) as connection:
            yield PostgresStore(one_connection(connection))

    def test_an_error_leaves_the_connection_usable(self, store: PostgresStore) -> None:
        with pytest.raises(psycopg.DataError):
            store.load("nul\0")
        with pytest.raises(psycopg.errors.DatetimeFieldOverflow):
            store.swap("k", None, FIRST, 10**18)
        assert store.swap("k", None, FIRST, KEEP_MS)

    def test_a_change_is_committed_when_the_call_returns(
        self, store: PostgresStore, prepared: str
    ) -> None:
        assert store.swap("k", None, FIRST, KEEP_MS)
        with psycopg.connect(prepared) as other:
            assert PostgresStore(one_connection(other)).load("k") == FIRST
