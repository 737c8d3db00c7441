"""Pages by key: a cursor is a sealed place and a direction, valid for one tenant and one filter."""

from collections.abc import Sequence
from typing import Final, Generic, TypeVar

import msgspec

from domain.opaque import Seal
from domain.problem import PARAMETER, invalid
from domain.refusal import Refused
from queryside.ports import PAGE_MAX

PAGE_DEFAULT: Final = 50
_OLDER, _NEWER = b"o", b"n"

Line = TypeVar("Line")


class Edge(msgspec.Struct, frozen=True):
    """Where a page begins: after (`newer`: before) a place, given as number and id."""

    number: int
    id: bytes
    newer: bool


class Cursors:
    """Makes and reads the cursors of one list; `bound` is the tenant, the list and its filter."""

    def __init__(self, seal: Seal, bound: bytes) -> None:
        self._seal = seal
        self._bound = bound

    def read(self, token: str | None) -> Edge | None:
        """Return the place that a cursor stands for, None for no cursor; raises Problem."""
        if token is None:
            return None
        body = self._seal.read(self._bound, token)
        if body is None:
            reason = Refused(f"{PARAMETER}cursor", "a cursor of ours, with the filter it came with")
            raise invalid((reason,))
        return Edge(int.from_bytes(body[1:9], "big", signed=True), body[9:], body[:1] == _NEWER)

    def issue(self, number: int, key: bytes, *, newer: bool = False) -> str:
        """Return the cursor of a place."""
        mark = _NEWER if newer else _OLDER
        return self._seal.issue(self._bound, mark + number.to_bytes(8, "big", signed=True) + key)


class Cut(msgspec.Struct, Generic[Line], frozen=True):
    """The lines of a page, and whether more lie before and after it."""

    lines: Sequence[Line]
    newer: bool
    older: bool


def cut(lines: Sequence[Line], limit: int, edge: Edge | None) -> Cut[Line]:
    """Cut `lines`, newest first and asked for with `limit` + 1, to a page next to `edge`."""
    more = len(lines) > limit
    if edge is not None and edge.newer:
        return Cut(lines[-limit:] if more else lines, more, older=True)
    return Cut(lines[:limit], edge is not None, more)


def limit_of(text: str | None) -> int:
    """Read the parameter `limit`; raises Problem."""
    if text is None:
        return PAGE_DEFAULT
    if text.isascii() and text.isdecimal() and len(text) <= len(str(PAGE_MAX)):
        limit = int(text)
        if 1 <= limit <= PAGE_MAX:
            return limit
    raise invalid((Refused(f"{PARAMETER}limit", f"a whole number from 1 to {PAGE_MAX}"),))
