"""The port of stores: one record a key, changed only by comparing what was there."""

from typing import Protocol

from tocsin_receiver.record import Record


class StoreBusy(Exception):
    """The store cannot take a claim now: the call is answered 503, and comes again."""


class Store(Protocol):
    """Keeps records. An error of its driver goes through: the call fails, and comes again."""

    blocks: bool
    """Whether a call waits for I/O, so that an event loop needs a thread for it."""

    def load(self, key: str) -> Record | None:
        """Return the record of a key, or None."""

    def swap(self, key: str, old: Record | None, new: Record, keep_ms: int) -> bool:
        """Put `new` in the place of `old` (None: of nothing) in one step.

        Return False, and change nothing, where something else is there. After `keep_ms` the store
        may forget the key, and until then it must not. Raise StoreBusy where there is no room.
        """
