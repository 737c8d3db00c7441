"""Records in this process: for one process, and gone with it."""

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from tocsin_receiver.record import Record
from tocsin_receiver.store import StoreBusy
from tocsin_receiver.verifier import Clock

KEYS_MAX: Final = 100_000
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of all answers together; a record without its answer takes about 1 KB."""


@dataclass(frozen=True)
class _Entry:
    record: Record
    drop_at_ms: int

    @property
    def size(self) -> int:
        return len(self.record.answer.body) if self.record.answer else 0


class MemoryStore:
    """A bounded store. Where it is full it forgets the oldest key that no claim holds."""

    blocks = False

    def __init__(
        self,
        *,
        keys_max: int = KEYS_MAX,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
        clock: Clock = time.time,
    ) -> None:
        self._keys_max = keys_max
        self._answer_bytes_max = answer_bytes_max
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._answer_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def load(self, key: str) -> Record | None:
        """Return the record of a key, or None."""
        with self._lock:
            return self._fresh(key, self._now_ms())

    def swap(self, key: str, old: Record | None, new: Record, keep_ms: int) -> bool:
        """Put `new` in the place of `old`; raise StoreBusy where live claims fill the store."""
        with self._lock:
            now_ms = self._now_ms()
            if self._fresh(key, now_ms) != old:
                return False
            entry = _Entry(new, now_ms + keep_ms)
            if old is not None:
                self._drop(key)
            self._make_room(entry.size, now_ms)
            self._entries[key] = entry
            self._answer_bytes += entry.size
            return True

    def _fresh(self, key: str, now_ms: int) -> Record | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.drop_at_ms <= now_ms:
            self._drop(key)
            return None
        return entry.record

    def _make_room(self, size: int, now_ms: int) -> None:
        # Each round drops a key or passes one by: a store of live claims only is seen once through.
        for _ in range(len(self._entries)):
            key, entry = next(iter(self._entries.items()))
            full = (
                len(self._entries) >= self._keys_max
                or self._answer_bytes + size > self._answer_bytes_max
            )
            if not full and entry.drop_at_ms > now_ms:
                return
            if entry.record.holds(now_ms):
                self._entries.move_to_end(key)
            else:
                self._drop(key)
        if len(self._entries) >= self._keys_max:
            raise StoreBusy(f"{self._keys_max} keys are claimed at once: the store has no room")

    def _drop(self, key: str) -> None:
        self._answer_bytes -= self._entries.pop(key).size

    def _now_ms(self) -> int:
        return int(self._clock() * 1_000)
