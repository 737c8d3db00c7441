"""A tenant's fires per second over the next 24 h, with and without a job that is not stored yet.

Nothing is expanded job by job: jobs that go by one schedule share its slots, and are counted by how
far their spread moves them. What does not fit into the bounds is left out, and the answer says so.
Retries, manual runs and slots that have passed are not foreseen.
"""

from array import array
from bisect import bisect_left
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from commandside.commands.replies import Instant
from commandside.demand import Demand, Demanded
from domain.instant import DAY, HOUR, LAST, SECOND, rfc3339
from domain.job.state import JobState
from domain.schedule.schedule import DelayPlan, Plan, ScheduleBreach
from domain.slots import slots_of, spread_of

STEPS_MAX: Final = 500_000
"""Slots times places of a spread that are added up for an answer: 0.1 s of CPU."""
READ_MAX: Final = 2 * STEPS_MAX
"""Slots that are worked out for an answer, those of schedules that are left out among them."""
SECONDS_MAX: Final = 5_000
"""Seconds of a series, the busiest ones."""
KEPT_MS: Final = 2_000
MANY_KEPT_MS: Final = 10_000
"""An answer's part without the new job is kept so long: who changes a definition asks again."""
TENANTS_KEPT: Final = 16
"""Answers' parts that are kept: one with fires in every second of the day takes 13 MB."""
_SLOTS_KEPT: Final = 128
"""Schedules whose slots are kept: one that fires each second takes 0.8 MB."""
_SLOTS_MAX: Final = 100_000
"""Slots of a schedule: one for each second of the day and of the hours around it."""

Fires = Annotated[float, Meta(description="a fraction where fires are expected, not known")]


class Moment(msgspec.Struct, frozen=True):
    """A second, and what is due in it."""

    at: Instant
    fires: Fires


class Both(msgspec.Struct, frozen=True, rename={"with_": "with"}):
    """What is due from an instant on, without the new job and with it."""

    at: Instant
    without: Fires
    with_: Fires


class Load(msgspec.Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """What a tenant's jobs ask for. A worst second is null where nothing is due."""

    from_: Instant
    to: Instant
    worst_without: Moment | None
    worst_with: Moment | None
    average_per_s_without: float
    average_per_s_with: float
    by_hour: list[Both]
    spread: Annotated[
        Literal["own", "expected"],
        Meta(description="of jobs: own, each its own; expected, evenly within their jitter_s"),
    ]
    exact: Annotated[bool, Meta(description="every job is counted, each by its own spread")]
    left_out: Annotated[
        int, Meta(description="jobs that are not counted: too many, too often, from completion")
    ]
    seconds: (
        Annotated[
            list[Both],
            Meta(description=f"where anything is due, the {SECONDS_MAX} busiest at most"),
        ]
        | UnsetType
    ) = UNSET


class New(msgspec.Struct, frozen=True):
    """The job of a definition; `spread_ms` and `job_id` are not known before it has a name."""

    slots: Plan
    jitter_ms: int
    max_runs: int = 0
    job_id: bytes = b""
    spread_ms: int | None = None


class Loads:
    """Works out loads; plain calls, in any number of threads."""

    def __init__(self, demand: Demand, now: Callable[[], int]) -> None:
        """`now` is ms of the database clock as estimated."""
        self._demand = demand
        self._now = now
        self._kept: OrderedDict[tuple[bytes, bytes], _Known] = OrderedDict()

    def load(self, tenant_id: bytes, new: New, *, seconds: bool) -> Load:
        """Return the load from now on; raises Unavailable, and ScheduleBreach for `new`."""
        known = self._known(tenant_id, new.job_id)
        also = _Tally(known.fires.since)
        spread = {} if new.spread_ms is None else {new.spread_ms: 1}
        added = also.add(_Shared(new.slots, new.jitter_ms, new.max_runs, spread, 1 - len(spread)))
        if isinstance(new.slots, DelayPlan):
            known = known._replace(left_out=known.left_out + 1)
        else:
            assert added, "one job alone is within the bound"
        return _answer(known, also, seconds=seconds)

    def _known(self, tenant_id: bytes, but: bytes) -> "_Known":
        """Return what a tenant's jobs ask for, all but the job `but`, as of some seconds ago."""
        since = self._now() // SECOND * SECOND
        kept = self._kept.get((tenant_id, but))
        if kept is not None:
            age = since - kept.fires.since
            if 0 <= age < (MANY_KEPT_MS if kept.grouped else KEPT_MS):
                return kept
        demanded = self._demand.of_tenant(tenant_id, since, since + DAY)
        fires, left_out = _Tally(since), demanded.left_out
        for shared, jobs in _shared(demanded, but):
            if not fires.add(shared):
                left_out += jobs
        for job_id, due_at in demanded.once:
            if job_id != but:
                fires.by_second[due_at // SECOND] += 1
        found = _Known(fires, left_out, bool(demanded.groups))
        self._kept[tenant_id, but] = found
        if len(self._kept) > TENANTS_KEPT:
            self._kept.popitem(last=False)
        return found


class _Known(NamedTuple):
    """What the jobs that there are ask for."""

    fires: "_Tally"
    left_out: int
    grouped: bool


class _Shared:
    """Jobs that have their slots in common, by their spread."""

    def __init__(
        self,
        slots: Plan,
        jitter_ms: int,
        runs: int,
        own: Mapping[int, int],
        expected: int = 0,
    ) -> None:
        """`own`: spread (ms) → jobs; `expected`: jobs of which only the jitter is known.

        `runs`: no more slots than these, 0 for no limit.
        """
        self.slots = slots
        self.runs = runs
        self.places = len(own) if expected == 0 else jitter_ms // SECOND + 1
        self._jitter_ms = jitter_ms
        self._own = own
        self._expected = expected
        self._known: dict[tuple[int, int], list[tuple[int, float]]] = {}

    def seconds(self, most_ms: int, phase_ms: int) -> list[tuple[int, float]]:
        """Return how many are due how many seconds after that of a slot.

        The slot is at `phase_ms` of its second; no spread is longer than `most_ms`.
        """
        found = self._known.get((most_ms, phase_ms))
        if found is None:
            fires: defaultdict[int, float] = defaultdict(float)
            for spread, jobs in self._own.items():
                fires[(min(spread, most_ms) + phase_ms) // SECOND] += jobs
            most = min(self._jitter_ms, most_ms)
            for second in range((most + phase_ms) // SECOND + 1 if self._expected else 0):
                first, last = second * SECOND - phase_ms, (second + 1) * SECOND - 1 - phase_ms
                share = (min(last, most) - max(first, 0) + 1) / (most + 1)
                fires[second] += self._expected * share
            found = self._known[most_ms, phase_ms] = list(fires.items())
        return found


class _Tally:
    """What is due in each second of a day."""

    def __init__(self, since: int) -> None:
        self.since = since
        self.by_second: defaultdict[int, float] = defaultdict(float)
        self._left = STEPS_MAX
        self._unread = READ_MAX

    def add(self, shared: _Shared) -> bool:
        """Count jobs; False where that is too much work, or their schedule cannot say.

        A fixed delay cannot: when its runs end is not known, so they would all be in one second.
        """
        if isinstance(shared.slots, DelayPlan) or self._unread <= 0:
            return False
        slots = _slots(shared.slots, self.since // HOUR * HOUR)
        self._unread -= len(slots)
        until = self.since + DAY
        first = bisect_left(slots, self.since if shared.runs else self.since - HOUR)
        end = bisect_left(slots, until)
        if shared.runs:
            end = min(end, first + shared.runs)
        # Spreads end half-way to the next slot: those of all slots together are within a day.
        work = min((end - first) * shared.places, end - first + DAY // SECOND)
        if work > self._left:
            return False
        self._left -= work
        low, high = self.since // SECOND, until // SECOND
        for at in range(first, end):
            nominal = slots[at]
            most = (slots[at + 1] - nominal) // 2 if at + 1 < len(slots) else LAST
            second, phase = divmod(nominal, SECOND)
            for after, fires in shared.seconds(most, phase):
                if low <= second + after < high:
                    self.by_second[second + after] += fires
        return True

    def worst(self) -> Moment | None:
        """Return the first of the busiest seconds."""
        if not self.by_second:
            return None
        most = max(self.by_second.values())
        second = min(second for second, fires in self.by_second.items() if fires == most)
        return Moment(rfc3339(second * SECOND), _rounded(most))


@lru_cache(_SLOTS_KEPT)
def _slots(plan: Plan, hour: int) -> "array[int]":
    """Return the slots from an hour before `hour` to an hour after its day, and the next one."""
    found = array("q")
    slot = plan.next_after(hour - HOUR - 1)
    while slot is not None and len(found) < _SLOTS_MAX:
        found.append(slot)
        slot = plan.next_after(slot) if slot < hour + DAY + HOUR else None
    return found


def _shared(demanded: Demanded, but: bytes) -> list[tuple[_Shared, int]]:
    """Return jobs by their schedule, the most used first, all but the job `but`."""
    spreads: defaultdict[tuple[Plan, int, int], Counter[int]] = defaultdict(Counter)
    for job in demanded.jobs:
        facts = job.facts
        key = _key(job)
        if key is not None and facts.job_id != but:
            spreads[key][spread_of(facts.job_id, facts.spec)] += 1
    found = [(_Shared(*key, own), own.total()) for key, own in spreads.items()]
    for group in demanded.groups:
        key = _key(group.job)
        if key is not None:
            found.append((_Shared(*key, {}, group.jobs), group.jobs))
    return sorted(found, key=lambda one: -one[1])


def _key(job: JobState) -> tuple[Plan, int, int] | None:
    """Return slots, jitter and runs left; None for a job that never fires again by itself."""
    spec = job.facts.spec
    if job.facts.is_exhausted:
        return None
    try:
        left = spec.max_runs - job.facts.begun if spec.max_runs else 0
        return slots_of(spec), spec.jitter_ms, left
    except ScheduleBreach:
        return None


def _answer(known: _Known, also: _Tally, *, seconds: bool) -> Load:
    without, both = known.fires, _Tally(also.since)
    both.by_second.update(without.by_second)
    for second, fires in also.by_second.items():
        both.by_second[second] += fires
    day = DAY // SECOND
    found = Load(
        from_=rfc3339(without.since),
        to=rfc3339(without.since + DAY),
        worst_without=without.worst(),
        worst_with=both.worst(),
        average_per_s_without=round(sum(without.by_second.values()) / day, 6),
        average_per_s_with=round(sum(both.by_second.values()) / day, 6),
        by_hour=_by_hour(without, both),
        spread="expected" if known.grouped else "own",
        exact=not known.grouped and not known.left_out,
        left_out=known.left_out,
    )
    if seconds:
        total = both.by_second
        busiest = sorted(total, key=lambda at: (-total[at], at))[:SECONDS_MAX]
        shown = [_both(at, without.by_second.get(at, 0), total[at]) for at in sorted(busiest)]
        found = msgspec.structs.replace(found, seconds=shown)
    return found


def _by_hour(without: _Tally, both: _Tally) -> list[Both]:
    begin, hour = without.since // SECOND, HOUR // SECOND
    sums = [[0.0, 0.0] for _ in range(DAY // HOUR)]
    for column, tally in enumerate((without, both)):
        for second, fires in tally.by_second.items():
            sums[(second - begin) // hour][column] += fires
    return [_both(begin + at * hour, *pair) for at, pair in enumerate(sums)]


def _both(second: int, without: float, with_: float) -> Both:
    return Both(rfc3339(second * SECOND), _rounded(without), _rounded(with_))


def _rounded(fires: float) -> float:
    return round(fires, 3)
