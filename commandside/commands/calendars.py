"""Calendars of a tenant: put, shown, deleted; and their use by jobs, which follow every edit.

An edit commits the new version first, then visits each job that may use it, under the job's lock.
A definition notes its jobs' uses before it appends them. So whichever comes first, the other sees
it: an edit finds the use, and a job that was not there yet is behind until somebody has visited it.
That somebody is the definition itself, the edit, or `sweep`, which every process of the API runs:
one that was killed in between leaves nothing but work for the next.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from commandside.calendar_port import ANY_VERSION, Calendar, Calendars, Use
from commandside.command_port import Accepted, CommandLog
from commandside.commands.replies import Instant
from commandside.definitions.calendar_body import (
    DAY_S,
    DAYS,
    EXCLUDE_MAX,
    NAME,
    NAME_SAYS,
    IcsReader,
    read_calendar,
)
from commandside.ports import Unavailable
from domain.envelope import Decision, Rejected
from domain.instant import MINUTE, SECOND, rfc3339
from domain.job import state as s
from domain.job.command import By
from domain.job.events import JobSpec
from domain.job.replan import exclude, moved
from domain.problem import Problem, Reason, invalid
from domain.refusal import Refused
from domain.run.state import OpenRun
from domain.schedule.exclusion import Exclusion, pairs_of
from domain.schedule.schedule import FixedDelay, ScheduleBreach, ScheduleSpec, Union
from domain.slots import slots_of
from domain.tenant import Caller

STRETCHES_MAX: Final = 2_000
"""Stretches of time of all calendars of one job."""
AT_ONCE: Final = 32
"""Jobs that an edit visits side by side."""
PAGE: Final = 500
EDIT_S: Final = 20
"""An edit answers after this; `sweep` visits the jobs that are left."""
GIVEN_UP_MS: Final = 1 * MINUTE
"""A use whose job is not there so long after it was claimed is forgotten: the append is void."""
LIST_MAX: Final = 200


class CalendarPut(msgspec.Struct, kw_only=True):
    """What became of a calendar that was put."""

    name: str
    version: Annotated[int, Meta(description="the ETag")]
    changed: Annotated[bool, Meta(description="false: it was like this already")]
    jobs: Annotated[int, Meta(description="that use it")]
    recomputed: Annotated[int, Meta(description="open occurrences that moved")]
    pending: Annotated[int, Meta(description="jobs that still follow an older version, soon not")]
    expanded_until: Annotated[
        Instant | UnsetType, Meta(description="recurring events of the file end here: put it again")
    ] = UNSET


class CalendarShown(msgspec.Struct, kw_only=True):
    """One version of a calendar; its timezone, ranges and weekly can be put back."""

    name: str
    version: int
    at: Instant
    timezone: str | None
    ranges: list[dict[str, str]]
    weekly: list[dict[str, str]]
    jobs: int | UnsetType = UNSET
    expanded_until: Instant | UnsetType = UNSET


class CalendarItem(msgspec.Struct, kw_only=True):
    """A calendar in a list."""

    name: str
    version: int
    at: Instant
    timezone: str | None


class CalendarPage(msgspec.Struct, kw_only=True):
    """A page of calendars, by name."""

    items: list[CalendarItem]
    next_cursor: str | None
    prev_cursor: str | None = None


class CalendarGone(msgspec.Struct, kw_only=True):
    """A calendar was deleted."""

    name: str


class TenantCalendars:
    """What clients do with calendars. Raises Problem, Unavailable."""

    def __init__(
        self,
        store: Calendars,
        log: CommandLog,
        ics: IcsReader,
        now: Callable[[], int],
    ) -> None:
        """`now` is ms of the database clock as estimated."""
        self._store = store
        self._log = log
        self._ics = ics
        self._now = now
        self._reading = asyncio.Semaphore(1)

    # ------------------------------------------------------------ calendars

    async def put(
        self, caller: Caller, name: str, body: dict[str, Any], if_version: int = ANY_VERSION
    ) -> tuple[CalendarPut, bool]:
        """Make a version of a calendar, and let its jobs follow; returns whether it is new."""
        if not NAME.fullmatch(name):
            raise Problem("invalid", f"a calendar cannot have this name: {NAME_SAYS}")
        async with self._reading:
            # A file may take a while: others are answered meanwhile.
            exclusion, until = await asyncio.to_thread(
                read_calendar, name, body, self._ics, self._now()
            )
        new = Calendar(exclusion, until, 0, caller.kid)
        made = await self._store.put(caller.tenant_id, new, if_version)
        if isinstance(made, Rejected):
            raise _problem(made)
        recomputed = await self._follow(caller.tenant_id, name)
        pending = await self._store.behind(b"", PAGE, caller.tenant_id, name)
        calendar = made.calendar
        answer = CalendarPut(
            name=name,
            version=calendar.exclusion.version,
            changed=made.changed,
            jobs=await self._store.count(caller.tenant_id, name),
            recomputed=recomputed,
            pending=len(pending),
        )
        if calendar.expanded_until:
            answer.expanded_until = rfc3339(calendar.expanded_until)
        return answer, made.created

    async def show(self, caller: Caller, name: str, version: int) -> CalendarShown:
        """Return a version of a calendar, 0 for the current one."""
        found = await self._store.find(caller.tenant_id, name, version)
        if found is None:
            raise Problem("absent", "there is no such calendar, or not this version of it")
        shown = shown_of(found)
        if not version:
            shown.jobs = await self._store.count(caller.tenant_id, name)
        return shown

    async def page(self, caller: Caller, after: str, limit: int) -> CalendarPage:
        """Return calendars by name, from after the name `after`."""
        found = await self._store.page(caller.tenant_id, after, limit + 1)
        items = [
            CalendarItem(
                name=one.exclusion.name,
                version=one.exclusion.version,
                at=rfc3339(one.at),
                timezone=one.exclusion.zone or None,
            )
            for one in found[:limit]
        ]
        return CalendarPage(items=items, next_cursor=items[-1].name if len(found) > limit else None)

    async def remove(self, caller: Caller, name: str, if_version: int) -> CalendarGone:
        """Delete a calendar that no job uses."""
        for use in await self._store.users(caller.tenant_id, name, PAGE):
            await self._forget_if_unused(use)
        refused = await self._store.remove(caller.tenant_id, name, if_version)
        if refused is not None:
            raise _problem(refused)
        return CalendarGone(name=name)

    # ------------------------------------------------------------ uses

    async def claim(
        self, tenant_id: bytes, jobs: Sequence[tuple[bytes, tuple[str, ...]]]
    ) -> dict[str, Exclusion]:
        """Note that jobs are about to use calendars; return those that exist, as they are now."""
        return await self._store.claim(tenant_id, jobs, self._now())

    async def claimed(self, tenant_id: bytes, job_id: bytes, given: Any) -> dict[str, Exclusion]:
        """Claim what a patch names, which nobody has judged yet."""
        names = given[:EXCLUDE_MAX] if isinstance(given, list) else []
        fit = {name for name in names if isinstance(name, str) and NAME.fullmatch(name)}
        return await self.claim(tenant_id, ((job_id, tuple(sorted(fit))),)) if fit else {}

    async def current(self, tenant_id: bytes, names: Sequence[str]) -> dict[str, Exclusion]:
        """Return those calendars that exist, as they are now."""
        return await self._store.current(tenant_id, names) if names else {}

    async def settle(self, jobs: Iterable[s.JobState]) -> None:
        """Note which versions jobs that were just written follow; bring them up to date if need be.

        They were claimed before they were written: an edit that came in between is behind here.
        What cannot be noted now is left to `sweep`: the jobs are written, and that is the answer.
        """
        by_tenant: dict[bytes, list[tuple[bytes, str, int]]] = {}
        for job in jobs:
            for one in job.facts.spec.exclusions:
                entry = (job.facts.job_id, one.name, one.version)
                by_tenant.setdefault(job.facts.tenant_id, []).append(entry)
        with suppress(Unavailable):
            for tenant_id, entries in by_tenant.items():
                for use in await self._store.applied(tenant_id, entries):
                    await self._visit(use)

    async def sweep(self) -> int:
        """Visit every job that is behind, whoever left it; return how many there were.

        Raises Unavailable at once, and a bug about one job once the others have been visited.
        """
        visited, after = 0, b""
        bug: Exception | None = None
        while uses := await self._store.behind(after, PAGE):
            for use in uses:
                try:
                    await self._visit(use)
                except Unavailable:
                    raise
                except Exception as error:  # noqa: BLE001 - about this job alone; the others go on
                    error.add_note(f"job {use.job_id.hex()}, calendar {use.name}")
                    bug = error
            visited += len(uses)
            # A job may use several calendars: those on the edge of a page are behind next time too.
            after = uses[-1].job_id
        if bug is not None:
            raise bug
        return visited

    async def _follow(self, tenant_id: bytes, name: str) -> int:
        """Visit the jobs of one calendar within EDIT_S; return how many open occurrences moved."""
        after, count = b"", 0
        try:
            async with asyncio.timeout(EDIT_S):
                while uses := await self._store.behind(after, AT_ONCE, tenant_id, name):
                    for moves in await asyncio.gather(*map(self._visit, uses)):
                        count += moves
                    after = uses[-1].job_id
        except TimeoutError:
            return count
        return count

    async def _visit(self, use: Use) -> bool:
        """Let a job follow a calendar, as it is now; return whether its open occurrence moved."""
        calendar = await self._store.find(use.tenant_id, use.name)
        if calendar is None or await self._forget_if_unused(use):
            return False
        done = False

        def under_lock(
            job: s.JobState | None, runs: tuple[OpenRun, ...], at: int
        ) -> Decision | None:
            nonlocal done
            decision = exclude(job, runs, calendar.exclusion, By(at))
            done = moved(job, runs, decision)
            return decision

        answer = await self._log.command(use.job_id, b"", b"", under_lock)
        if isinstance(answer, Accepted):
            versions = {one.name: one.version for one in answer.job.facts.spec.exclusions}
            if use.name in versions:
                entry = (use.job_id, use.name, versions[use.name])
                await self._store.applied(use.tenant_id, (entry,))
        return done

    async def _forget_if_unused(self, use: Use) -> bool:
        """Tell whether the job does not use it; forget it once it cannot be on its way any more."""
        standing = await self._log.standing(use.job_id)
        job = standing.job if standing is not None else None
        if job is not None and not isinstance(job, s.Cancelled):
            facts = job.facts
            if facts.tenant_id == use.tenant_id and use.name in facts.spec.exclude:
                return False
        if self._now() - use.at > GIVEN_UP_MS:
            await self._store.drop(use)
        return True


def resolved(names: tuple[str, ...], known: dict[str, Exclusion]) -> tuple[Exclusion, ...]:
    """Return the calendars of a job's `exclude`; raises Problem for those that do not exist."""
    wrong: list[Reason] = [
        Refused(
            f"/exclude/{number}",
            f"there is no calendar {name!r}: PUT /v1/calendars/{name} makes it",
        )
        for number, name in enumerate(names)
        if name not in known
    ]
    if wrong:
        raise invalid(wrong)
    return tuple(known[name] for name in names)


def refuse_unusable(spec: JobSpec, at: int) -> None:
    """Raise Problem where calendars leave a job no slot, or cannot be read on its clock."""
    if not spec.exclusions:
        return
    if isinstance(spec.schedule, FixedDelay):
        detail = "not beside from: a delay after an end has no slots to leave out"
        raise invalid((Refused("/exclude", detail),))
    stretches = sum(len(one.ranges) + len(one.instants) for one in spec.exclusions) // 8
    if stretches > STRETCHES_MAX:
        detail = f"{stretches} stretches of time in all; a job's calendars have {STRETCHES_MAX}"
        raise invalid((Refused("/exclude", detail),))
    for number, one in enumerate(spec.exclusions):
        if not one.zone and _zones(spec.schedule) > 1:
            detail = f"{one.name} names no timezone and the schedules have several: give it one"
            raise invalid((Refused(f"/exclude/{number}", detail),))
    try:
        first = slots_of(spec).next_after(at)
    except ScheduleBreach as breach:
        raise invalid((Refused("/exclude", f"never runs: {breach}"),)) from breach
    if first is None:
        raise invalid((Refused("/exclude", "never runs: the calendars exclude every slot"),))


def _zones(schedule: ScheduleSpec) -> int:
    if not isinstance(schedule, Union):
        return 1
    return len({part.zone for part in schedule.parts})


def shown_of(calendar: Calendar) -> CalendarShown:
    """Show a version of a calendar in the words of a body."""
    one = calendar.exclusion
    ranges = [_range(*pair) for pair in pairs_of(one.ranges)]
    ranges += [
        {"from": rfc3339(first * SECOND), "until": rfc3339(end * SECOND)}
        for first, end in pairs_of(one.instants)
    ]
    shown = CalendarShown(
        name=one.name,
        version=one.version,
        at=rfc3339(calendar.at),
        timezone=one.zone or None,
        ranges=ranges,
        weekly=[{"from": _week(first), "until": _week(end)} for first, end in pairs_of(one.weekly)],
    )
    if calendar.expanded_until:
        shown.expanded_until = rfc3339(calendar.expanded_until)
    return shown


def _range(first: int, end: int) -> dict[str, str]:
    if first % DAY_S == 0 and end % DAY_S == 0:
        return {"from": _local(first)[:10], "until": _local(end - DAY_S)[:10]}
    return {"from": _local(first), "until": _local(end)}


def _local(seconds: int) -> str:
    return rfc3339(seconds * SECOND)[:19]


def _week(seconds: int) -> str:
    # The end of the week is the end of its last day.
    day = min(seconds // DAY_S, len(DAYS) - 1)
    minutes = (seconds - day * DAY_S) // 60
    return f"{DAYS[day]} {minutes // 60:02}:{minutes % 60:02}"


def _problem(refused: Rejected) -> Problem:
    errors = (Refused("@If-Match", refused.detail),) if refused.code == "precondition" else ()
    return Problem(refused.code, refused.detail, errors)
