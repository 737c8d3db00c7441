"""The schedule kinds of a job as stored values, their parsers, and their plans.

All instants are whole milliseconds since the epoch, UTC.
"""

import re
from datetime import date
from functools import lru_cache
from typing import Final, Protocol

import msgspec

from domain.schedule import caution, cron, walk, zone

LAST_INSTANT: Final = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z: no slot lies beyond."""
PAST_ALLOWED_MS: Final = 60_000
"""A one-time job this far in the past still fires, at once."""
COUNT_LIMIT: Final = 1_000
"""Passed slots are counted up to here, so that a decision's work is bounded."""
PLANS_KEPT: Final = 4_096
"""Compiled plans kept; one takes about a kilobyte."""
TEXT_LIMIT: Final = 128
"""Characters of a schedule, as typed."""
ZONE_LIMIT: Final = 64
"""Characters of a zone name that are looked at; the longest real one has 32."""


class OneTime(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """One slot at `run_at`."""

    run_at: int


class Cron(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """A cron text in a zone.

    `text` is the canonical form, `typed` what the tenant sent. An empty `gap` or `fold` is the
    default rule of the schedule (see `domain.schedule.walk`).
    """

    text: str
    typed: str
    zone: str
    dialect: str = "vixie"
    gap: str = ""
    fold: str = ""


ScheduleSpec = OneTime | Cron


class Refused(msgspec.Struct, frozen=True):
    """Why a schedule is not accepted: a JSON pointer into the define body, and a sentence."""

    pointer: str
    detail: str


class ScheduleBreach(Exception):
    """A plan raised, or answered a slot that is not after the instant asked about: parks the job.

    A bug, or a zone that the pinned data have no longer. Whatever it is, it is this job's alone.
    """


class Plan(Protocol):
    """The slots of a schedule, in ms."""

    def next_after(self, t: int) -> int | None:
        """The first slot strictly after `t`, or None: never again."""
        ...

    def last_until(self, t: int) -> int | None:
        """The newest slot at or before `t`, or None: none yet."""
        ...


class _OneTimePlan:
    __slots__ = ("_run_at",)

    def __init__(self, run_at: int) -> None:
        self._run_at = run_at

    def next_after(self, t: int) -> int | None:
        return self._run_at if self._run_at > t else None

    def last_until(self, t: int) -> int | None:
        return self._run_at if self._run_at <= t else None


_RFC3339: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])"
    r"(?:\.([0-9]{1,3})0*)?(?:[Zz]|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))"
)
_RFC3339_LIMIT: Final = 40
_EPOCH_ORDINAL: Final = 719_163
_FINEST_S: Final = 60  # five fields cannot ask for less
_WHOLE_CYCLE_FROM: Final = 4_102_444_800_000  # 2100: from here on only rules are in force


def parse_one_time(run_at: str, at: int) -> OneTime | Refused:
    """Read an RFC 3339 instant with its offset; `at` is now, in ms.

    Up to 60 s in the past is accepted (it fires at once); finer than a millisecond is refused,
    never cut.
    """
    try:
        instant = _read_instant(run_at)
    except ValueError as error:
        return Refused("/run_at", f"{run_at[:_RFC3339_LIMIT]!r} is not accepted: {error}")
    if instant < at - PAST_ALLOWED_MS:
        return Refused(
            "/run_at", f"{run_at!r} is more than 60 s in the past: give an instant still to come"
        )
    return OneTime(instant)


def _read_instant(text: str) -> int:
    """Milliseconds since the epoch; ValueError says what is wrong with the text."""
    found = _RFC3339.fullmatch(text) if len(text) <= _RFC3339_LIMIT else None
    if found is None:
        raise ValueError(
            "give RFC 3339 with an offset and at most milliseconds, such as 2027-03-01T09:00:00Z"
        )
    year, month, day, hour, minute, second = (int(part) for part in found.group(1, 2, 3, 4, 5, 6))
    offset_s = int(found[9] or 0) * 3600 + int(found[10] or 0) * 60
    offset_s = -offset_s if found[8] == "-" else offset_s
    days = date(year, month, day).toordinal() - _EPOCH_ORDINAL
    local_s = days * 86_400 + hour * 3600 + minute * 60 + second
    instant = (local_s - offset_s) * 1000 + int((found[7] or "").ljust(3, "0"))
    if instant > LAST_INSTANT:
        raise ValueError("it lies beyond the year 9999 in UTC")
    return instant


def parse_cron(  # noqa: PLR0913 - each is a field of the define body
    schedule: str,
    timezone: str,
    *,
    dialect: str = "vixie",
    gap: str = "",
    fold: str = "",
    min_interval_s: int = 60,
) -> Cron | Refused:
    """Read a cron text and its zone; the result is stored as it is.

    `gap` is "", "next" or "skip"; `fold` is "", "first", "last" or "both". `min_interval_s` is
    the least distance of two fires that the tenant may ask for.
    """
    if len(schedule) > TEXT_LIMIT:
        return Refused(
            "/schedule", f"{len(schedule)} characters; a schedule has at most {TEXT_LIMIT}"
        )
    if len(timezone) > ZONE_LIMIT:
        return Refused("/timezone", "not a known IANA time zone, such as Europe/Berlin")
    return _parse_cron(schedule, timezone, dialect, gap, fold, min_interval_s)


@lru_cache(PLANS_KEPT)
def _parse_cron(  # noqa: PLR0913 - the arguments are the key of the cache
    schedule: str, timezone: str, dialect: str, gap: str, fold: str, min_interval_s: int
) -> Cron | Refused:
    refused = _refuse_options(timezone, dialect, gap, fold)
    if refused is not None:
        return refused
    try:
        fields = cron.parse(schedule)
    except cron.Wrong as wrong:
        return Refused("/schedule", str(wrong))
    spec = Cron(fields.text, schedule, timezone, dialect, gap, fold)
    if min_interval_s > _FINEST_S and fields.shortest_s < min_interval_s:
        return Refused(
            "/schedule",
            f"fires {fields.shortest_s} s apart; at least {min_interval_s} s are allowed",
        )
    if plan(spec).next_after(_WHOLE_CYCLE_FROM) is None:
        return Refused(
            "/schedule",
            f"never matches: each of its local times is skipped by the clock of {timezone}",
        )
    return spec


def _refuse_options(timezone: str, dialect: str, gap: str, fold: str) -> Refused | None:
    if dialect != "vixie":
        return Refused("/dialect", f"{dialect!r} is not supported yet: leave it out, or 'vixie'")
    if gap and gap not in walk.GAPS:
        return Refused("/dst/gap", f"{gap!r} is not one of {', '.join(walk.GAPS)}")
    if fold and fold not in walk.FOLDS:
        return Refused("/dst/fold", f"{fold!r} is not one of {', '.join(walk.FOLDS)}")
    unknown = zone.refusal(timezone)
    return None if unknown is None else Refused("/timezone", unknown)


class _Forward:
    """Any plan, with the one check that no schedule ever answers an instant again.

    It remembers its last two answers with the instants they are true for: a link and its jitter
    ask for two slots in a row, and jobs of one schedule ask alike.
    """

    __slots__ = ("_inner", "_known")

    def __init__(self, inner: Plan) -> None:
        self._inner = inner
        self._known: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0))

    def next_after(self, t: int) -> int | None:
        # One read of the pair: another thread may replace it.
        newer, older = self._known
        if newer[0] <= t < newer[1]:
            return newer[1]
        if older[0] <= t < older[1]:
            return older[1]
        try:
            slot = self._inner.next_after(t)
        except Exception as error:
            raise _breach(f"no slot after {t}", error) from error
        if slot is None:
            return None
        if slot <= t:
            raise ScheduleBreach(f"next slot {slot} is not after {t}")
        self._known = ((t, slot), newer)
        return slot

    def last_until(self, t: int) -> int | None:
        try:
            slot = self._inner.last_until(t)
        except Exception as error:
            raise _breach(f"no slot until {t}", error) from error
        if slot is not None and slot > t:
            raise ScheduleBreach(f"newest slot {slot} is after {t}")
        return slot


def _breach(asked: str, error: Exception) -> ScheduleBreach:
    """Name what was asked: one job's schedule must not end who works for all of them."""
    return ScheduleBreach(f"{asked}: {type(error).__name__}: {error}")


@lru_cache(PLANS_KEPT)
def plan(spec: ScheduleSpec) -> Plan:
    """Compile a schedule; the same value gives the same plan.

    Raises `ScheduleBreach` where it cannot; so do its answers if they ever fail to go forward.
    """
    if isinstance(spec, OneTime):
        return _Forward(_OneTimePlan(spec.run_at))
    try:
        fields = cron.read(spec.text)
        return _Forward(walk.CronPlan(fields, zone.load(spec.zone), spec.gap, spec.fold))
    except Exception as error:
        raise _breach(f"{spec.text} {spec.zone}", error) from error


def passed(
    slots: Plan, after: int, until: int, limit: int = COUNT_LIMIT
) -> tuple[int, int, int | None] | None:
    """The slots in (after, until]: first, last and how many; None if there is none.

    First and last are exact; the count is exact up to `limit`, and None beyond.
    """
    first = slots.next_after(after)
    if first is None or first > until:
        return None
    last = slots.last_until(until)
    if last is None or last < first:
        raise ScheduleBreach(f"slot {first} is in ({after}, {until}], but the newest is {last}")
    slot, count = first, 1
    while slot < last:
        if count == limit:
            return first, last, None
        following = slots.next_after(slot)
        if following is None or following > last:
            raise ScheduleBreach(f"no slot after {slot}, but {last} is one")
        slot, count = following, count + 1
    return first, last, count


def warnings(spec: ScheduleSpec, at: int) -> tuple[str, ...]:
    """What a person may not expect of this schedule, in sentences; `at` is now, in ms."""
    if isinstance(spec, OneTime):
        return ("this instant is past: it fires at once",) if spec.run_at <= at else ()
    fields = cron.read(spec.text)
    dst = spec.gap, spec.fold
    return tuple(caution.sentences(fields, zone.load(spec.zone), dst, at // 1000))
