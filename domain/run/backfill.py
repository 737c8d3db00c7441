"""The slots of a backfill, one run after the other (protocol, "Backfill").

The list is in the job's head, and the place in it is the nominal instant of the one open run: so
that a slot costs no event of the job. Only where no run is open, the place is written down.
"""

import msgspec

from domain import chain
from domain.backlog import PACE_MS
from domain.envelope import Slice
from domain.ids import BACKFILL, RERUN, backfill_id
from domain.job import events as je
from domain.job import state as js
from domain.run import events as e
from domain.run import state as s
from domain.run.planning import scheduled


def is_current(job: js.JobState, facts: s.Facts) -> bool:
    """Tell whether an open run belongs to the backfill of the job's current life."""
    return facts.is_backfill and facts.life == job.facts.life


def first_slot(job: js.JobState, backfill: js.Backfill, at: int) -> tuple[bytes, None, e.Scheduled]:
    """Return what plans the first slot after the backfill's place: stream, no state, event."""
    nominal = backfill.next_after(backfill.after)
    assert nominal is not None, "a backfill without a slot left is over"
    stream, event = _planned(job, backfill, nominal, (at, at))
    return stream, None, event


def after_run(job: js.JobState, facts: s.Facts, at: int) -> Slice | je.BackfillMoved | None:
    """Return what follows where a run of a backfill ends: the next slot, or the place.

    Nothing does where the backfill is over already: its job was cancelled.
    """
    head = job.facts
    backfill = head.backfill
    if backfill is None or not is_current(job, facts):
        return None
    nominal = backfill.next_after(facts.nominal)
    if nominal is None or isinstance(job, js.Paused):
        return je.BackfillMoved(at, facts.nominal, head.tenant_id)
    due_at = max(at, facts.first_leased_at + PACE_MS)
    stream, event = _planned(job, backfill, nominal, (due_at, at))
    state = s.evolve(stream, None, event)
    assert isinstance(state, s.Ready)
    return Slice(stream, 1, (event,), state)


def _planned(
    job: js.JobState, backfill: js.Backfill, nominal: int, times: tuple[int, int]
) -> tuple[bytes, e.Scheduled]:
    """Return stream and first event of a slot; `times`: due, now."""
    head, (due_at, at) = job.facts, times
    event = msgspec.structs.replace(
        scheduled(job, chain.Link(nominal, due_at), head.cursor, at),
        kind=RERUN if backfill.rerun else BACKFILL,
        cause="backfill",
    )
    return backfill_id(head.job_id, head.life, nominal, backfill.generation), event
