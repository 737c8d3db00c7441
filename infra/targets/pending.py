"""Messages whose confirmations other threads bring, answered once and at their deadline at most.

A client library may be late, hang, or confirm what nobody waits for any more: the answer of a
message is the first of its outcome and its deadline, and what comes later is dropped. The thread
that owns a `Pending` submits and polls; any thread brings, which wakes the owner through a
descriptor.
"""

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from typing import Final, Protocol

from commandside.deliverer_port import Answer, Message

DROPPED_MAX: Final = 4
"""Messages that a library still holds after their deadline, in multiples of the concurrency."""


class Link(Protocol):
    """The way to a broker that a message was given to."""

    @property
    def away(self) -> bool:
        """The broker cannot be reached, as far as the client has said."""


class Ticket:
    """A message on its way, from its submission until a library lets go of it."""

    __slots__ = ("deadline_us", "link", "message", "over", "started_us", "submitted_us")

    def __init__(self, message: Message, now_us: int) -> None:
        self.message = message
        self.submitted_us = now_us
        self.deadline_us = now_us + message.timeout_ms * 1_000
        self.started_us = 0
        """When a library was given its bytes; 0: nothing can have reached the broker."""
        self.link: Link | None = None
        self.over = False
        """It is answered."""


class Outcome:
    """What became of a ticket: an error of the port, or nothing, and where the broker put it."""

    __slots__ = ("error", "ticket", "where")

    def __init__(
        self, ticket: Ticket, error: str = "", where: tuple[tuple[str, str], ...] = ()
    ) -> None:
        self.ticket = ticket
        self.error = error
        self.where = where


class Pending:
    """Tickets that are not answered yet; at most `concurrency`."""

    def __init__(self, concurrency: int, monotonic_us: Callable[[], int]) -> None:
        self._concurrency = concurrency
        self._monotonic_us = monotonic_us
        self._deadlines: list[tuple[int, int, Ticket]] = []
        self._brought: deque[Outcome] = deque()
        self._serial = 0
        self._held = 0
        self.in_flight = 0
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        """Between a thread that rings the bell and the owner that closes it."""
        self._closed = False

    @property
    def room(self) -> int:
        """How many more tickets may be taken."""
        return self._concurrency - self.in_flight

    def take(self, message: Message) -> Ticket | None:
        """Return a ticket for a message that may still be sent; None: it is answered as it is.

        A message is not taken after its send deadline, nor while a library holds on to too many
        whose deadlines have passed.
        """
        assert self.room > 0, "more messages than room"
        now_us = self._monotonic_us()
        ticket = Ticket(message, now_us)
        self.in_flight += 1
        self._held += 1
        self._serial += 1
        heappush(self._deadlines, (ticket.deadline_us, self._serial, ticket))
        if now_us > message.not_after_us:
            self.bring(Outcome(ticket, "send_deadline"))
            return None
        if self._held > DROPPED_MAX * self._concurrency:
            self.bring(Outcome(ticket, "broker_down"))
            return None
        return ticket

    def bring(self, outcome: Outcome) -> None:
        """Hand in what became of a ticket, once for each; from any thread."""
        with self._lock:
            if not self._closed:
                self._brought.append(outcome)
                os.eventfd_write(self._bell, 1)

    def may_start(self, ticket: Ticket) -> bool:
        """Say whether a ticket that had to wait may still be begun; from any thread."""
        now_us = self._monotonic_us()
        return not ticket.over and now_us <= ticket.message.not_after_us

    def remaining_s(self, ticket: Ticket) -> float:
        """Return how long is left of a ticket's time; from any thread."""
        return max(0.0, (ticket.deadline_us - self._monotonic_us()) / 1_000_000)

    def started(self, ticket: Ticket) -> None:
        """Note that bytes of a ticket may reach the broker from now on; from any thread."""
        ticket.started_us = self._monotonic_us()

    def poll(self) -> list[Answer]:
        """Return the answers of what has been brought, and of what has run out of time."""
        if not self._held:
            return []
        now_us = self._monotonic_us()
        answers: list[Answer] = []
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        while self._brought:
            outcome = self._brought.popleft()
            self._held -= 1
            if not outcome.ticket.over:
                answers.append(self._answer(outcome, now_us))
        while self._deadlines and (self._deadlines[0][2].over or self._deadlines[0][0] <= now_us):
            ticket = heappop(self._deadlines)[2]
            if not ticket.over:
                away = ticket.link is not None and ticket.link.away
                late = Outcome(ticket, "broker_down" if away else "timeout")
                answers.append(self._answer(late, now_us))
        if len(self._deadlines) > 2 * self._concurrency:
            # Confirmed long before a deadline that is minutes away.
            self._deadlines = [item for item in self._deadlines if not item[2].over]
            heapify(self._deadlines)
        return answers

    def timeout_ms(self) -> int | None:
        """Return after how many ms a deadline passes, if one is waited for."""
        if self._brought:
            return 0
        if not self._deadlines:
            return None
        return max(0, (self._deadlines[0][0] - self._monotonic_us()) // 1_000 + 1)

    def fileno(self) -> int:
        """Return the descriptor that is readable when something was brought."""
        return self._bell

    def close(self) -> None:
        """Drop everything, unanswered."""
        with self._lock:
            if not self._closed:
                os.close(self._bell)
            self._closed = True
            self._brought.clear()
        self._deadlines.clear()
        self._held = self.in_flight = 0

    def _answer(self, outcome: Outcome, now_us: int) -> Answer:
        ticket = outcome.ticket
        ticket.over = True
        self.in_flight -= 1
        return Answer(
            ticket.message.token,
            0,
            outcome.error,
            sent=bool(ticket.started_us),
            elapsed_us=now_us - ticket.submitted_us,
            headers=outcome.where,
        )


class PendingDeliverer:
    """What deliverers have in common whose confirmations come from other threads."""

    def __init__(self, concurrency: int, monotonic_us: Callable[[], int]) -> None:
        self._pending = Pending(concurrency, monotonic_us)

    @property
    def in_flight(self) -> int:
        """Messages submitted and not answered yet."""
        return self._pending.in_flight

    @property
    def room(self) -> int:
        """How many more messages `submit` takes now."""
        return self._pending.room

    def poll(self) -> list[Answer]:
        """Return what has been confirmed or refused, or has run out of time."""
        return self._pending.poll()

    def timeout_ms(self) -> int | None:
        """Return after how many ms `poll` must be called even if nothing is readable."""
        return self._pending.timeout_ms()

    def fileno(self) -> int:
        """Return the descriptor that is readable when `poll` has something to do."""
        return self._pending.fileno()

    def _take(self, messages: Sequence[Message]) -> list[Ticket]:
        """Return the tickets of messages that may still be sent; at most `room` are taken."""
        assert len(messages) <= self.room, (len(messages), self.room)
        return [ticket for ticket in map(self._pending.take, messages) if ticket is not None]
