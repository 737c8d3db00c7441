"""`FireLog` over the log in memory, and everything that can happen to a request on its way."""

from collections.abc import Callable
from enum import Enum
from typing import assert_never

import msgspec

from commandside.ports import (
    Append,
    AppendReply,
    Defer,
    DoneReply,
    DueReply,
    End,
    Failed,
    Lease,
    LogReply,
    LogRequest,
    Read,
    ReadBack,
    ReadBackReply,
    ReadDue,
    ReadReply,
    ReadSpecs,
    Renew,
    SpecsReply,
)
from domain.sharding import shard_of, stripe_of
from infra.memory.log import MemoryLog


class Fate(Enum):
    """What happens to one request."""

    DONE = "done"
    DOWN = "down"
    """Fails, and nothing happened: there was no connection."""
    REQUEST_LOST = "request lost"
    """The outcome is unknown; it did not happen."""
    REPLY_LOST = "reply lost"
    """The outcome is unknown; it did happen."""
    STALLED = "stalled"
    """The outcome is unknown; it arrives `STALL_MS` later, unless it refuses itself by then."""


STALL_MS = 4_000

Fates = Callable[[int, LogRequest], Fate]


def _done(_stripe: int, _request: LogRequest) -> Fate:
    return Fate.DONE


class _Stalled(msgspec.Struct, frozen=True):
    at: int
    ticket: int
    request: LogRequest


class MemoryFireLog:
    """The port `FireLog`; a request is carried out when submitted, and replied to by `poll`."""

    def __init__(self, log: MemoryLog, stripes: int = 4, fates: Fates = _done) -> None:
        """Use a log that others may share."""
        self.stripes, self.shards = stripes, log.shards
        self.fates = fates
        self._log = log
        self._busy = [False] * (stripes + 1)
        self._replies: list[tuple[int, LogReply]] = []
        self._stalled: list[_Stalled] = []
        self._ticket = 0

    @property
    def outstanding(self) -> int:
        """Return how many replies the next `poll` brings."""
        return len(self._replies)

    def idle(self, stripe: int) -> bool:
        """Return whether the stripe takes a request now."""
        return not self._busy[stripe]

    def submit(self, stripe: int, request: LogRequest) -> int:
        """Carry out a request, or what its fate is."""
        assert not self._busy[stripe], "one request in flight per stripe"
        self._check(stripe, request)
        self._busy[stripe] = True
        self._ticket += 1
        ticket, fate = self._ticket, self.fates(stripe, request)
        fate = Fate.DOWN if self._log.away else fate
        if fate is Fate.STALLED:
            self._stalled.append(_Stalled(self._log.now() + STALL_MS, ticket, request))
        reply: LogReply
        if fate in (Fate.DONE, Fate.REPLY_LOST):
            reply = self._do(ticket, request)
        if fate is not Fate.DONE:
            writes = not isinstance(request, Read | ReadBack | ReadDue | ReadSpecs)
            reply = Failed(ticket, unknown=writes and fate is not Fate.DOWN, detail=fate.value)
        self._replies.append((stripe, reply))
        return ticket

    def poll(self) -> list[LogReply]:
        """Return the replies; late transactions arrive first."""
        for stalled in [s for s in self._stalled if s.at <= self._log.now()]:
            self._stalled.remove(stalled)
            self._do(stalled.ticket, stalled.request)
        replies, self._replies = self._replies, []
        for stripe, _ in replies:
            self._busy[stripe] = False
        return [reply for _, reply in replies]

    def close(self) -> None:
        """Forget what is outstanding."""
        self._replies.clear()

    def _check(self, stripe: int, request: LogRequest) -> None:
        """Hold the caller to what the port asks: requests stay in their stripe."""
        jobs: list[bytes] = []
        if isinstance(request, Lease | ReadBack):
            jobs = [want.job_id for want in request.wants]
        elif isinstance(request, Append):
            jobs = [decision.job_id for decision in request.decisions]
        elif isinstance(request, Renew | End):
            assert stripe == self.stripes, "sessions have a connection of their own"
        elif isinstance(request, ReadDue):
            assert all(stripe_of(shard, self.stripes) == stripe for shard in request.shards)
        for job_id in jobs:
            assert stripe_of(shard_of(job_id, self.shards), self.stripes) == stripe

    def _do(self, ticket: int, request: LogRequest) -> LogReply:
        log = self._log
        match request:
            case Lease(session, nonce, wants, expires_at):
                reply = log.lease(ticket, session, nonce, wants, expires_at)
                if reply is None:
                    return Failed(ticket, unknown=False, detail="expired before it was its turn")
                return reply
            case Append(decisions, expires_at, session):
                done = log.append(decisions, expires_at, session)
                return AppendReply(ticket, done.at, done.refused, done.expired, done.positions)
            case Read(job_ids):
                return ReadReply(ticket, log.now(), log.standings(dict.fromkeys(job_ids)))
            case ReadSpecs(pairs):
                specs = {(job, version): log.spec_at(job, version) for job, version in pairs}
                return SpecsReply(ticket, log.now(), specs)
            case ReadDue(shards, ahead_ms, limit):
                return DueReply(ticket, log.now(), log.due_entries(shards, ahead_ms, limit))
            case Defer(rows):
                log.defer(rows)
                return DoneReply(ticket, log.now())
            case ReadBack(nonce, wants, expires_at):
                if log.now() <= expires_at:
                    return Failed(ticket, unknown=False, detail="the lease has not expired yet")
                return ReadBackReply(ticket, log.now(), log.read_back(nonce, wants))
            case Renew(session, starts):
                ok = log.start(session) if starts else log.renew(session)
                return DoneReply(ticket, log.now(), ok=ok)
            case End(session):
                return DoneReply(ticket, log.now(), ok=log.end(session))
            case _:
                assert_never(request)
