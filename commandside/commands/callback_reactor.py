"""The reactor of callbacks: reads how occurrences end, and defines the jobs that tell of it.

    event of an end ─► job f(stream, version) ─► position
          ▲                      │ a crash in between
          └──────────────────────┘ the same job again, which exists: compared, and left

A view of the log like others, so it is read for together with them, has a position for each shard,
and holds up nobody while it waits. A position is stored after the jobs of the events before it. All
of a job follows from the log and from what was in force when the event happened, never from when
this process ran.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from commandside import fault_points
from commandside.callback_port import OWNER, CallbackLog, Default
from commandside.definitions.sealing import Sealer, opened_target
from commandside.ports import FaultPoint, KeyGone, Telemetry, Unavailable, Vault
from domain.callback import chosen
from domain.job.callback import Ended, define, ended, spec_of
from domain.job.events import Defined, JobSpec, Revised
from projections.ports import Positions, Recorded

VIEW: Final = "callbacks"
AT_ONCE: Final = 100
"""Ends that are looked at together: two slices each, within a transaction's bound."""
EXPIRY_MS: Final = 5_000

_SPECS: Final = frozenset({Defined, Revised})


class ReactorPorts(msgspec.Struct, frozen=True):
    """What the reactor works with. `now`: ms of the database clock as estimated."""

    log: CallbackLog
    vault: Vault
    positions: Positions
    faults: FaultPoint
    telemetry: Telemetry
    now: Callable[[], int]


def _names_target(event: object) -> bool:
    assert isinstance(event, Defined | Revised)
    callbacks = event.spec.callbacks
    return callbacks is not None and callbacks.has_target


class _Wanted(msgspec.Struct, frozen=True):
    """A job to be defined: its spec with plain values, and sealed."""

    end: Ended
    plain: JobSpec
    sealed: JobSpec


class CallbackView:
    """`projections.ports.View`: defines jobs, then stores positions; bears repetition."""

    name = VIEW

    def __init__(self, ports: ReactorPorts) -> None:
        """Nothing is read before `apply`."""
        self._ports = ports
        self._log = ports.log

    def prepare(self) -> None:
        """Nothing: its tables come with the log's."""

    def apply(self, batch: Sequence[Recorded], positions: Mapping[int, int]) -> None:
        """Tell of what has ended in `batch`, then store the positions."""
        new = [r for r in batch if type(r.event) in _SPECS and _names_target(r.event)]
        if new:
            self._log.note(sorted({r.stream_id for r in new}))
        ends = self._of_interest(batch) if self._log.in_use() else []
        for first in range(0, len(ends), AT_ONCE):
            self._tell(ends[first : first + AT_ONCE])
        if ends:
            self._ports.faults.hit(fault_points.CALLBACKS_DEFINED)
        self._ports.positions.save(self.name, positions)

    def _of_interest(self, batch: Sequence[Recorded]) -> list[tuple[int, Ended]]:
        """Return the ends, with their positions, that a job or a tenant may want to be told of."""
        found = [(r.position, ended(r.stream_id, r.version, r.event)) for r in batch]
        ends = [(position, end) for position, end in found if end is not None]
        if not ends:
            return []
        tenants, jobs = self._log.concerned(
            sorted({end.tenant_id for _, end in ends}), sorted({end.job_id for _, end in ends})
        )
        return [
            (position, end)
            for position, end in ends
            if end.tenant_id in tenants or end.job_id in jobs
        ]

    def _tell(self, ends: Sequence[tuple[int, Ended]]) -> None:
        for tenant_id in {end.tenant_id for _, end in ends}:
            if not self._ports.vault.knows(tenant_id):
                self._ports.vault.fetch(tenant_id)
        specs = self._log.specs([(end.job_id, position) for position, end in ends])
        defaults = self._log.defaults([(end.tenant_id, end.at) for _, end in ends])
        wanted = [
            job
            for (_, end), spec, default in zip(ends, specs, defaults, strict=True)
            if (job := self._wanted(end, spec, default)) is not None
        ]
        if not wanted:
            return
        decisions = [define(job.end, job.sealed) for job in wanted]
        held = self._log.define(decisions, self._ports.now() + EXPIRY_MS)
        self._ports.telemetry.count("callbacks_defined", sum(held))
        there = [job for job, is_new in zip(wanted, held, strict=True) if not is_new]
        if there:
            self._compare(there)

    def _wanted(self, end: Ended, spec: JobSpec, default: Default | None) -> _Wanted | None:
        """Return the job that tells of an end, None where nobody is told."""
        if spec.callback_of is not None:
            return None  # never a callback of a callback, whatever a default says
        choice = chosen(end.event, spec.callbacks, default.callbacks if default else None)
        if choice is None:
            return None
        target, is_default = choice
        vault, tenant_id = self._ports.vault, end.tenant_id
        version = default.version if default is not None and is_default else 0
        try:
            plain = opened_target(vault, tenant_id, OWNER if is_default else end.job_id, target)
            told = spec_of(end, spec, plain, version)
            return _Wanted(end, told, Sealer(vault, tenant_id, end.callback_id).sealed(told))
        except KeyGone:
            # The tenant was erased: what would be told, and to whom, nobody can read any more.
            self._ports.telemetry.count("callbacks_erased")
            return None

    def _compare(self, there: Sequence[_Wanted]) -> None:
        """Hold jobs that exist against what they should be; raises Unavailable if one does not."""
        found = self._log.defined([job.end.callback_id for job in there])
        for job in there:
            defined = found.get(job.end.callback_id)
            if defined is None:
                raise Unavailable("definitions of callbacks came too late; they are sent again")
            if not self._is_the_same(job, defined):
                detail = f"job {job.end.callback_id.hex()} exists and is not what tells of its end"
                self._ports.telemetry.alarm("callbacks_differ", detail)

    def _is_the_same(self, job: _Wanted, defined: Defined) -> bool:
        end, vault = job.end, self._ports.vault
        try:
            target = opened_target(vault, end.tenant_id, end.callback_id, defined.spec.target)
            payload = vault.open(end.tenant_id, end.callback_id, defined.spec.payload)
        except KeyGone:
            return False
        plain = msgspec.structs.replace(defined.spec, target=target, payload=payload)
        return (defined.tenant_id, defined.at, plain) == (end.tenant_id, end.at, job.plain)
