"""`tocsin schedule next --jsonl`: a question a line in, an answer a line out, as they come.

A question is the schedule part of a definition, with `after` or `before` (RFC 3339) and `count`.
`every` from `completion` has one answer: what follows a definition, or an end, at `after`.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, Protocol

import msgspec

from commandside.definitions.when import ENDS, RECURRING, read_recurring, read_span
from domain.instant import SECOND, rfc3339
from domain.refusal import Refused, token
from domain.schedule.once import OneTimePlan, read_instant
from domain.schedule.schedule import DelayPlan, Plan, ScheduleBreach, between, plan

LINE_BYTES_MAX: Final = 65_536
COUNT_MAX: Final = 1_000
COUNT: Final = 5
"""Slots answered after an instant where `count` is absent; before one: 1."""
_ANSWERS_KEPT: Final = 4_096
"""Of each direction: a question that comes again is not walked again."""
_CHUNK: Final = 65_536
_ASKING: Final = frozenset(("after", "before", "count"))
_KNOWN: Final = frozenset((*RECURRING, *ENDS, "run_at", "after", "before", "count"))
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


class Input(Protocol):
    """What lines are read from."""

    def read1(self, size: int, /) -> bytes:
        """Return what is there, at most `size` bytes; empty at the end."""
        ...


class Output(Protocol):
    """What lines are written to."""

    def write(self, data: bytes, /) -> object:
        """Write all of it."""
        ...

    def flush(self) -> None:
        """Hand on what was written."""
        ...


class _Wrong(Exception):
    def __init__(self, code: str, *reasons: Refused) -> None:
        super().__init__(code)
        self.code, self.reason = code, reasons[0]


def answer_lines(
    questions: Input, answers: Output, now: Callable[[], int], min_interval_s: int = 60
) -> None:
    """Answer each line until the input ends; `now` (ms) is where `after` is absent."""
    for lines in _chunks(questions):
        for line in lines:
            if line.strip():
                answers.write(_encode(answer(line, now, min_interval_s)) + b"\n")
        answers.flush()


def _chunks(source: Input) -> Iterator[list[bytes]]:
    """Yield whole lines as they come; of a line beyond the limit a piece that is refused."""
    rest, skipping = b"", False
    while chunk := source.read1(_CHUNK):
        *lines, rest = (rest + chunk).split(b"\n")
        if skipping and lines:
            del lines[0]
            skipping = False
        if len(rest) > LINE_BYTES_MAX:
            if not skipping:
                lines.append(rest)
            rest, skipping = b"", True
        yield lines
    if rest and not skipping:
        yield [rest]


def answer(line: bytes, now: Callable[[], int], min_interval_s: int = 60) -> dict[str, Any]:
    """Return `next_utc`, `previous_utc` or `reject` for one line."""
    try:
        return _answer(_question(line), now, min_interval_s)
    except _Wrong as wrong:
        reason = wrong.reason
        reject = {"code": wrong.code, "detail": reason.detail, "pointer": reason.pointer}
        return {"reject": reject}
    except ScheduleBreach as breach:
        return {"reject": {"code": "schedule_error", "detail": str(breach), "pointer": ""}}


def _question(line: bytes) -> dict[str, Any]:
    if len(line) > LINE_BYTES_MAX:
        raise _Wrong("too_large", Refused("", f"a line has at most {LINE_BYTES_MAX} bytes"))
    try:
        body = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _Wrong("bad_json", Refused("", f"not a JSON object: {error}")) from error
    if strange := body.keys() - _KNOWN:
        name = min(strange)
        raise _Wrong("invalid", Refused(f"/{token(name[:64])}", "unknown field"))
    if "before" in body and "after" in body:
        raise _Wrong("invalid", Refused("/before", "given beside after: one of the two"))
    return body


def _answer(body: dict[str, Any], now: Callable[[], int], min_interval_s: int) -> dict[str, Any]:
    slots = _plan(body, min_interval_s)
    backwards = "before" in body
    count = _count(body, 1 if backwards else COUNT)
    if isinstance(slots, DelayPlan):
        if backwards:
            detail = "not from completion: it has no times but those that ends of runs give it"
            raise _Wrong("invalid", Refused("/before", detail))
        count = 1  # what follows it depends on how long the run takes
    if backwards:
        return {"previous_utc": _before(slots, _instant(body, "before"), count)}
    return {"next_utc": _after(slots, _instant(body, "after") if "after" in body else now(), count)}


@lru_cache(_ANSWERS_KEPT)
def _after(slots: Plan, after: int, count: int) -> tuple[str, ...]:
    found: list[str] = []
    slot = slots.next_after(after)
    while slot is not None:
        found.append(instant_text(slot))
        slot = slots.next_after(slot) if len(found) < count else None
    return tuple(found)


@lru_cache(_ANSWERS_KEPT)
def _before(slots: Plan, before: int, count: int) -> tuple[str, ...]:
    found: list[str] = []
    slot = slots.last_until(before - 1)
    while slot is not None:
        found.append(instant_text(slot))
        slot = slots.last_until(slot - 1) if len(found) < count else None
    return tuple(found)


def _plan(body: dict[str, Any], min_interval_s: int) -> Plan:
    """Return the plan that a question is about; one of texts alone is found again by them."""
    said = tuple(item for item in body.items() if item[0] not in _ASKING)
    if all(type(value) is str for _, value in said):
        return _plan_of_texts(said, min_interval_s)
    return _plan_of(body, min_interval_s)


@lru_cache(_ANSWERS_KEPT)
def _plan_of_texts(said: tuple[tuple[str, str], ...], min_interval_s: int) -> Plan:
    return _plan_of(dict(said), min_interval_s)


def _plan_of(body: Mapping[str, Any], min_interval_s: int) -> Plan:
    if "run_at" in body:
        beside = next((field for field in RECURRING if field in body), None)
        if beside:
            raise _Wrong("invalid", Refused(f"/{beside}", "not for a one-time job"))
        return OneTimePlan(_instant(body, "run_at"))
    spec = read_recurring(body, min_interval_s)
    if isinstance(spec, tuple):
        raise _Wrong("invalid", *spec)
    if not any(field in body for field in ENDS):
        return plan(spec)
    span = read_span(body, None, 0)
    if isinstance(span, tuple):
        raise _Wrong("invalid", *span)
    return between(spec, span["starts_at"], span["ends_at"])


def _count(body: dict[str, Any], default: int) -> int:
    count = body.get("count", default)
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= COUNT_MAX:
        raise _Wrong("invalid", Refused("/count", f"a whole number from 1 to {COUNT_MAX}"))
    return count


def _instant(body: Mapping[str, Any], field: str) -> int:
    value = body[field]
    if not isinstance(value, str):
        raise _Wrong("invalid", Refused(f"/{field}", "a string"))
    try:
        return read_instant(value)
    except ValueError as error:
        raise _Wrong("invalid", Refused(f"/{field}", str(error))) from error


def instant_text(at: int) -> str:
    """Return RFC 3339 in UTC, with a fraction only where there is one."""
    found = rfc3339(at)
    return found if at % SECOND else f"{found[:19]}Z"
