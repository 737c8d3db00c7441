"""The one migration runner: numbered SQL files, forward only, checksummed, under an advisory lock.

Each file commits in a transaction of its own together with its row in `migrations`, so a crash
between two files, or within one, is mended by running again.
"""

import hashlib
import re
from importlib import resources
from typing import Final

import msgspec
import psycopg

from domain.schedule import zone
from infra.postgres.connection import connect

LOCK_KEY: Final = 7_001
LOCK_TIMEOUT_MS: Final = 30_000
STATEMENT_TIMEOUT_MS: Final = 600_000
_FILE: Final = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")

_TABLE: Final = """
create table if not exists migrations (
    number int primary key, name text not null, checksum text not null,
    applied_at timestamptz not null default clock_timestamp()
)
"""
_APPLIED: Final = "select number, name, checksum from migrations order by number"
_RECORD: Final = "insert into migrations (number, name, checksum) values (%s, %s, %s)"

# Every value of synchronous_commit but off waits for the local disk. A server that hides one of the
# three is believed: nothing can be known of it.
_DURABILITY: Final = """
select name, setting from pg_settings
where name in ('synchronous_commit', 'fsync', 'full_page_writes') and setting = 'off'
order by name
"""
_INSTALL: Final = """
insert into installation (id, shards, partitions, zone_data) values (%s, %s, %s, %s)
on conflict (only_row) do update
    set zone_data = coalesce(installation.zone_data, excluded.zone_data)
returning id, shards, partitions, zone_data
"""
_SHARDS: Final = """
insert into shards (shard) select s from generate_series(0, %s - 1) s
where not exists (select from shards where shard = s)
"""


class MigrationError(Exception):
    """The schema is not what this version of Tocsin can bring forward; the text says why."""


class DurabilityError(Exception):
    """Postgres is set up so that a commit can be lost; the text names the settings."""


class Migration(msgspec.Struct, frozen=True):
    """One numbered file. `checksum` is the SHA-256 of its bytes."""

    number: int
    name: str
    sql: str
    checksum: str


class Installation(msgspec.Struct, frozen=True):
    """What is fixed when Tocsin is installed, and the zone data that it plans with now."""

    id: bytes
    shards: int
    partitions: int
    zone_data: str


def migrations() -> list[Migration]:
    """Return the files of this version, ascending. Asserts numbers 1, 2, 3 … without a hole."""
    found = []
    for file in resources.files("infra.postgres").joinpath("migrations").iterdir():
        match = _FILE.fullmatch(file.name)
        if match:
            text = file.read_text(encoding="utf-8")
            checksum = hashlib.sha256(text.encode()).hexdigest()
            found.append(Migration(int(match[1]), file.name, text, checksum))
    found.sort(key=lambda m: m.number)
    assert [m.number for m in found] == list(range(1, len(found) + 1)), (
        "migration numbers have a hole"
    )
    return found


def migrate(conninfo: str) -> list[str]:
    """Bring the schema forward and return the names of the files applied now.

    Raises MigrationError for a file changed after it was applied, or a schema newer than this
    version; Unavailable where Postgres cannot be reached.
    """
    with connect(conninfo, statement_timeout_ms=STATEMENT_TIMEOUT_MS) as connection:
        connection.execute(
            "select set_config('lock_timeout', %s, false)", (f"{LOCK_TIMEOUT_MS}ms",)
        )
        connection.execute("select pg_advisory_lock(%s)", (LOCK_KEY,))
        connection.execute(_TABLE)
        done = _verified(connection)
        applied = []
        for migration in migrations():
            if migration.number in done:
                continue
            with connection.transaction():
                connection.execute(migration.sql.encode())
                connection.execute(_RECORD, (migration.number, migration.name, migration.checksum))
            applied.append(migration.name)
        return applied


def pending(conninfo: str) -> list[str]:
    """Return the names of files that `migrate` would apply; changes nothing."""
    with connect(conninfo) as connection:
        done = _verified(connection) if _exists(connection) else set()
        return [m.name for m in migrations() if m.number not in done]


def install(conninfo: str, new_id: bytes, shards: int, partitions: int) -> Installation:
    """Fix shards and partitions on the first call, and return what was fixed then."""
    with connect(conninfo) as connection, connection.transaction():
        values = (new_id.hex(), shards, partitions, zone.VERSION)
        row = connection.execute(_INSTALL, values).fetchone()
        assert row is not None
        connection.execute(_SHARDS, (row[1],))
        return Installation(row[0].bytes, *row[1:])


def change_zone_data(conninfo: str) -> None:
    """Let the installation plan with this process' zone data: nodes with others stop planning."""
    with connect(conninfo) as connection:
        connection.execute("update installation set zone_data = %s", (zone.VERSION,))


def installed(conninfo: str) -> Installation:
    """Return what was fixed at installation; raises MigrationError where there is none.

    A schema that this version has still to bring forward counts as none.
    """
    waiting = pending(conninfo)
    if waiting:
        raise MigrationError(f"run `tocsin migrate` first: {', '.join(waiting)} to apply")
    with connect(conninfo) as connection:
        row = connection.execute(
            "select id, shards, partitions, coalesce(zone_data, %s) from installation",
            (zone.VERSION,),
        ).fetchone()
    if row is None:
        raise MigrationError("run `tocsin migrate` first: nothing is installed here")
    return Installation(row[0].bytes, *row[1:])


def check_durability(conninfo: str) -> None:
    """Refuse a Postgres that acknowledges what it may lose; raises DurabilityError."""
    with connect(conninfo) as connection:
        wrong = connection.execute(_DURABILITY).fetchall()
    if wrong:
        found = ", ".join(f"{name}={setting}" for name, setting in wrong)
        raise DurabilityError(
            f"Postgres runs with {found}: acknowledged jobs could be lost. Set "
            + ", ".join(f"{name}=on" for name, _ in wrong)
        )


def _exists(connection: psycopg.Connection) -> bool:
    row = connection.execute("select to_regclass('migrations') is not null").fetchone()
    return row is not None and bool(row[0])


def _verified(connection: psycopg.Connection) -> set[int]:
    """Return the numbers applied already, each compared with the file of this version."""
    files = {m.number: m for m in migrations()}
    done = set()
    for number, name, checksum in connection.execute(_APPLIED).fetchall():
        if number not in files:
            raise MigrationError(
                f"the schema has {name}, which this version does not know: it is newer;"
                " run the version of Tocsin that brought it forward, or a later one"
            )
        if files[number].checksum != checksum:
            raise MigrationError(f"{name} was changed after it had been applied; restore the file")
        done.add(number)
    return done
