"""A job's state: the fold of its stream, kept whole in the job's head row.

    none ─Defined─► Active ─Paused─► Paused ─Resumed─► Active
                      │ ▲ Revised        │
                      ▼ │                ▼
                   Finished ─Cancelled─► Cancelled ─Defined (life + 1)─► Active
                   Finished ─Revised, Replanned─► Active

A one-time job has no `Finished` event: the end of its only link implies it (`effective`), which
saves an event and a head update in every one-time fire.
"""

from typing import assert_never

import msgspec

from domain.job import events as e
from domain.run.events import CatchUp
from domain.stretch import Stretches, count_after, next_after


class Backfill(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Past slots that run one after the other; those up to `after` are over.

    While one of them has an open run, that run's nominal instant is the place, and `after` is what
    was last written down.
    """

    generation: int
    rerun: bool
    until: int
    slots: Stretches
    after: int

    def next_after(self, nominal: int) -> int | None:
        """Return the slot that runs after this one."""
        return next_after(self.slots, nominal)

    def left_after(self, nominal: int) -> int:
        """Return how many slots run after this one."""
        return count_after(self.slots, nominal)


class Facts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What stays true of a job whatever its status. `version` is that of its last event."""

    job_id: bytes
    tenant_id: bytes
    version: int
    life: int
    spec: e.JobSpec
    spec_version: int
    payload_version: int
    cursor: int
    defined_at: int
    changed_at: int
    key: str = ""
    zone_data: str = ""
    begun: int = 0
    """Occurrences that have begun since the job has `max_runs`."""
    failures: int = 0
    """Links that ended dead in a row, while the job has `pause_after`."""
    backfill: Backfill | None = None

    @property
    def is_exhausted(self) -> bool:
        """As many occurrences have begun as the job may have."""
        return 0 < self.spec.max_runs <= self.begun


class Active(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """Has its next occurrence planned.

    `catch_up`: slots of a pause that fire after the link which was in flight at the resume.
    """

    facts: Facts
    catch_up: CatchUp | None = None


class Paused(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """No new attempt starts. `runs` are those withdrawn or in flight when it was paused."""

    facts: Facts
    paused_at: int
    held: bytes = b""
    runs: tuple[bytes, ...] = ()
    cause: str = ""
    reason: str = ""
    until: int = 0


class Finished(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3):
    """No occurrence is left."""

    facts: Facts


class Cancelled(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=4):
    """A tombstone."""

    facts: Facts
    at: int
    in_flight: tuple[bytes, ...] = ()


JobState = Active | Paused | Finished | Cancelled
STATUS_NAMES = {Active: "active", Paused: "paused", Finished: "finished", Cancelled: "cancelled"}


def evolve(job_id: bytes, state: JobState | None, event: e.JobEvent) -> JobState:
    """Return the state after `event`, the next of the stream. Asserts that the event is legal."""
    if isinstance(event, e.Defined):
        assert state is None or isinstance(state, Cancelled)
        version = 1 if state is None else state.facts.version + 1
        return Active(
            Facts(
                job_id,
                event.tenant_id,
                version,
                event.life,
                event.spec,
                version,
                version,
                event.cursor,
                event.at,
                event.at,
                event.key,
                event.zone_data,
            )
        )
    assert state is not None, "a job starts with Defined"
    facts = msgspec.structs.replace(
        state.facts,
        version=state.facts.version + 1,
        changed_at=event.at,
        begun=event.begun if isinstance(event, e.Counted) else state.facts.begun,
        failures=_failures(state.facts, event),
    )
    if not isinstance(event, _ASKED):
        facts = msgspec.structs.replace(facts, cursor=event.cursor)
    assert not isinstance(state, Cancelled), "only a definition follows a tombstone"
    match event:
        case e.Revised():
            facts = msgspec.structs.replace(
                facts,
                spec=event.spec,
                spec_version=facts.version,
                payload_version=event.payload_version,
                zone_data=event.zone_data or facts.zone_data,
                begun=facts.begun if event.spec.max_runs else 0,
            )
            if isinstance(state, Paused):
                return msgspec.structs.replace(state, facts=facts, held=event.held)
            return Active(facts, state.catch_up if isinstance(state, Active) else None)
        case e.Paused():
            assert isinstance(state, Active)
            held, runs = event.held, event.runs
            return Paused(facts, event.at, held, runs, event.cause, event.reason, event.until)
        case e.Resumed():
            assert isinstance(state, Paused)
            return Active(facts, event.catch_up)
        case e.Cancelled():
            facts = msgspec.structs.replace(facts, backfill=None)
            return Cancelled(facts, event.at, event.in_flight)
        case e.Finished():
            assert isinstance(state, Active)
            return Finished(facts)
        case e.Replanned():
            return _replanned(state, facts, event)
        case e.BackfillRequested() | e.BackfillMoved():
            facts = msgspec.structs.replace(facts, backfill=_backfill(facts, event))
            return msgspec.structs.replace(state, facts=facts)
        case (
            e.RunRequested() | e.RedriveRequested() | e.CatchUpClosed() | e.Counted() | e.Failing()
        ):
            return msgspec.structs.replace(state, facts=facts)
        case _:
            assert_never(event)


_ASKED = e.RunRequested | e.RedriveRequested | e.BackfillRequested | e.BackfillMoved
"""Events that do not move the cursor."""


def _replanned(state: Active | Paused | Finished, facts: Facts, event: e.Replanned) -> JobState:
    # A spec of its own: a slot may come back under it that was withdrawn before.
    facts = msgspec.structs.replace(facts, spec_version=facts.version, zone_data=event.zone_data)
    if event.exclusions:
        spec = msgspec.structs.replace(facts.spec, exclusions=event.exclusions)
        facts = msgspec.structs.replace(facts, spec=spec)
    if isinstance(state, Finished):
        return Active(facts)
    if isinstance(state, Paused):
        return msgspec.structs.replace(state, facts=facts, held=b"")
    return msgspec.structs.replace(state, facts=facts)


def _failures(facts: Facts, event: e.JobEvent) -> int:
    """Return how many links in a row have ended dead, with this event."""
    match event:
        case e.Failing():
            return event.failures
        case e.Paused(cause=e.FAILURES):
            return facts.failures + 1
        case e.Revised() if not event.spec.pause_after:
            return 0
        case _:
            return facts.failures


def _backfill(facts: Facts, event: e.BackfillRequested | e.BackfillMoved) -> Backfill | None:
    """Return what is left of the backfill with this event, None where nothing is."""
    if isinstance(event, e.BackfillRequested):
        before = event.since - 1
        found = Backfill(facts.version, event.rerun, event.until, event.slots, before)
    else:
        assert facts.backfill is not None, "a backfill that moves was asked for"
        found = msgspec.structs.replace(facts.backfill, after=event.after)
    return found if found.next_after(found.after) is not None else None
