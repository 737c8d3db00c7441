"""What waits for a stripe of the log: one request is outstanding, the rest is the next batch.

A batch fills itself while the one before it is on its way; where there is little to do, it lingers,
so that a transaction is worth its cost.
"""

from collections import deque
from typing import Final

import msgspec

from commandside.firing.reports import Flight
from commandside.firing.timing import Entry
from commandside.ports import BATCH_MAX, Want
from domain.envelope import Decision
from domain.job import state as js
from domain.run import state as rs

LINGER_US: Final = 20_000
"""A batch that is not full waits this long: 35 % of the CPU of a fire at 1,000 fires a second."""
REPORT_LINGER_US: Final = 50_000
"""Nobody is late for a report that waits; what it plans next is due a second later or more."""
BACKOFF_US: Final = (100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000)
"""Pauses of a stripe after requests that failed one after the other."""


class Undecided:
    """An entry that the lease statement sent back: its first lease takes a thought."""

    __slots__ = ("beside", "decision", "entry", "job", "nonce", "run", "session", "tries")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.tries = 0
        self.job: js.JobState | None = None
        self.beside: tuple[rs.OpenRun, ...] = ()
        self.decision: Decision | None = None
        self.nonce = b""
        self.session = b""


DOUBT_MS: Final = 500
"""Read back this long after the expiry: clocks differ by no more (P22)."""


class Doubt(msgspec.Struct, gc=False):
    """Leases whose commit is unknown; it cannot happen any more when `expires_at` has passed."""

    nonce: bytes
    wants: list[Want]
    entries: list[Entry]
    expires_at: int

    @property
    def after(self) -> int:
        """When to read back, ms of the database clock as it is estimated here."""
        return self.expires_at + DOUBT_MS


class Sent(msgspec.Struct, gc=False):
    """The request that is outstanding, and what it was made of."""

    kind: str
    mono_us: int
    expires_at: int = 0
    session: bytes = b""
    nonce: bytes = b""
    entries: list[Entry] = []
    flights: list[Flight] = []
    decisions: list[Decision] = []
    undecided: list[Undecided] = []
    doubt: Doubt | None = None
    reserved: int = 0
    """Calls that this request may lead to."""


class Stripe:
    """The queues of one stripe."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.ready: deque[Entry] = deque()
        self.ready_since_us = 0
        self.reports: deque[Flight] = deque()
        self.reports_since_us = 0
        self.rereads: list[Flight] = []
        self.parked: list[tuple[int, Flight]] = []
        """Results that have no luck with the log, and when (µs) to try them again."""
        self.undecided: list[Undecided] = []
        self.decided: list[Undecided] = []
        self.defers: list[tuple[Entry, int]] = []
        self.unspecified: list[tuple[Flight, int]] = []
        """Flights whose pinned spec must be read, and the instant (µs) not to send after."""
        self.claims: list[int] = []
        """Shards whose due rows are to be read, because the broker is silent."""
        self.doubts: list[Doubt] = []
        self.sent: Sent | None = None
        self.ticket = 0
        self.resting_until_us = 0
        self.turn = 0
        self._failures = 0

    def add_ready(self, entries: list[Entry], mono_us: int) -> None:
        """Queue entries whose instant has come."""
        if not self.ready:
            self.ready_since_us = mono_us
        self.ready.extend(entries)

    def add_reports(self, flights: list[Flight], mono_us: int) -> None:
        """Queue attempts that have ended."""
        if not self.reports:
            self.reports_since_us = mono_us
        self.reports.extend(flights)

    def take_ready(self, most: int) -> list[Entry]:
        """Take up to `most` entries, at most one of each job; the others keep their places."""
        taken: list[Entry] = []
        jobs: set[bytes] = set()
        passed: list[Entry] = []
        ready = self.ready
        while ready and len(taken) < most and len(passed) < BATCH_MAX:
            entry = ready.popleft()
            if entry[2] in jobs:
                passed.append(entry)
            else:
                jobs.add(entry[2])
                taken.append(entry)
        ready.extendleft(reversed(passed))
        return taken

    def failed(self, mono_us: int) -> None:
        """Rest a little longer with each failure in a row."""
        pause = BACKOFF_US[min(self._failures, len(BACKOFF_US) - 1)]
        self._failures += 1
        self.resting_until_us = mono_us + pause

    def worked(self) -> None:
        """A request was answered: the pause starts from its least again."""
        self._failures = 0

    def holds_nothing(self) -> bool:
        """Tell whether nothing that must still be said to the log is left."""
        return not (
            self.sent
            or self.reports
            or self.rereads
            or self.parked
            or self.unspecified
            or self.doubts
            or self.decided
        )
