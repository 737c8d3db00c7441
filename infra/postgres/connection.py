"""Plain connections for statements off the hot path: bounded, autocommit, named."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
from psycopg.conninfo import make_conninfo

from commandside.ports import Unavailable

CONNECT_TIMEOUT_S: Final = 5
STATEMENT_TIMEOUT_MS: Final = 10_000
LOCK_TIMEOUT_MS: Final = 2_000
IDLE_TIMEOUT_MS: Final = 10_000
TCP_USER_TIMEOUT_MS: Final = 8_000
"""Below the session's length: a peer that is gone is noticed before its leases are."""


def parameters(conninfo: str, name: str, statement_timeout_ms: int = STATEMENT_TIMEOUT_MS) -> str:
    """Return `conninfo` with every bound that a connection of ours has."""
    options = (
        f"-c statement_timeout={statement_timeout_ms} -c lock_timeout={LOCK_TIMEOUT_MS}"
        f" -c idle_in_transaction_session_timeout={IDLE_TIMEOUT_MS}"
        " -c plan_cache_mode=force_generic_plan -c jit=off -c timezone=UTC"
        " -c client_min_messages=warning"
        # A plan made while a table was small is kept until it is analyzed, whatever it holds then.
        " -c enable_seqscan=off"
    )
    try:
        return make_conninfo(
            conninfo,
            connect_timeout=CONNECT_TIMEOUT_S,
            application_name=f"tocsin {name}",
            options=options,
            keepalives_idle=5,
            keepalives_interval=2,
            keepalives_count=2,
            tcp_user_timeout=TCP_USER_TIMEOUT_MS,
        )
    except psycopg.ProgrammingError:
        # What libpq says of it quotes it, and there may be a password in it.
        raise Unavailable(
            "Postgres: postgres.url cannot be read; it is like host=db dbname=tocsin user=tocsin,"
            " or postgresql://tocsin@db/tocsin"
        ) from None


@contextmanager
def connect(
    conninfo: str, *, name: str = "admin", statement_timeout_ms: int = STATEMENT_TIMEOUT_MS
) -> Iterator[psycopg.Connection]:
    """Open an autocommit connection; raises Unavailable where Postgres cannot be reached."""
    with translated():
        connection = psycopg.connect(
            parameters(conninfo, name, statement_timeout_ms), autocommit=True
        )
    with connection, translated():
        yield connection


@contextmanager
def translated() -> Iterator[None]:
    """Raise Unavailable for what the driver says when Postgres is away, busy or restarting."""
    try:
        yield
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        raise Unavailable(f"Postgres: {str(error).strip() or type(error).__name__}") from error


class Reconnecting:
    """One connection that is opened when it is needed, and again after it was lost."""

    def __init__(self, conninfo: str, name: str) -> None:
        """Remember where to connect; nothing happens before the first use."""
        self._conninfo = parameters(conninfo, name)
        self._connection: psycopg.Connection | None = None

    @contextmanager
    def use(self) -> Iterator[psycopg.Connection]:
        """Lend the connection; raises Unavailable, and drops it when it broke."""
        with translated():
            if self._connection is None or self._connection.closed:
                self._connection = psycopg.connect(self._conninfo, autocommit=True)
            try:
                yield self._connection
            except (psycopg.OperationalError, psycopg.InterfaceError):
                self.close()
                raise

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
