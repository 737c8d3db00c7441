"""What every demand answers: a tenant's own active jobs, one by one or by their schedules."""

from typing import Protocol

import msgspec
import pytest

from commandside.demand import Demand, Limits
from domain.envelope import Decision
from domain.job import decide
from domain.job.events import JobSpec
from domain.schedule.schedule import Cron, OneTime, ScheduleSpec, parse_cron
from tests.contracts import jobs

NOON = 1_790_000_000_000
DAY = 86_400_000
LIMITS = Limits(jobs=3, groups=2, scanned=9, once=2)
TENANT, OTHER = b"t" * 16, b"u" * 16


class Demands(Protocol):
    """A demand under test, with what stands behind it."""

    def demand(self, limits: Limits) -> Demand:
        """Return the demand, with these bounds."""

    def append(self, decision: Decision) -> None:
        """Append to the log, and let the views read it."""


def cron(text: str) -> Cron:
    found = parse_cron(text, "UTC")
    assert isinstance(found, Cron)
    return found


def job(
    number: int, schedule: ScheduleSpec, *, tenant: bytes = TENANT, at: int = NOON
) -> tuple[bytes, Decision]:
    """Return a new job with its definition; ids sort as their numbers do."""
    job_id = number.to_bytes(16, "big")
    spec: JobSpec = msgspec.structs.replace(jobs.spec(schedule), jitter_ms=5_000)
    decision = decide.define(decide.NewJob(job_id, tenant, spec), None, decide.By(at))
    assert isinstance(decision, Decision)
    return job_id, decision


class DemandContract:
    """Subclasses give the fixture `demands`."""

    @pytest.fixture
    def demands(self) -> Demands:
        raise NotImplementedError

    def test_few_jobs_come_as_they_are(self, demands: Demands) -> None:
        job_id, decision = job(1, cron("0 * * * *"))
        demands.append(decision)
        demands.append(job(2, cron("0 * * * *"), tenant=OTHER)[1])
        found = demands.demand(LIMITS).of_tenant(TENANT, NOON, NOON + DAY)
        (only,) = found.jobs
        assert only.facts.job_id == job_id
        assert only.facts.spec.jitter_ms == 5_000
        assert (found.groups, found.once, found.left_out) == ([], [], 0)

    def test_a_job_that_is_not_active_asks_for_nothing(self, demands: Demands) -> None:
        _, decision = job(1, cron("0 * * * *"))
        demands.append(decision)
        states = [part.after for part in decision.slices]
        paused = decide.pause(states[0], (states[1],), decide.By(NOON + 1))  # type: ignore[arg-type]  # job and run, in order
        assert isinstance(paused, Decision)
        demands.append(paused)
        assert demands.demand(LIMITS).of_tenant(TENANT, NOON, NOON + DAY).jobs == []

    def test_many_jobs_come_by_their_most_used_schedules(self, demands: Demands) -> None:
        texts = ["5 * * * *", "0 * * * *", "0 * * * *", "7 * * * *", "7 * * * *", "7 * * * *"]
        for number, text in enumerate(texts):
            demands.append(job(number + 1, cron(text))[1])
        found = demands.demand(LIMITS).of_tenant(TENANT, NOON, NOON + DAY)
        assert found.jobs == []
        shown = [(group.jobs, group.job.facts.spec.schedule) for group in found.groups]
        assert shown == [(3, cron("7 * * * *")), (2, cron("0 * * * *"))]
        assert found.left_out == 1

    def test_what_is_beyond_the_bounds_is_counted(self, demands: Demands) -> None:
        for number in range(12):
            demands.append(job(number + 1, cron("0 * * * *"))[1])
        found = demands.demand(LIMITS).of_tenant(TENANT, NOON, NOON + DAY)
        assert [group.jobs for group in found.groups] == [9]
        assert found.left_out == 3

    def test_one_time_jobs_come_as_they_are_due(self, demands: Demands) -> None:
        first, decision = job(1, OneTime(NOON + 60_000), at=NOON + 2)
        demands.append(decision)
        demands.append(job(2, OneTime(NOON + 2 * DAY), at=NOON + 1)[1])
        found = demands.demand(LIMITS).of_tenant(TENANT, NOON, NOON + DAY)
        ((job_id, due_at),) = found.once
        assert job_id == first
        assert NOON + 60_000 <= due_at <= NOON + 65_000
        assert found.left_out == 0

    def test_the_newest_one_time_jobs_are_looked_at(self, demands: Demands) -> None:
        for number in range(5):
            demands.append(job(number + 1, OneTime(NOON + 60_000), at=NOON + number)[1])
        found = demands.demand(LIMITS).of_tenant(TENANT, NOON, NOON + DAY)
        assert sorted(job_id[-1] for job_id, _ in found.once) == [4, 5]
        assert found.left_out == 3
