"""The port of a master key: it wraps other keys, and is never seen itself."""

from typing import Final, Protocol

KEY_BYTES: Final = 32
"""Of every key that is wrapped or wraps here."""


class MasterKeyError(Exception):
    """A master key cannot be used; the text says why and what would be right."""


class WrongMaster(Exception):
    """The bytes are not what this key has wrapped with this context."""


class MasterKey(Protocol):
    """A key outside the database. Blocks; raises `commandside.ports.Unavailable`."""

    @property
    def name(self) -> str:
        """What it is called in the database: the same in every process, and nobody's secret."""
        ...

    def wrap(self, key: bytes, context: bytes) -> bytes:
        """Return a key of KEY_BYTES wrapped, to be opened with the same context only."""
        ...

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        """Return the key again; raises WrongMaster."""
        ...
