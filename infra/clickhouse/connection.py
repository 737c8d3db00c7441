"""One client of ClickHouse's HTTP interface, made when it is needed, and what its errors mean."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import unquote, urlsplit

import clickhouse_connect
import msgspec
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import Error, OperationalError

from commandside.ports import Unavailable

CONNECT_TIMEOUT_S: Final = 5
REPLY_TIMEOUT_S: Final = 60
"""Longer than any statement of ours may run (`max_execution_time`), so the engine ends it first."""

_ABSENT: Final = frozenset((60, 81))
"""UNKNOWN_TABLE, UNKNOWN_DATABASE: the copy was lost; whoever writes it begins again."""
_AWAY: Final = frozenset(
    (
        159,  # TIMEOUT_EXCEEDED
        202,  # TOO_MANY_SIMULTANEOUS_QUERIES
        209,  # SOCKET_TIMEOUT
        210,  # NETWORK_ERROR
        236,  # ABORTED: it is shutting down
        241,  # MEMORY_LIMIT_EXCEEDED
        242,  # TABLE_IS_READ_ONLY
        243,  # NOT_ENOUGH_SPACE
        252,  # TOO_MANY_PARTS
        279,  # ALL_CONNECTION_TRIES_FAILED
        319,  # UNKNOWN_STATUS_OF_INSERT
        394,  # QUERY_WAS_CANCELLED
        516,  # AUTHENTICATION_FAILED: an operator is at it
        999,  # KEEPER_EXCEPTION
    )
)


class Address(msgspec.Struct, frozen=True):
    """Where ClickHouse is: the parts of an URL such as `https://user:password@host:8443`."""

    host: str
    port: int
    user: str = "default"
    password: str = ""
    secure: bool = False

    @staticmethod
    def of(url: str) -> "Address":
        """Return the parts of `url`; raises ValueError where it is not one of http or https."""
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("clickhouse.url must be http(s)://user:password@host:port")
        return Address(
            parts.hostname,
            parts.port or (8443 if secure else 8123),
            unquote(parts.username or "default"),
            unquote(parts.password or ""),
            secure,
        )


class Connection:
    """A client that is made at its first use; safe to share between threads."""

    def __init__(self, url: str) -> None:
        """Remember where to connect; raises Unavailable for an address that cannot be read."""
        try:
            self._address = Address.of(url)
        except ValueError:
            # Neither the address nor a part of it is said: there may be a password in it.
            raise Unavailable(
                "ClickHouse: clickhouse.url cannot be read; it is http(s)://user:password@host:port,"
                " with what is special in a password %-encoded"
            ) from None
        self._lock = threading.Lock()
        self._client: Client | None = None

    @contextmanager
    def use(self) -> Iterator[Client]:
        """Lend the client; raises Unavailable for an engine that is away, overloaded or empty."""
        try:
            yield self._connected()
        except OperationalError as error:
            raise Unavailable(f"ClickHouse: {_first_line(error)}") from error
        except Error as error:
            if error.code in _AWAY or error.code in _ABSENT:
                raise Unavailable(f"ClickHouse: {_first_line(error)}") from error
            raise

    def close(self) -> None:
        """Close the client, if there is one."""
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None

    def _connected(self) -> Client:
        with self._lock:
            if self._client is None:
                address = self._address
                self._client = clickhouse_connect.get_client(
                    host=address.host,
                    port=address.port,
                    username=address.user,
                    password=address.password,
                    secure=address.secure,
                    compress=False,  # loopback or a data centre's network: CPU is what is short
                    connect_timeout=CONNECT_TIMEOUT_S,
                    send_receive_timeout=REPLY_TIMEOUT_S,
                    query_retries=0,  # who calls decides what is tried again
                    # Sessions would forbid two calls at once, and none of ours needs one.
                    autogenerate_session_id=False,
                )
            return self._client


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
