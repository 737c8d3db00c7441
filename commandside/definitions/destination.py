"""What a definition says of where its fires go, and whether this tenant may send there."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from domain import wording
from domain.job.events import JobSpec
from domain.problem import Reason, invalid
from domain.queue_target import KINDS, Grants, judge, parse_queue_target, payload_refusal
from domain.refusal import Refused, token
from domain.target import (
    AddressRules,
    Header,
    HttpTarget,
    Target,
    parse_headers,
    parse_http_target,
)

KEPT: Final = b""
"""Value of a header that a change leaves as it is; no header has it as its value."""
_CREDENTIALS: Final = (
    'a secret that is user:password, as {"secret": "name"}, and no Authorization among the headers'
)
SEAL_BYTES_MAX: Final = 64
"""What sealing adds to a payload, at most."""


class Bounds(Protocol):
    """What the operator decided about addresses."""

    @property
    def addresses(self) -> AddressRules:
        """Return which may be called."""


class Reading(Protocol):
    """The reader of a body: what it has read so far, and how it refuses."""

    body: Mapping[str, Any]
    values: dict[str, Any]
    wrong: list[Reason]
    old: JobSpec | None

    @property
    def bounds(self) -> Bounds:
        """Return what the operator decided."""

    @property
    def target_before(self) -> Target | None:
        """Return what `target` is changed from."""

    def refuse(self, pointer: str, detail: str) -> None:
        """Collect a refusal."""


def read(reader: Reading, content_type: str = "content_type says it already") -> None:
    """Read `target`, of whatever kind; `content_type` refuses a header of that name."""
    given = reader.body.get("target")
    if not isinstance(given, dict):
        reader.refuse("/target", 'an object such as {"kind": "http", "url": "https://…"}')
        return
    kind = given.get("kind")
    if kind != "http" and not (isinstance(kind, str) and kind in KINDS):
        reader.refuse("/target/kind", f"one of http, {', '.join(KINDS)}")
        return
    headers = given.get("headers", {})
    if not isinstance(headers, dict):
        reader.refuse("/target/headers", "an object of header names and values")
    if kind == "http":
        _http(reader, given, headers, content_type)
    else:
        _queue(reader, given, headers, content_type)


def _http(reader: Reading, given: Mapping[str, Any], headers: Any, content_type: str) -> None:
    for name in given:
        if name == "credentials":
            # What could be read of it was moved to the headers.
            reader.refuse("/target/credentials", _CREDENTIALS)
        elif name not in ("kind", "url", "method", "headers"):
            fields = "kind, url, method, headers, credentials"
            reader.refuse(f"/target/{escaped(name)}", f"unknown field; {fields}")
    url, method = given.get("url"), given.get("method", "POST")
    if not isinstance(url, str):
        reader.refuse("/target/url", "an absolute URL that begins with http:// or https://")
    if not isinstance(method, str):
        reader.refuse("/target/method", "the name of a method, such as POST")
    if not (isinstance(url, str) and isinstance(method, str) and isinstance(headers, dict)):
        return
    kept, plain = _headers(reader, headers, content_type)
    found = parse_http_target(url, method, plain, reader.bounds.addresses)
    if not isinstance(found, HttpTarget):
        reader.wrong.extend(found)
        return
    if kept:
        found = msgspec.structs.replace(found, headers=_marked(found.headers, kept))
    reader.values["target"] = found


def _queue(reader: Reading, given: Mapping[str, Any], headers: Any, content_type: str) -> None:
    kept, plain = _headers(reader, headers if isinstance(headers, dict) else {}, content_type)
    judged, wrong = parse_headers(plain)
    reader.wrong.extend(wrong)
    found = parse_queue_target(given["kind"], given, _marked(judged, kept))
    if isinstance(found, tuple):
        reader.wrong.extend(found)
        return
    reader.values["target"] = found


def _headers(
    reader: Reading, given: Mapping[str, Any], content_type: str
) -> tuple[set[str], dict[str, Any]]:
    """Return the names of headers that stay as they are, and all with values to judge."""
    before = () if reader.target_before is None else reader.target_before.headers
    kept = {
        name
        for name, value in given.items()
        if value == wording.REDACTED and any(header.name == name for header in before)
    }
    for name in given:
        if name.lower() == "content-type":
            reader.refuse(f"/target/headers/{escaped(name)}", content_type)
    return kept, {name: "kept" if name in kept else value for name, value in given.items()}


def _marked(headers: tuple[Header, ...], kept: set[str]) -> tuple[Header, ...]:
    return tuple(
        msgspec.structs.replace(header, value=KEPT) if header.name in kept else header
        for header in headers
    )


def opened(spec: JobSpec) -> int:
    """Return a payload's size as its sealed bytes tell it: not more, and 0 only if there is none.

    Brokers take more than the limits say, by more than is unsure here.
    """
    size = len(spec.payload) if spec.payload_ref is None else spec.payload_ref.size
    return max(size - SEAL_BYTES_MAX, min(size, 1))


def judge_sending(target: Target, size: int, tenant_id: bytes, grants: Grants) -> None:
    """Raise Problem where a target takes no such payload, or is a queue closed to this tenant."""
    if isinstance(target, HttpTarget):
        if size and target.method == "HEAD":
            refused = "a HEAD call has no body: name another method, or give no payload"
            raise invalid([Refused("/payload", refused)])
        return
    wrong: list[Reason] = []
    closed = judge(target, tenant_id, grants)
    if closed is not None:
        wrong.append(closed)
    detail = payload_refusal(target, size)
    if detail is not None:
        wrong.append(Refused("/payload", detail))
    if wrong:
        raise invalid(wrong)


def escaped(name: str) -> str:
    """Return a name that a body gave, cut, as a pointer has it."""
    return token(name[:64])
