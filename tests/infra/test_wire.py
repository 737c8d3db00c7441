"""What a wire says of a connection, step by step: libpq is played by a script."""

import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg import pq

from infra.postgres.wire import Replied, Wire


class Result:
    """One result as libpq hands it out."""

    def __init__(self, status: int, rows: tuple[tuple[bytes, ...], ...] = ()) -> None:
        self.status = status
        self.ntuples = len(rows)
        self.nfields = len(rows[0]) if rows else 0
        self._rows = rows

    def get_value(self, row: int, column: int) -> bytes:
        return self._rows[row][column]


SYNC = Result(pq.ExecStatus.PIPELINE_SYNC)


def rows(*values: tuple[bytes, ...]) -> Result:
    return Result(pq.ExecStatus.TUPLES_OK, values)


class Scripted:
    """A connection that is up at once, and answers what it was told to."""

    status = pq.ConnStatus.OK
    nonblocking = 0

    def __init__(self, near: socket.socket) -> None:
        self._near = near
        self.results: list[Result | None] = [SYNC]
        self.broken = False

    @property
    def socket(self) -> int:
        if self.broken:
            raise psycopg.OperationalError("the connection is lost")
        return self._near.fileno()

    def flush(self) -> int:
        if self.broken:
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return 0

    def connect_poll(self) -> int:
        return pq.PollingStatus.OK

    def get_result(self) -> Result | None:
        return self.results.pop(0)

    def is_busy(self) -> int:
        return not self.results

    def __getattr__(self, _name: str) -> Any:
        return lambda *_, **__: None


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripted]:
    near, far = socket.socketpair()
    with near, far:
        connection = Scripted(near)
        libpq = SimpleNamespace(connect_start=lambda _: connection)
        monkeypatch.setattr(pq, "PGconn", libpq)
        yield connection


@pytest.fixture
def wire(scripted: Scripted) -> Wire:
    found = Wire("", "select 1", {"lock": "select 1", "work": "select 1"})
    while not found.idle:
        assert found.poll(0) is None
    assert scripted.results == []
    return found


def test_the_row_of_a_lock_is_not_the_answer_of_a_statement_without_one(
    wire: Wire, scripted: Scripted
) -> None:
    wire.send([("lock", [b""]), ("work", [b""])], 0)
    scripted.results = [rows((b"",)), None, rows(), None, SYNC]

    assert wire.poll(0) == Replied(())


def test_the_row_of_the_last_statement_is_the_answer(wire: Wire, scripted: Scripted) -> None:
    wire.send([("lock", [b""]), ("work", [b""])], 0)
    scripted.results = [rows((b"",), (b"",)), None, rows((b"a", b"b")), None, SYNC]

    assert wire.poll(0) == Replied((b"a", b"b"))


def test_a_connection_that_breaks_while_it_is_written_to_has_no_socket(
    wire: Wire, scripted: Scripted
) -> None:
    scripted.broken = True
    wire.send([("work", [b""])], 0)

    assert wire.fileno() == -1
