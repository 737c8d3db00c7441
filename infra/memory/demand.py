"""What a tenant's jobs ask for, over the log in memory."""

from collections import defaultdict

from commandside.demand import Demanded, Group, Limits
from domain import wording
from domain.ids import SLOT
from domain.job.state import Active, JobState
from infra.memory.log import MemoryLog


class MemoryDemand:
    """`commandside.demand.Demand`."""

    def __init__(self, log: MemoryLog, limits: Limits | None = None) -> None:
        """Read a log that others may share."""
        self._log = log
        self._limits = limits or Limits()

    def of_tenant(self, tenant_id: bytes, since: int, until: int) -> Demanded:
        """Return a tenant's active jobs; of one-time ones those due in [since, until) (ms)."""
        self._log.reach()
        limits = self._limits
        mine = [
            job
            for job, _ in self._log.heads.values()
            if isinstance(job, Active) and job.facts.tenant_id == tenant_id
        ]
        one_time = [job.facts for job in mine if job.facts.spec.is_one_time]
        newest = sorted(one_time, key=lambda facts: (-facts.defined_at, facts.job_id))
        once = [
            (facts.job_id, run.facts.due_at)
            for facts in newest[: limits.once]
            for run in self._log.runs_of(facts.job_id)
            if run.facts.kind == SLOT and since <= run.facts.due_at < until
        ]
        older = min(max(0, len(newest) - limits.once), limits.scanned)
        jobs: list[JobState] = [job for job in mine if not job.facts.spec.is_one_time]
        if len(jobs) <= limits.jobs:
            return Demanded(jobs, [], once, older)
        groups = self._grouped(jobs)
        left_out = len(jobs) - sum(group.jobs for group in groups)
        return Demanded([], groups, once, older + left_out)

    def _grouped(self, jobs: list[JobState]) -> list[Group]:
        grouped: defaultdict[tuple[str, str], list[JobState]] = defaultdict(list)
        limits = self._limits
        ordered = sorted(jobs, key=lambda job: wording.summary(job.facts.spec.schedule))
        for job in ordered[: limits.scanned]:
            grouped[wording.summary(job.facts.spec.schedule)].append(job)
        found = [
            Group(min(same, key=lambda job: job.facts.job_id), len(same))
            for same in grouped.values()
        ]
        return sorted(found, key=lambda group: (-group.jobs, group.job.facts.job_id))[
            : limits.groups
        ]
