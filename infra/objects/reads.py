"""Reads of large payloads for one loop that must not wait: in threads, a pipe says when one ends.

Hashes are worked out in the threads too.
"""

import queue
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from commandside.payload_port import PayloadObject, PayloadRead, PayloadStore, StoreAway
from domain.payload import UNAVAILABLE, judged

THREADS: Final = 8


class ThreadedPayloadReads:
    """The port `PayloadReads` over a store."""

    def __init__(self, store: PayloadStore) -> None:
        self._store = store
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="payload reads")
        self._ended: queue.SimpleQueue[PayloadRead] = queue.SimpleQueue()
        self._wake, self._waker = socket.socketpair()
        self._wake.setblocking(False)
        self._waker.setblocking(False)
        self._begun = 0

    @property
    def room(self) -> int:
        """How many more reads `submit` takes now: one a thread, so that none waits here."""
        return THREADS - self._begun

    def fileno(self) -> int:
        """Return a descriptor that is readable when a read has ended."""
        return self._wake.fileno()

    def submit(self, wanted: Sequence[PayloadObject]) -> None:
        """Begin to read objects."""
        assert len(wanted) <= self.room
        for at in wanted:
            self._begun += 1
            self._threads.submit(self._run, at)

    def poll(self) -> list[PayloadRead]:
        """Return the reads that ended."""
        try:
            self._wake.recv(4096)
        except BlockingIOError:
            return []
        found: list[PayloadRead] = []
        while not self._ended.empty():
            found.append(self._ended.get_nowait())
        self._begun -= len(found)
        return found

    def close(self) -> None:
        """Drop all reads; a thread that reads ends within the store's bounds."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._wake.close()
        self._waker.close()

    def _run(self, at: PayloadObject) -> None:
        result: bytes | str = UNAVAILABLE
        try:
            (data,) = self._store.get((at,))
            result = judged(at.ref, data)
        except StoreAway:
            pass  # said by the result; whoever waits for it tries again
        finally:
            self._ended.put(PayloadRead(at, result))
            try:
                self._waker.send(b"\0")
            except BlockingIOError:
                # The socket is full of wake-ups that were not read yet: one is enough.
                pass
            except OSError:
                # Closed meanwhile: nobody waits for this object.
                pass
