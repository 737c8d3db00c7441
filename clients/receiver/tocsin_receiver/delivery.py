"""What a call of Tocsin says, as a struct."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Final

from tocsin_receiver.refused import Refused

_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,255}")
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")
_COUNT: Final = re.compile(r"[0-9]{1,18}")
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_TOKEN: Final = re.compile(r"[!-~]{1,4096}")
_INSTANT: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})\.([0-9]{3})Z"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One call. The signature covers `key`, `sent_at` and `body`; the rest came beside it."""

    key: str
    """The idempotency key: one for all calls of an occurrence, and no other has it."""

    job_id: str
    run_id: str
    scheduled_for: datetime
    """The nominal instant of the occurrence, in UTC; the call comes at it or after it."""

    attempt: int
    """1 for the first call of the run."""

    fence: int
    """Rises with every attempt of a run: what a lower one does comes too late."""

    possible_duplicate: bool
    """True where Tocsin does not know what became of an earlier attempt."""

    sent_at: datetime
    traceparent: str | None
    completion_token: str | None = field(repr=False)
    """With it, work that goes on after `202` and `Tocsin-Completion: async` reports its end."""

    content_type: str | None
    body: bytes = field(repr=False)


def message_id(headers: Mapping[str, str]) -> str:
    """Return the key of a call from `webhook-id`, which is signed.

    It has no dot: id, time and body are signed as `id.time.body`, and a dot in an id would let a
    stranger move that border.
    """
    key = _matching(headers, "webhook-id", _KEY, "1 to 255 letters, digits, '_' and '-'")
    if headers.get("idempotency-key", key) != key:
        raise Refused("malformed", "idempotency-key is not webhook-id: they are one and the same")
    return key


def read_delivery(headers: Mapping[str, str], key: str, sent_s: int, body: bytes) -> Delivery:
    """Return what the headers say; raise Refused where they do not say it as Tocsin does."""
    traceparent = headers.get("traceparent", "")
    token = headers.get("tocsin-completion-token")
    if token is not None and not _TOKEN.fullmatch(token):
        raise Refused("malformed", "tocsin-completion-token has characters that are not visible")
    return Delivery(
        key=key,
        job_id=_matching(headers, "tocsin-job-id", _ID, "an id"),
        run_id=_matching(headers, "tocsin-run-id", _ID, "an id"),
        scheduled_for=_instant(headers, "tocsin-scheduled-for"),
        attempt=_count(headers, "tocsin-attempt"),
        fence=_count(headers, "tocsin-fence"),
        possible_duplicate=_flag(headers, "tocsin-possible-duplicate"),
        sent_at=datetime.fromtimestamp(sent_s, timezone.utc),
        # Others on the way may rewrite it, and the standard says: ignore what is malformed.
        traceparent=traceparent if _TRACEPARENT.fullmatch(traceparent) else None,
        completion_token=token,
        content_type=headers.get("content-type"),
        body=body,
    )


def _matching(headers: Mapping[str, str], name: str, right: re.Pattern[str], words: str) -> str:
    value = headers.get(name)
    if not value:
        raise Refused("missing", f"{name} is missing: every call of Tocsin has it")
    if not right.fullmatch(value):
        raise Refused("malformed", f"{name} is not {words}")
    return value


def _count(headers: Mapping[str, str], name: str) -> int:
    return int(_matching(headers, name, _COUNT, "a whole number of at most 18 digits"))


def _flag(headers: Mapping[str, str], name: str) -> bool:
    value = headers.get(name, "false").lower()
    if value not in {"true", "false"}:
        raise Refused("malformed", f"{name} is neither true nor false")
    return value == "true"


def _instant(headers: Mapping[str, str], name: str) -> datetime:
    words = "an instant in UTC with milliseconds, such as 2026-12-01T09:00:00.000Z"
    parts = _INSTANT.fullmatch(_matching(headers, name, _INSTANT, words))
    assert parts is not None
    year, month, day, hour, minute, second, ms = map(int, parts.groups())
    try:
        return datetime(year, month, day, hour, minute, second, ms * 1_000, timezone.utc)
    except ValueError:
        raise Refused("malformed", f"{name} is not {words}") from None
