"""The ports of large payloads: objects in a store, and the list of those that were written.

What is in the store is ciphertext under the key of its tenant. Every object is in the list before
it is in the store, so the store itself is never searched: what nothing names any more is found in
the list.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from commandside.ports import Unavailable
from domain.instant import HOUR, MINUTE
from domain.payload import PayloadRef

INLINE_BYTES_MAX: Final = 16 * 1024
"""Larger bodies are objects, unless the operator says otherwise."""
APPEND_WITHIN_MS: Final = 10 * MINUTE
"""From the noting of an object: a decision that names it is not committed later."""
GRACE_MS: Final = 1 * HOUR
"""An object is not looked at before; six times as long as a decision may take to name it."""
LOOKED_AT_MS: Final = 10 * MINUTE
"""Who took objects to look at has them to itself for so long."""
AGAIN_MS: Final = 24 * HOUR
"""An object that something names is looked at again after so long."""


class StoreAway(Unavailable):
    """The store cannot be reached, or is not the one that was written to; why is for anyone."""


class PayloadObject(msgspec.Struct, frozen=True, gc=False):
    """An object, and the one job whose events may name it."""

    tenant_id: bytes
    job_id: bytes
    ref: PayloadRef


class PayloadStore(Protocol):
    """Objects. Blocks, bounded in time; raises StoreAway, and then nothing is known to have
    happened to any of them. For several threads at once.
    """

    def put(self, objects: Sequence[tuple[PayloadObject, bytes]]) -> None:
        """Write objects; on return they are durable."""

    def get(self, wanted: Sequence[PayloadObject]) -> list[bytes | None]:
        """Return the bytes of each, None where it is not there; another length is read as empty."""

    def delete(self, objects: Sequence[PayloadObject]) -> None:
        """Delete objects; one that is not there is deleted."""


class Taken(msgspec.Struct, frozen=True, gc=False):
    """An object to be looked at.

    `unnamed_since`: when it was first found unnamed (ms) since it was last named, 0 for never.
    """

    object: PayloadObject
    unnamed_since: int = 0


class PayloadList(Protocol):
    """The objects that there may be. Awaits; raises Unavailable."""

    async def note(self, objects: Sequence[PayloadObject]) -> int:
        """Note objects that are about to be written; return the instant by the database clock."""

    async def take(self, limit: int) -> list[Taken]:
        """Return objects whose time to be looked at has come: to nobody else for LOOKED_AT_MS."""

    async def named(self, objects: Sequence[PayloadObject]) -> None:
        """Have objects that something names looked at again in AGAIN_MS."""

    async def unnamed(self, objects: Sequence[PayloadObject], after_ms: int) -> None:
        """Have objects that nothing names looked at again in `after_ms`."""

    async def forget(self, objects: Sequence[PayloadObject]) -> None:
        """Take objects that are deleted from the list."""


class PayloadRead(msgspec.Struct, frozen=True, gc=False):
    """What came of reading an object: its bytes, or a reason of `domain.payload`."""

    object: PayloadObject
    found: bytes | str


class PayloadReads(Protocol):
    """Objects as a dispatcher reads them: neither call ever blocks."""

    @property
    def room(self) -> int:
        """How many more reads `submit` takes now."""
        ...

    def submit(self, wanted: Sequence[PayloadObject]) -> None:
        """Begin to read objects, at most `room`."""
        ...

    def poll(self) -> list[PayloadRead]:
        """Return the reads that ended, each once, judged by their hash."""
        ...

    def close(self) -> None:
        """Drop all reads."""
        ...
