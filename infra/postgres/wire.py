"""One Postgres connection below the driver: pipelined, non-blocking, all parameters binary.

A request is a few prepared statements and one Sync, hence one implicit transaction and one round
trip. The owner polls; nothing here waits or sleeps. States:

    DOWN ─retry is due─► CONNECTING ─► PREPARING ─► IDLE ─send─► BUSY ─replies─► IDLE
      ▲                      │             │          │            │
      └───── failure, deadline or broken socket ──────┴────────────┘

What is known after a failure: an error with a severity of ERROR, or a break before the last byte
was handed to the kernel, proves that nothing was committed. A break after that, or a FATAL (which
may follow the commit), leaves the outcome unknown.
"""

import select
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import psycopg
from psycopg import pq

CONNECT_TIMEOUT_US: Final = 5_000_000
PREPARE_TIMEOUT_US: Final = 10_000_000
REPLY_TIMEOUT_US: Final = 15_000_000
"""Above the statement timeout: past it the socket is taken for dead."""
RETRY_MIN_US: Final = 50_000
RETRY_MAX_US: Final = 2_000_000
RESULTS_PER_POLL: Final = 4_096
"""Results read in one poll; a request has at most one for each statement and the Sync."""

DOWN, CONNECTING, PREPARING, IDLE, BUSY = range(5)

Statement = tuple[str, Sequence[bytes]]
"""Name of a prepared statement, and its parameters in binary."""


class Replied(msgspec.Struct, frozen=True):
    """The request is committed. `row`: the only row of its last statement; empty without one."""

    row: tuple[bytes | None, ...]


class Broken(msgspec.Struct, frozen=True):
    """The request failed. `unknown`: it may be committed. `sqlstate` is empty for a lost socket."""

    unknown: bool
    sqlstate: str
    detail: str


class Wire:
    """One connection that mends itself. `now_us` is the caller's monotonic clock throughout."""

    def __init__(self, conninfo: str, settings: str, statements: Mapping[str, str]) -> None:
        """Remember where to connect and what to prepare; `settings` is run first, once."""
        self._conninfo = conninfo.encode()
        self._settings = settings.encode()
        self._statements = {name.encode(): sql.encode() for name, sql in statements.items()}
        self._names = {name: name.encode() for name in statements}
        self._pg: pq.abc.PGconn | None = None
        self._phase = DOWN
        self._deadline_us = 0
        self._retry_us = 0
        self._backoff_us = RETRY_MIN_US
        self._unsent = False
        self._connect_events = select.POLLOUT
        self._row: tuple[bytes | None, ...] = ()
        self._error: Broken | None = None
        self.detail = "not connected yet"
        """Why the connection is down, for people."""

    @property
    def idle(self) -> bool:
        """Whether a request can be sent now."""
        return self._phase == IDLE

    def fileno(self) -> int:
        """The socket, or -1 while there is none."""
        if self._pg is None or self._phase == DOWN:
            return -1
        try:
            return self._pg.socket
        except psycopg.OperationalError:
            # It broke in `send`; the next `poll` finds that out and says so.
            return -1

    @property
    def wants_write(self) -> bool:
        """Whether to wait for room to write as well."""
        if self._phase == CONNECTING:
            return self._connect_events == select.POLLOUT
        return self._unsent

    def send(self, request: Sequence[Statement], now_us: int) -> None:
        """Send a request; its outcome comes from `poll`. The connection must be idle.

        A connection that breaks here is seen by the next `poll`, with what is known of the request.
        """
        assert self._phase == IDLE
        assert self._pg is not None
        self._phase = BUSY
        self._deadline_us = now_us + REPLY_TIMEOUT_US
        self._row, self._error = (), None
        self._unsent = True
        try:
            for name, parameters in request:
                self._pg.send_query_prepared(
                    self._names[name],
                    parameters,
                    param_formats=(pq.Format.BINARY,) * len(parameters),
                    result_format=pq.Format.BINARY,
                )
            self._pg.pipeline_sync()
            self._flush()
        except psycopg.Error as error:
            # No Sync has left, or poll would find the socket closed and not know whether it had.
            self._error = Broken(not self._unsent, "", _text(error))

    def poll(self, now_us: int) -> Replied | Broken | None:
        """Move on as far as possible without waiting; return the outcome of the request sent."""
        if self._phase == DOWN:
            if now_us >= self._retry_us:
                self._connect(now_us)
            return None
        if self._phase == CONNECTING:
            self._connecting(now_us)
            return None
        try:
            done = self._read()
        except psycopg.Error as broken:
            return self._lost(_text(broken), now_us)
        if not done:
            if self._phase != IDLE and now_us >= self._deadline_us:
                return self._lost("no reply within the deadline", now_us)
            return None
        if self._phase == PREPARING:
            if self._error is not None:
                self._lost(f"could not prepare: {self._error.detail}", now_us)
            else:
                self._phase, self._backoff_us = IDLE, RETRY_MIN_US
            return None
        self._phase = IDLE
        return self._error or Replied(self._row)

    def close(self) -> None:
        """Close the socket; nothing is sent to say so beyond what the protocol asks."""
        if self._pg is not None:
            self._pg.finish()
            self._pg = None
        self._phase = DOWN

    def _connect(self, now_us: int) -> None:
        self._pg = pq.PGconn.connect_start(self._conninfo)
        if self._pg.status == pq.ConnStatus.BAD:
            self._lost(self._pg.get_error_message(), now_us)
            return
        self._pg.nonblocking = 1
        self._phase = CONNECTING
        self._connect_events = select.POLLOUT
        self._deadline_us = now_us + CONNECT_TIMEOUT_US

    def _connecting(self, now_us: int) -> None:
        assert self._pg is not None
        # libpq wants its socket to be ready before each step; one step a poll is enough.
        ready = select.poll()
        ready.register(self._pg.socket, self._connect_events)
        if ready.poll(0):
            status = self._pg.connect_poll()
            if status == pq.PollingStatus.OK:
                self._prepare(now_us)
                return
            if status == pq.PollingStatus.FAILED:
                self._lost(self._pg.get_error_message(), now_us)
                return
            writing = status == pq.PollingStatus.WRITING
            self._connect_events = select.POLLOUT if writing else select.POLLIN
        if now_us >= self._deadline_us:
            self._lost("could not connect within the deadline", now_us)

    def _prepare(self, now_us: int) -> None:
        assert self._pg is not None
        self._phase = PREPARING
        self._deadline_us = now_us + PREPARE_TIMEOUT_US
        self._row, self._error = (), None
        self._unsent = True
        try:
            self._pg.enter_pipeline_mode()
            self._pg.send_query_params(self._settings, None)
            for name, sql in self._statements.items():
                self._pg.send_prepare(name, sql)
            self._pg.pipeline_sync()
            self._flush()
        except psycopg.Error as error:
            self._lost(_text(error), now_us)

    def _flush(self) -> None:
        assert self._pg is not None
        self._unsent = self._pg.flush() == 1

    def _read(self) -> bool:
        """Take in what has come; True once the Sync's own result is here."""
        assert self._pg is not None
        if self._unsent:
            self._flush()
        self._pg.consume_input()
        if self._phase == IDLE:
            if self._pg.status == pq.ConnStatus.BAD:
                raise psycopg.OperationalError(self._pg.get_error_message())
            return False
        for _ in range(RESULTS_PER_POLL):
            if self._pg.is_busy():
                return False
            result = self._pg.get_result()
            if result is None:
                # Between two statements; or, when the socket broke, instead of all to come.
                if self._pg.status == pq.ConnStatus.BAD:
                    raise psycopg.OperationalError(self._pg.get_error_message())
                continue
            status = result.status
            if status == pq.ExecStatus.PIPELINE_SYNC:
                return True
            if status == pq.ExecStatus.TUPLES_OK:
                # Of the last statement only: a lock has a row too, which is nobody's answer.
                fields = range(result.nfields) if result.ntuples == 1 else ()
                self._row = tuple(result.get_value(0, i) for i in fields)
            elif status == pq.ExecStatus.FATAL_ERROR and self._error is None:
                self._error = _failure(result)
        return False

    def _lost(self, detail: str, now_us: int) -> Broken | None:
        """Drop the connection; return what is known of an outstanding request."""
        busy = self._phase == BUSY
        failed, unsent = self._error, self._unsent
        self.close()
        self.detail = detail.strip()
        self._retry_us = now_us + self._backoff_us
        self._backoff_us = min(2 * self._backoff_us, RETRY_MAX_US)
        self._unsent = False
        if not busy:
            return None
        return failed or Broken(not unsent, "", self.detail)


def _failure(result: pq.abc.PGresult) -> Broken:
    def field(code: pq.DiagnosticField) -> str:
        return (result.error_field(code) or b"").decode(errors="replace")

    severity = field(pq.DiagnosticField.SEVERITY_NONLOCALIZED)
    sqlstate = field(pq.DiagnosticField.SQLSTATE)
    text = field(pq.DiagnosticField.MESSAGE_PRIMARY) or result.get_error_message()
    return Broken(severity != "ERROR", sqlstate, text)


def _text(error: Exception) -> str:
    return str(error).strip() or type(error).__name__
