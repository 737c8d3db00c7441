"""What can be written into a job's stream. Storage format: append fields at the end only.

`Defined` and `Revised` carry the whole spec, so the spec of version v is the event at v. Payload
and target header values in a spec are ciphertext under the tenant's key.
"""

import msgspec

from domain.callback import CallbackOf, Callbacks
from domain.payload import PayloadRef
from domain.retry import RetryPolicy
from domain.run.events import CatchUp, Passed
from domain.schedule.exclusion import Exclusion
from domain.schedule.schedule import FixedDelay, OneTime, ScheduleSpec
from domain.stretch import Stretches
from domain.target import Target

SKIP, ALLOW, BUFFER_ONE, BUFFER_ALL, CANCEL_OTHER = 0, 1, 2, 3, 4
OVERLAP_NAMES = ("skip", "allow", "buffer_one", "buffer_all", "cancel_other")
LIMITS = {ALLOW: 100, BUFFER_ALL: 1_000}
"""Overlaps that have a limit (runs begun at once, slots that wait), and the largest."""

LATEST, ALL, NONE = 0, 1, 2
MISFIRE_NAMES = ("latest", "all", "skip")


GONE, SCHEDULE_ERROR, FAILURES = "gone", "schedule_error", "failures"
"""Causes of a `Paused` that no client asked for."""


BY_ID = -1
"""`spread_ms` of a job whose fires are spread by its id."""


class JobSpec(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Everything a tenant says about a job. Zero means "no limit" for windows, ends and counts."""

    schedule: ScheduleSpec
    target: Target
    retry: RetryPolicy
    timeout_ms: int
    key_template: str
    payload: bytes = b""
    """Ciphertext of the body, or of its SHA-256 where `payload_ref` names it; empty for no body."""
    content_type: str = ""
    jitter_ms: int = 0
    exact: bool = False
    overlap: int = SKIP
    overlap_limit: int = 1
    misfire: int = LATEST
    catch_up_window_ms: int = 0
    max_lateness_ms: int = 0
    name: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    starts_at: int = 0
    ends_at: int = 0
    max_runs: int = 0
    heartbeat_timeout_ms: int = 0
    max_run_time_ms: int = 0
    exclude: tuple[str, ...] = ()
    pause_after: int = 0
    """Links that end dead in a row before the job is paused."""
    exclusions: tuple[Exclusion, ...] = ()
    """The calendars of `exclude` in the version that is in force, in the same order."""
    spread_ms: int = BY_ID
    """From a slot to its fire, chosen when the schedule was: where the least load was."""
    payload_ref: PayloadRef | None = None
    """The object that has the body's ciphertext, where that is too large for an event."""
    callbacks: Callbacks | None = None
    """Who is told how its occurrences end; None: whom the tenant's default names."""
    callback_of: CallbackOf | None = None
    """Of a job that tells of another's occurrence; it has no callbacks, nor the default ones."""

    @property
    def slots(self) -> tuple[ScheduleSpec, int, int, int, tuple[Exclusion, ...]]:
        """All that says which slots there are: a change of it plans anew."""
        return self.schedule, self.starts_at, self.ends_at, self.max_runs, self.exclusions

    @property
    def is_one_time(self) -> bool:
        """The job has one occurrence; the end of its run is the end of the job."""
        return isinstance(self.schedule, OneTime)

    @property
    def is_fixed_delay(self) -> bool:
        """The end of each run says when the next one is."""
        return isinstance(self.schedule, FixedDelay)

    @property
    def plans_at_lease(self) -> bool:
        """The next link is planned with the first lease of the last one, not at its end."""
        return self.overlap in (ALLOW, CANCEL_OTHER)


class Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Something that happened to one job. `at` is the effective instant (ms, database clock)."""


class Defined(Event, frozen=True, tag=1):
    """The job exists. `life` counts the definitions of its stream."""

    at: int
    tenant_id: bytes
    life: int
    spec: JobSpec
    cursor: int
    """Every slot ≤ cursor is settled: `at`, or the last life's cursor, or just before a run_at."""
    key: str = ""
    actor: str = ""
    zone_data: str = ""


class Revised(Event, frozen=True, tag=2):
    """The spec changed. `payload_version` is the version whose body and key new runs carry."""

    at: int
    spec: JobSpec
    payload_version: int
    cursor: int
    held: bytes = b""
    passed: tuple[Passed, ...] = ()
    actor: str = ""
    zone_data: str = ""
    tenant_id: bytes = b""


class Paused(Event, frozen=True, tag=3):
    """No new attempt starts. `held`: the withheld frontier. `runs`: withdrawn or in flight then."""

    at: int
    cursor: int
    held: bytes = b""
    runs: tuple[bytes, ...] = ()
    cause: str = "request"
    reason: str = ""
    passed: tuple[Passed, ...] = ()
    actor: str = ""
    tenant_id: bytes = b""
    until: int = 0
    """When it ends by itself, 0 for never."""


class Resumed(Event, frozen=True, tag=4):
    """The schedule runs again, from `at`."""

    at: int
    cursor: int
    reason: str = ""
    passed: tuple[Passed, ...] = ()
    catch_up: CatchUp | None = None
    actor: str = ""
    tenant_id: bytes = b""


class Cancelled(Event, frozen=True, tag=5):
    """Tombstone: never deleted. Runs in flight end by themselves."""

    at: int
    cursor: int
    reason: str = ""
    passed: tuple[Passed, ...] = ()
    in_flight: tuple[bytes, ...] = ()
    actor: str = ""
    tenant_id: bytes = b""


class Finished(Event, frozen=True, tag=6):
    """No occurrence is left; attempts in flight and their retries go on."""

    at: int
    cursor: int
    passed: tuple[Passed, ...] = ()
    tenant_id: bytes = b""


class RunRequested(Event, frozen=True, tag=7):
    """A manual run was asked for; its `Scheduled` is in the same decision."""

    at: int
    run_id: bytes
    nominal: int
    command_id: bytes
    reason: str = ""
    actor: str = ""


class Replanned(Event, frozen=True, tag=8):
    """A calendar, zone data or the cron engine changed; the open occurrence was planned again.

    `exclusions` are those from now on, where it was a calendar.
    """

    at: int
    cursor: int
    zone_data: str
    cause: str
    passed: tuple[Passed, ...] = ()
    tenant_id: bytes = b""
    exclusions: tuple[Exclusion, ...] = ()


class CatchUpClosed(Event, frozen=True, tag=9):
    """The rest of a catch-up was given its verdict."""

    at: int
    cursor: int
    passed: tuple[Passed, ...] = ()
    tenant_id: bytes = b""


class Counted(Event, frozen=True, tag=10):
    """An occurrence began; only in jobs that have `max_runs`. `begun`: with this one."""

    at: int
    cursor: int
    begun: int
    tenant_id: bytes = b""


class Failing(Event, frozen=True, tag=11):
    """A link ended dead, or one did not after others had; only in jobs with `pause_after`.

    `failures`: how many of the last links in a row ended dead. One that pauses the job is in its
    `Paused`, cause `failures`.
    """

    at: int
    cursor: int
    failures: int
    tenant_id: bytes = b""


class BackfillRequested(Event, frozen=True, tag=12):
    """Past slots were asked for; the `Scheduled` of the first is in the same decision.

    `slots` are those that run, out of `found` in [since, until]; the others had succeeded, were
    dead, or were open still. Its version in the job's stream is the generation of its runs.
    """

    at: int
    since: int
    until: int
    slots: Stretches
    rerun: bool
    found: int
    succeeded: int
    dead: int
    open: int
    zone_data: str = ""
    reason: str = ""
    actor: str = ""
    tenant_id: bytes = b""


class BackfillMoved(Event, frozen=True, tag=13):
    """The slots of the backfill up to `after` are over: it was the last, or the job is paused.

    Between those its place is that of its open run, and no event is needed.
    """

    at: int
    after: int
    tenant_id: bytes = b""


class RedriveRequested(Event, frozen=True, tag=14):
    """Dead runs were asked for again: each of `redriven` by the run at its place in `runs`.

    The `Scheduled` of those are in the same decision.
    """

    at: int
    redriven: tuple[bytes, ...]
    runs: tuple[bytes, ...]
    reason: str = ""
    actor: str = ""
    tenant_id: bytes = b""


JobEvent = (
    Defined
    | Revised
    | Paused
    | Resumed
    | Cancelled
    | Finished
    | RunRequested
    | Replanned
    | CatchUpClosed
    | Counted
    | Failing
    | BackfillRequested
    | BackfillMoved
    | RedriveRequested
)
