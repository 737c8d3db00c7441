"""When a failed attempt is made again, and when it is not.

Delays are drawn from a hash of run and failure number, so that every node, and every replay,
computes the same instant.
"""

import datetime as dt
import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Final, Literal

import msgspec

from domain.refusal import Refused, token

Backoff = Literal["exponential", "fixed", "list"]
Jitter = Literal["full", "none"]
Class = Literal["ok", "retry", "dead", "pause"]
StatusAction = Literal["retry", "dead", "pause"]

ATTEMPTS_MAX: Final = 100
BASE_MS_MIN: Final = 100
DELAY_MS_MAX: Final = 86_400_000
AGE_MS_MAX: Final = 30 * 86_400_000
RETRY_AFTER_MS_MIN: Final = 1_000
RETRY_AFTER_MS_MAX: Final = 86_400_000

LOST_MAX: Final = 5
ABANDONED_MAX: Final = 100
_LOST_MS: Final = (0, 1_000, 5_000, 30_000, 120_000)
_ABANDONED_MS: Final = (0, 1_000, 5_000, 30_000)

_OK: Final = range(200, 300)
_CLIENT_ERRORS: Final = range(400, 500)
_GONE: Final = 410
_RETRIED_4XX: Final = frozenset({408, 409, 425, 429})


class RetryPolicy(msgspec.Struct, frozen=True, array_like=True):
    """How often and how soon; `max_age_ms` counts from the first lease.

    `delays_ms` belongs to backoff `list` (its last entry repeats), `base_ms` and `max_ms` to the
    others; `statuses` are (status, action) in ascending order.
    """

    max_attempts: int
    backoff: Backoff
    base_ms: int
    max_ms: int
    delays_ms: tuple[int, ...] = ()
    jitter: Jitter = "full"
    max_age_ms: int = 86_400_000
    statuses: tuple[tuple[int, StatusAction], ...] = ()


ONE_TIME_DEFAULT: Final = RetryPolicy(16, "exponential", 5_000, 3_600_000)
RECURRING_DEFAULT: Final = RetryPolicy(10, "exponential", 2_000, 3_600_000)


def _milliseconds(raw: object, least_ms: int, most_ms: int) -> int | str:
    reason = f"a number of seconds from {least_ms / 1000:g} to {most_ms / 1000:g}"
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        return reason
    # Compared before it is multiplied: a huge whole number has no float; NaN is in no range.
    if not least_ms / 1000 <= raw <= most_ms / 1000:
        return reason
    return round(raw * 1000)


def _attempts(raw: object) -> int | str:
    if isinstance(raw, bool) or not isinstance(raw, int) or not 1 <= raw <= ATTEMPTS_MAX:
        return f"a whole number from 1 to {ATTEMPTS_MAX}"
    return raw


def _backoff(raw: object) -> str | tuple[Backoff]:
    if raw == "exponential" or raw == "fixed" or raw == "list":  # noqa: PLR1714 narrows the type
        return (raw,)
    return "one of exponential, fixed, list"


def _jitter(raw: object) -> str | tuple[Jitter]:
    if raw == "full" or raw == "none":  # noqa: PLR1714 narrows the type
        return (raw,)
    return "one of full, none"


def _delays(raw: object) -> str | tuple[int, ...]:
    reason = (
        f"a list of 1 to {ATTEMPTS_MAX} numbers of seconds, each from {BASE_MS_MIN / 1000:g}"
        f" to {DELAY_MS_MAX // 1000}"
    )
    if not isinstance(raw, list) or not 1 <= len(raw) <= ATTEMPTS_MAX:
        return reason
    delays = [_milliseconds(item, BASE_MS_MIN, DELAY_MS_MAX) for item in raw]
    whole = tuple(item for item in delays if isinstance(item, int))
    return whole if len(whole) == len(delays) else reason


def _statuses(raw: object) -> str | tuple[tuple[int, StatusAction], ...]:
    reason = "an object of statuses 300 to 599, each retry, dead or pause"
    if not isinstance(raw, Mapping):
        return reason
    pairs: list[tuple[int, StatusAction]] = []
    for key, action in raw.items():
        if not isinstance(key, str) or not re.fullmatch(r"[345][0-9]{2}", key, re.ASCII):
            return reason
        if action not in ("retry", "dead", "pause"):
            return reason
        pairs.append((int(key), action))
    return tuple(sorted(pairs))


_FIELDS: Final[dict[str, tuple[str, Callable[[object], object]]]] = {
    "max_attempts": ("max_attempts", _attempts),
    "backoff": ("backoff", _backoff),
    "base_s": ("base_ms", lambda raw: _milliseconds(raw, BASE_MS_MIN, 3_600_000)),
    "max_s": ("max_ms", lambda raw: _milliseconds(raw, BASE_MS_MIN, DELAY_MS_MAX)),
    "delays_s": ("delays_ms", _delays),
    "jitter": ("jitter", _jitter),
    "max_age_s": ("max_age_ms", lambda raw: _milliseconds(raw, 1_000, AGE_MS_MAX)),
    "statuses": ("statuses", _statuses),
}
_WORDS: Final = ("backoff", "jitter")


def parse_retry(raw: object, default: RetryPolicy) -> RetryPolicy | tuple[Refused, ...]:
    """Read the `retry` object of a job over the default of its type, naming every wrong field.

    Exact delays asked for (`fixed`, `list`) are kept exact unless jitter is asked for too.
    """
    if not isinstance(raw, Mapping):
        return (Refused("/retry", "an object"),)
    wrong: list[Refused] = []
    values: dict[str, object] = {}
    for key, value in raw.items():
        pointer = f"/retry/{token(str(key))}"
        if key not in _FIELDS:
            wrong.append(Refused(pointer, f"unknown field; one of {', '.join(_FIELDS)}"))
            continue
        field, read = _FIELDS[key]
        result = read(value)
        if isinstance(result, str):
            wrong.append(Refused(pointer, result))
        else:
            values[field] = result[0] if isinstance(result, tuple) and key in _WORDS else result
    backoff = values.get("backoff", default.backoff)
    if backoff != "exponential":
        values.setdefault("jitter", "none")
    if (backoff == "list") != ("delays_ms" in values) and "/retry/delays_s" not in {
        refused.pointer for refused in wrong
    }:
        wrong.append(Refused("/retry/delays_s", "given with backoff list, and only with it"))
    policy = msgspec.structs.replace(default, **values)
    if "base_ms" in values and "max_ms" in values and policy.base_ms > policy.max_ms:
        wrong.append(Refused("/retry/base_s", "at most max_s"))
    return tuple(wrong) or policy


def delay_ms(policy: RetryPolicy, run_id: bytes, failures: int) -> int:
    """Return the wait after failure number `failures` (1 is the first) of a run."""
    assert failures >= 1, failures
    if policy.backoff == "list":
        least = policy.delays_ms[min(failures, len(policy.delays_ms)) - 1]
        return _drawn(least, 2 * least, run_id, failures) if policy.jitter == "full" else least
    base, most = policy.base_ms, policy.max_ms
    # The power is bounded before it is taken: at 40 it is past every cap.
    doublings = min(failures - 1, 40) if policy.backoff == "exponential" else 0
    plain = min(most, base << doublings)
    if policy.jitter == "none":
        return plain
    return min(most, _drawn(base, max(2 * base, plain), run_id, failures))


def _drawn(least: int, most: int, run_id: bytes, failures: int) -> int:
    seed = hashlib.blake2b(run_id + failures.to_bytes(4, "big"), digest_size=8).digest()
    return least + (int.from_bytes(seed, "big") * (most - least + 1) >> 64)


def lost_delay_ms(lost: int) -> int:
    """Return the wait after the `lost`-th attempt (1 is the first) whose outcome is unknown."""
    return _LOST_MS[min(lost, len(_LOST_MS)) - 1]


def abandoned_delay_ms(abandoned: int) -> int:
    """Return the wait after the `abandoned`-th attempt (1 is the first) that was never sent."""
    return _ABANDONED_MS[min(abandoned, len(_ABANDONED_MS)) - 1]


def classify(status: int, policy: RetryPolicy) -> Class:
    """Judge an answer by its status; 0 means that there was no complete response."""
    if status in _OK:
        return "ok"
    for mapped, action in policy.statuses:
        if mapped == status:
            return action
    if status == _GONE:
        return "pause"
    return "dead" if status in _CLIENT_ERRORS and status not in _RETRIED_4XX else "retry"


_SECONDS_DIGITS: Final = 10
_CENTURY_DIGITS: Final = 2
_MONTHS: Final = (
    "Jan",
    "Feb",
    "Mar",
    "Apr",
    "May",
    "Jun",
    "Jul",
    "Aug",
    "Sep",
    "Oct",
    "Nov",
    "Dec",
)
_CLOCK: Final = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_DATES: Final = tuple(
    re.compile(pattern, re.ASCII)
    for pattern in (
        rf"\w{{3}}, (?P<day>[0-9]{{2}}) (?P<month>\w{{3}}) (?P<year>[0-9]{{4}}) {_CLOCK} GMT",
        rf"\w{{6,9}}, (?P<day>[0-9]{{2}})-(?P<month>\w{{3}})-(?P<year>[0-9]{{2}}) {_CLOCK} GMT",
        rf"\w{{3}} (?P<month>\w{{3}}) (?P<day>[ 0-9][0-9]) {_CLOCK} (?P<year>[0-9]{{4}})",
    )
)


def retry_after_ms(header: str, at_ms: int) -> int:
    """Read a `Retry-After` (seconds or one of HTTP's three dates) received at `at_ms`.

    The wait is clamped to [1 s, 24 h]; 0 means that there is no readable wish. The caller takes
    the larger of this and the backoff.
    """
    text = header.strip(" \t")
    if re.fullmatch(r"[0-9]+", text, re.ASCII):
        # Ten digits of seconds are past the clamp; more need not become a number.
        wish = (
            int(text[-_SECONDS_DIGITS:]) * 1_000
            if len(text.lstrip("0")) < _SECONDS_DIGITS
            else RETRY_AFTER_MS_MAX
        )
    elif (instant := _http_date_ms(text, at_ms)) is not None:
        wish = instant - at_ms
    else:
        return 0
    return min(max(wish, RETRY_AFTER_MS_MIN), RETRY_AFTER_MS_MAX)


def _http_date_ms(text: str, at_ms: int) -> int | None:
    for pattern in _DATES:
        parts = pattern.fullmatch(text)
        if parts is None:
            continue
        if parts["month"] not in _MONTHS:
            return None
        year = int(parts["year"])
        if len(parts["year"]) == _CENTURY_DIGITS:
            # RFC 9110: a year that seems more than 50 years ahead is in the past.
            this_year = 1970 + at_ms // 31_556_952_000
            year += this_year // 100 * 100
            year -= 100 if year > this_year + 50 else 0
        try:
            instant = dt.datetime(
                year,
                _MONTHS.index(parts["month"]) + 1,
                int(parts["day"]),
                int(parts["hour"]),
                int(parts["minute"]),
                min(int(parts["second"]), 59),
                tzinfo=dt.UTC,
            )
        except ValueError:
            return None
        return int(instant.timestamp()) * 1_000
    return None
