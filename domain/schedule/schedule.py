"""The schedule of a job, whatever its kind: how it is read, its plan, and what to say of it.

All instants are whole milliseconds since the epoch, UTC.
"""

from functools import lru_cache
from typing import Final

from domain.instant import LAST
from domain.refusal import Refused
from domain.schedule import caution, cron, walk, zone
from domain.schedule.clock import FINER, ZONE_LIMIT, refuse_clock
from domain.schedule.delay import DelayPlan, parse_delay, said_of_delay
from domain.schedule.every import every_plan, parse_every, said_of_every
from domain.schedule.fields import Wrong
from domain.schedule.once import PAST_ALLOWED_MS, OneTimePlan, parse_one_time
from domain.schedule.plan import COUNT_LIMIT, Forward, Plan, ScheduleBreach, breach, passed
from domain.schedule.rrule import parse_rrule, rrule_plan, said_of_rrule
from domain.schedule.spec import Cron, Every, FixedDelay, OneTime, RRule, ScheduleSpec, Union
from domain.schedule.union import UnionPlan
from domain.schedule.window import Window

__all__ = [
    "COUNT_LIMIT",
    "PAST_ALLOWED_MS",
    "Cron",
    "DelayPlan",
    "Every",
    "FixedDelay",
    "OneTime",
    "Plan",
    "RRule",
    "Refused",
    "ScheduleBreach",
    "ScheduleSpec",
    "Union",
    "between",
    "parse_cron",
    "parse_delay",
    "parse_every",
    "parse_one_time",
    "parse_rrule",
    "passed",
    "plan",
    "warnings",
]

PLANS_KEPT: Final = 4_096
"""Compiled plans kept; one takes about a kilobyte."""
TEXT_LIMIT: Final = 128
"""Characters of a schedule, as typed."""


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
        fields = cron.parse(schedule, dialect)
    except Wrong as wrong:
        return Refused("/schedule", str(wrong))
    spec = Cron(fields.text, schedule, timezone, dialect, gap, fold)
    if min_interval_s > fields.finest_s and fields.shortest_s < min_interval_s:
        return Refused(
            "/schedule",
            f"fires {fields.shortest_s} s apart; at least {min_interval_s} s are allowed: "
            f"write wider steps, or {FINER}",
        )
    if walk.always_skipped(fields, zone.load(timezone), gap, fold):
        return Refused(
            "/schedule",
            f"never matches: each of its local times is skipped by the clock of "
            f'{timezone}: write another time, or "dst": {{"gap": "next"}}',
        )
    return spec


def _refuse_options(timezone: str, dialect: str, gap: str, fold: str) -> Refused | None:
    if dialect not in cron.DIALECTS:
        return Refused(
            "/dialect", f"{dialect[:TEXT_LIMIT]!r} is not one of {', '.join(cron.DIALECTS)}"
        )
    return refuse_clock(timezone, gap, fold)


@lru_cache(PLANS_KEPT)
def plan(spec: ScheduleSpec) -> Plan:
    """Compile a schedule; the same value gives the same plan.

    Raises `ScheduleBreach` where it cannot; so do its answers if they ever fail to go forward.
    """
    if isinstance(spec, OneTime):
        return Forward(OneTimePlan(spec.run_at))
    if isinstance(spec, FixedDelay):
        return DelayPlan(spec)
    if isinstance(spec, Union):
        return Forward(UnionPlan(tuple(map(plan, spec.parts))))
    try:
        if isinstance(spec, Every):
            return Forward(every_plan(spec))
        if isinstance(spec, RRule):
            return Forward(rrule_plan(spec))
        fields = cron.read(spec.text, spec.dialect)
        return Forward(walk.cron_plan(fields, zone.load(spec.zone), spec.gap, spec.fold))
    except Exception as error:
        raise breach(repr(spec), error) from error


@lru_cache(PLANS_KEPT)
def between(spec: ScheduleSpec, starts_at: int, ends_at: int) -> Plan:
    """Compile a schedule of which only the slots in [starts_at, ends_at] count; 0 is no end."""
    if isinstance(spec, FixedDelay):
        return DelayPlan(spec, starts_at, ends_at or LAST)
    return Window(plan(spec), starts_at, ends_at or LAST)


def warnings(spec: ScheduleSpec, at: int) -> tuple[str, ...]:
    """What a person may not expect of this schedule, in sentences; `at` is now, in ms."""
    if isinstance(spec, OneTime):
        return ("this instant is past: it fires at once",) if spec.run_at <= at else ()
    if isinstance(spec, Union):
        return tuple(
            f"/schedules/{number}: {said}"
            for number, part in enumerate(spec.parts)
            for said in warnings(part, at)
        )
    if isinstance(spec, Every):
        return said_of_every(spec, at)
    if isinstance(spec, RRule):
        return said_of_rrule(spec, at)
    if isinstance(spec, FixedDelay):
        return said_of_delay(spec)
    fields = cron.read(spec.text, spec.dialect)
    dst = spec.gap, spec.fold
    return tuple(caution.sentences(fields, zone.load(spec.zone), dst, at // 1000))
