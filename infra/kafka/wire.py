"""The bytes of a message: a chunk or a canary, as msgpack arrays of different lengths."""

from typing import Final

import msgspec

from commandside.firing.chunks import FORMAT
from commandside.ports import ENTRY_BYTES, Chunk


class Canary(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Proof that the way through a partition is open; names the incarnation it was sent in."""

    format: int
    incarnation: bytes


_ENCODER: Final = msgspec.msgpack.Encoder()
_CHUNK: Final = msgspec.msgpack.Decoder(Chunk)
_CANARY: Final = msgspec.msgpack.Decoder(Canary)
_CANARY_HEAD: Final = 0x90 + len(Canary.__struct_fields__)


def encode(message: Chunk | Canary) -> bytes:
    """Return the value of a message."""
    return _ENCODER.encode(message)


def decode(value: bytes) -> Chunk | Canary | None:
    """Return what a message says, or None where it is not ours to understand."""
    try:
        if value[:1] == bytes((_CANARY_HEAD,)):
            canary = _CANARY.decode(value)
            return canary if canary.format == FORMAT else None
        chunk = _CHUNK.decode(value)
    except msgspec.DecodeError:
        return None
    whole = len(chunk.entries) % ENTRY_BYTES == 0 and chunk.shard >= 0 and chunk.lane in (0, 1)
    return chunk if chunk.format == FORMAT and whole else None
