"""A change of the time zone data: which open occurrences move, and their planning anew.

An installation plans with one version, and a node that has another one decides nothing. So a change
is a step of its own: first the version, from when on old nodes rest, then each job whose open
occurrence moves, by a decision under its lock. What is planned later follows the new data by
itself. It bears being broken off and run again.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final
from uuid import UUID

from domain import chain, ids
from domain.envelope import Decision
from domain.instant import DAY, rfc3339
from domain.job.replan import replan
from domain.job.state import JobState, Paused
from domain.run import events as re
from domain.run.state import OpenRun
from domain.schedule import zone
from domain.schedule.plan import ScheduleBreach
from domain.schedule.spec import OneTime, ScheduleSpec, Union
from infra.clock import wall_ms
from infra.postgres import migrate
from infra.postgres.clock import FRESH_US, TimeKeeper
from infra.postgres.command_log import PostgresCommandLog
from infra.postgres.connection import connect
from infra.postgres.rows import jobs
from infra.settings import Settings
from infra.zone_fires import fires, fires_with
from projections.due_index import ACTIVE, PAUSED

PAGE: Final = 500
YEAR_MS: Final = 366 * DAY
SCHEDULES_MAX: Final = 10_000
"""Different schedules whose year is compared, the most used first."""
EXAMPLES: Final = 3
_JOBS: Final = """
select job_id, state from job_heads
where job_id > %s and status in (%s, %s) order by job_id limit %s
"""


Say = Callable[[str], None]


def diff(settings: Settings, say: Say, old: Path | None = None) -> None:
    """Say which open occurrences this node's zone data put elsewhere; changes nothing.

    With `old`, a folder with the `tzdata` package of before, also which fires of the coming year
    are other ones; raises ValueError where it is none.
    """
    planned_with = migrate.installed(settings.postgres.url).zone_data
    say(f"this installation plans with {planned_with}; this node has {zone.VERSION}")
    moved = asyncio.run(_Change(settings, say, real=False).run())
    say(f"{moved} open occurrence{'' if moved == 1 else 's'} would move")
    if old is not None:
        _year(settings, say, old)


def apply(settings: Settings, say: Say) -> None:
    """Change over to this node's zone data, and say which open occurrences move."""
    conninfo = settings.postgres.url
    planned_with = migrate.installed(conninfo).zone_data
    if planned_with != zone.VERSION:
        migrate.change_zone_data(conninfo)
        say(f"this installation plans with {zone.VERSION} from now on, not with {planned_with}")
    moved = asyncio.run(_Change(settings, say, real=True).run())
    say(f"{moved} open occurrence{'' if moved == 1 else 's'} moved")


def _year(settings: Settings, say: Say, old: Path) -> None:
    """Say for each schedule that is in use which fires of the coming year come and go."""
    used = Counter(job.facts.spec.schedule for _, job in _recurring(settings.postgres.url))
    schedules = [schedule for schedule, _ in used.most_common(SCHEDULES_MAX)]
    now = wall_ms()
    span = (now, now + YEAR_MS)
    before, after = fires_with(old, schedules, *span), fires(schedules, *span)
    changed = 0
    for schedule, was, then in zip(schedules, before.slots, after.slots, strict=True):
        if was == then:
            continue
        changed += 1
        gone, new = (
            sorted(set(was or ()) - set(then or ())),
            sorted(set(then or ()) - set(was or ())),
        )
        example = f"{_instants(gone)} -> {_instants(new)}"
        say(f"{_told(schedule)}  {used[schedule]} jobs, {len(gone)} fires change: {example}")
    left = len(used) - len(schedules)
    say(
        f"{changed} of {len(schedules)} schedules fire otherwise in the coming year "
        f"with {after.zone_data} than with {before.zone_data}"
        + (f"; {left} rarer ones were not looked at" if left else "")
    )


def _instants(slots: list[int]) -> str:
    return ", ".join(map(rfc3339, slots[:EXAMPLES])) + (" ..." if len(slots) > EXAMPLES else "")


def _told(schedule: ScheduleSpec) -> str:
    match schedule:
        case Union(parts):
            return " and ".join(map(_told, parts))
        case OneTime():
            return ""
        case _:
            return f"{schedule.typed} {schedule.zone}"


def _recurring(conninfo: str) -> Iterator[tuple[bytes, JobState]]:
    """Yield the jobs that plan by a clock, page by page."""
    last = UUID(int=0)
    with connect(conninfo, name="zones") as connection:
        while page := connection.execute(_JOBS, (last, ACTIVE, PAUSED, PAGE)).fetchall():
            last = page[-1][0]
            states = jobs(len(page), b"".join(state for _, state in page))
            for (job_id, _), job in zip(page, states, strict=True):
                if not (job.facts.spec.is_one_time or job.facts.spec.is_fixed_delay):
                    yield job_id.bytes, job


class _Change:
    """One pass over all jobs that plan by a clock."""

    def __init__(self, settings: Settings, say: Say, *, real: bool) -> None:
        self._conninfo = settings.postgres.url
        self._say, self._real = say, real
        self._keeper = TimeKeeper(self._conninfo)
        self._log = PostgresCommandLog(
            self._conninfo,
            self._keeper.clock,
            shards=migrate.installed(self._conninfo).shards,
            stripes=1,
        )

    async def run(self) -> int:
        """Return how many open occurrences moved, or would."""
        with closing(self._keeper):
            self._keeper.start()
            await self._log.start()
            try:
                if self._real:
                    # Whoever plans with the old data has heard of the change by then, or rests.
                    await asyncio.sleep(FRESH_US / 1_000_000)
                recurring = _recurring(self._conninfo)
                return sum([await self._moves(job_id) for job_id, _ in recurring])
            finally:
                await self._log.close()

    async def _moves(self, job_id: bytes) -> bool:
        """Plan one job anew, or find out how it would be; return whether its occurrence moves."""
        said = ""

        def under_lock(job: JobState | None, runs: tuple[OpenRun, ...], at: int) -> Decision | None:
            nonlocal said
            decision = replan(job, runs, zone.VERSION, at)
            said = "" if job is None or decision is None else _moved(job, runs, decision)
            return decision

        name = ids.text(ids.JOB, job_id)
        try:
            if self._real:
                await self._log.command(job_id, b"", b"", under_lock)
            else:
                standing = await self._log.standing(job_id)
                if standing is not None:
                    under_lock(standing.job, standing.runs, self._keeper.clock.now())
        except ScheduleBreach as breach:
            self._say(f"{name}  cannot be planned with these data: {breach}")
            return False
        if said:
            self._say(f"{name}  {said}")
        return bool(said)


def _moved(job: JobState, runs: tuple[OpenRun, ...], decision: Decision) -> str:
    was = chain.frontier(job, runs) or chain.held(job, runs)
    assert was is not None
    events = (event for part in decision.slices for event in part.events)
    then = next((e.nominal for e in events if isinstance(e, re.Scheduled)), None)
    if then is not None:
        where = rfc3339(then)
    else:
        where = "after the pause" if isinstance(job, Paused) else "none is left"
    return f"{rfc3339(was.facts.nominal)} -> {where}"
