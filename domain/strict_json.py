"""One reading of JSON: what two parsers could read differently is refused.

Refused: bytes that are not UTF-8, duplicate keys, NaN and infinities, numbers that a double cannot
hold or of more than 30 digits, lone surrogates, U+0000, nesting deeper than 32, trailing bytes.
"""

import json
import re
from typing import Any, Final

import msgspec

from domain.refusal import token

DEPTH_MAX: Final = 32
NODES_MAX: Final = 5_000
"""Values outside `payload`; each costs more memory than its text."""
STRING_MAX: Final = 64 * 1024
"""Characters of a string outside `payload`."""
DIGITS_MAX: Final = 30
EXPONENT_MAX: Final = 308

_SKIP: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_NUMBER: Final = re.compile(r"-?([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")
_RAW: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class NotJson(Exception):
    """The bytes are not JSON as we read it; the message says why, for a person."""


class NotText(NotJson):
    """They are, but a text in them holds what is no character; `pointer` says where."""

    def __init__(self, pointer: str, detail: str) -> None:
        super().__init__(detail)
        self.pointer = pointer
        self.detail = detail


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise NotJson(f"the key {shown(key)} is there twice in one object")
            seen.add(key)
    return found


def _constant(text: str) -> Any:
    raise NotJson(f"{text} is not a JSON number")


def _check(text: str) -> None:
    parts = _NUMBER.fullmatch(text)
    assert parts is not None, text
    digits = len(parts[1]) + len(parts[2] or "")
    exponent = (parts[3] or "0").lstrip("+-").lstrip("0")
    if digits > DIGITS_MAX:
        raise NotJson(f"a number has at most {DIGITS_MAX} digits")
    if len(exponent) > len(str(EXPONENT_MAX)) or int(exponent or "0") > EXPONENT_MAX:
        raise NotJson(f"{text[:40]} has an exponent beyond {EXPONENT_MAX}")


def _float(text: str) -> float:
    _check(text)
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise NotJson(f"{text[:40]} is more than a number can hold")
    return value


def _int(text: str) -> int:
    if len(text) > DIGITS_MAX:
        _check(text)
    return int(text)


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_pairs,
    parse_float=_float,
    parse_int=_int,
    parse_constant=_constant,
    strict=True,
)


def read(data: bytes) -> Any:
    """Return the value that `data` holds, whole; raises NotJson."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotJson(f"byte {error.start} is not UTF-8") from None
    if _deep(data):
        raise NotJson(f"nested deeper than {DEPTH_MAX}")
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise NotJson(f"{error.msg}, line {error.lineno} column {error.colno}") from None
    # Only an escape can spell what UTF-8 and the decoder do not refuse already.
    if "\\u" in text:
        _check_text(value)
    return value


def read_object(data: bytes) -> dict[str, Any]:
    """Return the object that `data` holds, bounded outside its `payload`; raises NotJson."""
    value = read(data)
    if not isinstance(value, dict):
        raise NotJson("a JSON object is expected")
    # A node takes at least two bytes of text, so a short body needs no count.
    if len(data) > 2 * NODES_MAX:
        _check_size(value)
    return value


def member(data: bytes, name: str) -> bytes:
    """Return the bytes of a member's value, exactly as sent. `data` has passed `read_object`."""
    return bytes(_RAW.decode(data)[name])


def shown(text: str) -> str:
    """Return a text from outside as a short quoted word for a sentence."""
    cut = text if len(text) <= 40 else text[:40] + "…"  # noqa: PLR2004 - a word for a person
    return json.dumps(cut)


def _deep(data: bytes) -> bool:
    """Tell whether brackets outside strings nest deeper than DEPTH_MAX."""
    if data.count(b"[") + data.count(b"{") <= DEPTH_MAX:
        return False
    depth = 0
    for bracket in _SKIP.sub(b"", data).translate(None, _NOT_BRACKETS):
        if bracket in b"[{":
            depth += 1
            if depth > DEPTH_MAX:
                return True
        else:
            depth -= 1
    return False


def _check_text(value: Any, pointer: str = "") -> None:
    if isinstance(value, str):
        if "\x00" in value:
            raise NotText(pointer, "U+0000 is not allowed: leave it out")
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise NotText(pointer, "a lone surrogate is no character: leave it out") from None
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_text(key, pointer)
            _check_text(item, f"{pointer}/{token(key)}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_text(item, f"{pointer}/{index}")


def _check_size(value: dict[str, Any]) -> None:
    left = NODES_MAX
    waiting: list[Any] = [item for key, item in value.items() if not key.startswith("payload")]
    while waiting:
        item = waiting.pop()
        left -= 1
        if left < 0:
            raise NotJson(f"more than {NODES_MAX} values outside payload")
        if isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
        elif isinstance(item, str) and len(item) > STRING_MAX:
            raise NotJson(f"a string outside payload has at most {STRING_MAX} characters")
