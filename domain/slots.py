"""The slots of one job: their due instants, ranges of them, and what is planned next.

Work is bounded whatever the outage: ranges come from the schedule's arithmetic, and a decision
takes at most a thousand steps of it.
"""

import msgspec

from domain.job.events import BY_ID, JobSpec
from domain.run import events as e
from domain.schedule.excluding import without
from domain.schedule.jitter import due_at, jitter_ms
from domain.schedule.schedule import COUNT_LIMIT, OneTime, Plan, between, passed, plan

Span = tuple[int, int, str, str]
"""Slots in (after, until], their verdict and its cause."""


class Link(msgspec.Struct, frozen=True, gc=False):
    """The next occurrence to plan, and the verdicts that ride on its `Scheduled`."""

    nominal: int
    due_at: int
    passed: tuple[e.Passed, ...] = ()
    catch_up: e.CatchUp | None = None


class End(msgspec.Struct, frozen=True, gc=False):
    """No slot is left; the verdicts of those passed ride on the job's event."""

    passed: tuple[e.Passed, ...] = ()


def slots_of(spec: JobSpec) -> Plan:
    """Return the slots of a job: those of its schedule, in its span, that are not excluded."""
    if spec.exclusions:
        return without(spec.schedule, spec.starts_at, spec.ends_at, spec.exclusions)
    if spec.starts_at or spec.ends_at:
        return between(spec.schedule, spec.starts_at, spec.ends_at)
    return plan(spec.schedule)


def spread_of(job_id: bytes, spec: JobSpec) -> int:
    """Return how far (ms) a job's fires are moved from their slots, where there is room."""
    if spec.spread_ms != BY_ID:
        assert spec.spread_ms >= 0, "a second is chosen before a spec is stored"
        return spec.spread_ms
    return jitter_ms(job_id, spec.jitter_ms) if spec.jitter_ms else 0


class Room(msgspec.Struct, frozen=True):
    """A slot, and how far after it (ms) its fire may be."""

    nominal: int
    most_ms: int


def room_of(spec: JobSpec, at: int) -> Room:
    """Return the first slot after `at` with its room; where there is none, `at` without any."""
    if isinstance(spec.schedule, OneTime):
        return Room(spec.schedule.run_at, spec.jitter_ms)
    slots = slots_of(spec)
    nominal = slots.next_after(at)
    if nominal is None:
        return Room(at, 0)
    return Room(nominal, due_at(nominal, slots.next_after(nominal), spec.jitter_ms) - nominal)


class Slots:
    """The slots of one job under its current spec, with their due instants."""

    __slots__ = ("_jitter", "plan", "spec")

    def __init__(self, job_id: bytes, spec: JobSpec) -> None:
        """Compile (or find) the plan of the spec's schedule."""
        self.spec = spec
        self.plan: Plan = slots_of(spec)
        self._jitter = spread_of(job_id, spec)

    def due(self, nominal: int) -> int:
        """Return the effective instant of a slot."""
        if not self._jitter:
            return nominal
        return due_at(nominal, self.plan.next_after(nominal), self._jitter)

    def first_after(self, at: int) -> Link | End:
        """Return the first slot whose nominal instant is > `at`."""
        nominal = self.plan.next_after(at)
        return End() if nominal is None else Link(nominal, self.due(nominal))

    def newest_due(self, at: int) -> int | None:
        """Return the newest slot whose due instant is ≤ `at`."""
        nominal = self.plan.last_until(at)
        if nominal is not None and self.due(nominal) > at:
            nominal = self.plan.last_until(nominal - 1)
        return nominal

    def once(self, cursor: int, at: int) -> Link | End:
        """Return the occurrence of a one-time job unless it is settled; a past one is due now."""
        nominal = self.plan.next_after(cursor)
        return End() if nominal is None else Link(nominal, max(self.due(nominal), at))


def window_ms(spec: JobSpec) -> int:
    """Return how old a missed slot may be to fire still, 0 for no bound."""
    bounds = [ms for ms in (spec.catch_up_window_ms, spec.max_lateness_ms) if ms]
    return min(bounds, default=0)


def ranges(slots: Plan, spans: tuple[Span, ...], steps: int = COUNT_LIMIT) -> tuple[e.Passed, ...]:
    """Return a verdict for each non-empty span of the schedule.

    Counts are exact as long as all of them together take no more than `steps`.
    """
    found = []
    for after, until, verdict, cause in spans:
        span = passed(slots, after, until, max(steps, 1)) if until > after else None
        if span is not None:
            first, last, count = span
            steps -= steps if count is None else count
            found.append(e.Passed(first, last, count, verdict, cause))
    return tuple(found)


def with_passed(link: Link | End, gone: tuple[e.Passed, ...]) -> Link | End:
    """Return `link` with `gone` before its own verdicts."""
    return msgspec.structs.replace(link, passed=gone + link.passed) if gone else link
