"""A body that is too large for its job's events: which object has it, and whether it still does."""

from hashlib import sha256
from typing import Final

import msgspec

MISSING: Final = "payload_missing"
ALTERED: Final = "payload_altered"
UNAVAILABLE: Final = "payload_unavailable"
"""Why there is no body to send. Only the last can pass by itself."""


class PayloadRef(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An object of the store, by SHA-256 and length of its bytes, which are ciphertext.

    No other definition has the same: the nonce in it is drawn for each.
    """

    sha256: bytes
    size: int


def ref_of(data: bytes) -> PayloadRef:
    """Return what tells these bytes from all others."""
    return PayloadRef(sha256(data).digest(), len(data))


def judged(ref: PayloadRef, data: bytes | None) -> bytes | str:
    """Return the bytes of an object as they were written, or why they are not."""
    if data is None:
        return MISSING
    if len(data) != ref.size or sha256(data).digest() != ref.sha256:
        return ALTERED
    return data
