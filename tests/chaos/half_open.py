"""Peers that are gone without a word: run in a network namespace whose loopback turns into a hole.

Prints what came of it as JSON: of a connection to Postgres, and of one to a target.
"""

import subprocess
import sys
import time
from typing import Final

import msgspec
import psycopg

from infra.postgres.connection import parameters
from tests.chaos.wire import Wire, wired
from tests.engines.name_server import NameServer
from tests.engines.proxy import TcpProxy
from tests.engines.sink import TargetServer

LOOPBACK: Final = ("local", "127.0.0.0/8", "dev", "lo", "table", "local")


class Report(msgspec.Struct):
    """What was seen."""

    before: int
    error: str
    seconds: float
    target_before: int
    target_error: str
    target_after: int
    connections: int


def route(verb: str, *words: str) -> None:
    subprocess.run(["ip", "route", verb, *words], check=True, capture_output=True)


def hole() -> None:
    """Let every packet to loopback vanish."""
    route("del", *LOOPBACK)
    route("add", "blackhole", "127.0.0.0/8")


def heal() -> None:
    route("del", "blackhole", "127.0.0.0/8")
    route("add", *LOOPBACK)


def ask(conninfo: str) -> tuple[int, str, float]:
    """Ask before and after the peer is gone; return the answer, the error, and its seconds."""
    with psycopg.connect(parameters(conninfo, "half-open"), autocommit=True) as link:
        row = link.execute("select 41 + 1").fetchone()
        assert row is not None
        hole()
        began = time.monotonic()
        try:
            link.execute("select 1")
        except psycopg.OperationalError as error:
            return row[0], str(error), time.monotonic() - began
        finally:
            heal()
    return row[0], "", 0.0


def call(wire: Wire) -> tuple[int, str, int]:
    """Call before, while and after the target is gone."""
    before = wire.hit().status
    hole()
    gone = wire.hit(timeout_ms=1_000)
    heal()
    return before, gone.error, wire.hit("/after").status


def main() -> None:
    """Run both."""
    # One route less to take away, each time.
    route("del", "local", "127.0.0.1", "dev", "lo", "table", "local")
    with TcpProxy(sys.argv[1]) as proxy:
        conninfo = f"{sys.argv[2]} host=127.0.0.1 port={proxy.port}"
        before, error, seconds = ask(conninfo)
    with TargetServer() as sink, NameServer() as names, wired(sink, names) as wire:
        report = Report(before, error, seconds, *call(wire), sink.connections)
    sys.stdout.buffer.write(msgspec.json.encode(report))


if __name__ == "__main__":
    main()
