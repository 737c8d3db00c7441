"""The writers of the command log: decisions of a stripe, in groups, on a connection of its own.

A group is whatever came while the last one was on its way and LINGER_S longer, at most BATCH_MAX
slices: a group costs a millisecond of the database's CPU, and each further job a tenth of that.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from commandside.ports import BATCH_MAX, Unavailable
from domain.envelope import Decision
from infra.clock import DatabaseClock
from infra.postgres import append
from infra.postgres.async_wire import AsyncWire, Work
from infra.postgres.connection import parameters
from infra.postgres.wire import Broken, Replied, Statement

EXPIRES_MS: Final = 8_000
"""An append that has not got its locks by then is void, so that a read-back can be final."""
PENDING_MAX: Final = 20_000
LINGER_S: Final = 0.005
FULL: Final = BATCH_MAX // 2
"""Decisions that fill a group, as definitions have two slices; they go at once."""


class Log(Protocol):
    """The log, as its writers need it."""

    shards: int
    clock: DatabaseClock

    def say(self, text: str, /) -> None:
        """Hear why a group failed."""

    def read_back(self, batch: Sequence["Pending"], expires_at: int) -> None:
        """Find out what became of a batch whose commit has an unknown outcome."""


class Waiting:
    """Decisions whose outcomes are awaited together; each has one, once."""

    __slots__ = ("_left", "future", "outcomes")

    def __init__(self, count: int) -> None:
        self._left = count
        self.outcomes: list[int | Exception | None] = [None] * count
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(self, n: int, outcome: int | Exception) -> None:
        """Take the outcome of the nth, unless it has one or nobody waits any more."""
        if self.outcomes[n] is not None or self.future.done():
            return
        self.outcomes[n] = outcome
        self._left -= 1
        if not self._left:
            self.future.set_result(None)


class Pending(msgspec.Struct):
    """A decision on its way: one of those that somebody waits for."""

    decision: Decision
    waiting: Waiting
    n: int

    def settle(self, outcome: int | Exception) -> None:
        """Take the log position of its last event, 0 where a guard refused it, or an error."""
        self.waiting.settle(self.n, outcome)

    @property
    def settled(self) -> bool:
        """Whether it has an outcome, or nobody waits any more."""
        return self.waiting.outcomes[self.n] is not None or self.waiting.future.done()


class Writer:
    """The decisions of one stripe on their way to its connection."""

    def __init__(self, log: Log, conninfo: str, stripe: int) -> None:
        self._log = log
        self._pending: deque[Pending] = deque()
        self.wire = AsyncWire(
            parameters(conninfo, f"commands {stripe}"),
            append.SETTINGS,
            {"lock": append.LOCK, **append.STATEMENTS},
            self._next,
            self._give_up,
            LINGER_S,
        )

    def add(self, pending: Pending) -> None:
        """Take a decision; `wire.kick` follows."""
        if len(self._pending) >= PENDING_MAX:
            pending.settle(Unavailable("too many commands wait for Postgres"))
        else:
            self._pending.append(pending)

    def kick(self) -> None:
        """Write what was added, at once where it fills a group."""
        self.wire.kick(now=len(self._pending) >= FULL)

    def _next(self) -> Work | None:
        """Take the next group: one decision for each job, at most BATCH_MAX slices."""
        batch: list[Pending] = []
        later: list[Pending] = []
        jobs: set[bytes] = set()
        room = BATCH_MAX
        now = self._log.clock.now()
        expires_at = now + EXPIRES_MS
        while self._pending and room > 0:
            pending = self._pending.popleft()
            if pending.settled:
                continue
            not_after = pending.decision.not_after
            if 0 < not_after < now:
                pending.settle(Unavailable("the command waited longer than it may"))
                continue
            if pending.decision.job_id in jobs:
                later.append(pending)
                continue
            jobs.add(pending.decision.job_id)
            batch.append(pending)
            room -= len(pending.decision.slices)
            expires_at = min(expires_at, not_after or expires_at)
        self._pending.extendleft(reversed(later))
        if not batch:
            return None
        decisions = [pending.decision for pending in batch]
        shards = self._log.shards
        statements: list[Statement] = [
            ("lock", append.lock_parameters(append.shards_of(decisions, shards))),
            append.request(decisions, shards, expires_at),
        ]

        def done(outcome: Replied | Broken) -> None:
            self._on_outcome(batch, decisions, expires_at, outcome)

        def failed(error: Unavailable) -> None:
            self._fail(batch, error)

        return Work(statements, done, failed)

    def _on_outcome(
        self,
        batch: Sequence[Pending],
        decisions: Sequence[Decision],
        expires_at: int,
        outcome: Replied | Broken,
    ) -> None:
        if isinstance(outcome, Broken):
            if outcome.unknown:
                self._log.read_back(batch, expires_at)
            else:
                self._fail(batch, error_of(outcome))
            return
        result = append.result(outcome.row, decisions)
        if result.expired:
            self._fail(batch, Unavailable("Postgres: the locks were not free in time"))
            return
        for pending, position in zip(batch, result.positions, strict=True):
            pending.settle(position)

    def _give_up(self, error: Unavailable) -> None:
        batch = list(self._pending)
        self._pending.clear()
        if batch:
            self._fail(batch, error)

    def _fail(self, batch: Sequence[Pending], error: Exception) -> None:
        self._log.say(f"{len(batch)} commands refused: {error}")
        fail(batch, error)


def fail(batch: Sequence[Pending], error: Exception) -> None:
    """Answer all that have no outcome yet with an error."""
    for pending in batch:
        pending.settle(error)


def error_of(broken: Broken) -> Exception:
    """Return what a request that was refused is for whoever made it: away, or a bug."""
    if broken.sqlstate in append.BUGS:
        return append.LogCorrupt(broken.detail)
    return Unavailable(f"Postgres: {broken.detail}")
