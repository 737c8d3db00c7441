"""What the policies of a job say of its runs: delays, ends, misfires (I1, I18, I21).

Written from the contract (contract.md §2 and §3): the product's own arithmetic is not asked.
"""

import email.utils
from typing import TYPE_CHECKING, Final

from domain.ids import SLOT
from domain.job.events import LATEST, NONE, SKIP, JobSpec
from domain.retry import RetryPolicy
from domain.run import events as e
from domain.schedule.schedule import FixedDelay, OneTime
from tests.checker import oracle
from tests.checker.track import PAUSED, Run

if TYPE_CHECKING:
    from tests.checker.walk import Walk

MISFIRE_AFTER_MS: Final = 60_000
RETRY_AFTER_MS: Final = (1_000, 86_400_000)
LOST_MS: Final = (0, 1_000, 5_000, 30_000, 120_000)
ABANDONED_MS: Final = (0, 1_000, 5_000, 30_000)
LOST_MAX: Final = 5
ABANDONED_MAX: Final = 100
RETRIED: Final = (408, 409, 425, 429)
UNMENDED: Final = (
    "key_gone",
    "message_too_large",
    "payload_altered",
    "payload_missing",
    "unsendable",
)
"""Errors that no retry mends."""


# -------------------------------------------------------------------- delays


def delay(walk: "Walk", run: Run, event: e.Scheduled, retry: RetryPolicy) -> None:
    """I21: the wait after an attempt is the policy's, or what the target asked for."""
    attempt = run.attempts[-1]
    waits = event.due_at - run.last_fired_at
    if attempt.outcome == e.LOST:
        least = most = LOST_MS[min(run.lost, len(LOST_MS)) - 1]
    elif attempt.outcome == e.ABANDONED:
        least = most = ABANDONED_MS[min(run.abandoned, len(ABANDONED_MS)) - 1]
    else:
        least, most = bounds(retry, run.fails)
        asked = _retry_after(run.retry_after, event.at)
        if asked is not None:
            least, most = max(least, asked[0]), max(most, asked[1])
    if not least <= waits <= most:
        what = f"attempt {attempt.number + 1} waits {waits} ms, its policy says {least} to {most}"
        walk.wrong("I21", what, run.id)


def bounds(retry: RetryPolicy, failures: int) -> tuple[int, int]:
    """Return between which the wait after so many failures lies (ms)."""
    if retry.backoff == "list":
        plain = retry.delays_ms[min(failures, len(retry.delays_ms)) - 1]
        return plain, 2 * plain if retry.jitter == "full" else plain
    doubled = retry.base_ms * 2 ** min(failures - 1, 60) if retry.backoff == "exponential" else 0
    plain = min(retry.max_ms, doubled or retry.base_ms)
    if retry.jitter == "none":
        return plain, plain
    return min(retry.base_ms, retry.max_ms), min(retry.max_ms, max(2 * retry.base_ms, plain))


def _retry_after(text: str, at: int) -> tuple[int, int] | None:
    """Return between which the wait lies that an answer asked for, None for no wish."""
    text = text.strip()
    if not text:
        return None
    least, most = RETRY_AFTER_MS
    if text.isascii() and text.isdigit():
        wish = min(max(int(text[-12:]) * 1_000 if len(text) < 12 else most, least), most)
        return wish, wish
    try:
        until = email.utils.parsedate_to_datetime(text).timestamp() * 1_000
    except ValueError:
        return None
    # The answer came some time before its report was decided: up to a timeout.
    wish = int(until) - at
    return min(max(wish, 0), most), min(max(wish + 900_000, least), most)


# -------------------------------------------------------------------- ends


def dead(walk: "Walk", run: Run, event: e.Completed) -> None:
    """I1: a run is given up for a reason that its events bear out."""
    spec, cause = walk.job.spec, event.cause
    if spec is None or not run.attempts:
        return
    last, retry = run.attempts[-1], spec.retry
    if cause == "attempts":
        good = run.fails >= retry.max_attempts
    elif cause == "lost":
        good = run.lost > LOST_MAX
    elif cause == "abandoned":
        good = run.abandoned > ABANDONED_MAX
    elif cause == "age":
        # The next attempt would be later than the age allows; its wait has an upper bound.
        wait = max(bounds(retry, max(run.fails, 1))[1], LOST_MS[-1])
        asked = _retry_after(run.retry_after, event.at)
        wait = max(wait, asked[1] if asked else 0)
        good = event.at + wait - run.first_leased_at > retry.max_age_ms
    elif cause == e.EXPIRED:
        good = 0 < spec.max_lateness_ms < event.at - run.nominal
    elif cause == "gone":
        good = says(retry, last.status) == "pause"
    elif cause == "handler":
        good = last.accepted or last.status == 202
    elif cause == "status":
        good = says(retry, last.status) == "dead" or last.error in UNMENDED
    else:
        good = False
    if not good:
        what = f"it is dead because of {cause!r} after {run.fails} failed and {run.lost} lost"
        walk.wrong("I1", f"{what} attempts, the last with status {last.status}", run.id)


def says(retry: RetryPolicy, status: int) -> str:
    """Return what a policy does after a status: ok, retry, dead or pause."""
    if 200 <= status <= 299:
        return "ok"
    mapped = dict(retry.statuses).get(status)
    if mapped is not None:
        return mapped
    if status == 410:
        return "pause"
    return "dead" if 400 <= status <= 499 and status not in RETRIED else "retry"


# -------------------------------------------------------------------- misfires


def first_lease(walk: "Walk", run: Run, at: int, spec: JobSpec) -> None:
    """I18: a link that begins more than a minute late is the one that its policy chooses."""
    late = at - run.due_at
    if late <= MISFIRE_AFTER_MS or isinstance(spec.schedule, OneTime | FixedDelay):
        return
    if spec.misfire == NONE:
        walk.wrong("I18", f"it begins {late} ms late, and its job skips what is missed", run.id)
        return
    if spec.misfire != LATEST:
        return
    # A slot that has a verdict of before is none that could have fired instead.
    judged = max(
        walk.job.cursor,
        run.nominal,
        run.catch_up.cursor if run.catch_up else 0,
        max((other.nominal for other in walk.job.runs.values() if other.kind == SLOT), default=0),
    )
    slots = oracle.slots(walk.case, walk.job, spec, judged, at - MISFIRE_AFTER_MS)
    if slots is None:
        walk.report.unjudged["I18: schedules that the oracle cannot work out"] += 1
    elif slots and oracle.spread(spec) < MISFIRE_AFTER_MS:
        what = f"the slot {slots[-1]} has passed since, and {run.nominal} begins {late} ms late"
        walk.wrong("I18", what, run.id)


def skipped(walk: "Walk", run: Run, event: e.Skipped) -> None:
    """I1: an occurrence does not fire for a reason that is one."""
    spec = walk.job.spec
    if spec is None:
        return
    late, verdict = event.at - run.due_at, event.verdict
    good = True
    if verdict == e.MISFIRE:
        good = late > MISFIRE_AFTER_MS and run.kind == SLOT
        always = not spec.catch_up_window_ms and not spec.max_lateness_ms
        if good and always and spec.misfire == LATEST and event.cause == "outage":
            walk.missed[run.id] = event.at
    elif verdict == e.EXPIRED:
        good = 0 < spec.max_lateness_ms < event.at - run.nominal
    elif verdict == e.OVERLAP:
        good = spec.overlap == SKIP and bool(walk.begun_open)
    elif verdict == e.PAUSED:
        # The event of the job that ends the pause, or changes its schedule, comes before.
        was = walk.job.status == PAUSED or (walk.job.pauses and walk.job.pauses[-1][1] == event.at)
        good = bool(was)
    else:
        good = False
    if not good:
        what = f"it is skipped as {verdict} ({event.cause}), {late} ms after it was due"
        walk.wrong("I1", f"{what}, which its job gives no reason for", run.id)
