"""The session of a process: its word that it lives, kept in the database, trusted by its own clock.

A lease needs two seconds of the session left, so no request starts after its end. The time left
is measured here from *before* the statement was sent: a process that slept learns of its end by
itself.
"""

from typing import Final

from commandside.ports import (
    SESSION_LEFT_MS,
    SESSION_MS,
    SESSION_RENEW_MS,
    DoneReply,
    End,
    Failed,
    FireLog,
    LogReply,
    NewId,
    Renew,
    Telemetry,
    Tick,
)
from domain.ids import SIZE

RETRY_US: Final = 500_000
"""Pause after a renewal that failed."""


class Session:
    """One process's session on the log's session stripe; at most one request outstanding."""

    def __init__(self, log: FireLog, new_id: NewId, telemetry: Telemetry) -> None:
        self._log, self._new_id, self._telemetry = log, new_id, telemetry
        self.id = new_id(SIZE)
        self._known = False
        self._trusted_until_us = 0
        self._next_us = 0
        self._ticket = 0
        self._sent_us = 0
        self._asked = self.id
        self._ending = False
        self.ended = False
        """Given up for good: `end` is done."""

    def may_lease(self, tick: Tick) -> bool:
        """Tell whether enough of the session is left, by our own clock, for a lease."""
        return self._known and tick.mono_us < self._trusted_until_us - SESSION_LEFT_MS * 1_000

    def keep(self, tick: Tick) -> None:
        """Start or renew the session when it is time."""
        if self._ticket or tick.mono_us < self._next_us or self._ending:
            return
        if self._log.idle(self._log.stripes):
            self._send(Renew(self.id, starts=not self._known), tick)

    def end(self, tick: Tick) -> None:
        """End the session, so that what it might still hold lapses at once."""
        if self._ending or self._ticket or not self._log.idle(self._log.stripes):
            return
        self._ending = True
        self._send(End(self.id), tick)

    def doubt(self, session: bytes) -> None:
        """Ask before anything else is leased: the log refused a lease for want of session.

        One that has merely expired is renewed and goes on: its attempts in flight hang on it.
        """
        if session == self.id:
            self._trusted_until_us = 0
            self._next_us = 0

    def restart(self) -> None:
        """Take a new id: this session was found ended."""
        self._telemetry.count("sessions_ended")
        self.id = self._new_id(SIZE)
        self._known = False
        self._next_us = 0

    def owns(self, ticket: int) -> bool:
        """Tell whether a reply is for this session."""
        return ticket == self._ticket and ticket != 0

    def on_reply(self, reply: LogReply, tick: Tick) -> None:
        """Take the reply to a request of this session."""
        self._ticket = 0
        if self._ending:
            # An end that failed is done by time: the session expires.
            self.ended = True
        elif self._asked != self.id:
            self._next_us = 0
        elif isinstance(reply, Failed):
            self._next_us = tick.mono_us + RETRY_US
        elif isinstance(reply, DoneReply) and reply.ok:
            self._known = True
            self._trusted_until_us = self._sent_us + SESSION_MS * 1_000
            self._next_us = self._sent_us + SESSION_RENEW_MS * 1_000
        else:
            self.restart()

    def rest_us(self, tick: Tick) -> int:
        """Return when it wants to be kept next, µs from now."""
        return SESSION_RENEW_MS * 1_000 if self._ticket else max(0, self._next_us - tick.mono_us)

    def _send(self, request: Renew | End, tick: Tick) -> None:
        self._sent_us = tick.mono_us
        self._asked = self.id
        self._ticket = self._log.submit(self._log.stripes, request)
