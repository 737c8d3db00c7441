"""The due rows as the scheduler and the auditor use them: scan, mark, lapse, re-hand-off."""

import struct
import uuid
from collections.abc import Callable, Sequence
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
    Chunk,
    Overdue,
    Published,
    Ref,
    Standing,
)
from domain.envelope import Decision
from domain.run.state import OpenRun
from infra.postgres import append, arrays, command_reads, hand_off, reads
from infra.postgres.blocking import BlockingWire
from infra.postgres.connection import Reconnecting

# Spacing doubles with every hand-off of the same version: 5, 10, 20 … 300 s after the last one.
_STALE: Final = """
select d.shard, s.term, due_at, lane, run_id, job_id, tenant_id, version,
       case when handed_off_at > (select tocsin_now()) - %(queued)s then handed_off_topic end,
       handed_off_partition, handed_off_offset
from due_index d join shards s on s.shard = d.shard
where d.shard = any(%(shards)s::int[]) and phase = 0
  and wake_at <= (select tocsin_now()) - (case when %(all)s then 0 else %(after)s end)
  and (%(all)s or handed_off_at is null or handed_off_at <= (select tocsin_now())
       - least(%(after)s * (1 << least(hand_offs, 10)), %(spacing)s))
order by wake_at limit %(limit)s
"""

_LAPSED: Final = """
with over as (
    select d.job_id, d.run_id from due_index d
    where d.shard = any(%(shards)s::int[]) and (d.phase = 1 or (%(accepted)s and d.phase = 2))
      and d.wake_at <= (select tocsin_now())
      and (d.until <= (select tocsin_now()) or (d.phase = 1 and exists (
          select from sessions s where s.session_id = d.owner and s.ended)))
    order by d.until limit %(limit)s
)
select run_id, job_id from over
"""

_TO_RESUME: Final = """
select job_id from job_heads
where shard = any(%(shards)s::int[]) and resume_at > 0 and resume_at <= (select tocsin_now())
order by resume_at limit %(limit)s
"""

_REAP: Final = "update sessions set ended = true where not ended and until < tocsin_now()"
_FORGET: Final = """
delete from sessions where ended and until < tocsin_now() - 60000
  and not exists (select from due_index d where d.owner = session_id and d.phase = 1)
"""

# Heads are read by a range of their key, since only some of them can be looked at in one go.
_HEALTH: Final = """
with heads as (
    select h.job_id, h.plans_at_lease, h.status = 1 and h.misfire_after_ms > 0 as goes_on
    from job_heads h
    where h.job_id between %(low)s and %(high)s and h.shard = any(%(shards)s::int[])
)
select
  (select count(*) from heads h where h.goes_on
     and (select count(*) from due_index d where d.job_id = h.job_id and d.kind = 0
          and (not h.plans_at_lease or d.attempt = 0)) <> 1),
  (select count(*) from due_index d where d.shard = any(%(shards)s::int[]) and d.phase = 0
     and d.wake_at < (select tocsin_now()) - 10000),
  (select coalesce((select tocsin_now()) - min(d.wake_at), 0) from due_index d
     where d.shard = any(%(shards)s::int[]) and d.phase = 0 and d.wake_at < (select tocsin_now())),
  (select count(*) from heads)
"""


STATEMENTS: Final = {
    "lock": append.LOCK,
    **append.STATEMENTS,
    "read": reads.READ,
    "streams": command_reads.STREAMS,
    "window": hand_off.WINDOW,
    "mark": hand_off.MARK,
    "unmark": hand_off.UNMARK,
}


class PostgresDueIndex:
    """`commandside.ports.DueIndex` over one connection; every call raises Unavailable."""

    def __init__(self, conninfo: str, shards: int, name: str = "scheduler") -> None:
        """Connect lazily."""
        self._link = Reconnecting(conninfo, name)
        self._log = BlockingWire(conninfo, f"{name} log", STATEMENTS)
        self._shards = shards

    def window(self, terms: dict[int, int], after: int, until: int, limit: int) -> list[Chunk]:
        """Return unmarked ready rows with after < wake_at <= until as chunks, in due order."""
        values = hand_off.window_parameters(list(terms), after, until, limit)
        return list(hand_off.chunks(self._log.call([("window", values)]), terms))

    def mark(self, published: Sequence[Published]) -> int:
        """Set `handed_off_at` where row version and shard term still match; return how many."""
        marked = 0
        for lot in hand_off.lots(published):
            lock = append.lock_parameters(done.chunk.shard for done in lot)
            values = hand_off.mark_parameters(lot)
            marked += hand_off.count(self._log.call([("lock", lock), ("mark", values)]))
        return marked

    def stale(
        self, shards: Sequence[int], committed: Callable[[Ref], bool] | None, limit: int
    ) -> list[Chunk]:
        """Return rows ready for re-hand-off; `committed` None: all that are due, at once."""
        values = {
            "shards": list(shards),
            "all": committed is None,
            "limit": limit,
            "after": REHAND_AFTER_MS,
            "spacing": REHAND_SPACING_MAX_MS,
            "queued": QUEUED_MS_MAX,
        }
        with self._link.use() as connection:
            rows = connection.execute(_STALE, values, prepare=True).fetchall()
        groups: dict[tuple[int, int, int, int], list[bytes]] = {}
        for shard, term, due_at, lane, run, job, tenant, version, topic, partition, offset in rows:
            sent = None if topic is None else Ref(topic, partition, offset)
            if committed is not None and sent is not None and not committed(sent):
                continue  # still queued: publishing it again would feed the overload
            entry = struct.pack(ENTRY, run.bytes, job.bytes, tenant.bytes, version, due_at)
            groups.setdefault((shard, term, due_at // 1000, lane), []).append(entry)
        return [
            Chunk(
                FORMAT,
                b"",
                shard,
                term,
                second,
                lane,
                b"".join(entries[at : at + CHUNK_ENTRIES]),
            )
            for (shard, term, second, lane), entries in groups.items()
            for at in range(0, len(entries), CHUNK_ENTRIES)
        ]

    def lapsed(
        self, shards: Sequence[int], limit: int, *, accepted: bool = True
    ) -> list[tuple[Standing, OpenRun]]:
        """Return leases that are over: `until` has passed, or the owner's session has ended."""
        values = {"shards": list(shards), "limit": limit, "accepted": accepted}
        with self._link.use() as connection:
            over = connection.execute(_LAPSED, values, prepare=True).fetchall()
        if not over:
            return []
        jobs = [job_id.bytes for _, job_id in over]
        standings = reads.standings(self._log.call([("read", reads.standing_parameters(jobs))]))
        found = []
        for run_id, job_id in over:
            # What moved on between the two reads is found again by the next scan, or not.
            standing = standings.get(job_id.bytes)
            runs = standing.runs if standing is not None else ()
            run = next((r for r in runs if r.facts.run_id == run_id.bytes), None)
            if standing is not None and run is not None:
                found.append((standing, run))
        return found

    def to_resume(self, shards: Sequence[int], limit: int) -> list[Standing]:
        """Return paused jobs whose pause ends by itself and is over, with their withheld runs."""
        values = {"shards": list(shards), "limit": limit}
        with self._link.use() as connection:
            over = connection.execute(_TO_RESUME, values, prepare=True).fetchall()
        if not over:
            return []
        jobs = [job_id.bytes for (job_id,) in over]
        standings = reads.standings(self._log.call([("read", reads.standing_parameters(jobs))]))
        return [self._whole(standing) for standing in standings.values()]

    def _whole(self, standing: Standing) -> Standing:
        missing = command_reads.without_row(standing.job, standing.runs)
        if not missing:
            return standing
        row = self._log.call([("streams", [arrays.uuids(missing)])])
        found = command_reads.withheld(row, missing)
        return Standing(standing.job, (*standing.runs, *found))

    def append(self, decisions: Sequence[Decision], expires_at: int) -> list[bool]:
        """Append decisions, at most one of each job, and return which hold."""
        if not decisions:
            return []
        shards = append.shards_of(decisions, self._shards)
        request = [
            ("lock", append.lock_parameters(shards)),
            append.request(decisions, self._shards, expires_at),
        ]
        refused = append.result(self._log.call(request), decisions).refused
        return [d not in refused for d in range(len(decisions))]

    def reap(self) -> int:
        """End sessions whose `until` has passed; return how many."""
        with self._link.use() as connection:
            reaped = connection.execute(_REAP, prepare=True).rowcount
            connection.execute(_FORGET, prepare=True)
        return reaped

    def unmark(self, shards: Sequence[int], before: int, limit: int) -> int:
        """Take back marks older than `before` of rows that wake within 60 s; return how many.

        In lots of one share of the shards, in turn: leases of the others go on beside each.
        """
        taken = 0
        left = hand_off.shares(shards)
        while left and taken < limit:
            for share in tuple(left):
                lot = min(hand_off.LOT_ROWS, limit - taken)
                values = hand_off.unmark_parameters(share, before, HORIZON_MS, lot)
                request = [("lock", append.lock_parameters(share)), ("unmark", values)]
                found = hand_off.count(self._log.call(request)) if lot else 0
                taken += found
                if found < lot:
                    left.remove(share)
        return taken

    def health(self, shards: Sequence[int], part: int = 0, parts: int = 1) -> Overdue:
        """Return the liveness figures of these shards; chains of one part of all job ids."""
        values = {
            "shards": list(shards),
            "low": uuid.UUID(int=(part << 128) // parts),
            "high": uuid.UUID(int=((part + 1 << 128) // parts) - 1),
        }
        with self._link.use() as connection:
            row = connection.execute(_HEALTH, values, prepare=True).fetchone()
        assert row is not None
        return Overdue(row[0], row[1], row[2], row[3])

    def close(self) -> None:
        """Close the connection."""
        self._link.close()
        self._log.close()
