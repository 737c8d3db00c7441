"""What an unsaved definition would do: its next fires, nominal and effective, and what surprises.

All of it follows from the body, the instant and the zone data, but for the load, which follows from
the tenant's other jobs too; nothing is stored.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from commandside.commands.calendars import TenantCalendars, resolved
from commandside.commands.language import FIELD, Teller, language_of, told
from commandside.commands.load import Load, Loads, New
from commandside.commands.replies import Instant
from commandside.definitions.definition import Definitions
from commandside.definitions.given import with_values
from commandside.definitions.placement import TO_CHOOSE
from domain.ids import job_id_of_key
from domain.instant import DAY, LAST, rfc3339
from domain.problem import Reason, invalid
from domain.refusal import Refused
from domain.schedule import zone
from domain.schedule.excluding import without
from domain.schedule.jitter import due_at, jitter_ms
from domain.schedule.once import read_instant
from domain.schedule.schedule import (
    FixedDelay,
    Plan,
    ScheduleBreach,
    ScheduleSpec,
    between,
    passed,
)
from domain.schedule.schedule import warnings as warnings_of
from domain.schedule.telling import local_text, zone_of
from domain.tenant import Caller

COUNT: Final = 5
COUNT_MAX: Final = 100
COUNTED_MAX: Final = 1_440
"""Fires of the next 24 h are counted up to here."""
LOADS: Final = ("hours", "seconds", "none")
"""How much of the load is told; hours where it is not said."""
FIELDS: Final = ("count", "after", "load", FIELD)
"""What a preview takes beside a definition."""


class Fire(msgspec.Struct, kw_only=True):
    """One occurrence. The spread of a job that has no id yet is not known, only its end."""

    nominal: Instant
    local: Annotated[str, Meta(description="as the clock of the schedule's zone shows it")]
    due_at: Annotated[Instant | None, Meta(description="effective instant; null: not known yet")]
    due_until: Annotated[Instant, Meta(description="it is not later than this")]


class Preview(msgspec.Struct, kw_only=True):
    """What a definition would do if it were stored now."""

    description: Annotated[str, Meta(description="the schedule in plain words")]
    description_language: Annotated[
        str, Meta(description="of the description; en where it cannot be said in the one asked for")
    ]
    timezone: str
    zone_data: Annotated[str, Meta(description="version of the zone data that this follows from")]
    fires: list[Fire]
    fires_in_24h: Annotated[
        int | None,
        Meta(
            description=f"of this job alone; null: more than {COUNTED_MAX}, or not known, as from "
            "completion"
        ),
    ]
    load: Annotated[
        Load | None, Meta(description="of the tenant, over the next 24 h; null: not asked for")
    ]
    warnings: list[str]


class Previews:
    """Answers previews under an operator's bounds."""

    def __init__(
        self,
        definitions: Definitions,
        calendars: TenantCalendars,
        teller: Teller,
        loads: Loads,
        now: Callable[[], int],
    ) -> None:
        """`now` is ms of the database clock as estimated."""
        self._definitions = definitions
        self._calendars = calendars
        self._teller = teller
        self._loads = loads
        self._now = now

    async def preview(
        self, caller: Caller, body: Mapping[str, Any], payload: bytes | None, accepts: str = ""
    ) -> Preview:
        """Return the fires of a definition, which may lack its target; raises Problem.

        `accepts` is the client's Accept-Language.
        """
        at = self._now()
        count, after, told_load = _asked(body, at)
        language = language_of(body, accepts, self._teller)
        rest = {name: value for name, value in body.items() if name not in FIELDS}
        asked = self._definitions.outline(rest, payload, at)
        values = asked.values
        schedule: ScheduleSpec = values["schedule"]
        slots = between(schedule, values["starts_at"], values["ends_at"])
        if values["exclude"]:
            known = await self._calendars.current(caller.tenant_id, values["exclude"])
            exclusions = resolved(values["exclude"], known)
            slots = without(schedule, values["starts_at"], values["ends_at"], exclusions)
        most = values["jitter_ms"]
        job_id = job_id_of_key(caller.tenant_id, "key", asked.key) if asked.key else b""
        open_yet = values["spread_ms"] == TO_CHOOSE or (most and not job_id)
        jitter = None if open_yet else jitter_ms(job_id, most)
        runs = values["max_runs"] or LAST
        new = New(slots, most, values["max_runs"], job_id, jitter)
        try:
            if isinstance(schedule, FixedDelay):
                count = 1
            pairs = list(islice(_pairs(slots, after), min(count, runs)))
            in_a_day = _fires_in_a_day(schedule, slots, at)
            load = None
            if told_load != "none":
                seconds = told_load == "seconds"
                load = await asyncio.to_thread(
                    self._loads.load, caller.tenant_id, new, seconds=seconds
                )
        except ScheduleBreach as breach:
            raise invalid((Refused("", f"a fire cannot be worked out: {breach}"),)) from breach
        said, language = told(self._teller, schedule, language)
        return Preview(
            description=said,
            description_language=language,
            timezone=zone_of(schedule),
            zone_data=zone.VERSION,
            fires=[
                _fire(schedule, nominal, following, jitter, most) for nominal, following in pairs
            ],
            fires_in_24h=in_a_day if in_a_day is None else min(in_a_day, runs),
            load=load,
            warnings=list(warnings_of(schedule, at)),
        )


def _fires_in_a_day(schedule: ScheduleSpec, slots: Plan, at: int) -> int | None:
    if isinstance(schedule, FixedDelay):
        return None
    counted = passed(slots, at, at + DAY, COUNTED_MAX)
    return counted[2] if counted else 0


def _asked(body: Mapping[str, Any], at: int) -> tuple[int, int, str]:
    wrong: list[Reason] = []
    count, after, load = body.get("count", COUNT), at, body.get("load", LOADS[0])
    if load not in LOADS:
        wrong.append(Refused("/load", f"one of {', '.join(LOADS)}"))
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= COUNT_MAX:
        wrong.append(Refused("/count", f"a whole number from 1 to {COUNT_MAX}"))
    if "after" in body:
        try:
            after = read_instant(body["after"]) if isinstance(body["after"], str) else -1
        except ValueError as error:
            wrong.append(Refused("/after", str(error)))
        if after < 0:
            wrong.append(Refused("/after", "a string: RFC 3339, from 1970 on"))
    if wrong:
        raise invalid(with_values(wrong, body))
    return count, after, load


def _pairs(slots: Plan, after: int) -> Iterator[tuple[int, int | None]]:
    slot = slots.next_after(after)
    while slot is not None:
        following = slots.next_after(slot)
        yield slot, following
        slot = following


def _fire(
    schedule: ScheduleSpec, nominal: int, following: int | None, jitter: int | None, most: int
) -> Fire:
    return Fire(
        nominal=rfc3339(nominal),
        local=local_text(schedule, nominal),
        due_at=None if jitter is None else rfc3339(due_at(nominal, following, jitter)),
        due_until=rfc3339(due_at(nominal, following, most if jitter is None else jitter)),
    )
