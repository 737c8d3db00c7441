"""The `Scheduled` of a run: of a link that is planned, and of a run that is planned again."""

from domain.chain import Link
from domain.envelope import Slice
from domain.ids import SLOT, slot_id
from domain.job import state as js
from domain.run import events as e
from domain.run import state as s


def scheduled(job: js.JobState, link: Link, after: int, at: int) -> e.Scheduled:
    """Return the `Scheduled` of a link that no attempt has begun."""
    head = job.facts
    return e.Scheduled(
        at,
        head.job_id,
        head.tenant_id,
        head.life,
        SLOT,
        int(head.spec.exact),
        link.nominal,
        link.due_at,
        1,
        head.spec_version,
        head.payload_version,
        after,
        passed=link.passed,
        catch_up=link.catch_up,
    )


def again(job: js.JobState, facts: s.Facts, due_at: int, at: int, *, cause: str) -> e.Scheduled:
    """Return the `Scheduled` of a run that exists: current spec; body and key pinned once begun."""
    head = job.facts
    payload = facts.payload_version if facts.has_pinned_body else head.payload_version
    return e.Scheduled(
        at,
        facts.job_id,
        facts.tenant_id,
        facts.life,
        facts.kind,
        int(head.spec.exact),
        facts.nominal,
        due_at,
        facts.attempt + 1,
        head.spec_version,
        payload,
        facts.nominal,
        cause,
        catch_up=facts.catch_up,
    )


def stream_of(job: js.JobState, nominal: int) -> bytes:
    """Return the stream id of a slot, as planned under the job's current life and spec."""
    head = job.facts
    return slot_id(head.job_id, head.life, nominal, head.spec_version)


def first_of(job: js.JobState, link: Link, after: int, at: int) -> Slice:
    """Return the slice that plans a link: the first event of its stream."""
    stream = stream_of(job, link.nominal)
    event = scheduled(job, link, after, at)
    state = s.evolve(stream, None, event)
    assert isinstance(state, s.Ready)
    return Slice(stream, 1, (event,), state)
