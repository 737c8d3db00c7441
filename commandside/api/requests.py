"""What a command's request says beside its body, and its body within bounds."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any, Final

from litestar import Request
from litestar.datastructures import State

from commandside.commands.asked import ANY_VERSION, Asked
from commandside.definitions.reading import BODY_BYTES_MAX, read_object, too_large
from domain import ids
from domain.problem import Problem
from domain.refusal import Refused
from domain.tenant import Caller

HttpRequest = Request[Caller, Any, State]

JSON: Final = ("application/json",)
PATCH: Final = ("application/merge-patch+json", "application/json")
NDJSON: Final = ("application/x-ndjson", "application/ndjson", "application/jsonl")
BODY_TIMEOUT_S: Final = 30
"""For a whole body; for each piece of a stream."""

_KEY: Final = re.compile(r'"([\x20\x21\x23-\x5b\x5d-\x7e]{1,255})"|([\x20\x21\x23-\x7e]{1,255})')
_ETAG: Final = re.compile(r'"?([1-9][0-9]{0,8})"?')
_NEVER: Final = -1
"""No job has this version: an entity tag that no answer ever had."""


def idempotency_key(request: HttpRequest) -> str:
    """Return the Idempotency-Key, quoted or not, empty for none; raises Problem."""
    given = request.headers.getall("idempotency-key", [])
    if not given:
        return ""
    found = _KEY.fullmatch(given[0].strip(" \t")) if len(given) == 1 else None
    if found is None:
        reason = Refused("@Idempotency-Key", "one key of 1 to 255 printable ASCII characters")
        raise Problem("bad_request", "the Idempotency-Key cannot be read", (reason,))
    return found[1] or found[2]


def if_match(request: HttpRequest) -> int:
    """Return the version that If-Match asks for; raises Problem for what is no entity tag."""
    given = request.headers.get("if-match")
    if given is None or given.strip() == "*":
        return ANY_VERSION
    found = _ETAG.fullmatch(given.strip())
    if found is not None:
        return int(found[1])
    if re.fullmatch(r'(W/)?"[\x21\x23-\x7e]*"', given.strip()):
        return _NEVER
    reason = Refused("@If-Match", 'one entity tag as in an ETag of ours, such as "3"')
    raise Problem("bad_request", "If-Match cannot be read", (reason,))


def job_of(value: str) -> bytes:
    """Return the id in a path; what is no id is as absent as a job that never was."""
    found = ids.parse(ids.JOB, value)
    if found is None:
        raise Problem("absent", "there is no such job")
    return found


def asked(request: HttpRequest, job_id: str, name: str, body: bytes, *, keyed: bool) -> Asked:
    """Return a command on a job; `keyed`: an Idempotency-Key counts."""
    key = idempotency_key(request) if keyed else ""
    version = if_match(request)
    return Asked(request.user, job_of(job_id), name, body, key, version)


def expect(request: HttpRequest, media_types: tuple[str, ...], *, optional: bool = False) -> None:
    """Refuse a body of another media type, or one that is coded."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        reason = Refused("@Content-Encoding", "identity")
        raise Problem("media_type", "coded bodies are not accepted", (reason,))
    given = request.headers.get("content-type", "")
    kind, _, parameters = given.partition(";")
    coded = parameters.replace(" ", "").replace('"', "").lower()
    if kind.strip().lower() in media_types and coded in ("", "charset=utf-8"):
        return
    if not given and optional:
        return
    reason = Refused("@Content-Type", " or ".join(media_types))
    raise Problem("media_type", f"the body must be {media_types[0]}", (reason,))


async def body_of(request: HttpRequest) -> bytes:
    """Return the whole body; raises Problem for one that is too large or does not come."""
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length) > BODY_BYTES_MAX:
        raise too_large()
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for part in _parts(request):
                parts.append(part)
                size += len(part)
                if size > BODY_BYTES_MAX:
                    raise too_large()
    except TimeoutError:
        raise _late() from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def optional_object(request: HttpRequest) -> tuple[bytes, dict[str, Any]]:
    """Return a body that may be absent or blank, as bytes and as an object; raises Problem."""
    raw = await body_of(request)
    if not raw.strip():
        return raw, {}
    expect(request, JSON)
    return raw, read_object(raw)


async def pieces(request: HttpRequest) -> AsyncIterator[bytes]:
    """Return the body as it comes; raises Problem when it stops coming."""
    parts = _parts(request)
    while True:
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                part = await anext(parts, None)
        except TimeoutError:
            raise _late() from None
        if part is None:
            return
        yield part


async def _parts(request: HttpRequest) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await request.receive()
        if message["type"] != "http.request":
            raise Problem("bad_request", "the client closed the connection before its body ended")
        more = message.get("more_body", False)
        if part := message.get("body", b""):
            yield part


def _late() -> Problem:
    return Problem("timeout", f"no more of the body came within {BODY_TIMEOUT_S} s")
