"""Hand-off: publish, then mark. A due row is its own outbox, and a message only a hint.

    unmarked row ─publish─► on its way ─confirmed─► marked
          ▲                     │ not confirmed in time, or the broker is another one
          └─────────────────────┘

A crash between publish and mark publishes twice, which the lease collapses; the opposite order
would leave a row that nobody looks at. The scheduler and the auditor of a process share one
`HandOff`; writers that have just committed something due soon use `SelfHandOff`.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Final

from commandside import fault_points
from commandside.firing.chunks import FORMAT
from commandside.ports import (
    ENTRY,
    ENTRY_BYTES,
    Chunk,
    DueIndex,
    FaultPoint,
    Published,
    ReadyQueue,
    Ref,
    Telemetry,
    Tick,
    Unavailable,
)
from domain.envelope import SettledRun
from domain.instant import SECOND
from domain.job.state import JobState
from domain.run.state import Ready
from domain.sharding import shard_of

NEAR_MS: Final = 2 * SECOND
"""Due within this goes to the topics that are never paused."""
ON_ITS_WAY_US: Final = 6_000_000
"""A chunk that is not confirmed within this is published again; longer than a client tries."""
ON_ITS_WAY_MAX: Final = 200_000
"""Entries sent and not marked; with more, nothing is read from the due index."""
REFUSED_US: Final = 1_000_000
"""Pause after the broker took no more."""
UNMARKED_MAX: Final = 10_000
"""Confirmed chunks kept while the database is away; more are forgotten and published again."""
BEAT_US: Final = 2_000_000
SILENT_MS: Final = 10_000
"""Without a canary for so long, the broker's clients count as stuck."""
SILENT_MS_MAX: Final = 300_000
NO_TERM: Final = 0


class Canary:
    """Rebuilds a queue's clients when no canary comes through; patience doubles until one does.

    Librdkafka's clients can be stuck without an error, for example after a broker was wiped.
    """

    def __init__(self, queue: ReadyQueue) -> None:
        self._queue = queue
        self._next_ms = self._spacing_ms = SILENT_MS

    def look(self, tick: Tick) -> bool:
        """Rebuild if it has been silent for too long; return whether that was done."""
        silent = self._queue.silent_ms(tick.mono_us)
        if silent < SILENT_MS:
            self._next_ms = self._spacing_ms = SILENT_MS
            return False
        if silent < self._next_ms:
            return False
        self._spacing_ms = min(2 * self._spacing_ms, SILENT_MS_MAX)
        self._next_ms = silent + self._spacing_ms
        self._queue.rebuild()
        return True


class HandOff:
    """What one process has published and not marked; `turn` moves it on.

    The queue's Unavailable never leaves it: without a broker the database's work goes on.
    """

    def __init__(
        self, due: DueIndex, queue: ReadyQueue, faults: FaultPoint, telemetry: Telemetry
    ) -> None:
        self.due, self._queue = due, queue
        self._faults, self._telemetry = faults, telemetry
        self._canary = Canary(queue)
        self._on_its_way: dict[bytes, int] = {}
        """Entry → when it was published, µs."""
        self._unmarked: list[Published] = []
        self._incarnation = b""
        self._beat_us = self._sweep_us = self._rest_until_us = 0
        self._turned_us = -1
        self.renewals = 0
        """How often the broker turned out to be another one: what it held is lost."""
        self.overdue = False
        """Something that was published did not arrive: the scheduler looks at the whole window."""

    @property
    def pending(self) -> int:
        """Entries that are published and not marked."""
        return len(self._on_its_way)

    def has_room(self, tick: Tick) -> bool:
        """Tell whether more may be read from the due index now."""
        return len(self._on_its_way) < ON_ITS_WAY_MAX and tick.mono_us >= self._rest_until_us

    def committed(self, ref: Ref) -> bool:
        """Tell whether dispatchers are done with what is at this place."""
        return self._queue.committed(ref)

    def turn(self, tick: Tick) -> None:
        """Beat, look after the clients, and mark what was confirmed; raises the due index's own.

        Roles that share this call it with the same tick, and it is done once.
        """
        if tick.mono_us == self._turned_us:
            return
        self._turned_us = tick.mono_us
        self._beat(tick)
        self._notice()
        self._canary.look(tick)
        self._expire(tick)
        self._unmarked += self._queue.confirmed()
        if self._unmarked:
            self._faults.hit(fault_points.CONFIRMED_NOT_MARKED)
            self._mark()

    def publish(self, chunks: Sequence[Chunk], tick: Tick) -> bool:
        """Publish what is not on its way already; False where the broker could not take it all.

        What it took then may arrive, be marked, and be published again, which does no harm.
        """
        if self._on_its_way:
            chunks = [left for chunk in chunks if (left := self._without_pending(chunk)).entries]
        if not chunks:
            return True
        soon = (tick.at + NEAR_MS) // SECOND
        for near in (True, False):
            lot = [chunk for chunk in chunks if (chunk.second <= soon) is near]
            if not lot:
                continue
            try:
                self._queue.publish(lot, near=near)
            except Unavailable as away:
                self._refused(away, tick)
                return False
            for chunk in lot:
                self._on_its_way |= dict.fromkeys(_entries(chunk), tick.mono_us)
        self._telemetry.count("chunks_published", len(chunks))
        self._faults.hit(fault_points.PUBLISHED_NOT_CONFIRMED)
        return True

    def _refused(self, away: Unavailable, tick: Tick) -> None:
        self._telemetry.count("engine_unavailable")
        # Before the first answer it is only not there yet, as after every start.
        if self._incarnation and not self.overdue:
            self._telemetry.alarm("hand_off_refused", str(away))
        self.overdue = True
        self._rest_until_us = tick.mono_us + REFUSED_US

    def _without_pending(self, chunk: Chunk) -> Chunk:
        entries = _entries(chunk)
        left = [entry for entry in entries if entry not in self._on_its_way]
        if len(left) == len(entries):
            return chunk
        return Chunk(
            chunk.format,
            chunk.incarnation,
            chunk.shard,
            chunk.term,
            chunk.second,
            chunk.lane,
            b"".join(left),
        )

    def _mark(self) -> None:
        try:
            marked = self.due.mark(self._unmarked)
        except Unavailable:
            for published in self._unmarked[UNMARKED_MAX:]:
                self._landed(published)
            del self._unmarked[UNMARKED_MAX:]
            raise
        self._telemetry.count("rows_handed_off", marked)
        done, self._unmarked = self._unmarked, []
        for published in done:
            self._landed(published)
        self._faults.hit(fault_points.MARKED)

    def _landed(self, published: Published) -> None:
        for entry in _entries(published.chunk):
            self._on_its_way.pop(entry, None)

    def _beat(self, tick: Tick) -> None:
        if tick.mono_us < self._beat_us:
            return
        self._beat_us = tick.mono_us + BEAT_US
        try:
            self._queue.beat()
        except Unavailable:
            self._telemetry.count("engine_unavailable")

    def _notice(self) -> None:
        """Forget what was sent to a broker that is another one now.

        A process that has just started cannot know what the broker holds of what was marked before:
        it counts as another one too. Where it is the same, a minute's hints go out twice.
        """
        known = self._queue.incarnation()
        if not known or known == self._incarnation:
            return
        self.renewals += 1
        self._on_its_way.clear()
        self._unmarked.clear()
        self._incarnation = known

    def _expire(self, tick: Tick) -> None:
        if not self._on_its_way or tick.mono_us < self._sweep_us:
            return
        self._sweep_us = tick.mono_us + ON_ITS_WAY_US // 6
        # What is confirmed waits for the database, not for the broker.
        kept = {entry for done in self._unmarked for entry in _entries(done.chunk)}
        oldest = tick.mono_us - ON_ITS_WAY_US
        late = [e for e, sent_us in self._on_its_way.items() if sent_us < oldest and e not in kept]
        for entry in late:
            del self._on_its_way[entry]
        self.overdue = self.overdue or bool(late)


class SelfHandOff:
    """Publishes what its owner has just committed and what is due within 2 s.

    Only a hint: nothing is marked, nothing is waited for, and the scheduler's next pass is the
    floor. A writer calls `offer` after its commit. Confirmations pile up in the queue until someone
    takes them: the `HandOff` beside it, or, where the queue is the writer's own, `turn`.
    """

    def __init__(self, queue: ReadyQueue, shards: int, telemetry: Telemetry) -> None:
        self._queue, self._shards, self._telemetry = queue, shards, telemetry

    def turn(self) -> None:
        """Let the clients of a queue of one's own do their work; never waits."""
        self._queue.confirmed()

    def offer(self, states: Iterable[JobState | SettledRun], at: int) -> int:
        """Publish the runs among `states` that are ready and due soon; return how many."""
        groups: dict[tuple[int, int, int], list[bytes]] = {}
        for run in states:
            if isinstance(run, Ready) and run.facts.due_at <= at + NEAR_MS:
                facts = run.facts
                key = (shard_of(facts.job_id, self._shards), facts.due_at // SECOND, facts.lane)
                groups.setdefault(key, []).append(_entry(run))
        if not groups:
            return 0
        chunks = [
            Chunk(FORMAT, b"", shard, NO_TERM, second, lane, b"".join(entries))
            for (shard, second, lane), entries in groups.items()
        ]
        try:
            self._queue.publish(chunks, near=True)
        except Unavailable:
            self._telemetry.count("engine_unavailable")
            return 0
        return sum(len(entries) for entries in groups.values())


_pack: Final = struct.Struct(ENTRY).pack


def _entry(run: Ready) -> bytes:
    facts = run.facts
    return _pack(facts.run_id, facts.job_id, facts.tenant_id, facts.version, facts.due_at)


def _entries(chunk: Chunk) -> list[bytes]:
    data = chunk.entries
    return [data[at : at + ENTRY_BYTES] for at in range(0, len(data), ENTRY_BYTES)]
