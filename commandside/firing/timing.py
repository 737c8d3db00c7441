"""What a dispatcher holds until it is due, and which messages it is done with.

Entries wait in one bucket per second, which is sorted when its second comes: about a microsecond an
entry, however many wait. A message's offset is committed when each of its entries has been leased,
dropped or deferred and every earlier message of its partition is done too.
"""

import struct
from bisect import bisect_right
from collections import deque
from heapq import heapify, heappop, heappush
from operator import itemgetter
from typing import Final

from commandside.ports import ENTRY, Ref
from domain.instant import SECOND

_unpack: Final = struct.Struct(ENTRY).iter_unpack


class Parcel:
    """A message whose entries are held; `ref` is None for what this dispatcher planned itself."""

    __slots__ = ("dead", "left", "ref", "stripe")

    def __init__(self, stripe: int, ref: Ref | None = None, left: int = 0) -> None:
        self.stripe = stripe
        self.ref = ref
        self.left = left
        self.dead = False
        """Its partition was revoked."""


Entry = tuple[int, bytes, bytes, int, Parcel]
"""(when to try, run, job, version, the message it came with)"""

_when: Final = itemgetter(0)


class TimingHeap:
    """Entries by the instant at which to try them, one for each run: the newest version.

    `watch` and `unwatch` mark runs in flight, so that a doubled message is dropped here and does
    not cost a statement.
    """

    def __init__(self) -> None:
        self._buckets: dict[int, list[Entry]] = {}
        self._first: dict[int, int] = {}
        """The earliest instant of each bucket, asked for with every batch."""
        self._seconds: list[int] = []
        self._now: list[Entry] = []
        self._next = 0
        self._late: list[Entry] = []
        self._opened = -1
        self._held: dict[bytes, int] = {}
        self._size = 0

    def __len__(self) -> int:
        """Return how many entries wait."""
        return self._size

    def add_all(self, entries: bytes, parcel: Parcel) -> int:
        """Hold a message's ENTRY records; those already known are dropped and counted as done.

        Returns how many are held.
        """
        held = self._held
        kept: list[Entry] = []
        for run_id, job_id, _tenant, version, due_at in _unpack(entries):
            if held.get(run_id, 0) >= version:
                continue
            held[run_id] = version
            kept.append((due_at, run_id, job_id, version, parcel))
        parcel.left = len(kept)
        if not kept:
            return 0
        self._size += len(kept)
        soonest, latest = min(kept, key=_when)[0], max(kept, key=_when)[0]
        second = soonest // SECOND
        if second == latest // SECOND and second > self._opened:
            self._bucket(second, soonest).extend(kept)
            return len(kept)
        for entry in kept:
            self._place(entry)
        return len(kept)

    def add(self, entry: Entry) -> bool:
        """Hold one entry (planned here, or sent back as early); False if it is known."""
        _, run_id, _, version, parcel = entry
        if self._held.get(run_id, 0) >= version:
            return False
        self._held[run_id] = version
        parcel.left += 1
        self._size += 1
        self._place(entry)
        return True

    def again(self, entry: Entry, when: int) -> None:
        """Hold an entry once more that came due before; it is still counted by its message."""
        self._held[entry[1]] = max(entry[3], self._held.get(entry[1], 0))
        self._size += 1
        self._place((when, *entry[1:]))

    def _bucket(self, second: int, soonest: int) -> list[Entry]:
        """Return the bucket of a second, to which entries from `soonest` on are about to come."""
        bucket = self._buckets.get(second)
        if bucket is None:
            bucket = self._buckets[second] = []
            self._first[second] = soonest
            heappush(self._seconds, second)
        elif soonest < self._first[second]:
            self._first[second] = soonest
        return bucket

    def _place(self, entry: Entry) -> None:
        second = entry[0] // SECOND
        if second > self._opened:
            self._bucket(second, entry[0]).append(entry)
        else:
            heappush(self._late, entry)

    def due(self, at: int) -> list[Entry]:
        """Take the entries whose instant is ≤ `at`, in order within each second."""
        found: list[Entry] = []
        while True:
            if self._next < len(self._now):
                end = bisect_right(self._now, at, self._next, key=_when)
                found += self._now[self._next : end]
                self._next = end
                if end < len(self._now):
                    break
            if not self._seconds or self._seconds[0] * SECOND > at:
                break
            self._opened = heappop(self._seconds)
            self._now = sorted(self._buckets.pop(self._opened), key=_when)
            del self._first[self._opened]
            self._next = 0
        while self._late and self._late[0][0] <= at:
            found.append(heappop(self._late))
        self._size -= len(found)
        return found

    def next_due(self) -> int | None:
        """Return the earliest instant at which there may be something to take."""
        soonest = [entry[0] for entry in (*self._now[self._next : self._next + 1], *self._late[:1])]
        if self._seconds:
            soonest.append(self._first[self._seconds[0]])
        return min(soonest, default=None)

    def is_newest(self, entry: Entry) -> bool:
        """Tell whether no newer version of the entry's run has come since."""
        return self._held.get(entry[1], 0) == entry[3]

    def watch(self, run_id: bytes, fence: int) -> None:
        """Drop what arrives for this run at a version up to its lease."""
        self._held[run_id] = max(fence, self._held.get(run_id, 0))

    def unwatch(self, run_id: bytes, version: int) -> None:
        """Forget a run, unless something newer of it is held."""
        if self._held.get(run_id, version + 1) <= version:
            del self._held[run_id]

    def sweep(self) -> None:
        """Drop the entries of revoked messages."""
        self._buckets = {
            second: [entry for entry in bucket if self._alive(entry)]
            for second, bucket in self._buckets.items()
        }
        self._buckets = {second: bucket for second, bucket in self._buckets.items() if bucket}
        self._first = {second: min(b, key=_when)[0] for second, b in self._buckets.items()}
        self._seconds = list(self._buckets)
        heapify(self._seconds)
        self._now = [entry for entry in self._now[self._next :] if self._alive(entry)]
        self._next = 0
        self._late = [entry for entry in self._late if self._alive(entry)]
        heapify(self._late)

    def _alive(self, entry: Entry) -> bool:
        if not entry[4].dead:
            return True
        self._size -= 1
        self.unwatch(entry[1], entry[3])
        return False


class Offsets:
    """The messages of each partition in the order of their arrival, up to the first unfinished."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], deque[Parcel]] = {}

    def arrived(self, parcel: Parcel) -> None:
        """Note a message; its `left` counts down to its end."""
        assert parcel.ref is not None
        self._open.setdefault((parcel.ref.topic, parcel.ref.partition), deque()).append(parcel)

    def finished(self) -> list[Ref]:
        """Return the last finished message of each partition that has moved on."""
        moved: list[Ref] = []
        for parcels in self._open.values():
            last: Ref | None = None
            while parcels and parcels[0].left <= 0:
                last = parcels.popleft().ref
            if last is not None:
                moved.append(last)
        return moved

    def revoke(self, partition: int) -> list[Parcel]:
        """Forget a partition's messages and return them."""
        gone: list[Parcel] = []
        for key in [key for key in self._open if key[1] == partition]:
            gone += self._open.pop(key)
        return gone
