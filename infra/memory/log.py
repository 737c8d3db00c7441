"""The event log in memory: one state, changed by whole decisions, as protocol.md §5 has it.

Streams, heads, due rows, commands, sessions and shard terms as the database keeps them, and the
guards, expiries and refusals of its statements. The ports are thin shells around it (`fire_log`,
`command_log`, `due_index`, `shard_leases`, `feed`). One thread; time is what `now` says.
"""

import struct
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from commandside.ports import (
    ENTRY,
    SESSION_LEFT_MS,
    SESSION_MS,
    Granted,
    LeaseReply,
    Ref,
    Standing,
    Unavailable,
    Want,
)
from domain.catalogue import NAMES, DomainEvent, decode, encode
from domain.envelope import BegunBeside, Decision, Guard, JobAt, RunAt, StreamAt
from domain.ids import SLOT
from domain.job import state as js
from domain.job.events import Defined, JobSpec, Revised
from domain.run import events as re
from domain.run import state as rs
from domain.run.decide import lease_until
from domain.sharding import shard_of
from projections.due_index import ACTIVE, FINISHED, HeadRow, head_row

SESSION_KEPT_MS: Final = 60_000

WithRow = rs.Ready | rs.InFlight | rs.Awaiting


class LogCorrupt(AssertionError):
    """An append met what guards exclude: a bug. Nothing of it was applied."""


class Written(msgspec.Struct, frozen=True, gc=False):
    """An event as it is stored."""

    position: int
    stream_id: bytes
    version: int
    name: str
    data: bytes
    committed_at: int = 0
    """The database clock, ms."""


class Due:
    """A due row: the run, and the volatile columns."""

    __slots__ = ("hand_offs", "handed_off_at", "ref", "run", "shard", "wake_at")

    def __init__(self, run: WithRow, shard: int) -> None:
        self.run = run
        self.shard = shard
        self.wake_at = run.until if isinstance(run, rs.Awaiting) else run.facts.due_at
        self.handed_off_at: int | None = None
        self.ref: Ref | None = None
        self.hand_offs = 0


class Effect(msgspec.Struct, frozen=True, gc=False):
    """The row of a command."""

    body_hash: bytes
    version: int
    position: int
    at: int


class Appended(msgspec.Struct, frozen=True, gc=False):
    """What became of a batch; see AppendReply."""

    at: int
    refused: tuple[int, ...] = ()
    expired: bool = False
    positions: tuple[int, ...] = ()


class _SessionRow(msgspec.Struct):
    until: int
    ended: bool = False


class MemoryLog:
    """The state. Every method is one transaction."""

    def __init__(self, now: Callable[[], int], shards: int = 64) -> None:
        """Start empty; `now` is the database clock, ms."""
        self.now = now
        self.shards = shards
        self.away = False
        """Nothing reaches the log while this is set."""
        self.streams: dict[bytes, list[Written]] = {}
        self.feed: list[list[Written]] = [[] for _ in range(shards)]
        self.heads: dict[bytes, tuple[js.JobState, HeadRow]] = {}
        self.due: dict[bytes, Due] = {}
        self.wakes: list[tuple[int, bytes]] = []
        """(wake_at, run) of every due row, in order."""
        self.commands: dict[tuple[bytes, bytes], Effect] = {}
        self.sessions: dict[bytes, _SessionRow] = {}
        self.terms: dict[int, int] = dict.fromkeys(range(shards), 0)
        self.resuming: dict[bytes, int] = {}
        """Paused job → when its pause ends by itself."""
        self._of_job: dict[bytes, dict[bytes, Due]] = {}
        self._position = 0

    def reach(self) -> None:
        """Raise Unavailable while the log is away; each port's call begins with this."""
        if self.away:
            raise Unavailable("the log is away")

    # ---------------------------------------------------------------- reads

    def runs_of(self, job_id: bytes) -> tuple[WithRow, ...]:
        """Return the open runs of a job that have a due row, by id."""
        rows = self._of_job.get(job_id)
        return tuple(rows[run_id].run for run_id in sorted(rows)) if rows else ()

    def standings(self, job_ids: Iterable[bytes]) -> dict[bytes, Standing]:
        """Return the jobs that exist, with their open runs that have a due row."""
        return {
            job_id: Standing(self.heads[job_id][0], self.runs_of(job_id))
            for job_id in job_ids
            if job_id in self.heads
        }

    def whole(self, job_id: bytes) -> Standing:
        """Return a job that exists with all its open runs, withheld ones too."""
        job, runs = self.heads[job_id][0], self.runs_of(job_id)
        if not isinstance(job, js.Paused):
            return Standing(job, runs)
        present = {run.facts.run_id for run in runs}
        found: list[rs.OpenRun] = []
        for run_id in dict.fromkeys((*job.runs, *((job.held,) if job.held else ()))):
            state = None if run_id in present else self._fold(run_id)
            if isinstance(state, rs.Withheld):
                found.append(state)
        return Standing(job, (*runs, *found))

    def _fold(self, run_id: bytes) -> rs.RunState | None:
        state: rs.RunState | None = None
        for event in self.events_of(run_id):
            assert isinstance(event, re.RunEvent)
            state = rs.evolve(run_id, state, event)
        return state

    def events_of(self, stream_id: bytes, after: int = 0) -> list[DomainEvent]:
        """Return the events of a stream from version `after` + 1."""
        found = []
        for written in self.streams.get(stream_id, ())[after:]:
            event = decode(written.name, written.data)
            assert event is not None
            found.append(event)
        return found

    def spec_at(self, job_id: bytes, version: int) -> JobSpec:
        """Return the spec that the event at `version` of a job's stream carries."""
        event = self.events_of(job_id)[version - 1]
        assert isinstance(event, Defined | Revised)
        return event.spec

    def waking(self, until: int) -> list[Due]:
        """Return the due rows whose wake_at is ≤ `until`, in order."""
        end = bisect_right(self.wakes, (until, b"\xff" * 17))
        return [self.due[run_id] for _, run_id in self.wakes[:end]]

    def due_entries(self, shards: Sequence[int], ahead_ms: int, limit: int) -> bytes:
        """Return the earliest ready rows of these shards as ENTRY records, handed off or not."""
        ready = [
            row.run.facts
            for row in self.waking(self.now() + ahead_ms)
            if row.shard in shards and isinstance(row.run, rs.Ready)
        ]
        return b"".join(
            struct.pack(ENTRY, f.run_id, f.job_id, f.tenant_id, f.version, f.due_at)
            for f in ready[:limit]
        )

    # ---------------------------------------------------------------- append

    def append(
        self, decisions: Sequence[Decision], expires_at: int, session: bytes = b""
    ) -> Appended:
        """Apply the decisions whose guards hold; all or none of each."""
        at = self.now()
        assert len({d.job_id for d in decisions}) == len(decisions), "one decision of a job"
        if at > expires_at or (session and not self._lives(session, at)):
            everyone = tuple(range(len(decisions)))
            return Appended(at, everyone, at > expires_at, (0,) * len(everyone))
        failed = tuple(n for n, d in enumerate(decisions) if not self._holds(d, at))
        held = [d for n, d in enumerate(decisions) if n not in failed]
        for decision in held:
            self._check(decision)
        positions = [0 if n in failed else self._apply(d) for n, d in enumerate(decisions)]
        return Appended(at, failed, positions=tuple(positions))

    def _holds(self, decision: Decision, at: int) -> bool:
        command = decision.command
        if command is not None and (decision.job_id, command.command_id) in self.commands:
            return False
        return decision.not_before <= at and all(self._is_so(guard) for guard in decision.guards)

    def _is_so(self, guard: Guard) -> bool:
        match guard:
            case RunAt(run_id, version):
                row = self.due.get(run_id)
                return row is not None and row.run.facts.version == version
            case StreamAt(stream_id, version):
                return len(self.streams.get(stream_id, ())) == version
            case JobAt(job_id, version):
                head = self.heads.get(job_id)
                return (0 if head is None else head[1].version) == version
            case BegunBeside(job_id, run_id, count):
                return self._begun(job_id, run_id) == count

    def _begun(self, job_id: bytes, but: bytes) -> int:
        rows = self._of_job.get(job_id, {})
        return sum(1 for run_id, d in rows.items() if run_id != but and d.run.facts.begun)

    def _check(self, decision: Decision) -> None:
        for piece in decision.slices:
            length = len(self.streams.get(piece.stream_id, ()))
            if piece.version != length + 1:
                what = f"version {piece.version} of {piece.stream_id.hex()} after {length}"
                raise LogCorrupt(what)

    def _apply(self, decision: Decision) -> int:
        shard = shard_of(decision.job_id, self.shards)
        position = 0
        for piece in decision.slices:
            after = piece.after
            for event in piece.events:
                position = self._write(piece.stream_id, shard, NAMES[type(event)], encode(event))
            if isinstance(after, js.JobState):
                head_after = head_row(after)
                self.heads[decision.job_id] = (after, head_after)
                if head_after.resume_at > 0:
                    self.resuming[decision.job_id] = head_after.resume_at
                else:
                    self.resuming.pop(decision.job_id, None)
            elif isinstance(after, WithRow):
                self._plan(after, shard)
            else:
                self._unplan(piece.stream_id)
        command = decision.command
        if command is not None:
            head = next(p for p in decision.slices if p.stream_id == decision.job_id)
            version = head.version + len(head.events) - 1
            effect = Effect(command.body_hash, version, position, head.events[-1].at)
            self.commands[decision.job_id, command.command_id] = effect
        return position

    def _write(self, stream_id: bytes, shard: int, name: str, data: bytes) -> int:
        stream = self.streams.setdefault(stream_id, [])
        self._position += 1
        written = Written(self._position, stream_id, len(stream) + 1, name, data, self.now())
        stream.append(written)
        self.feed[shard].append(written)
        return self._position

    def _plan(self, run: WithRow, shard: int) -> None:
        self._unplan(run.facts.run_id)
        row = Due(run, shard)
        self.due[run.facts.run_id] = row
        self._of_job.setdefault(run.facts.job_id, {})[run.facts.run_id] = row
        insort(self.wakes, (row.wake_at, run.facts.run_id))

    def _unplan(self, run_id: bytes) -> None:
        row = self.due.pop(run_id, None)
        if row is None:
            return
        self._drop_wake(row)
        rows = self._of_job[row.run.facts.job_id]
        del rows[run_id]
        if not rows:
            del self._of_job[row.run.facts.job_id]

    def _drop_wake(self, row: Due) -> None:
        place = bisect_right(self.wakes, (row.wake_at, row.run.facts.run_id)) - 1
        del self.wakes[place]

    # ---------------------------------------------------------------- lease

    def lease(
        self, ticket: int, session: bytes, nonce: bytes, wants: Sequence[Want], expires_at: int
    ) -> LeaseReply | None:
        """Lease what may start now; None where the request came after its expiry."""
        at = self.now()
        if at > expires_at:
            return None
        reply = LeaseReply(ticket, at)
        if not self._lives(session, at):
            reply.session_ended = True
            return reply
        granted: list[Granted] = []
        early: list[tuple[bytes, int]] = []
        decide: list[bytes] = []
        gone: list[bytes] = []
        seen: set[bytes] = set()
        for want in wants:
            row = self.due.get(want.run_id)
            head = self.heads.get(want.job_id)
            if want.job_id in seen:
                # Two runs of one job in a batch would not see each other.
                decide.append(want.run_id)
                continue
            seen.add(want.job_id)
            if row is None or head is None or not _is_wanted(row, head[1], want):
                gone.append(want.run_id)
            elif row.run.facts.due_at > at:
                early.append((want.run_id, row.run.facts.due_at - at))
            elif self._needs_thought(row.run.facts, head[1], at):
                decide.append(want.run_id)
            else:
                granted.append(self._grant(row, head[0], session, nonce, at))
        reply.granted, reply.early, reply.decide, reply.gone = granted, early, decide, gone
        return reply

    def _needs_thought(self, facts: rs.Facts, head: HeadRow, at: int) -> bool:
        if facts.kind == SLOT and not facts.attempt:
            late = head.misfire_after_ms and at - facts.due_at > head.misfire_after_ms
            if head.plans_at_lease or late:
                return True
        if facts.is_afterthought and not facts.attempt:
            return True
        expired = head.max_lateness_ms and at - facts.nominal > head.max_lateness_ms
        return bool(expired) or self._begun(facts.job_id, facts.run_id) >= head.overlap_limit

    def _grant(self, row: Due, job: js.JobState, session: bytes, nonce: bytes, at: int) -> Granted:
        facts = row.run.facts
        until = lease_until(at, job.facts.spec.timeout_ms)
        event = re.Leased(session, nonce, at, until, facts.attempt + 1)
        run = rs.evolve(facts.run_id, row.run, event)
        assert isinstance(run, rs.InFlight)
        self._write(facts.run_id, row.shard, NAMES[re.Leased], encode(event))
        # As in the database, a lease leaves wake_at and the hand-off alone.
        row.run = run
        beside = self._of_job[facts.job_id].values()
        alone = not any(
            d.run.facts.is_link and d.run.facts.life == facts.life for d in beside if d is not row
        )
        return Granted(run, job, alone)

    def read_back(self, nonce: bytes, wants: Sequence[Want]) -> list[Granted]:
        """Return the leases at the version after the wanted one that carry the nonce."""
        found = []
        for want in wants:
            row = self.due.get(want.run_id)
            if row is None or not isinstance(row.run, rs.InFlight):
                continue
            run = row.run
            if run.facts.version == want.version + 1 and run.nonce == nonce:
                beside = self._of_job[want.job_id].values()
                alone = not any(
                    d.run.facts.is_link and d.run.facts.life == run.facts.life
                    for d in beside
                    if d is not row
                )
                found.append(Granted(run, self.heads[want.job_id][0], alone))
        return found

    # ---------------------------------------------------------------- volatile columns

    def defer(self, rows: Sequence[tuple[bytes, int, int]]) -> None:
        """Move wake_at of ready rows that are still at their version, and forget their hand-off."""
        for run_id, version, wake_at in rows:
            row = self.due.get(run_id)
            if row is None or not isinstance(row.run, rs.Ready):
                continue
            if row.run.facts.version == version:
                self._drop_wake(row)
                row.wake_at, row.handed_off_at, row.ref = wake_at, None, None
                insort(self.wakes, (wake_at, run_id))

    # ---------------------------------------------------------------- sessions

    def start(self, session: bytes) -> bool:
        """Start or renew a session; False if it has ended."""
        row = self.sessions.setdefault(session, _SessionRow(0))
        if not row.ended:
            row.until = self.now() + SESSION_MS
        return not row.ended

    def renew(self, session: bytes) -> bool:
        """Renew a session, an expired one too; False if it has ended or never was."""
        return session in self.sessions and self.start(session)

    def end(self, session: bytes) -> bool:
        """End a session; False if it has ended or never was."""
        row = self.sessions.get(session)
        if row is None or row.ended:
            return False
        row.ended = True
        return True

    def reap(self) -> int:
        """End expired sessions, forget those that nothing names any more; return how many ended."""
        now, reaped = self.now(), 0
        for session, row in list(self.sessions.items()):
            if not row.ended and row.until < now:
                row.ended = True
                reaped += 1
            elif row.ended and row.until < now - SESSION_KEPT_MS and not self._owns(session):
                del self.sessions[session]
        return reaped

    def has_ended(self, session: bytes) -> bool:
        """Tell whether a session has been ended."""
        row = self.sessions.get(session)
        return row is not None and row.ended

    def _owns(self, session: bytes) -> bool:
        rows = (row.run for row in self.due.values())
        return any(isinstance(run, rs.InFlight) and run.owner == session for run in rows)

    def _lives(self, session: bytes, at: int) -> bool:
        row = self.sessions.get(session)
        return row is not None and not row.ended and row.until - at >= SESSION_LEFT_MS


def _is_wanted(row: Due, head: HeadRow, want: Want) -> bool:
    facts = row.run.facts
    return (
        isinstance(row.run, rs.Ready)
        and facts.version == want.version
        and facts.job_id == want.job_id
        and head.status in (ACTIVE, FINISHED)
    )
