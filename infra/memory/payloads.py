"""Large payloads in memory: the store, the list of what was written, and reads of it."""

from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from commandside.payload_port import (
    AGAIN_MS,
    GRACE_MS,
    LOOKED_AT_MS,
    PayloadObject,
    PayloadRead,
    PayloadStore,
    StoreAway,
    Taken,
)
from domain.payload import UNAVAILABLE, judged


class MemoryPayloadStore:
    """The port `PayloadStore`."""

    def __init__(self) -> None:
        self.objects: dict[PayloadObject, bytes] = {}
        self.away = False
        """Nothing can be written or read while this is set."""

    def put(self, objects: Sequence[tuple[PayloadObject, bytes]]) -> None:
        """Write objects."""
        self._reach()
        self.objects.update(objects)

    def get(self, wanted: Sequence[PayloadObject]) -> list[bytes | None]:
        """Return the bytes of each, None where it is not there."""
        self._reach()
        found = [(at, self.objects.get(at)) for at in wanted]
        return [data if data is None or len(data) == at.ref.size else b"" for at, data in found]

    def delete(self, objects: Sequence[PayloadObject]) -> None:
        """Delete objects."""
        self._reach()
        for at in objects:
            self.objects.pop(at, None)

    def _reach(self) -> None:
        if self.away:
            raise StoreAway("the store is away")


class _Noted(msgspec.Struct):
    place: PayloadObject
    look_at: int
    unnamed_since: int = 0


class MemoryPayloadList:
    """The port `PayloadList`."""

    def __init__(self, now: Callable[[], int]) -> None:
        """`now`: ms."""
        self._now = now
        self._noted: dict[bytes, _Noted] = {}

    async def note(self, objects: Sequence[PayloadObject]) -> int:
        """Note objects that are about to be written."""
        at = self._now()
        for place in objects:
            self._noted[place.ref.sha256] = _Noted(place, at + GRACE_MS)
        return at

    async def take(self, limit: int) -> list[Taken]:
        """Return objects whose time to be looked at has come."""
        at = self._now()
        due = [noted for noted in self._noted.values() if noted.look_at <= at]
        due = sorted(due, key=lambda noted: noted.look_at)[:limit]
        for noted in due:
            noted.look_at = at + LOOKED_AT_MS
        return [Taken(noted.place, noted.unnamed_since) for noted in due]

    async def named(self, objects: Sequence[PayloadObject]) -> None:
        """Have objects looked at again much later."""
        for noted in self._of(objects):
            noted.look_at, noted.unnamed_since = self._now() + AGAIN_MS, 0

    async def unnamed(self, objects: Sequence[PayloadObject], after_ms: int) -> None:
        """Have objects that nothing names looked at again."""
        for noted in self._of(objects):
            noted.look_at = self._now() + after_ms
            noted.unnamed_since = noted.unnamed_since or self._now()

    async def forget(self, objects: Sequence[PayloadObject]) -> None:
        """Take objects from the list."""
        for place in objects:
            self._noted.pop(place.ref.sha256, None)

    def _of(self, objects: Sequence[PayloadObject]) -> list[_Noted]:
        found = [self._noted.get(place.ref.sha256) for place in objects]
        return [noted for noted in found if noted is not None]


class MemoryPayloadReads:
    """The port `PayloadReads`: every read ends with the next poll."""

    def __init__(self, store: PayloadStore, *, reads_max: int = 8) -> None:
        self._store = store
        self._reads_max = reads_max
        self._begun: deque[PayloadObject] = deque()
        self.slow = False
        """No read ends while this is set."""
        self.count = 0
        """Reads that were begun."""

    @property
    def room(self) -> int:
        """How many more reads `submit` takes now."""
        return self._reads_max - len(self._begun)

    def submit(self, wanted: Sequence[PayloadObject]) -> None:
        """Begin to read objects."""
        assert len(wanted) <= self.room
        self._begun.extend(wanted)
        self.count += len(wanted)

    def poll(self) -> list[PayloadRead]:
        """Return the reads that ended."""
        if self.slow:
            return []
        begun, self._begun = self._begun, deque()
        return [PayloadRead(at, self._read(at)) for at in begun]

    def close(self) -> None:
        """Drop all reads."""
        self._begun.clear()

    def _read(self, at: PayloadObject) -> bytes | str:
        try:
            (data,) = self._store.get((at,))
        except StoreAway:
            return UNAVAILABLE
        return judged(at.ref, data)
