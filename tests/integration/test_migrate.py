"""What is asked of a schema before it is there."""

import psycopg
import pytest

from infra.postgres.migrate import MigrationError, installed, migrations, pending


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
