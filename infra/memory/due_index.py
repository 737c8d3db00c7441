"""`DueIndex` over the log in memory."""

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from commandside.firing.chunks import (
    CHUNK_ENTRIES,
    FORMAT,
    HORIZON_MS,
    QUEUED_MS_MAX,
    REHAND_AFTER_MS,
    REHAND_SPACING_MAX_MS,
)
from commandside.ports import (
    ENTRY,
    ENTRY_BYTES,
    Chunk,
    Overdue,
    Published,
    Ref,
    Standing,
)
from domain.envelope import Decision
from domain.ids import SLOT
from domain.run import state as rs
from domain.sharding import shard_of
from infra.memory.log import Due, MemoryLog
from projections.due_index import ACTIVE

OVERDUE_MS: Final = 10_000


class MemoryDueIndex:
    """The port `DueIndex`."""

    def __init__(self, log: MemoryLog) -> None:
        """Use a log that others may share."""
        self._log = log

    def window(self, terms: dict[int, int], after: int, until: int, limit: int) -> list[Chunk]:
        """Return unmarked ready rows with after < wake_at ≤ until as chunks, in due order."""
        self._log.reach()
        found = [
            row
            for row in self._log.waking(until)
            if row.wake_at > after
            and row.shard in terms
            and isinstance(row.run, rs.Ready)
            and row.handed_off_at is None
        ]
        return _chunks(found[:limit], terms)

    def mark(self, published: Sequence[Published]) -> int:
        """Set the hand-off of rows whose version and shard term still match."""
        self._log.reach()
        marked, now = 0, self._log.now()
        for done in published:
            chunk = done.chunk
            if self._log.terms.get(chunk.shard) != chunk.term:
                continue
            for run_id, _, _, version, _ in struct.iter_unpack(ENTRY, chunk.entries):
                row = self._log.due.get(run_id)
                if row is None or not isinstance(row.run, rs.Ready):
                    continue
                if row.run.facts.version == version:
                    row.handed_off_at, row.ref = now, done.ref
                    row.hand_offs = min(row.hand_offs + 1, 1_000)
                    marked += 1
        return marked

    def stale(
        self, shards: Sequence[int], committed: Callable[[Ref], bool] | None, limit: int
    ) -> list[Chunk]:
        """Return rows ready for re-hand-off; `committed` None: all that are due, at once."""
        self._log.reach()
        now, owned = self._log.now(), frozenset(shards)
        everything = committed is None
        found: list[Due] = []
        for row in self._log.waking(now - (0 if everything else REHAND_AFTER_MS)):
            if row.shard not in owned or not isinstance(row.run, rs.Ready):
                continue
            spacing = min(REHAND_AFTER_MS << min(row.hand_offs, 10), REHAND_SPACING_MAX_MS)
            resting = row.handed_off_at is not None and row.handed_off_at > now - spacing
            if len(found) < limit and (everything or not resting):
                found.append(row)
        if committed is not None:
            old = now - QUEUED_MS_MAX
            found = [
                row
                for row in found
                if row.ref is None or (row.handed_off_at or 0) < old or committed(row.ref)
            ]
        return _chunks(found, self._log.terms)

    def lapsed(
        self, shards: Sequence[int], limit: int, *, accepted: bool = True
    ) -> list[tuple[Standing, rs.OpenRun]]:
        """Return leases that are over."""
        self._log.reach()
        now, owned = self._log.now(), frozenset(shards)
        over = [
            row.run
            for row in self._log.waking(now)
            if row.shard in owned
            and self._is_over(row.run, now)
            and (accepted or not isinstance(row.run, rs.Awaiting))
        ]
        jobs = self._log.standings({run.facts.job_id for run in over[:limit]})
        return [(jobs[run.facts.job_id], run) for run in over[:limit]]

    def _is_over(self, run: rs.OpenRun, now: int) -> bool:
        if isinstance(run, rs.InFlight):
            return run.until <= now or self._log.has_ended(run.owner)
        return isinstance(run, rs.Awaiting) and run.until <= now

    def to_resume(self, shards: Sequence[int], limit: int) -> list[Standing]:
        """Return paused jobs whose pause ends by itself and is over, with their withheld runs."""
        self._log.reach()
        now, owned = self._log.now(), frozenset(shards)
        over = [
            job_id
            for job_id, resume_at in self._log.resuming.items()
            if resume_at <= now and shard_of(job_id, self._log.shards) in owned
        ]
        return [self._log.whole(job_id) for job_id in over[:limit]]

    def append(self, decisions: Sequence[Decision], expires_at: int) -> list[bool]:
        """Append decisions, and return which hold; of one job only the first can."""
        self._log.reach()
        seen: set[bytes] = set()
        firsts: list[int] = []
        for number, decision in enumerate(decisions):
            if decision.job_id not in seen:
                seen.add(decision.job_id)
                firsts.append(number)
        done = self._log.append([decisions[number] for number in firsts], expires_at)
        held = [False] * len(decisions)
        for place, number in enumerate(firsts):
            held[number] = not done.expired and place not in done.refused
        return held

    def reap(self) -> int:
        """End sessions whose `until` has passed; return how many."""
        self._log.reach()
        return self._log.reap()

    def unmark(self, shards: Sequence[int], before: int, limit: int) -> int:
        """Take back marks older than `before` of rows that wake within 60 s."""
        owned, count = frozenset(shards), 0
        for row in self._log.waking(self._log.now() + HORIZON_MS):
            if count == limit:
                break
            marked = row.handed_off_at is not None and row.handed_off_at < before
            if marked and row.shard in owned and isinstance(row.run, rs.Ready):
                row.handed_off_at = row.ref = None
                count += 1
        return count

    def health(self, shards: Sequence[int], part: int = 0, parts: int = 1) -> Overdue:
        """Return the liveness figures of these shards."""
        log, now, owned = self._log, self._log.now(), frozenset(shards)
        broken = looked_at = 0
        for job_id, (_, head) in log.heads.items():
            mine = (
                shard_of(job_id, log.shards) in owned
                and int.from_bytes(job_id[:4], "big") * parts >> 32 == part
            )
            looked_at += mine
            if not mine or head.status != ACTIVE or not head.misfire_after_ms:
                continue
            links = [
                run
                for run in log.runs_of(job_id)
                if run.facts.kind == SLOT and not (head.plans_at_lease and run.facts.attempt)
            ]
            broken += len(links) != 1
        late = [
            row.wake_at
            for row in log.waking(now - 1)
            if row.shard in owned and isinstance(row.run, rs.Ready)
        ]
        overdue = sum(1 for wake_at in late if wake_at < now - OVERDUE_MS)
        return Overdue(broken, overdue, now - min(late) if late else 0, looked_at)

    def close(self) -> None:
        """Nothing is open."""


def _chunks(rows: Iterable[Due], terms: dict[int, int]) -> list[Chunk]:
    groups: dict[tuple[int, int, int], list[bytes]] = {}
    for row in rows:
        facts = row.run.facts
        entry = struct.pack(
            ENTRY, facts.run_id, facts.job_id, facts.tenant_id, facts.version, facts.due_at
        )
        groups.setdefault((row.shard, facts.due_at // 1_000, facts.lane), []).append(entry)
    return [
        Chunk(FORMAT, b"", shard, terms[shard], second, lane, b"".join(part))
        for (shard, second, lane), entries in groups.items()
        for start in range(0, len(entries), CHUNK_ENTRIES)
        for part in (entries[start : start + CHUNK_ENTRIES],)
    ]


assert struct.calcsize(ENTRY) == ENTRY_BYTES
