"""Deletes the large payloads that no run can need any more.

An object is needed while its job's spec names it, an open run carries it, or a dead run that
carries it can be redriven. The first two are read from the log. For the last, nothing is looked
for: once nothing else names an object, no run begins with it but by a redrive, which is an event of
its job; so it is needed until it has been found unnamed twice, as far apart as dead runs can be
redriven, and no redrive was in between. An object that no event ever named, of a command that
failed or was cut off, needs no such time, and one of a cancelled job neither.

What is unnamed stays so (`payloads`: each definition has an object of its own, and is committed
long before the grace ends), so nobody has to be kept out between the look and the deletion. Each
process of the API runs this; an object is one's at a time, and deleting it twice is harmless.
"""

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Final

from commandside.command_port import CommandLog
from commandside.fault_points import PAYLOAD_DELETED
from commandside.payload_port import GRACE_MS, PayloadList, PayloadObject, PayloadStore, Taken
from commandside.ports import FaultPoint, Standing
from domain.job import events as e
from domain.job import state as s

PAGE: Final = 50
PAGES_MAX: Final = 200
"""Of one sweep; the rest waits for the next."""
AT_ONCE: Final = 8
SPECS_MAX: Final = 20
"""Specs of a job among which its object is looked for: with more, it may have been named."""


class Fate(Enum):
    """What becomes of an object."""

    NAMED = "named"
    UNNAMED = "unnamed"
    COLLECTED = "collected"


class Collector:
    """Looks at objects, a page at a time. Raises Unavailable."""

    def __init__(  # noqa: PLR0913 - its ports
        self,
        log: CommandLog,
        store: PayloadStore,
        listed: PayloadList,
        faults: FaultPoint,
        *,
        now: Callable[[], int],
        redrivable_ms: int,
    ) -> None:
        """`redrivable_ms`: how long after its end a dead run can be redriven."""
        self._log = log
        self._store = store
        self._list = listed
        self._faults = faults
        self._now = now
        self._redrivable_ms = redrivable_ms

    async def sweep(self) -> int:
        """Look at every object whose time has come; return how many were deleted."""
        deleted = 0
        for _ in range(PAGES_MAX):
            page = await self._list.take(PAGE)
            if page:
                deleted += await self._look(page)
            if len(page) < PAGE:
                break
        return deleted

    async def _look(self, page: list[Taken]) -> int:
        gate = asyncio.Semaphore(AT_ONCE)

        async def look(one: Taken) -> Fate:
            async with gate:
                return await self._fate(one)

        found: dict[Fate, list[PayloadObject]] = {fate: [] for fate in Fate}
        fates = await asyncio.gather(*map(look, page))
        for one, fate in zip(page, fates, strict=True):
            found[fate].append(one.object)
        if found[Fate.NAMED]:
            await self._list.named(found[Fate.NAMED])
        if found[Fate.UNNAMED]:
            # Beyond it by twice the grace, which is longer than a command takes to be committed.
            await self._list.unnamed(found[Fate.UNNAMED], self._redrivable_ms + 2 * GRACE_MS)
        collected = found[Fate.COLLECTED]
        if collected:
            # In this order: what is cut off in between is deleted once more.
            await asyncio.to_thread(self._store.delete, collected)
            self._faults.hit(PAYLOAD_DELETED)
            await self._list.forget(collected)
        return len(collected)

    async def _fate(self, one: Taken) -> Fate:
        standing = await self._log.standing(one.object.job_id)
        if standing is None:
            return Fate.COLLECTED
        if await self._is_named(one.object, standing):
            return Fate.NAMED
        if isinstance(standing.job, s.Cancelled) or await self._was_never_named(one.object):
            return Fate.COLLECTED
        if not one.unnamed_since:
            return Fate.UNNAMED
        if await self._redriven_at(one) > one.unnamed_since - GRACE_MS:
            # By a run that may have carried it, and may have ended dead since.
            return Fate.NAMED
        is_over = self._now() - one.unnamed_since > self._redrivable_ms + GRACE_MS
        return Fate.COLLECTED if is_over else Fate.UNNAMED

    async def _is_named(self, wanted: PayloadObject, standing: Standing) -> bool:
        """Tell whether the spec in force names an object, or an open run carries it."""
        job = standing.job.facts
        carried = {run.facts.payload_version for run in standing.runs}
        in_force = not isinstance(standing.job, s.Cancelled)
        if in_force or job.payload_version in carried:
            if job.spec.payload_ref == wanted.ref:
                return True
            carried.discard(job.payload_version)
        for version in carried:
            (event,) = await self._log.events(job.job_id, job.job_id, version - 1, 1)
            assert isinstance(event, e.Defined | e.Revised)
            if event.spec.payload_ref == wanted.ref:
                return True
        return False

    async def _was_never_named(self, wanted: PayloadObject) -> bool:
        """Tell whether no event names an object, for certain."""
        specs = await self._log.told(wanted.job_id, (e.Defined, e.Revised), SPECS_MAX)
        return len(specs) < SPECS_MAX and not any(
            isinstance(event, e.Defined | e.Revised) and event.spec.payload_ref == wanted.ref
            for _, event in specs
        )

    async def _redriven_at(self, one: Taken) -> int:
        """Return when a run of the job was last redriven, 0 for never."""
        found = await self._log.told(one.object.job_id, (e.RedriveRequested,), 1)
        return max((event.at for _, event in found), default=0)
