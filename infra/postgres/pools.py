"""Pools of connections for threads that ask now and then, off the hot path."""

from typing import Final

import psycopg
from psycopg.rows import TupleRow
from psycopg_pool import ConnectionPool

from infra.postgres.connection import STATEMENT_TIMEOUT_MS, parameters

WAIT_S: Final = 3.0
"""Whoever finds all connections taken waits so long for one."""
IDLE_S: Final = 60.0


def lazy_pool(
    conninfo: str,
    name: str,
    connections_max: int,
    statement_timeout_ms: int = STATEMENT_TIMEOUT_MS,
) -> ConnectionPool[psycopg.Connection[TupleRow]]:
    """Return a closed pool: once it is opened, it connects with the first question."""
    return ConnectionPool(
        parameters(conninfo, name, statement_timeout_ms),
        kwargs={"autocommit": True},
        min_size=0,
        max_size=connections_max,
        timeout=WAIT_S,
        max_idle=IDLE_S,
        open=False,
        check=ConnectionPool.check_connection,
        name=name,
    )
