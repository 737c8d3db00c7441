"""Bodies of commands, from bytes to an object that `definition` can judge."""

from collections.abc import Collection, Iterable
from typing import Any, Final

import msgspec

from commandside.definitions.definition import PAYLOAD_BYTES_MAX
from domain import strict_json
from domain.problem import Problem, Reason, invalid
from domain.refusal import Refused, token

FRAMING_BYTES: Final = 128 * 1024
BODY_BYTES_MAX: Final = PAYLOAD_BYTES_MAX * 4 // 3 + FRAMING_BYTES
"""A payload at its limit, even as base64, and what is around it."""


def too_large(limit: int = BODY_BYTES_MAX) -> Problem:
    """Return the refusal of a body over `limit` bytes."""
    return Problem("too_large", f"a body has at most {limit} bytes")


def read_object(raw: bytes) -> dict[str, Any]:
    """Return the JSON object that a body holds; raises Problem."""
    if len(raw) > BODY_BYTES_MAX:
        raise too_large()
    try:
        return strict_json.read_object(raw)
    except strict_json.NotText as reason:
        raise invalid([Refused(reason.pointer, reason.detail)]) from None
    except strict_json.NotJson as reason:
        raise Problem("bad_json", f"the body is refused: {reason}") from None


def unknown(known: Collection[str]) -> str:
    """Return what is said of a field that is none of these."""
    before = "one of" if len(known) > 1 else "there is"
    return f"unknown field; {before} {', '.join(sorted(known))}"


def strange(body: Iterable[str], known: Collection[str]) -> list[Reason]:
    """Return the refusals of a body's fields that do not exist."""
    detail = unknown(known)
    return [Refused("/" + token(name[:64]), detail) for name in body if name not in known]


def read_job(raw: bytes) -> tuple[dict[str, Any], bytes | None]:
    """Return a definition or a patch, and the bytes of its `payload` as sent; raises Problem."""
    body = read_object(raw)
    return body, member(raw, "payload") if "payload" in body else None


def member(raw: bytes, name: str) -> bytes:
    """Return the bytes of a member of an object that was read; raises Problem."""
    try:
        return strict_json.member(raw, name)
    except (msgspec.DecodeError, KeyError):
        # Two parsers that disagree about one text: nobody can say what was meant.
        raise Problem("bad_json", f"the body is refused: its {name} cannot be read") from None
