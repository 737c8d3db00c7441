"""Postgres arrays in their binary form, joined as bytes.

An array parameter made by a driver costs about a microsecond an element; joined here it is mostly
one C call a column. Layout: dimensions, flags, element oid, length, lower bound (int32 each), then
for each element its length and its bytes. Nulls are never sent.
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct, unpack_from

_HEADER = Struct(">iiIii").pack
_EMPTY = Struct(">iiI").pack
_LENGTH = Struct(">i").pack
_LENGTHS = tuple(_LENGTH(n) for n in range(4096))

BOOL, BYTEA, INT8, INT2, INT4, TEXT, UUID = 16, 17, 20, 21, 23, 25, 2950
"""Oids of the element types."""

_ID_LENGTH = _LENGTH(16)
_SHAPES_KEPT = 2048
"""Compiled layouts kept; one for each length of an integer array, which BATCH_MAX bounds."""


@lru_cache(_SHAPES_KEPT)
def _shape(size: int, code: str, count: int) -> Struct:
    return Struct(">" + f"i{code}" * count) if size != 4 else Struct(f">{2 * count}i")  # noqa: PLR2004 - int4 lengths and values have one width


def _integers(oid: int, size: int, code: str, values: Sequence[int]) -> bytes:
    count = len(values)
    if not count:
        return _EMPTY(0, 0, oid)
    flat = [size] * (2 * count)
    flat[1::2] = values
    return _HEADER(1, 0, oid, count, 1) + _shape(size, code, count).pack(*flat)


def int2s(values: Sequence[int]) -> bytes:
    """Return int2[]."""
    return _integers(INT2, 2, "h", values)


def int4s(values: Sequence[int]) -> bytes:
    """Return int4[]."""
    return _integers(INT4, 4, "i", values)


def int8s(values: Sequence[int]) -> bytes:
    """Return int8[]."""
    return _integers(INT8, 8, "q", values)


def bools(values: Sequence[bool]) -> bytes:
    """Return bool[]."""
    return _integers(BOOL, 1, "b", values)


def uuids(values: Sequence[bytes]) -> bytes:
    """Return uuid[] of ids of 16 bytes."""
    if not values:
        return _EMPTY(0, 0, UUID)
    return _HEADER(1, 0, UUID, len(values), 1) + _ID_LENGTH + _ID_LENGTH.join(values)


def byteas(values: Sequence[bytes]) -> bytes:
    """Return bytea[]."""
    return _sized(BYTEA, values)


def texts(values: Sequence[bytes]) -> bytes:
    """Return text[] of texts that are encoded already."""
    return _sized(TEXT, values)


def _sized(oid: int, values: Sequence[bytes]) -> bytes:
    count = len(values)
    if not count:
        return _EMPTY(0, 0, oid)
    parts = [b""] * (2 * count + 1)
    parts[0] = _HEADER(1, 0, oid, count, 1)
    known = len(_LENGTHS)
    parts[1::2] = [_LENGTHS[size] if size < known else _LENGTH(size) for size in map(len, values)]
    parts[2::2] = values
    return b"".join(parts)


def int4(value: int) -> bytes:
    """Return one int4."""
    return _LENGTH(value)


def int8(value: int) -> bytes:
    """Return one int8."""
    return value.to_bytes(8, "big", signed=True)


_COUNT_AT = 12
_ELEMENTS_AT = 20


def read_int4s(array: bytes | None) -> tuple[int, ...]:
    """Return the elements of an int4[] without nulls; a null array has none."""
    return _read("4xi", array)


def read_int8s(array: bytes | None) -> tuple[int, ...]:
    """Return the elements of an int8[] without nulls; a null array has none."""
    return _read("4xq", array)


def _read(element: str, array: bytes | None) -> tuple[int, ...]:
    """Return the elements of a binary array of one dimension, or none."""
    if array is None or len(array) < _ELEMENTS_AT:
        return ()
    count = int.from_bytes(array[_COUNT_AT : _COUNT_AT + 4], "big")
    return unpack_from(f">{count * element}", array, _ELEMENTS_AT)
