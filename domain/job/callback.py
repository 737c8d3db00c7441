"""A callback job as a function of the event it tells of: its id, its instant, its body.

Nothing of it depends on who reads that event, nor when. The body is a contract with receivers
(docs/callbacks.md): members are added, and never change their meaning.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from domain import callback as c
from domain.catalogue import DomainEvent
from domain.envelope import Decision
from domain.idempotency import DEFAULT_TEMPLATE
from domain.ids import JOB, KIND_NAMES, RUN, callback_id, text
from domain.instant import SECOND, rfc3339
from domain.job import decide
from domain.job import events as e
from domain.retry import ONE_TIME_DEFAULT
from domain.run import events as re
from domain.schedule.schedule import OneTime
from domain.target import Target

TYPES: Final = ("run.succeeded", "run.dead", "run.skipped")
"""What a body is called, by kind of end."""
DELAY_MS: Final = 2 * SECOND
"""From an end to the call that tells of it: who reads the log once a second makes no job late."""
CONTENT_TYPE: Final = "application/json"
TIMEOUT_MS: Final = 30_000
SKIPPED_MAX: Final = 20
"""Ranges of slots that one body lists: with every label, it fits into the spec of its job."""
NAME_MAX: Final = 128
_ENCODE: Final = msgspec.json.Encoder().encode


class Ended(msgspec.Struct, frozen=True, gc=False):
    """The end of an occurrence, or with `passed` of slots that never had a run.

    `stream_id` and `version` say which event it is; `run_id` is empty where there was no run.
    """

    stream_id: bytes
    version: int
    at: int
    tenant_id: bytes
    job_id: bytes
    event: int
    run_id: bytes = b""
    kind: int = 0
    nominal: int = 0
    cause: str = ""
    attempts: int = 0
    status: int = 0
    error: str = ""
    passed: tuple[re.Passed, ...] = ()

    @property
    def callback_id(self) -> bytes:
        """The job that tells of it: one, however often the event is read."""
        return callback_id(self.stream_id, self.version)


def ended(stream_id: bytes, version: int, event: DomainEvent | None) -> Ended | None:
    """Return the end that an event is, if it is one that somebody may want to be told of.

    A cancelled run is none. Nor are slots that the job's calendars exclude: nobody expected them.
    """
    reader = _READERS.get(type(event))
    return None if reader is None else reader(stream_id, version, event)


def _fired(stream_id: bytes, version: int, fired: re.Fired) -> Ended | None:
    if fired.then not in (re.SUCCEEDED, re.DEAD):
        return None
    return Ended(
        stream_id,
        version,
        fired.at,
        fired.tenant_id,
        fired.job_id,
        c.SUCCESS if fired.then == re.SUCCEEDED else c.FAILURE,
        stream_id,
        fired.kind,
        fired.nominal,
        fired.cause,
        fired.attempt,
        fired.status,
        fired.error,
    )


def _completed(stream_id: bytes, version: int, completed: re.Completed) -> Ended | None:
    of = completed.of
    if of is None or completed.outcome != re.DEAD:
        return None  # its Fired, in the same decision, says more
    return Ended(
        stream_id,
        version,
        completed.at,
        of.tenant_id,
        of.job_id,
        c.FAILURE,
        stream_id,
        of.kind,
        of.nominal,
        completed.cause,
        of.attempts,
    )


def _skipped(stream_id: bytes, version: int, skipped: re.Skipped) -> Ended | None:
    if skipped.verdict == re.BLACKOUT:
        return None
    return Ended(
        stream_id,
        version,
        skipped.at,
        skipped.tenant_id,
        skipped.job_id,
        c.SKIPPED,
        stream_id,
        skipped.kind,
        skipped.nominal,
        passed=(re.Passed(skipped.nominal, skipped.nominal, 1, skipped.verdict, skipped.cause),),
    )


def _planned(stream_id: bytes, version: int, planned: re.Scheduled) -> Ended | None:
    return _range(stream_id, version, (planned.tenant_id, planned.job_id), planned)


def _settled(stream_id: bytes, version: int, settled: Any) -> Ended | None:
    return _range(stream_id, version, (settled.tenant_id, stream_id), settled)


def _range(stream_id: bytes, version: int, whose: tuple[bytes, bytes], event: Any) -> Ended | None:
    passed = tuple(gone for gone in event.passed if gone.verdict != re.BLACKOUT)
    if not passed:
        return None
    return Ended(
        stream_id, version, event.at, *whose, c.SKIPPED, nominal=passed[0].first, passed=passed
    )


_Reader = Callable[[bytes, int, Any], Ended | None]
_READERS: Final[dict[type, _Reader]] = {
    re.Fired: _fired,
    re.Completed: _completed,
    re.Skipped: _skipped,
    re.Scheduled: _planned,
    **dict.fromkeys(
        (
            e.Revised,
            e.Paused,
            e.Resumed,
            e.Cancelled,
            e.Finished,
            e.Replanned,
            e.CatchUpClosed,
        ),
        _settled,
    ),
}


def body(end: Ended, spec: e.JobSpec) -> bytes:
    """Return what a receiver is sent: `type`, `timestamp`, `data`, as Standard Webhooks has it."""
    data: dict[str, Any] = {
        "job_id": text(JOB, end.job_id),
        "name": spec.name,
        "labels": dict(spec.labels),
        "run_id": text(RUN, end.run_id) if end.run_id else None,
        "kind": KIND_NAMES[end.kind],
        "scheduled_for": rfc3339(end.nominal),
    }
    if end.event == c.SKIPPED:
        data["skipped"] = [
            {
                "first": rfc3339(gone.first),
                "last": rfc3339(gone.last),
                "count": gone.count,
                "verdict": gone.verdict,
                "cause": gone.cause or None,
            }
            for gone in end.passed[:SKIPPED_MAX]
        ]
    else:
        data |= {
            "cause": end.cause or None,
            "attempts": end.attempts,
            "last_status": end.status or None,
            "last_error": end.error or None,
        }
    return _ENCODE({"type": TYPES[end.event], "timestamp": rfc3339(end.at), "data": data})


def spec_of(end: Ended, spec: e.JobSpec, target: Target, default: int) -> e.JobSpec:
    """Return the spec of the job that tells of an end, with plain values.

    `spec` is that of the job whose end it is; `default` as in `CallbackOf`.
    """
    name = f"{c.NAMES[end.event]} of {spec.name or text(JOB, end.job_id)}"
    return e.JobSpec(
        OneTime(end.at + DELAY_MS),
        target,
        ONE_TIME_DEFAULT,
        TIMEOUT_MS,
        DEFAULT_TEMPLATE.text,
        body(end, spec),
        CONTENT_TYPE,
        name=name[:NAME_MAX],
        labels=spec.labels,
        callback_of=c.CallbackOf(
            end.job_id, end.run_id, end.stream_id, end.version, end.event, default
        ),
    )


def define(end: Ended, sealed: e.JobSpec) -> Decision:
    """Decide on the definition of the job that tells of an end: as of that end's own instant."""
    new = decide.NewJob(end.callback_id, end.tenant_id, sealed)
    decision = decide.define(new, None, decide.By(end.at))
    assert isinstance(decision, Decision), "a job that does not exist can be defined"
    return decision
