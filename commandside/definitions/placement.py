"""Chooses the second for jobs that ask for the emptiest one, before their definition is decided.

The choice is part of the spec that is stored: every fire and every replay finds the same one. What
this process has chosen and not yet seen committed counts as load, so that the jobs of a batch do
not all choose the same second. Another process chooses on its own: it sees what is committed.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import msgspec

from commandside.command_port import CommandLog
from commandside.ports import Unavailable
from domain.instant import SECOND
from domain.job.events import JobSpec
from domain.schedule.jitter import emptiest
from domain.slots import Room, room_of

TO_CHOOSE: Final = -2
"""`spread_ms` of a spec that asks for the emptiest second and has none yet; never stored."""
CHOICES_MAX: Final = 3
"""A command is decided again as often, where its job gets another schedule meanwhile."""
LOOKUPS_MAX: Final = 20_000
"""Ranges of an index that are read at a time, one for each window and shard: some 20 ms."""


_Outcome = TypeVar("_Outcome")


class Unplaced(Exception):
    """A change needs a second that is chosen on what this carries, and then is decided again."""

    def __init__(self, job_id: bytes, spec: JobSpec, at: int) -> None:
        super().__init__("a second has to be chosen first")
        self.wanted = Wanted(job_id, spec, at)


class Wanted(msgspec.Struct, frozen=True):
    """A spec that has its second to choose, as of an instant."""

    job_id: bytes
    spec: JobSpec
    at: int


class Placed(msgspec.Struct):
    """Specs with their second, in the order asked for, and the seconds that were chosen."""

    specs: list[JobSpec]
    seconds: list[int]


def is_open(spec: JobSpec) -> bool:
    """Tell whether a second has to be chosen."""
    return spec.spread_ms == TO_CHOOSE


def over(spec: JobSpec, old: JobSpec) -> JobSpec:
    """Return a changed spec with the second of the one before, as long as that one is fit for it.

    Another schedule or jitter has a second to choose anew.
    """
    if spec.spread_ms < 0 and not is_open(spec):
        return spec
    same = (spec.schedule, spec.jitter_ms) == (old.schedule, old.jitter_ms)
    kept = old.spread_ms if same and old.spread_ms >= 0 else TO_CHOOSE
    return msgspec.structs.replace(spec, spread_ms=kept)


class Placer:
    """Chooses seconds, one request after the other."""

    def __init__(self, log: CommandLog) -> None:
        self._log = log
        self._turn = asyncio.Lock()
        self._pending: Counter[int] = Counter()

    async def choose(self, wanted: Sequence[Wanted]) -> Placed:
        """Return the specs with their second; `release` follows with their outcome."""
        rooms = [room_of(one.spec, one.at) for one in wanted]
        async with self._turn:
            # As of before the reading: what commits while it is on its way may be missing in it.
            counts = Counter(self._pending)
            counts.update(await self._log.due_per_second(self._windows(rooms)))
            placed = Placed([], [])
            for one, room in zip(wanted, rooms, strict=True):
                spread = emptiest(one.job_id, counts, room.nominal, room.most_ms)
                second = (room.nominal + spread) // SECOND
                counts[second] += 1
                placed.seconds.append(second)
                placed.specs.append(msgspec.structs.replace(one.spec, spread_ms=spread))
            self._pending.update(placed.seconds)
            return placed

    def release(self, placed: Placed) -> None:
        """Forget what was chosen: it is committed, or it never will be."""
        self._pending.subtract(placed.seconds)
        self._pending = +self._pending

    def _windows(self, rooms: Sequence[Room]) -> list[tuple[int, int]]:
        """Return the windows as ranges [low, high) in ms that do not meet, as many as are read."""
        found: list[tuple[int, int]] = []
        for room in sorted(rooms, key=lambda room: room.nominal):
            low = room.nominal // SECOND * SECOND
            high = ((room.nominal + room.most_ms) // SECOND + 1) * SECOND
            if found and low <= found[-1][1]:
                found[-1] = found[-1][0], max(high, found[-1][1])
            else:
                found.append((low, high))
        return found[: max(1, LOOKUPS_MAX // self._log.shards)]


class Choices:
    """The seconds that are there for one command on a job, and are chosen as it needs them."""

    def __init__(self, placer: Placer, *chosen: JobSpec) -> None:
        """`chosen`: specs that have theirs already."""
        self._placer = placer
        self._chosen = list(chosen)

    def fit(self, job_id: bytes, spec: JobSpec, old: JobSpec, at: int) -> JobSpec:
        """Return a changed spec with its second; raises Unplaced where none was chosen for it."""
        for other in (old, *self._chosen):
            spec = over(spec, other)
            if not is_open(spec):
                return spec
        raise Unplaced(job_id, spec, at)

    async def around(self, command: Callable[[], Awaitable[_Outcome]]) -> _Outcome:
        """Run a command, and again with the second that it turns out to need."""
        placed: list[Placed] = []
        try:
            for _ in range(CHOICES_MAX):
                try:
                    return await command()
                except Unplaced as needs:
                    placed.append(await self._placer.choose((needs.wanted,)))
                    self._chosen += placed[-1].specs
            raise Unavailable("the job changes faster than its second can be chosen")
        finally:
            for one in placed:
                self._placer.release(one)
