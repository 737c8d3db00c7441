"""A fire log on real Postgres as tests drive it, and ways to hold it up or cut it off."""

import itertools
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import psycopg
import psycopg.conninfo

from commandside.ports import Lease, LogReply, LogRequest
from domain.run.state import Ready
from infra.postgres.fire_log import PostgresFireLog
from tests.contracts import jobs
from tests.contracts.fire_log import Desk

PATIENCE_S: Final = 60.0
WAIT_S: Final = 0.05
SHARDS: Final = 64
STRIPES: Final = 4


class Bench:
    """A log on Postgres, moved by waiting for its sockets; `mono_us` may run ahead."""

    def __init__(self, conninfo: str) -> None:
        self.ahead_us = 0
        self.log = PostgresFireLog(conninfo, STRIPES, SHARDS, self._mono_us)

    def rest(self) -> None:
        sockets = self.log.sockets()
        reads = [descriptor for descriptor, _ in sockets]
        writes = [descriptor for descriptor, writing in sockets if writing]
        select.select(reads, writes, (), WAIT_S)

    def reply(self) -> LogReply:
        """Return the one reply that comes."""
        deadline = time.monotonic() + PATIENCE_S
        while not (replies := self.log.poll()):
            assert time.monotonic() < deadline, "no reply"
            self.rest()
        (reply,) = replies
        return reply

    def send(self, request: LogRequest) -> None:
        """Send a request on the first stripe once that is idle."""
        self.until_idle(0)
        self.log.submit(0, request)

    def until_idle(self, stripe: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not self.log.idle(stripe):
            assert self.log.poll() == []
            assert time.monotonic() < deadline, "the stripe does not become idle"
            self.rest()

    def _mono_us(self) -> int:
        return time.monotonic_ns() // 1_000 + self.ahead_us


def until(look: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    pause = threading.Event()
    while not look():
        assert time.monotonic() < deadline, what
        pause.wait(0.005)


def one(connection: psycopg.Connection, query: str, *values: object) -> object:
    row = connection.execute(query.encode(), values).fetchone()
    assert row is not None
    return row[0]


@contextmanager
def locked(conninfo: str, shard: int = 0) -> Iterator[psycopg.Connection]:
    """Hold a shard's lock in an open transaction; leaving commits it."""
    with psycopg.connect(conninfo) as holder:
        holder.execute("select pg_advisory_xact_lock(7, %s)", (shard,))
        yield holder


def waits_for_a_lock(admin: psycopg.Connection) -> bool:
    query = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
    return one(admin, query) == 1


def lease_of(desk: Desk, run: Ready, *, expires_in_ms: int = 10_000) -> Lease:
    return Lease(desk.session, desk.nonce, [jobs.want(run)], desk.now() + expires_in_ms)


def cut(admin: psycopg.Connection) -> None:
    """End the backends of the log's stripes."""
    admin.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where application_name like 'tocsin fire log%' and datname = current_database()"
    )


class Proxy:
    """Stands before a Postgres socket; once `deaf`, the client hears nothing any more."""

    def __init__(self, conninfo: str) -> None:
        parts = psycopg.conninfo.conninfo_to_dict(conninfo)
        self._target = f"{parts['host']}/.s.PGSQL.{parts['port']}"
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.conninfo = psycopg.conninfo.make_conninfo(conninfo, host="127.0.0.1", port=port)
        self.deaf = False
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._end, self._ended = socket.socketpair()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._end.close()
        self._thread.join(PATIENCE_S)
        for open_socket in (self._listener, self._ended, *itertools.chain(*self._pairs)):
            open_socket.close()

    def cut(self) -> None:
        """Break every connection on the client's side."""
        for client, _ in self._pairs:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        pipes: dict[socket.socket, socket.socket] = {}
        while True:
            readable, _, _ = select.select([self._listener, self._ended, *pipes], [], [])
            if self._ended in readable:
                return
            for ready in readable:
                if ready is self._listener:
                    client, server = ready.accept()[0], socket.socket(socket.AF_UNIX)
                    server.connect(self._target)
                    self._pairs.append((client, server))
                    pipes |= {client: server, server: client}
                elif ready in pipes:
                    self._pass_on(ready, pipes)

    def _pass_on(self, source: socket.socket, pipes: dict[socket.socket, socket.socket]) -> None:
        # Either side may be gone already: a connection that is cut ends both ways.
        try:
            data = source.recv(65_536)
            if data and not (self.deaf and source.family == socket.AF_UNIX):
                pipes[source].sendall(data)
        except OSError:
            data = b""
        if not data:
            with suppress(OSError):
                pipes[source].shutdown(socket.SHUT_WR)
            del pipes[source]


def hex_of(run: Ready) -> str:
    return run.facts.run_id.hex()
