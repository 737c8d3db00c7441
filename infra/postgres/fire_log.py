"""The event log as a dispatcher uses it: one connection a stripe, one more for its session.

Nothing here waits. `poll` moves every connection on; a loop waits on `sockets` between two calls.
A connection that is lost comes back by itself, and its stripe is not idle until then.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final, assert_never

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
    LeaseReply,
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
from infra.postgres import append, lease, reads
from infra.postgres.connection import parameters
from infra.postgres.wire import Broken, Replied, Statement, Wire

STATEMENTS: Final = {
    "lock": append.LOCK,
    **append.STATEMENTS,
    "lease": lease.LEASE,
    "read": reads.READ,
    "specs": reads.SPECS,
    "due": reads.DUE,
    "defer": reads.DEFER,
    "read_back": reads.READ_BACK,
}
SESSION_STATEMENTS: Final = {"start": reads.START, "renew": reads.RENEW, "end": reads.END}


def _mono_us() -> int:
    return time.monotonic_ns() // 1000


class _Sent(msgspec.Struct, frozen=True):
    """A request on its way. `doubled`: wants of a Lease that were not sent, their job was in it."""

    ticket: int
    request: LogRequest
    doubled: Sequence[bytes] = ()


class PostgresFireLog:
    """The port `FireLog` on Postgres."""

    def __init__(
        self,
        conninfo: str,
        stripes: int = 4,
        shards: int = 64,
        mono_us: Callable[[], int] = _mono_us,
    ) -> None:
        """Remember where to connect; the first `poll` starts it. `shards` is the installation's."""
        self.stripes, self.shards = stripes, shards
        self._mono_us = mono_us
        self._wires = [
            Wire(parameters(conninfo, f"fire log {n}"), append.SETTINGS, STATEMENTS)
            for n in range(stripes)
        ]
        self._wires.append(
            Wire(parameters(conninfo, "session"), append.SETTINGS, SESSION_STATEMENTS)
        )
        self._sent: list[_Sent | None] = [None] * (stripes + 1)
        self._ticket = 0
        self._corrupt: append.LogCorrupt | None = None

    def idle(self, stripe: int) -> bool:
        """Return whether the stripe takes a request now."""
        return self._wires[stripe].idle

    def sockets(self) -> list[tuple[int, bool]]:
        """Return (descriptor, whether to wait for room to write) of each connection there is."""
        return [(w.fileno(), w.wants_write) for w in self._wires if w.fileno() >= 0]

    def trouble(self) -> list[str]:
        """Return why connections are down, for people; empty while all are up."""
        return [w.detail for w in self._wires if w.fileno() < 0]

    def submit(self, stripe: int, request: LogRequest) -> int:
        """Send a request and return its ticket."""
        self._ticket += 1
        sent = _Sent(self._ticket, request)
        if isinstance(request, Lease):
            sent = _without_doubles(sent, request)
        statements = self._statements(stripe, sent.request)
        self._wires[stripe].send(statements, self._mono_us())
        self._sent[stripe] = sent
        return self._ticket

    def poll(self) -> list[LogReply]:
        """Return the replies that have come.

        Raises LogCorrupt, once and after the replies of its poll, where an append met what guards
        under the lock exclude.
        """
        corrupt, self._corrupt = self._corrupt, None
        if corrupt is not None:
            raise corrupt
        replies: list[LogReply] = []
        now_us = self._mono_us()
        for stripe, wire in enumerate(self._wires):
            outcome = wire.poll(now_us)
            sent = self._sent[stripe]
            if outcome is not None and sent is not None:
                self._sent[stripe] = None
                if isinstance(outcome, Replied):
                    replies.append(_reply(sent, outcome.row))
                else:
                    replies.append(self._failed(sent, outcome))
        return replies

    def close(self) -> None:
        """Close the connections."""
        for wire in self._wires:
            wire.close()

    def _failed(self, sent: _Sent, broken: Broken) -> Failed:
        if broken.sqlstate in append.BUGS:
            self._corrupt = append.LogCorrupt(broken.detail)
        unknown = broken.unknown and not isinstance(
            sent.request, Read | ReadSpecs | ReadDue | ReadBack
        )
        return Failed(sent.ticket, unknown, f"{broken.sqlstate} {broken.detail}".strip())

    def _statements(self, stripe: int, request: LogRequest) -> list[Statement]:
        match request:
            case Append(decisions, expires_at, session):
                lock = self._lock(stripe, [decision.job_id for decision in decisions])
                return [lock, append.request(decisions, self.shards, expires_at, session)]
            case Lease(session, nonce, wants, expires_at):
                lock = self._lock(stripe, [want.job_id for want in wants])
                return [lock, ("lease", lease.parameters(wants, session, nonce, expires_at))]
            case Read(job_ids):
                return [("read", reads.standing_parameters(job_ids))]
            case ReadSpecs(versions):
                return [("specs", reads.specs_parameters(versions))]
            case ReadDue(of_shards, ahead_ms, limit):
                return [("due", reads.due_parameters(of_shards, ahead_ms, limit))]
            case Defer(rows):
                # One statement may move rows of many shards: all of the stripe are locked.
                return [self._lock_all(stripe), ("defer", reads.defer_parameters(rows))]
            case ReadBack(nonce, wants, expires_at):
                lock = self._lock(stripe, [want.job_id for want in wants])
                values = reads.read_back_parameters(wants, nonce, expires_at)
                return [lock, ("read_back", values)]
            case Renew(session, starts):
                return [("start" if starts else "renew", [session])]
            case End(session):
                return [("end", [session])]
            case _:
                assert_never(request)

    def _lock(self, stripe: int, job_ids: Sequence[bytes]) -> Statement:
        shards = {shard_of(job_id, self.shards) for job_id in job_ids}
        assert all(stripe_of(shard, self.stripes) == stripe for shard in shards)
        return "lock", append.lock_parameters(shards)

    def _lock_all(self, stripe: int) -> Statement:
        return "lock", append.lock_parameters(range(stripe, self.shards, self.stripes))


def _without_doubles(sent: _Sent, request: Lease) -> _Sent:
    """Two runs of one job in a batch would not see each other: the second one is decided later."""
    first = {want.job_id: want for want in reversed(request.wants)}
    if len(first) == len(request.wants):
        return sent
    wants = [want for want in request.wants if first[want.job_id] is want]
    doubled = [want.run_id for want in request.wants if first[want.job_id] is not want]
    return _Sent(sent.ticket, msgspec.structs.replace(request, wants=wants), doubled)


def _reply(sent: _Sent, row: Sequence[bytes | None]) -> LogReply:
    ticket, request = sent.ticket, sent.request
    match request:
        case Append(decisions):
            done = append.result(row, decisions)
            return AppendReply(ticket, done.at, done.refused, done.expired, done.positions)
        case Lease(wants=wanted):
            return _lease_reply(sent, lease.result(row, ticket, wanted))
        case Read():
            return ReadReply(ticket, _int(row[0]), reads.standings(row))
        case ReadSpecs(wants):
            return SpecsReply(ticket, _int(row[0]), dict(reads.specs(row, wants)))
        case ReadDue():
            return DueReply(ticket, _int(row[0]), row[1] or b"")
        case ReadBack():
            if row[1] != b"\1":
                return Failed(ticket, unknown=False, detail="the lease has not expired yet")
            return ReadBackReply(ticket, _int(row[0]), tuple(reads.ours(row)))
        case Renew() | End():
            return DoneReply(ticket, _int(row[0]), ok=_int(row[1]) == 1)
        case Defer():
            return DoneReply(ticket, _int(row[0]))
        case _:
            assert_never(request)


def _lease_reply(sent: _Sent, leases: lease.Leases) -> LeaseReply | Failed:
    reply = leases.reply
    if not leases.in_time:
        return Failed(sent.ticket, unknown=False, detail="expired before it held its locks")
    if sent.doubled and not reply.session_ended:
        reply.decide = (*reply.decide, *sent.doubled)
    return reply


def _int(value: bytes | None) -> int:
    assert value is not None
    return int.from_bytes(value, "big", signed=True)
