"""What queries answer, and how a job, a run and an event are shown."""

import base64
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from domain import outlook, wording
from domain.callback import NAMES as CALLBACKS
from domain.catalogue import NAMES, DomainEvent
from domain.ids import JOB, KIND_NAMES, RUN, text
from domain.instant import rfc3339
from domain.job import state as s
from domain.job.events import JobSpec
from domain.job.redrive import status_of
from domain.run import state as rs
from domain.run.events import DEAD, Passed, Progressed
from domain.schedule.exclusion import Exclusion
from domain.stretch import Stretch
from projections.rows import AttemptRow, RunRow
from projections.run_history import NO_RUN
from queryside.ports import JobLine, RunLine

Instant = Annotated[str, Meta(description="RFC 3339, UTC, milliseconds")]


class Pause(msgspec.Struct):
    """Since when and why a job is paused.

    `cause`: request, gone (the target answered 410), failures (too many in a row), or
    schedule_error (nothing says what is next).
    """

    at: Instant
    cause: str
    reason: str
    until: Annotated[Instant | None, Meta(description="when it ends by itself; null: never")]


class BackfillShown(msgspec.Struct):
    """What is left of a backfill that is going on."""

    left: Annotated[int, Meta(description="runs that are not over")]
    next: Annotated[Instant, Meta(description="the slot that runs now, or next")]
    to: Annotated[Instant, Meta(description="as asked")]


class CalendarUsed(msgspec.Struct, kw_only=True):
    """A calendar that a job excludes, in the version that it follows."""

    name: str
    version: int


class CallbackShown(msgspec.Struct):
    """The end that a job tells of."""

    event: Annotated[str, Meta(description="on_success, on_failure or on_skipped")]
    job_id: str
    run_id: Annotated[str | None, Meta(description="null: slots that never had a run")]


class JobShown(msgspec.Struct, kw_only=True):
    """A job as it stands. `spec` can be sent back as a definition, but for its header values."""

    job_id: str
    key: str | None
    status: Annotated[str, Meta(description="active, paused, finished or cancelled")]
    version: int
    spec: dict[str, Any]
    next_run_at: Instant | None
    next_due_at: Instant | None
    next_runs: list[Instant]
    in_flight: list[str] | UnsetType = UNSET
    defined_at: Instant
    changed_at: Instant
    paused: Pause | UnsetType = UNSET
    backfill: BackfillShown | UnsetType = UNSET
    calendars: (
        Annotated[list[CalendarUsed], Meta(description="of exclude, as they are in force")]
        | UnsetType
    ) = UNSET
    callback_of: CallbackShown | UnsetType = UNSET
    as_of: Instant | UnsetType = UNSET


class JobItem(msgspec.Struct, kw_only=True):
    """A job in a list."""

    job_id: str
    key: str | None
    name: str
    status: str
    type: str
    schedule: str | None
    timezone: str | None
    target: str
    labels: dict[str, str]
    version: int
    next_run_at: Instant | None
    next_due_at: Instant | None
    runs_in_flight: int
    defined_at: Instant
    changed_at: Instant


class AttemptItem(msgspec.Struct, kw_only=True):
    """One call of the target. `body`: the first of the answer, as text."""

    attempt: int
    due_at: Instant
    leased_at: Instant
    ended_at: Instant
    lateness_ms: int
    latency_ms: float
    outcome: Annotated[str, Meta(description="ok, failed, lost or abandoned")]
    then: Annotated[str, Meta(description="succeeded, dead, retry, withdrawn or cancelled")]
    status: int | None
    error: str | None
    late: bool
    headers: dict[str, str]
    body: str


class ProgressShown(msgspec.Struct):
    """How far the handler of an accepted attempt says it is."""

    percent: int
    note: str
    at: Instant


class RedriveShown(msgspec.Struct):
    """The run that took the place of a dead one, and how that stands."""

    run_id: str
    status: str


class RunItem(msgspec.Struct, kw_only=True):
    """One occurrence, or with `count` slots up to `last` that share a verdict and have no run."""

    run_id: str | None
    kind: str
    scheduled_for: Instant
    due_at: Instant | None
    status: str
    verdict: str | None
    cause: str | None
    attempts: list[AttemptItem]
    attempts_made: int
    fired_at: Instant | None
    ended_at: Instant | None
    last: Instant | UnsetType = UNSET
    count: int | UnsetType | None = UNSET
    progress: ProgressShown | UnsetType = UNSET
    redrive_of: Annotated[str, Meta(description="the dead run whose place it took")] | UnsetType = (
        UNSET
    )
    redriven_by: RedriveShown | UnsetType = UNSET


class DeadLetter(RunItem, kw_only=True):
    """A run that ended dead."""

    job_id: str
    redrivable_until: Annotated[Instant, Meta(description="then it leaves this list")]


class RunShown(RunItem, kw_only=True):
    """A run by itself."""

    job_id: str
    redrivable_until: Annotated[Instant, Meta(description="of a dead run")] | UnsetType = UNSET


class EventItem(msgspec.Struct, kw_only=True):
    """What happened, when, and by whom."""

    version: int
    event: str
    at: Instant
    actor: str | None
    detail: dict[str, Any]


class JobPage(msgspec.Struct):
    """A page of jobs."""

    items: list[JobItem]
    next_cursor: str | None
    prev_cursor: str | None


class RunPage(msgspec.Struct):
    """A page of runs."""

    items: list[RunItem]
    next_cursor: str | None
    prev_cursor: str | None


class DeadLetterPage(msgspec.Struct):
    """A page of dead letters."""

    items: list[DeadLetter]
    next_cursor: str | None
    prev_cursor: str | None


class EventPage(msgspec.Struct):
    """A page of events."""

    items: list[EventItem]
    next_cursor: str | None
    prev_cursor: str | None


def _instant(at: int | None) -> str | None:
    return rfc3339(at) if at else None


# ------------------------------------------------------------------ jobs


def job(
    state: s.JobState, runs: tuple[rs.OpenRun, ...] | None, at: int, body: Mapping[str, Any]
) -> JobShown:
    """Show a job with its open runs, or, where `runs` is None, as of a past instant `at`.

    `body`: what is shown of its payload.
    """
    facts = state.facts
    if runs is None:
        link, status = outlook.next_link(state, at), s.STATUS_NAMES[type(state)]
    else:
        link, status = outlook.next_open(state, runs, at), outlook.status(state, runs)
    found = JobShown(
        job_id=text(JOB, facts.job_id),
        key=facts.key or None,
        status=status,
        version=facts.version,
        spec=wording.spec(facts.spec) | dict(body),
        next_run_at=_instant(link.nominal) if link else None,
        next_due_at=_instant(link.due_at) if link else None,
        next_runs=outlook.following(facts, link.nominal) if link else [],
        defined_at=rfc3339(facts.defined_at),
        changed_at=rfc3339(facts.changed_at),
    )
    if facts.spec.exclusions:
        found.calendars = _calendars(facts.spec.exclusions)
    of = facts.spec.callback_of
    if of is not None:
        run_id = text(RUN, of.run_id) if of.run_id else None
        found.callback_of = CallbackShown(CALLBACKS[of.event], text(JOB, of.job_id), run_id)
    if runs is None:
        found.as_of = rfc3339(at)
    else:
        found.in_flight = outlook.in_flight(runs)
        going = outlook.backfill(state, runs)
        if going is not None:
            left, nominal, until = going
            found.backfill = BackfillShown(left, rfc3339(nominal), rfc3339(until))
    if isinstance(state, s.Paused):
        found.paused = Pause(
            rfc3339(state.paused_at), state.cause, state.reason, _instant(state.until)
        )
    return found


def _calendars(exclusions: tuple[Exclusion, ...]) -> list[CalendarUsed]:
    return [CalendarUsed(name=one.name, version=one.version) for one in exclusions]


def payload(content_type: str, plain: bytes | None) -> dict[str, Any]:
    """Show a payload, None for one whose tenant's key was destroyed."""
    if not content_type:
        return {}
    if plain is None:
        return {"payload_erased": True}
    if not plain:
        return {"payload_text": ""}
    if content_type.startswith("application/json"):
        try:
            msgspec.json.decode(plain)
            return {"payload": msgspec.Raw(plain)}
        except msgspec.DecodeError:
            pass  # a text that was sent as JSON and is none is shown as a text
    try:
        return {"payload_text": plain.decode("utf-8")}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(plain).decode("ascii")}


def job_item(line: JobLine) -> JobItem:
    """Show a job of the board."""
    row = line.row
    return JobItem(
        job_id=text(JOB, row.job_id),
        key=row.key or None,
        name=row.name,
        status=row.status,
        type="one_time" if row.one_time else "recurring",
        schedule=row.schedule or None,
        timezone=row.timezone or None,
        target=row.target,
        labels=dict(row.labels),
        version=row.version,
        next_run_at=_instant(line.next_run_at),
        next_due_at=_instant(line.next_due_at),
        runs_in_flight=line.in_flight,
        defined_at=rfc3339(row.defined_at),
        changed_at=rfc3339(row.changed_at),
    )


# ------------------------------------------------------------------ runs

ENDED: Final = frozenset({"succeeded", "dead", "skipped", "cancelled"})


def run_item(line: RunLine, said: Progressed | None = None) -> RunItem:
    """Show a row of the history."""
    row = line.run
    is_range = row.run_id == NO_RUN
    found = RunItem(
        run_id=None if is_range else text(RUN, row.run_id),
        kind=KIND_NAMES[row.kind],
        scheduled_for=rfc3339(row.nominal),
        due_at=_instant(row.due_at),
        status=row.status,
        verdict=row.verdict or None,
        cause=row.cause or None,
        attempts=[_attempt(attempt) for attempt in line.attempts],
        attempts_made=row.attempts,
        fired_at=_instant(row.fired_at),
        ended_at=_instant(row.ended_at) if row.status in ENDED else None,
    )
    if is_range:
        found.last = rfc3339(row.last)
        found.count = row.count or None
    if said is not None and row.status not in ENDED:
        found.progress = ProgressShown(said.percent, said.note, rfc3339(said.at))
    return found


def dead_letter(line: RunLine, kept_ms: int) -> DeadLetter:
    """Show a run that ended dead."""
    item = run_item(line)
    fields = {name: getattr(item, name) for name in item.__struct_fields__}
    until = rfc3339(line.run.ended_at + kept_ms)
    return DeadLetter(job_id=text(JOB, line.run.job_id), redrivable_until=until, **fields)


def run_shown(line: RunLine, said: Progressed | None, kept_ms: int) -> RunShown:
    """Show a run by itself."""
    item = run_item(line, said)
    fields = {name: getattr(item, name) for name in item.__struct_fields__}
    found = RunShown(job_id=text(JOB, line.run.job_id), **fields)
    if line.run.status == DEAD:
        found.redrivable_until = rfc3339(line.run.ended_at + kept_ms)
    return found


def redriven_by(run_id: bytes, last: DomainEvent) -> RedriveShown:
    """Show a redrive by the last event of its stream."""
    return RedriveShown(text(RUN, run_id), status_of(last))


def _attempt(row: AttemptRow) -> AttemptItem:
    return AttemptItem(
        attempt=row.attempt,
        due_at=rfc3339(row.due_at),
        leased_at=rfc3339(row.leased_at),
        ended_at=rfc3339(row.ended_at),
        lateness_ms=row.lateness_ms,
        latency_ms=row.elapsed_us / 1_000,
        outcome=row.outcome,
        then=row.then,
        status=row.status or None,
        error=row.error or None,
        late=row.late,
        headers=dict(row.headers),
        body=row.body.decode("utf-8", "replace"),
    )


def open_line(run: rs.OpenRun, past: RunLine | None) -> RunLine:
    """Return the line of a run that has not ended, with the attempts that history knows of it."""
    facts = run.facts
    match run:
        case rs.InFlight() | rs.Awaiting():
            status = "running"
        case rs.Withheld():
            status = "withdrawn"
        case _:
            status = "waiting" if facts.begun else "scheduled"
    row = RunRow(
        facts.tenant_id,
        facts.job_id,
        facts.nominal,
        facts.run_id,
        facts.kind,
        facts.nominal,
        1,
        facts.due_at,
        status,
        "",
        "",
        facts.attempt,
        facts.first_leased_at,
        0,
        0,
    )
    return RunLine(row, past.attempts if past else ())


# ------------------------------------------------------------------ events

_HIDDEN: Final = frozenset(
    {"tenant_id", "session", "nonce", "command_id", "body", "actor", "at", "job_id", "of"}
)
_INSTANTS: Final = frozenset(
    {"nominal", "due_at", "since", "until", "leased_at", "sent_at", "cursor", "after"}
)
_RUNS: Final = frozenset({"run_id", "held", "runs", "in_flight", "redriven"})


def event_item(version: int, event: DomainEvent) -> EventItem:
    """Show an event: what is the tenant's own of it, without secrets."""
    detail = {
        name: _field(name, value)
        for name in event.__struct_fields__
        if name not in _HIDDEN and (value := getattr(event, name)) not in (None, "", b"", ())
    }
    return EventItem(
        version=version,
        event=NAMES[type(event)],
        at=rfc3339(event.at),
        actor=getattr(event, "actor", "") or None,
        detail=detail,
    )


def _field(name: str, value: Any) -> Any:
    if name == "kind":
        return KIND_NAMES[value]
    if name == "headers":
        return dict(value)
    if isinstance(value, JobSpec):
        return wording.spec(value)
    if name in _RUNS:
        return text(RUN, value) if isinstance(value, bytes) else [text(RUN, run) for run in value]
    if name in _INSTANTS:
        return _instant(value)
    if name == "slots" and value and isinstance(value[0], Stretch):
        return [_stretch(part) for part in value]
    if name == "exclusions":
        return msgspec.to_builtins(_calendars(value))
    if name == "passed":
        return [_passed(item) for item in value]
    return msgspec.to_builtins(value)


def _stretch(part: Stretch) -> dict[str, Any]:
    return {"first": rfc3339(part.first), "last": rfc3339(part.last), "count": part.count}


def _passed(item: Passed) -> dict[str, Any]:
    return {
        "first": rfc3339(item.first),
        "last": rfc3339(item.last),
        "count": item.count,
        "verdict": item.verdict,
        "cause": item.cause or None,
    }
