"""How a job's spec is shown: the same words a definition uses, so that an answer can be sent back.

Header values are never shown, whoever asks: they are credentials more often than not; the name of a
secret is. A payload is shown by the caller, who can open it.
"""

from typing import Any, Final, assert_never

from domain.callback import NAMES, Callbacks
from domain.instant import rfc3339
from domain.job import events as e
from domain.queue_target import KINDS
from domain.retry import RetryPolicy
from domain.schedule.schedule import (
    Cron,
    Every,
    FixedDelay,
    OneTime,
    RRule,
    ScheduleSpec,
    Union,
)
from domain.target import QUEUE_KINDS, Header, HttpTarget, Target

REDACTED: Final = "…redacted"
"""Stands for every header value. Not printable ASCII, so no header can have it as its value."""


def seconds(ms: int) -> int | float:
    """Return a duration in seconds, whole where it is."""
    return ms // 1000 if ms % 1000 == 0 else ms / 1000


def schedule(spec: ScheduleSpec) -> dict[str, Any]:
    """Return `type` and the fields that go with it."""
    match spec:
        case OneTime(run_at):
            return {"type": "one_time", "run_at": rfc3339(run_at)}
        case Cron():
            shown: dict[str, Any] = {
                "type": "recurring",
                "schedule": spec.typed,
                "timezone": spec.zone,
            }
            if spec.dialect != "vixie":
                shown["dialect"] = spec.dialect
            return shown | _dst(spec)
        case Every() | RRule():
            shown = {
                "type": "recurring",
                "every" if isinstance(spec, Every) else "rrule": spec.typed,
                "anchor": rfc3339(spec.anchor),
                "timezone": spec.zone,
            }
            return shown | _dst(spec)
        case Union():
            parts = [schedule(part) for part in spec.parts]
            for part in parts:
                del part["type"]
            return {"type": "recurring", "schedules": parts}
        case FixedDelay():
            shown = {"type": "recurring", "every": spec.typed, "from": "completion"}
            if spec.anchor:
                shown["anchor"] = rfc3339(spec.anchor)
            return shown | {"timezone": spec.zone}
        case _:
            assert_never(spec)


def _dst(spec: Cron | Every | RRule) -> dict[str, Any]:
    dst = {name: value for name, value in (("gap", spec.gap), ("fold", spec.fold)) if value}
    return {"dst": dst} if dst else {}


def summary(spec: ScheduleSpec) -> tuple[str, str]:
    """Return a schedule in a few words, as lists show it, and its zone; empty for one-time."""
    match spec:
        case OneTime():
            return "", ""
        case Cron():
            return spec.typed, spec.zone
        case Every():
            return f"every {spec.typed}", spec.zone
        case FixedDelay():
            return f"every {spec.typed} from completion", spec.zone
        case RRule():
            return spec.text, spec.zone
        case Union():
            texts, zones = zip(*map(summary, spec.parts), strict=True)
            return " | ".join(texts), zones[0] if len(set(zones)) == 1 else ""
        case _:
            assert_never(spec)


def _header(header: Header) -> str | dict[str, str]:
    if not header.secret:
        return REDACTED
    scheme = {"scheme": header.scheme} if header.scheme else {}
    return {"secret": header.secret} | scheme


def target(spec: Target) -> dict[str, Any]:
    """Return the target with the names of its headers."""
    if isinstance(spec, HttpTarget):
        shown = {"kind": "http", "url": spec.url_typed, "method": spec.method}
    else:
        kind = QUEUE_KINDS[type(spec)]
        shown = {"kind": kind, "connection": spec.connection}
        shown |= {name: text for name in KINDS[kind].fields if (text := getattr(spec, name))}
    return {**shown, "headers": {header.name: _header(header) for header in spec.headers}}


def callbacks(said: Callbacks) -> dict[str, Any]:
    """Return who is told, by name; false for nobody, whatever the default is."""
    shown = {
        name: target(told)
        for name, told in zip(NAMES, said.targets, strict=True)
        if told is not None
    }
    return shown | {NAMES[number]: False for number in said.off}


def retry(policy: RetryPolicy) -> dict[str, Any]:
    """Return the policy, with the fields that its backoff reads."""
    shown: dict[str, Any] = {"max_attempts": policy.max_attempts, "backoff": policy.backoff}
    if policy.backoff == "list":
        shown["delays_s"] = [seconds(ms) for ms in policy.delays_ms]
    else:
        shown["base_s"] = seconds(policy.base_ms)
        shown["max_s"] = seconds(policy.max_ms)
    shown["jitter"] = policy.jitter
    shown["max_age_s"] = seconds(policy.max_age_ms)
    if policy.statuses:
        shown["statuses"] = {str(status): action for status, action in policy.statuses}
    return shown


def _completion(job: e.JobSpec) -> dict[str, Any]:
    limits = (
        ("heartbeat_timeout_s", job.heartbeat_timeout_ms),
        ("max_run_time_s", job.max_run_time_ms),
    )
    return {name: seconds(ms) for name, ms in limits if ms}


def spec(job: e.JobSpec) -> dict[str, Any]:
    """Return the whole spec as a definition, without its payload."""
    shown = schedule(job.schedule)
    for name, instant in (("starts_at", job.starts_at), ("ends_at", job.ends_at)):
        if instant:
            shown[name] = rfc3339(instant)
    if job.max_runs:
        shown["max_runs"] = job.max_runs
    if job.exclude:
        shown["exclude"] = list(job.exclude)
    shown["target"] = target(job.target)
    shown["retry"] = retry(job.retry)
    shown["timeout_s"] = seconds(job.timeout_ms)
    shown |= _completion(job)
    shown["idempotency_key_template"] = job.key_template
    shown["overlap"] = e.OVERLAP_NAMES[job.overlap]
    if job.overlap in e.LIMITS:
        shown["overlap_limit"] = job.overlap_limit
    shown["misfire"] = e.MISFIRE_NAMES[job.misfire]
    if job.catch_up_window_ms:
        shown["catch_up_window_s"] = seconds(job.catch_up_window_ms)
    if job.pause_after:
        shown["pause_after_failures"] = job.pause_after
    if job.max_lateness_ms:
        shown["max_lateness_s"] = seconds(job.max_lateness_ms)
    shown["jitter_s"] = seconds(job.jitter_ms)
    shown["exact"] = job.exact
    if job.spread_ms != e.BY_ID:
        shown["placement"] = "emptiest"
    if job.content_type:
        shown["content_type"] = job.content_type
    if job.callbacks is not None:
        shown |= callbacks(job.callbacks)
    shown["name"] = job.name
    shown["labels"] = dict(job.labels)
    return shown
