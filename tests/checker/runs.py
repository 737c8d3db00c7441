"""What may happen to a run, event by event (I3, I5, I7, I8, I17, and the ends of I1).

Only what stands in the events is used; the same table is in docs/protocol.md, "A run".
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from domain.catalogue import DomainEvent
from domain.ids import BACKFILL, BESIDE, REDRIVE, REDRIVE_OWN, RERUN, SLOT
from domain.job.events import ALLOW, CANCEL_OTHER
from domain.run import events as e
from tests.checker import policy
from tests.checker.track import (
    ACCEPTED,
    CANCELLED,
    CLOCKS_MS,
    ENDED,
    FLYING,
    PAUSED,
    READY,
    REPORTED,
    STATES,
    WITHHELD,
    Attempt,
    Run,
    Verdicts,
)

if TYPE_CHECKING:
    from tests.checker.walk import Walk

AFTERTHOUGHTS: Final = (BACKFILL, RERUN, REDRIVE, REDRIVE_OWN)
LOST_MAX: Final = 5
"""Attempts of unknown outcome; one more ends the run."""
ABANDONED_MAX: Final = 100


def step(walk: "Walk", stream: bytes, version: int, event: DomainEvent) -> None:
    """Take the next event of a run."""
    run = walk.job.runs.get(stream)
    if run is None:
        run = walk.job.runs[stream] = Run(stream)
        run.state = -1
    run.version = version
    handler = _HANDLERS.get(type(event))
    if handler is None:
        walk.wrong("I13", f"{type(event).__name__} in the stream of a run", stream)
    elif run.state == ENDED:
        walk.wrong("I3", f"{type(event).__name__} after its end ({run.verdict})", stream)
    elif run.state == REPORTED and not isinstance(event, _AFTER_FIRED):
        walk.wrong("I1", f"{type(event).__name__} where its end or its retry must follow", stream)
    else:
        handler(walk, run, event)


def keep(walk: "Walk", ranges: tuple[e.Passed, ...], at: int, life: int, *, on_job: bool) -> None:
    """Keep the verdicts of slots that passed."""
    for passed in ranges:
        walk.report.paths["passed"] += passed.count or 0
        walk.job.ranges.append(Verdicts(passed, at, life, walk.position, on_job=on_job))


def _illegal(walk: "Walk", run: Run, event: DomainEvent, invariant: str = "I5") -> None:
    state = STATES[run.state] if run.state >= 0 else "not planned"
    walk.wrong(invariant, f"{type(event).__name__} of a run that is {state}", run.id)


# -------------------------------------------------------------------- planned


def _scheduled(walk: "Walk", run: Run, event: e.Scheduled) -> None:
    job = walk.job
    if run.state == -1:
        _planned(walk, run, event)
    elif run.state in (READY, WITHHELD, REPORTED):
        if run.state == REPORTED:
            _retried(walk, run, event)
        if run.begun and event.payload_version != run.payload_version:
            what = f"its body was that of version {run.payload_version} of the job, and is now "
            walk.wrong("I4", f"{what}{event.payload_version}", run.id)
    else:
        # What is in flight is never appended to: it would fence the attempt.
        _illegal(walk, run, event)
    if event.job_id != job.id or event.tenant_id != job.tenant or event.nominal != run.nominal:
        walk.wrong("I2", "it is planned for another job, tenant or instant than before", run.id)
    if event.attempt != len(run.attempts) + 1:
        what = f"attempt {event.attempt} is planned after {len(run.attempts)}"
        walk.wrong("I6", what, run.id)
    run.state = READY
    run.due_at, run.ready_at, run.lane = event.due_at, event.at, event.lane
    run.spec_version, run.payload_version = event.spec_version, event.payload_version
    run.catch_up = event.catch_up
    run.cause = event.cause
    if run.begun:
        walk.begun_open.add(run.id)
    if event.catch_up is not None and event.catch_up.end:
        walk.report.paths["catch_ups"] += 1
    keep(walk, event.passed, event.at, event.life, on_job=False)


def _planned(walk: "Walk", run: Run, event: e.Scheduled) -> None:
    job = walk.job
    run.kind, run.life, run.nominal, run.tenant = (
        event.kind,
        event.life,
        event.nominal,
        event.tenant_id,
    )
    run.planned_at, run.first_due, run.first_spec = event.at, event.due_at, event.spec_version
    if job.status == 0:
        walk.wrong("I2", "it is planned for a job that was never defined", run.id)
    elif job.status == CANCELLED:
        walk.wrong("I8", "it is planned after the tombstone of its job", run.id)
    elif event.life != job.life:
        walk.wrong("I2", f"it is planned for life {event.life} of the job in {job.life}", run.id)
    elif event.spec_version != job.spec_version:
        what = f"it is planned under version {event.spec_version} of the job, which has "
        walk.wrong("I8", f"{what}{job.spec_version}", run.id)
    if event.due_at < event.nominal and event.kind == SLOT:
        walk.wrong("I10", f"it is due {event.nominal - event.due_at} ms before its slot", run.id)
    paths = walk.report.paths
    if event.kind in (BACKFILL, RERUN):
        paths["backfilled"] += 1
    elif event.kind in (REDRIVE, REDRIVE_OWN):
        paths["redriven"] += 1
    elif event.kind != SLOT:
        paths["manual"] += 1


def _retried(walk: "Walk", run: Run, event: e.Scheduled) -> None:
    if run.then != e.RETRY:
        walk.wrong("I1", f"it is planned again after it was said to be {run.then}", run.id)
        return
    walk.report.paths["retries"] += 1
    spec = walk.job.spec
    if spec is None:
        return
    policy.delay(walk, run, event, spec.retry)
    counted = (
        (run.fails, spec.retry.max_attempts - 1, "failed"),
        (run.lost, LOST_MAX, "lost"),
        (run.abandoned, ABANDONED_MAX, "abandoned"),
    )
    for made, most, word in counted:
        if made > most and run.attempts[-1].outcome == word:
            walk.wrong("I7", f"it goes on after {made} {word} attempts, {most} may be", run.id)


# -------------------------------------------------------------------- leased


def _leased(walk: "Walk", run: Run, event: e.Leased) -> None:
    job, report = walk.job, walk.report
    report.paths["fires"] += 1
    if run.state != READY:
        _illegal(walk, run, event)
    number = len(run.attempts) + 1
    if event.attempt != number:
        walk.wrong("I6", f"attempt {event.attempt} is leased as number {number}", run.id)
    if event.at < run.due_at:
        walk.wrong("I10", f"it is leased {run.due_at - event.at} ms before it is due", run.id)
    if job.status in (PAUSED, CANCELLED):
        word = "paused" if job.status == PAUSED else "cancelled"
        walk.wrong("I8", f"attempt {number} is leased after its job was {word}", run.id)
    elif run.spec_version < job.revised:
        what = f"attempt {number} is leased under version {run.spec_version} of the job"
        walk.wrong("I8", f"{what}, edited at {job.revised}", run.id)
    if not run.attempts:
        _begun(walk, run, event)
    attempt = Attempt(event.attempt, run.version, walk.position, event.at)
    attempt.until, attempt.session = event.until, event.session
    attempt.due_at, attempt.payload_version = run.due_at, run.payload_version
    attempt.spec = job.spec
    run.attempts.append(attempt)
    run.state = FLYING
    run.owner, run.leased_at, run.until = event.session, event.at, event.until
    walk.begun_open.add(run.id)


def _begun(walk: "Walk", run: Run, event: e.Leased) -> None:
    """A first lease: how many runs may be begun, and how late it may be."""
    job, spec = walk.job, walk.job.spec
    if spec is None:
        return
    others = len(walk.begun_open)
    if others and run.kind != BESIDE:
        limit = spec.overlap_limit if spec.overlap == ALLOW else 1
        if others >= limit:
            first = next(iter(walk.begun_open)).hex()
            what = f"it begins beside {others} of its job, such as {first}; {limit} may be"
            walk.wrong("I17", what, run.id)
    if run.kind == SLOT and run.life == job.life:
        policy.first_lease(walk, run, event.at, spec)


# -------------------------------------------------------------------- accepted


def _accepted(walk: "Walk", run: Run, event: e.Accepted) -> None:
    if run.state != FLYING:
        _illegal(walk, run, event)
    walk.report.paths["accepted"] += 1
    run.state, run.until, run.owner = ACCEPTED, event.until, b""
    if run.attempts:
        run.attempts[-1].accepted = True


def _extended(walk: "Walk", run: Run, event: e.Extended) -> None:
    if run.state != ACCEPTED:
        _illegal(walk, run, event)
    run.until = event.until


def _progressed(walk: "Walk", run: Run, event: e.Progressed) -> None:
    if run.state != ACCEPTED:
        _illegal(walk, run, event)


# -------------------------------------------------------------------- reported


def _fired(walk: "Walk", run: Run, event: e.Fired) -> None:
    if not run.attempts:
        _illegal(walk, run, event)
        return
    attempt = run.attempts[-1]
    flying = run.state in (FLYING, ACCEPTED)
    if event.fence != attempt.fence:
        what = f"a report with fence {event.fence} is taken, the last lease is {attempt.fence}"
        walk.wrong("I5", what, run.id)
    elif not flying and not (event.late and event.outcome == e.OK):
        _illegal(walk, run, event)
    if event.attempt != attempt.number:
        walk.wrong("I6", f"attempt {event.attempt} is reported in {attempt.number}", run.id)
    if event.outcome == e.LOST and flying:
        _lapsed(walk, run, event)
    if event.late:
        walk.report.paths["late_successes"] += 1
    if event.outcome == e.FAILED:
        run.fails += 1
    elif event.outcome == e.LOST:
        run.lost += 1
        walk.report.paths["reclaims"] += 1
    elif event.outcome == e.ABANDONED:
        run.abandoned += 1
        walk.report.paths["abandoned"] += 1
    attempt.outcome, attempt.status, attempt.error = event.outcome, event.status, event.error
    attempt.ended_at, attempt.ended_position = event.at, walk.position
    run.then, run.last_fired_at = event.then, event.at
    run.retry_after = ""
    for name, value in event.headers:
        if name == "retry-after":
            run.retry_after = value
    run.state = REPORTED


def _lapsed(walk: "Walk", run: Run, event: e.Fired) -> None:
    """I5: nobody takes an attempt away before its lease, or its owner, has ended."""
    at = walk.at if walk.stamped else event.at + CLOCKS_MS
    if at >= run.until:
        return
    if run.state == ACCEPTED:
        what = f"it is given up {run.until - at} ms before its handler had to be heard of"
        walk.wrong("I5", what, run.id)
        return
    session = walk.sessions.get(run.owner)
    if session is None:
        walk.report.unjudged["I5: whether sessions had ended that no longer have a row"] += 1
    elif not session.ended and session.until > at:
        walk.wrong("I5", "it is given up though its owner lives", run.id)


# -------------------------------------------------------------------- ends


def _end(walk: "Walk", run: Run, verdict: str, at: int) -> None:
    run.state, run.verdict, run.ended_at = ENDED, verdict, at
    walk.begun_open.discard(run.id)


def _completed(walk: "Walk", run: Run, event: e.Completed) -> None:
    if run.state != REPORTED and not (run.state == READY and run.begun and event.of is not None):
        _illegal(walk, run, event)
    elif run.state == REPORTED and event.outcome != run.then:
        walk.wrong("I1", f"it ends {event.outcome} after it was said to be {run.then}", run.id)
    if event.outcome == e.DEAD:
        policy.dead(walk, run, event)
    elif run.attempts and run.attempts[-1].outcome != e.OK:
        outcome = run.attempts[-1].outcome
        walk.wrong("I1", f"it succeeds though its last attempt is {outcome}", run.id)
    walk.report.paths[event.outcome] += 1
    run.cause = event.cause
    _end(walk, run, event.outcome, event.at)


def _withdrawn(walk: "Walk", run: Run, event: e.Withdrawn) -> None:
    if run.state not in (READY, REPORTED):
        _illegal(walk, run, event)
    elif event.cause == e.SUPERSEDED and run.begun:
        walk.wrong("I1", "an edit takes it away though it has begun", run.id)
    elif run.state == REPORTED and run.then != e.WITHDRAWN:
        walk.wrong("I1", f"it is withdrawn after it was said to be {run.then}", run.id)
    walk.report.paths["withdrawn"] += 1
    run.state, run.cause = WITHHELD, event.cause
    walk.begun_open.discard(run.id)


def _skipped(walk: "Walk", run: Run, event: e.Skipped) -> None:
    if run.state not in (READY, WITHHELD) or run.begun:
        _illegal(walk, run, event, "I1")
    else:
        policy.skipped(walk, run, event)
    walk.report.paths["skipped"] += 1
    run.cause = event.cause
    _end(walk, run, event.verdict, event.at)


def _cancelled(walk: "Walk", run: Run, event: e.Cancelled) -> None:
    job = walk.job
    if event.cause == e.SUPERSEDED:
        walk.report.paths["superseded"] += 1
        if job.spec is None or job.spec.overlap != CANCEL_OTHER or not run.begun:
            walk.wrong("I17", "a newer occurrence takes its place, where none may", run.id)
    else:
        walk.report.paths["cancelled"] += 1
        if job.status != CANCELLED and run.life == job.life:
            walk.wrong("I1", "it is cancelled, and its job is not", run.id)
        if run.state in (FLYING, ACCEPTED):
            _illegal(walk, run, event)
    run.cause = event.cause
    _end(walk, run, e.CANCELLED, event.at)


_AFTER_FIRED: Final = (e.Scheduled, e.Completed, e.Withdrawn, e.Cancelled)
_HANDLERS: Final[dict[type, Callable[["Walk", Run, Any], None]]] = {
    e.Scheduled: _scheduled,
    e.Leased: _leased,
    e.Accepted: _accepted,
    e.Extended: _extended,
    e.Progressed: _progressed,
    e.Fired: _fired,
    e.Completed: _completed,
    e.Withdrawn: _withdrawn,
    e.Skipped: _skipped,
    e.Cancelled: _cancelled,
}
