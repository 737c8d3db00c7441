"""Fresh, migrated databases on one real Postgres, each made from a template in milliseconds."""

import itertools
from typing import Final

import psycopg
from psycopg.conninfo import make_conninfo

from infra.embedded.postgres import EmbeddedPostgres
from infra.postgres.migrate import install, migrate

SHARDS: Final = 64
PARTITIONS: Final = 16
TEMPLATE: Final = "tocsin_template"


class Databases:
    """Hands out databases of one server."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        """Migrate the template."""
        self.server = server
        self._numbers = itertools.count(1)
        self._admin(f"create database {TEMPLATE}")
        template = make_conninfo(server.conninfo, dbname=TEMPLATE)
        migrate(template)
        install(template, bytes(16), SHARDS, PARTITIONS)

    def fresh(self) -> str:
        """Return the connection string of a new, migrated, empty database."""
        name = f"test_{next(self._numbers)}"
        self._admin(f"create database {name} template {TEMPLATE}")
        return make_conninfo(self.server.conninfo, dbname=name)

    def drop(self, conninfo: str) -> None:
        """Drop a database, whoever is still connected."""
        name = psycopg.conninfo.conninfo_to_dict(conninfo)["dbname"]
        self._admin(f"drop database {name} with (force)")

    def _admin(self, statement: str) -> None:
        with psycopg.connect(self.server.conninfo, autocommit=True) as connection:
            connection.execute(statement.encode())
