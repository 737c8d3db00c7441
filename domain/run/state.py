"""A run's state: the fold of its stream.

    none ─Scheduled─► Ready ─Leased─► InFlight ─Fired─► Reported ─Scheduled─► Ready (retry)
                       ▲ │              │Accepted          ├─Completed / Cancelled─► Ended
                       │ Withdrawn      ▼                  └─Withdrawn─► Withheld
                       │ ▼            Awaiting ─Fired─► Reported
                      Withheld     Skipped, Cancelled: Ready or Withheld ─► Ended

`Reported` exists only inside a decision: a `Fired` is never the last event of a commit.
"""

from typing import assert_never

import msgspec

from domain.ids import BACKFILL, REDRIVE, REDRIVE_OWN, RERUN, SLOT
from domain.run import events as e


class Facts(msgspec.Struct, frozen=True, gc=False):
    """What stays true of an open run whatever its phase. `version` is that of its last event."""

    run_id: bytes
    job_id: bytes
    tenant_id: bytes
    life: int
    kind: int
    lane: int
    nominal: int
    due_at: int
    version: int
    attempt: int
    """Number of `Leased` so far."""
    fence: int
    """Version of the last `Leased`, 0 before the first."""
    fails: int
    lost: int
    abandoned: int
    first_leased_at: int
    """Instant of the first `Leased`, 0 before it; tells overlap from misfire."""
    spec_version: int
    payload_version: int
    catch_up: e.CatchUp | None = None

    @property
    def begun(self) -> bool:
        """An attempt has been leased: the run is no longer removed by an edit."""
        return self.attempt > 0

    @property
    def is_link(self) -> bool:
        """Created by the schedule, hence a link of the job's chain."""
        return self.kind == SLOT

    @property
    def is_backfill(self) -> bool:
        """Asked for afterwards, as one slot of a past range."""
        return self.kind in (BACKFILL, RERUN)

    @property
    def is_redrive(self) -> bool:
        """Asked for in the place of a dead run, with its body and key."""
        return self.kind in (REDRIVE, REDRIVE_OWN)

    @property
    def is_afterthought(self) -> bool:
        """A slot of the past that was asked for afterwards: the chain goes before it."""
        return self.is_backfill or self.is_redrive

    @property
    def has_pinned_body(self) -> bool:
        """The body was sent already, by an attempt of this run or of the dead one."""
        return self.begun or self.is_redrive


class Ready(msgspec.Struct, frozen=True, gc=False):
    """Waits for its due instant and a lease."""

    facts: Facts


class InFlight(msgspec.Struct, frozen=True, gc=False):
    """Leased: one process may call the target until `until` (database clock)."""

    facts: Facts
    owner: bytes
    nonce: bytes
    leased_at: int
    until: int


class Awaiting(msgspec.Struct, frozen=True, gc=False):
    """Accepted by the target, which reports its end itself before `until`."""

    facts: Facts
    leased_at: int
    until: int


class Reported(msgspec.Struct, frozen=True, gc=False):
    """Between a `Fired` and what follows it in the same decision."""

    facts: Facts


class Withheld(msgspec.Struct, frozen=True, gc=False):
    """Withdrawn: no due row, may be scheduled again."""

    facts: Facts


class Ended(msgspec.Struct, frozen=True, gc=False):
    """Nothing follows. `verdict`: succeeded, dead, cancelled, or why it was skipped."""

    run_id: bytes
    version: int
    verdict: str


OpenRun = Ready | InFlight | Awaiting | Withheld
RunState = Ready | InFlight | Awaiting | Reported | Withheld | Ended


def evolve(run_id: bytes, state: RunState | None, event: e.RunEvent) -> RunState:
    """Return the state after `event`, the next of the stream. Asserts that the event is legal."""
    if isinstance(state, Ended):
        raise AssertionError(f"{type(event).__name__} after the end of run {run_id.hex()}")
    if isinstance(event, e.Scheduled):
        return Ready(_scheduled(run_id, state, event))
    assert state is not None, "a run starts with Scheduled"
    facts = msgspec.structs.replace(state.facts, version=state.facts.version + 1)
    match event:
        case e.Leased():
            assert isinstance(state, Ready)
            facts = msgspec.structs.replace(
                facts,
                attempt=event.attempt,
                fence=facts.version,
                first_leased_at=facts.first_leased_at or event.at,
            )
            return InFlight(facts, event.session, event.nonce, event.at, event.until)
        case e.Accepted():
            assert isinstance(state, InFlight)
            return Awaiting(facts, state.leased_at, event.until)
        case e.Extended():
            assert isinstance(state, Awaiting)
            return Awaiting(facts, state.leased_at, event.until)
        case e.Progressed():
            assert isinstance(state, Awaiting)
            return Awaiting(facts, state.leased_at, state.until)
        case e.Fired():
            flying = isinstance(state, InFlight | Awaiting)
            assert flying or (event.late and event.outcome == e.OK), "only a success may be late"
            return Reported(counted(facts, event.outcome))
        case e.Withdrawn():
            assert isinstance(state, Ready | Reported)
            return Withheld(facts)
        case e.Completed():
            expired = isinstance(state, Ready) and facts.begun
            assert isinstance(state, Reported) or expired, "an end follows its `Fired`"
            return Ended(run_id, facts.version, event.outcome)
        case e.Skipped():
            assert isinstance(state, Ready | Withheld)
            assert not facts.begun or event.verdict == e.EXPIRED, "a begun run is not skipped"
            return Ended(run_id, facts.version, event.verdict)
        case e.Cancelled():
            return Ended(run_id, facts.version, e.CANCELLED)
        case _:
            assert_never(event)


def counted(facts: Facts, outcome: str) -> Facts:
    """Return `facts` with the counter of a failed, lost or abandoned attempt raised."""
    if outcome == e.FAILED:
        return msgspec.structs.replace(facts, fails=facts.fails + 1)
    if outcome == e.LOST:
        return msgspec.structs.replace(facts, lost=facts.lost + 1)
    if outcome == e.ABANDONED:
        return msgspec.structs.replace(facts, abandoned=facts.abandoned + 1)
    return facts


def _scheduled(run_id: bytes, state: RunState | None, event: e.Scheduled) -> Facts:
    if state is None:
        return Facts(
            run_id,
            event.job_id,
            event.tenant_id,
            event.life,
            event.kind,
            event.lane,
            event.nominal,
            event.due_at,
            1,
            0,
            0,
            0,
            0,
            0,
            0,
            event.spec_version,
            event.payload_version,
            event.catch_up,
        )
    assert isinstance(state, Ready | Withheld | Reported), "a run in flight is not scheduled"
    return msgspec.structs.replace(
        state.facts,
        version=state.facts.version + 1,
        due_at=event.due_at,
        lane=event.lane,
        spec_version=event.spec_version,
        payload_version=event.payload_version,
        catch_up=event.catch_up,
    )
