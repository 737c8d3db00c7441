"""The ready queue in memory: one broker that several roles share, and everything that can go wrong.

Deterministic: what happens to a message follows from the order of calls and from `chance`. A wiped
broker leaves its clients stuck as the real one does, until they notice or are rebuilt.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from commandside.ports import Chunk, Delivery, Published, Ref, Unavailable
from domain.sharding import partition_of

NOTICED_US: Final = 2_000_000
"""A client sees after this that its broker is another one, when it can see it at all."""

Place = tuple[str, int]
LANES: Final = ("standard", "exact")
STAMP: Final = "#"
"""Between a topic and the incarnation, where a confirmation names a place."""


class Faults(msgspec.Struct):
    """Chances from 0 to 1 that a chunk is lost, doubled, or put before the one sent before it."""

    lost: float = 0.0
    doubled: float = 0.0
    swapped: float = 0.0


class _Log:
    """One partition of one topic; what the group is done with is dropped."""

    __slots__ = ("base", "chunks", "committed")

    def __init__(self) -> None:
        self.base = 0
        self.chunks: deque[Chunk | None] = deque()
        """None is a lost one, which keeps its offset."""
        self.committed = 0

    @property
    def end(self) -> int:
        return self.base + len(self.chunks)

    def commit(self, offset: int) -> None:
        self.committed = max(self.committed, offset)
        while self.chunks and self.base < self.committed:
            self.chunks.popleft()
            self.base += 1


class MemoryBroker:
    """What the clients share. `away`, `faults` and `holds` may be set at any time."""

    def __init__(
        self, partitions: int, mono_us: Callable[[], int], chance: Callable[[], float]
    ) -> None:
        """Start empty. `chance` returns the next of a seeded row of numbers in [0, 1)."""
        self.partitions = partitions
        self.mono_us = mono_us
        self.chance = chance
        self.faults = Faults()
        self.away = False
        self.holds = False
        """Nothing is confirmed while this is set."""
        self.number = 1
        self.wiped_us = -NOTICED_US
        self.noticeable = True
        self.beat_us = 0
        self.logs: dict[Place, _Log] = {}
        self.members: list[MemoryReadyQueue] = []

    @property
    def incarnation(self) -> bytes:
        """Names the broker's contents; another one after each wipe."""
        return self.number.to_bytes(16, "big")

    def wipe(self, *, noticeable: bool = True) -> None:
        """Forget all messages and offsets; clients notice after a while, or only by silence."""
        self.logs.clear()
        self.number += 1
        self.wiped_us, self.noticeable = self.mono_us(), noticeable
        self.beat_us = 0

    def log(self, place: Place) -> _Log:
        """Return a partition's log, made when it is first named."""
        return self.logs.setdefault(place, _Log())

    def append(self, place: Place, chunk: Chunk) -> int:
        """Add a chunk, or lose, double or misplace it; return its offset."""
        log = self.log(place)
        offset = log.end
        if self.chance() < self.faults.lost:
            log.chunks.append(None)
            return offset
        log.chunks.append(chunk)
        if self.chance() < self.faults.doubled:
            log.chunks.append(chunk)
        if len(log.chunks) > 1 and self.chance() < self.faults.swapped:
            log.chunks[-1], log.chunks[-2] = log.chunks[-2], log.chunks[-1]
        return offset

    def join(self, member: "MemoryReadyQueue") -> None:
        """Add a consumer and move partitions."""
        self.members.append(member)
        self._assign()

    def leave(self, member: "MemoryReadyQueue") -> None:
        """Remove a consumer, if it is one, and move its partitions."""
        if member in self.members:
            self.members.remove(member)
            self._assign()

    def _assign(self) -> None:
        for number, member in enumerate(self.members):
            member.assigned(set(range(number, self.partitions, len(self.members))))


class MemoryReadyQueue:
    """`commandside.ports.ReadyQueue`: one process's client of a `MemoryBroker`."""

    def __init__(
        self, broker: MemoryBroker, *, produces: bool, consumes: bool, room: int = 10_000
    ) -> None:
        """Connect. `room` bounds the chunks that are sent and not confirmed."""
        self.partitions = broker.partitions
        self._broker = broker
        self._produces, self._consumes, self._room = produces, consumes, room
        self._sent: list[Published] = []
        self._paused = False
        self._owned: set[int] = set()
        self._last: set[int] = set()
        self._revoked: set[int] = set()
        self._next: dict[Place, int] = {}
        self._held: dict[Place, dict[int, None]] = {}
        self._made_for = broker.number
        self._heard_us = broker.mono_us()
        if consumes:
            broker.join(self)

    def publish(self, chunks: Sequence[Chunk], *, near: bool) -> None:
        """Append the chunks; raises Unavailable when away, or with too many unconfirmed."""
        self._notice()
        assert self._produces
        if self._broker.away:
            raise Unavailable("the broker is away")
        for chunk in chunks:
            if len(self._sent) >= self._room:
                raise Unavailable("the queue to the broker is full")
            if self._stuck:
                continue
            stamped = msgspec.structs.replace(chunk, incarnation=self._broker.incarnation)
            partition = partition_of(chunk.shard, self.partitions)
            topic = topic_of(chunk.lane, near=near)
            offset = self._broker.append((topic, partition), stamped)
            place = Ref(f"{topic}{STAMP}{self._broker.number}", partition, offset)
            self._sent.append(Published(chunk, place))

    def confirmed(self) -> list[Published]:
        """Return what was appended since the last call."""
        self._notice()
        if self._broker.away or self._broker.holds or self._stuck:
            return []
        found, self._sent = self._sent, []
        if self._broker.beat_us and not self._consumes:
            self._heard_us = self._broker.beat_us
        return found

    def beat(self) -> None:
        """Send the canary."""
        self._notice()
        if self._broker.away:
            raise Unavailable("the broker is away")
        if not self._stuck:
            self._broker.beat_us = self._broker.mono_us()

    def take(self, limit: int) -> list[Delivery]:
        """Return arrived chunks, partition by partition in order."""
        self._notice()
        found: list[Delivery] = []
        if self._broker.away or self._stuck:
            return found
        self._heard_us = max(self._heard_us, self._broker.beat_us)
        for place, log in self._broker.logs.items():
            if place[1] not in self._owned or (self._paused and place[0].endswith(".ahead")):
                continue
            at = max(self._next.get(place, log.committed), log.base)
            while at < log.end and len(found) < limit:
                chunk = log.chunks[at - log.base]
                if chunk is not None:
                    found.append(Delivery(chunk, Ref(*place, at)))
                    self._held.setdefault(place, {})[at] = None
                at += 1
            self._next[place] = at
            if not self._held.get(place):
                log.commit(at)
        return found

    def done(self, refs: Sequence[Ref]) -> None:
        """Commit up to these places."""
        if self._stuck:
            return
        for ref in refs:
            place = (ref.topic, ref.partition)
            held = self._held.get(place)
            if held is None or ref.partition not in self._owned:
                continue
            for offset in [offset for offset in held if offset <= ref.offset]:
                del held[offset]
            self._broker.log(place).commit(next(iter(held), self._next[place]))

    def revoked(self) -> list[int]:
        """Return partitions lost since the last call."""
        self._notice()
        lost, self._revoked = self._revoked, set()
        return sorted(lost)

    def held(self) -> set[int]:
        """Return the partitions held last."""
        return self._last or set(range(self.partitions))

    def committed(self, ref: Ref) -> bool:
        """Tell whether the group has passed this place."""
        topic, stamp, number = ref.topic.partition(STAMP)
        if stamp and number != str(self._broker.number):
            return True
        log = self._broker.logs.get((topic, ref.partition))
        return log is None or ref.offset < log.committed

    def pause(self, *, paused: bool) -> None:
        """Stop or resume fetching what is due later."""
        self._paused = paused

    def silent_ms(self, mono_us: int) -> int:
        """Return how long no canary has come through, ms."""
        return max(0, (mono_us - self._heard_us) // 1_000)

    def incarnation(self) -> bytes:
        """Return the incarnation that this client was made for."""
        self._notice()
        return self._made_for.to_bytes(16, "big")

    def rebuild(self) -> None:
        """Start anew with the broker as it is now."""
        if self._made_for != self._broker.number:
            self._made_for = self._broker.number
            self._sent = []
        self._revoked |= self._owned
        self._next.clear()
        self._held.clear()

    def close(self) -> None:
        """Leave the group."""
        self._broker.leave(self)

    def assigned(self, partitions: set[int]) -> None:
        """Own these partitions from now on; called by the broker."""
        gone, self._owned = self._owned - partitions, partitions
        self._revoked |= gone
        self._last = partitions or self._last
        for place in [place for place in self._next if place[1] in gone]:
            del self._next[place]
            self._held.pop(place, None)

    @property
    def _stuck(self) -> bool:
        return self._made_for != self._broker.number

    def _notice(self) -> None:
        broker = self._broker
        if self._stuck and broker.noticeable and broker.mono_us() - broker.wiped_us >= NOTICED_US:
            self.rebuild()


def topic_of(lane: int, *, near: bool) -> str:
    """Return the topic of a lane: what is due within 2 s, or what is due later."""
    return f"tocsin.due.{LANES[lane]}.{'now' if near else 'ahead'}"
