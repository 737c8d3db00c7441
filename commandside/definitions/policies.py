"""What a definition says of runs that meet, and of slots that were missed (protocol §7)."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from commandside.definitions.when import counts_ends
from domain.instant import DAY
from domain.job import events as e
from domain.run.accepted import (
    HEARTBEAT_MS_MAX,
    HEARTBEAT_MS_MIN,
    RUN_TIME_MS,
    RUN_TIME_MS_MAX,
    RUN_TIME_MS_MIN,
)
from domain.run.decide import MAX_OPEN_RUNS

WINDOW_MS_MIN: Final = 1_000
WINDOW_MS_MAX: Final = 366 * DAY
CATCH_UP_ALL_MS: Final = DAY
"""How far back misfire `all` catches up, unless the job says otherwise."""
USUAL_LATENESS_MS: Final = 5_000
"""Lateness that 99 of 100 fires stay below in the worst second an installation is made for."""
LATENESS_MS_MIN: Final = 1_000
LATENESS_MS_MAX: Final = 366 * DAY

FAILURES_MAX: Final = 100
OVERLAPS: Final = e.OVERLAP_NAMES
MISFIRES: Final = e.MISFIRE_NAMES


class Reading(Protocol):
    """The reader of a body: what it has read so far, and how it refuses."""

    body: Mapping[str, Any]
    values: dict[str, Any]

    def refuse(self, pointer: str, detail: str) -> None:
        """Collect a refusal."""

    def duration(self, field: str, default: int, low: int, high: int) -> int:
        """Return a number of seconds as ms, or its default."""


def overlap(reader: Reading) -> None:
    """Read `overlap`, its other name `allow_overlap`, and `overlap_limit`."""
    body = reader.body
    word = body.get("overlap", "allow" if body.get("allow_overlap") is True else "skip")
    if "allow_overlap" in body and not isinstance(body["allow_overlap"], bool):
        reader.refuse("/allow_overlap", "true or false")
    elif not isinstance(word, str) or word not in OVERLAPS:
        reader.refuse("/overlap", _one_of(OVERLAPS))
    elif "allow_overlap" in body and body["allow_overlap"] != (word == "allow"):
        reader.refuse("/allow_overlap", f"contradicts overlap {word}")
    elif word != "skip" and counts_ends(body):
        pointer = "/overlap" if "overlap" in body else "/allow_overlap"
        reader.refuse(pointer, "skip is all there is from completion: its runs never meet")
    else:
        reader.values["overlap"] = e.OVERLAP_NAMES.index(word)
        reader.values["overlap_limit"] = _limit(reader, word)


def _limit(reader: Reading, word: str) -> int:
    """Return how many runs may be begun at once (allow), or wait in the buffer (buffer_all)."""
    most = e.LIMITS.get(e.OVERLAP_NAMES.index(word), 0)
    if "overlap_limit" not in reader.body:
        return min(most, MAX_OPEN_RUNS) or 1
    limit = reader.body["overlap_limit"]
    if not most:
        reader.refuse("/overlap_limit", f"only with overlap allow or buffer_all, not with {word}")
    elif isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= most:
        reader.refuse("/overlap_limit", f"a whole number from 1 to {most}")
    else:
        return limit
    return 1


def misfire(reader: Reading) -> None:
    """Read `misfire` and `catch_up_window_s`."""
    word = reader.body.get("misfire", "latest")
    if not isinstance(word, str) or word not in MISFIRES:
        reader.refuse("/misfire", _one_of(MISFIRES))
        return
    reader.values["misfire"] = e.MISFIRE_NAMES.index(word)
    if counts_ends(reader.body):
        _never_missed(reader, word)
        return
    if word == "skip" and "catch_up_window_s" in reader.body:
        reader.refuse("/catch_up_window_s", "not with misfire skip: nothing is caught up")
        return
    usual = CATCH_UP_ALL_MS if word == "all" else 0
    window = reader.duration("catch_up_window_s", usual, WINDOW_MS_MIN, WINDOW_MS_MAX)
    reader.values["catch_up_window_ms"] = window


def _never_missed(reader: Reading, word: str) -> None:
    """Refuse what a fixed delay has no use for; the usual word is in every answer, so it may be."""
    why = "nothing is ever missed from completion: it fires late; max_lateness_s is its bound"
    if word != "latest":
        reader.refuse("/misfire", f"latest, since {why}")
    if "catch_up_window_s" in reader.body:
        reader.refuse("/catch_up_window_s", f"not here: {why}")
    reader.values["catch_up_window_ms"] = 0


def failures(reader: Reading) -> None:
    """Read `pause_after_failures`."""
    count = reader.body.get("pause_after_failures", 0)
    if "pause_after_failures" in reader.body and (
        isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= FAILURES_MAX
    ):
        reader.refuse("/pause_after_failures", f"a whole number from 1 to {FAILURES_MAX}")
        return
    reader.values["pause_after"] = count


def lateness(reader: Reading) -> None:
    """Read `max_lateness_s`."""
    limit = reader.duration("max_lateness_s", 0, LATENESS_MS_MIN, LATENESS_MS_MAX)
    reader.values["max_lateness_ms"] = limit


def completion(reader: Reading) -> None:
    """Read `heartbeat_timeout_s` and `max_run_time_s`, of attempts that end by themselves."""
    beat = reader.duration("heartbeat_timeout_s", 0, HEARTBEAT_MS_MIN, HEARTBEAT_MS_MAX)
    whole = reader.duration("max_run_time_s", 0, RUN_TIME_MS_MIN, RUN_TIME_MS_MAX)
    if beat > (whole or RUN_TIME_MS):
        reader.refuse("/heartbeat_timeout_s", f"at most max_run_time_s, {whole // 1000}")
    reader.values["heartbeat_timeout_ms"] = beat
    reader.values["max_run_time_ms"] = whole


def warnings(spec: e.JobSpec) -> list[str]:
    """Return what the author of a policy may not expect of it."""
    limit = spec.max_lateness_ms
    if not 0 < limit < USUAL_LATENESS_MS:
        return []
    usual = USUAL_LATENESS_MS // 1000
    said = f"max_lateness_s {limit / 1000:g} is less than the {usual} s that one fire of a hundred"
    return [f"{said} may be late in a full second: such a fire is skipped"]


def _one_of(words: tuple[str, ...]) -> str:
    return f"one of {', '.join(words)}"
