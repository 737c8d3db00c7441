"""A wire whose caller waits: plain calls for roles that do one thing at a time."""

import time
from collections.abc import Mapping, Sequence
from typing import Final

from commandside.ports import Unavailable
from infra.postgres import append
from infra.postgres.connection import parameters
from infra.postgres.wire import REPLY_TIMEOUT_US, Broken, Replied, Statement, Wire
from infra.waiting import wait

CALL_TIMEOUT_US: Final = REPLY_TIMEOUT_US + 5_000_000
"""Connecting included; the wire's own bounds end a call before this one does."""
WAIT_MAX_US: Final = 50_000
"""Longest wait in one go: a connection in the making changes its socket."""


class BlockingWire:
    """One connection; a call returns its row, and nothing is outstanding between two calls."""

    def __init__(self, conninfo: str, name: str, statements: Mapping[str, str]) -> None:
        """Remember where to connect; the first call does."""
        self._wire = Wire(parameters(conninfo, name), append.SETTINGS, statements)

    def call(self, request: Sequence[Statement]) -> tuple[bytes | None, ...]:
        """Send a request, as one transaction, and return the row of its last statement.

        Raises Unavailable where it failed or its outcome is unknown: whatever is sent here is
        guarded, so deciding it again is right in both cases. Raises LogCorrupt for a bug.
        """
        deadline_us = _now_us() + CALL_TIMEOUT_US
        self._connected(deadline_us)
        self._wire.send(request, _now_us())
        while True:
            outcome = self._wire.poll(_now_us())
            if isinstance(outcome, Replied):
                return outcome.row
            if isinstance(outcome, Broken):
                if outcome.sqlstate in append.BUGS:
                    raise append.LogCorrupt(outcome.detail)
                raise Unavailable(f"Postgres: {outcome.detail}")
            self._wait(deadline_us)

    def close(self) -> None:
        """Close the connection; a later call opens it again."""
        self._wire.close()

    def _connected(self, deadline_us: int) -> None:
        # One poll notices that an idle connection was lost, or starts a new one if that is due.
        self._wire.poll(_now_us())
        while not self._wire.idle:
            if self._wire.fileno() < 0:
                raise Unavailable(f"Postgres: {self._wire.detail}")
            self._wait(deadline_us)
            self._wire.poll(_now_us())

    def _wait(self, deadline_us: int) -> None:
        if _now_us() >= deadline_us:
            self._wire.close()
            raise Unavailable("Postgres: no reply within the deadline")
        socket = self._wire.fileno()
        if socket >= 0:
            writes = [socket] if self._wire.wants_write else []
            wait([socket], writes, WAIT_MAX_US)


def _now_us() -> int:
    return time.monotonic_ns() // 1_000
