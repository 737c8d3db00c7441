"""The store of calendars in memory."""

from collections.abc import Callable, Sequence

import msgspec

from commandside.calendar_port import CALENDARS_MAX, Calendar, Put, Use
from domain.envelope import Rejected
from domain.schedule.exclusion import Exclusion


class _Kept(msgspec.Struct):
    """A calendar with all its versions."""

    versions: list[Calendar] = []
    deleted: bool = False


class _Used(msgspec.Struct):
    """A use with the version that it wants, and the one that its job has."""

    use: Use
    wanted: int
    applied: int = 0


class MemoryCalendars:
    """The port `Calendars`."""

    def __init__(self, now: Callable[[], int]) -> None:
        """`now` is ms of the clock that versions are dated by."""
        self._now = now
        self._calendars: dict[tuple[bytes, str], _Kept] = {}
        self._uses: dict[tuple[bytes, bytes, str], _Used] = {}

    async def put(self, tenant_id: bytes, new: Calendar, if_version: int) -> Put | Rejected:
        """Make the next version, unless the current one has the same content."""
        name = new.exclusion.name
        kept = self._live(tenant_id, name)
        version = len(kept.versions) if kept else 0
        if if_version and version != if_version:
            return Rejected("precondition", f"the calendar is at version {version}")
        if kept is None:
            mine = [k for (t, _), k in self._calendars.items() if t == tenant_id and not k.deleted]
            if len(mine) >= CALENDARS_MAX:
                return Rejected("too_many", f"there are {len(mine)} calendars, as many as may be")
        else:
            same = msgspec.structs.replace(new.exclusion, version=version)
            if same == kept.versions[-1].exclusion:
                return Put(kept.versions[-1], changed=False)
        all_of_it = self._calendars.setdefault((tenant_id, name), _Kept())
        all_of_it.deleted = False
        number = len(all_of_it.versions) + 1
        exclusion = msgspec.structs.replace(new.exclusion, version=number)
        calendar = msgspec.structs.replace(new, exclusion=exclusion, at=self._now())
        all_of_it.versions.append(calendar)
        for used in self._uses.values():
            if (used.use.tenant_id, used.use.name) == (tenant_id, name):
                used.wanted = number
        return Put(calendar, created=kept is None)

    async def find(self, tenant_id: bytes, name: str, version: int = 0) -> Calendar | None:
        """Return a version of a calendar, the current one for 0."""
        kept = self._live(tenant_id, name)
        if kept is None or version > len(kept.versions):
            return None
        return kept.versions[version - 1]

    async def page(self, tenant_id: bytes, after: str, limit: int) -> list[Calendar]:
        """Return calendars by name."""
        names = sorted(
            name
            for (tenant, name), kept in self._calendars.items()
            if tenant == tenant_id and name > after and not kept.deleted
        )
        return [self._calendars[tenant_id, name].versions[-1] for name in names[:limit]]

    async def remove(self, tenant_id: bytes, name: str, if_version: int) -> Rejected | None:
        """Delete a calendar that no job uses."""
        kept = self._live(tenant_id, name)
        if kept is None:
            return Rejected("absent", "there is no such calendar")
        if if_version and if_version != len(kept.versions):
            return Rejected("precondition", f"the calendar is at version {len(kept.versions)}")
        used = await self.count(tenant_id, name)
        if used:
            return Rejected("in_use", f"{used} jobs use it: take it out of their exclude first")
        kept.deleted = True
        return None

    async def claim(
        self, tenant_id: bytes, jobs: Sequence[tuple[bytes, tuple[str, ...]]], at: int
    ) -> dict[str, Exclusion]:
        """Note that jobs are about to use calendars; return those that exist."""
        found = await self.current(tenant_id, [name for _, names in jobs for name in names])
        for job_id, names in jobs:
            for name in names:
                if name in found:
                    use = Use(tenant_id, name, job_id, at)
                    self._uses[job_id, tenant_id, name] = _Used(use, found[name].version)
        return found

    async def current(self, tenant_id: bytes, names: Sequence[str]) -> dict[str, Exclusion]:
        """Return those calendars that exist."""
        kept = {name: self._live(tenant_id, name) for name in names}
        return {name: one.versions[-1].exclusion for name, one in kept.items() if one is not None}

    async def applied(self, tenant_id: bytes, jobs: Sequence[tuple[bytes, str, int]]) -> list[Use]:
        """Note that jobs follow a version; return those that are behind even so."""
        late = []
        for job_id, name, version in jobs:
            used = self._uses.get((job_id, tenant_id, name))
            if used is not None:
                used.applied = max(used.applied, version)
                if used.applied < used.wanted:
                    late.append(used.use)
        return late

    async def behind(
        self, after: bytes, limit: int, tenant_id: bytes = b"", name: str = ""
    ) -> list[Use]:
        """Return uses that are behind, by job id."""
        found = [
            used.use
            for key, used in sorted(self._uses.items())
            if used.applied < used.wanted
            and key[0] > after
            and (not tenant_id or (used.use.tenant_id, used.use.name) == (tenant_id, name))
        ]
        return found[:limit]

    async def users(self, tenant_id: bytes, name: str, limit: int) -> list[Use]:
        """Return some of the uses of a calendar."""
        uses = [used.use for used in self._uses.values()]
        mine = [use for use in uses if (use.tenant_id, use.name) == (tenant_id, name)]
        return sorted(mine, key=lambda use: (use.at, use.job_id))[:limit]

    async def count(self, tenant_id: bytes, name: str) -> int:
        """Return how many jobs may use a calendar."""
        return sum((t, n) == (tenant_id, name) for _, t, n in self._uses)

    async def drop(self, use: Use) -> None:
        """Forget a use, unless it was claimed again since."""
        key = use.job_id, use.tenant_id, use.name
        used = self._uses.get(key)
        if used is not None and used.use.at == use.at:
            del self._uses[key]

    def _live(self, tenant_id: bytes, name: str) -> _Kept | None:
        kept = self._calendars.get((tenant_id, name))
        return None if kept is None or kept.deleted else kept
