"""Callbacks in memory: the tenants' defaults, and the log as the reactor uses it."""

from collections.abc import Callable, Sequence

from commandside.callback_port import Default, DefaultPut, refusal_of
from domain.callback import Callbacks
from domain.catalogue import NAMES, decode
from domain.envelope import Decision, Rejected
from domain.job.events import Defined, JobSpec, Revised
from infra.memory.log import MemoryLog

_SPECS = (NAMES[Defined], NAMES[Revised])


class MemoryCallbackDefaults:
    """`commandside.callback_port.CallbackDefaults`."""

    def __init__(self, now: Callable[[], int]) -> None:
        """`now`: ms."""
        self._now = now
        self.versions: dict[bytes, list[tuple[Default, bool]]] = {}
        """Of each tenant, each with whether it is one, or ends the one before."""

    async def current(self, tenant_id: bytes) -> Default | None:
        """Return the version in force."""
        return self.in_force(tenant_id, None)

    def in_force(self, tenant_id: bytes, before: int | None) -> Default | None:
        """Return the version in force just before an instant, None for now."""
        found = [
            (default, is_one)
            for default, is_one in self.versions.get(tenant_id, [])
            if before is None or default.at < before
        ]
        return found[-1][0] if found and found[-1][1] else None

    async def put(
        self, tenant_id: bytes, callbacks: Callbacks, actor: str, if_version: int
    ) -> DefaultPut | Rejected:
        """Make the next version, unless the current one is the same."""
        current = self.in_force(tenant_id, None)
        refused = refusal_of(current, if_version, removes=False)
        if refused is not None:
            return refused
        if current is not None and callbacks == current.callbacks:
            return DefaultPut(current, changed=False)
        return DefaultPut(self._add(tenant_id, callbacks, actor, is_one=True))

    async def remove(self, tenant_id: bytes, actor: str, if_version: int) -> Rejected | None:
        """End the default."""
        refused = refusal_of(self.in_force(tenant_id, None), if_version, removes=True)
        if refused is None:
            self._add(tenant_id, Callbacks(), actor, is_one=False)
        return refused

    def _add(self, tenant_id: bytes, callbacks: Callbacks, actor: str, *, is_one: bool) -> Default:
        versions = self.versions.setdefault(tenant_id, [])
        made = Default(len(versions) + 1, callbacks, self._now(), actor)
        versions.append((made, is_one))
        return made


class MemoryCallbackLog:
    """`commandside.callback_port.CallbackLog`."""

    def __init__(self, log: MemoryLog, defaults: MemoryCallbackDefaults) -> None:
        """Use a log and defaults that others write."""
        self._log = log
        self._defaults = defaults
        self._jobs: set[bytes] = set()

    def note(self, job_ids: Sequence[bytes]) -> None:
        """Keep that these jobs have, or had, callbacks of their own."""
        self._log.reach()
        self._jobs.update(job_ids)

    def in_use(self) -> bool:
        """Return whether any tenant ever had a default, or any job was noted."""
        self._log.reach()
        return bool(self._defaults.versions or self._jobs)

    def concerned(
        self, tenant_ids: Sequence[bytes], job_ids: Sequence[bytes]
    ) -> tuple[set[bytes], set[bytes]]:
        """Return which of these tenants ever had a default, and which of the jobs were noted."""
        self._log.reach()
        return self._defaults.versions.keys() & set(tenant_ids), self._jobs & set(job_ids)

    def specs(self, asked: Sequence[tuple[bytes, int]]) -> list[JobSpec]:
        """Return the specs of jobs as they were just before positions of the log."""
        self._log.reach()
        return [self._spec(job_id, before) for job_id, before in asked]

    def _spec(self, job_id: bytes, before: int) -> JobSpec:
        written = next(
            one
            for one in reversed(self._log.streams[job_id])
            if one.position < before and one.name in _SPECS
        )
        event = decode(written.name, written.data)
        assert isinstance(event, Defined | Revised)
        return event.spec

    def defaults(self, asked: Sequence[tuple[bytes, int]]) -> list[Default | None]:
        """Return the defaults of tenants that were in force just before instants (ms)."""
        self._log.reach()
        return [self._defaults.in_force(tenant_id, before) for tenant_id, before in asked]

    def define(self, decisions: Sequence[Decision], expires_at: int) -> list[bool]:
        """Append definitions; return which hold."""
        self._log.reach()
        refused = self._log.append(decisions, expires_at).refused
        return [number not in refused for number in range(len(decisions))]

    def defined(self, job_ids: Sequence[bytes]) -> dict[bytes, Defined]:
        """Return the first event of each of these jobs that exists."""
        self._log.reach()
        found = {}
        for job_id in job_ids:
            events = self._log.events_of(job_id)
            if events and isinstance(events[0], Defined):
                found[job_id] = events[0]
        return found
