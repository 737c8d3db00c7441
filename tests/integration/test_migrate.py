"""What is asked of a schema before it is there."""

from contextlib import closing

import psycopg
import pytest

from commandside.commands.callback_reactor import VIEW
from infra.postgres.migrate import MigrationError, installed, migrate, migrations, pending
from infra.postgres.views import PostgresPositions


def test_a_database_without_a_schema_waits_for_every_file_and_is_left_as_it_is(
    database: str,
) -> None:
    assert pending(database) == [migration.name for migration in migrations()]
    with psycopg.connect(database) as connection:
        tables = "select count(*) from pg_tables where schemaname = 'public'"
        assert connection.execute(tables).fetchone() == (0,)


def test_a_role_on_a_database_without_a_schema_is_told_to_migrate(database: str) -> None:
    with pytest.raises(MigrationError, match="tocsin migrate"):
        installed(database)


def test_a_log_of_before_there_were_callbacks_is_not_read_for_them(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [each for each in migrations() if each.name < "0011"]
    with monkeypatch.context() as older:
        older.setattr("infra.postgres.migrate.migrations", lambda: before)
        migrate(database)
    with psycopg.connect(database) as connection:
        connection.execute(
            "insert into events select gen_random_uuid(), 1, n % 2, n, 'run.fired.v1', ''"
            " from generate_series(1, 9) n"
        )
    assert migrate(database)[0] == "0011_callbacks.sql"
    with closing(PostgresPositions(database)) as positions:
        assert positions.load(VIEW) == {0: 8, 1: 9}
