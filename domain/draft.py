"""Collects the events of one decision and folds them: every slice knows what it leads to."""

from domain.envelope import Command, Decision, Guard, JobAt, RunAt, SettledRun, Slice, StreamAt
from domain.job import events as je
from domain.job import state as js
from domain.run import events as re
from domain.run import state as rs


class Draft:
    """One decision about one job, while it is made. `job` is None before its first definition."""

    def __init__(self, job_id: bytes, job: js.JobState | None) -> None:
        """Start from the job's state as it was read."""
        self.job_id = job_id
        self.job = job
        self._read_version = 0 if job is None else job.facts.version
        self._job_events: list[je.JobEvent] = []
        self._slices: list[Slice] = []

    def on_job(self, event: je.JobEvent) -> None:
        """Append an event to the job's stream."""
        self.job = js.evolve(self.job_id, self.job, event)
        self._job_events.append(event)

    def on_run(self, run_id: bytes, state: rs.OpenRun | None, *events: re.RunEvent) -> SettledRun:
        """Append events to a run's stream and return the state they lead to."""
        folded: rs.RunState | None = state
        for event in events:
            folded = rs.evolve(run_id, folded, event)
        assert folded is not None
        assert not isinstance(folded, rs.Reported)
        first = 1 if state is None else state.facts.version + 1
        self._slices.append(Slice(run_id, first, events, folded))
        return folded

    def decision(
        self,
        read: tuple[rs.OpenRun, ...] = (),
        *,
        beside: tuple[Guard, ...] = (),
        command: Command | None = None,
        not_before: int = 0,
    ) -> Decision:
        """Return the decision, guarded on the job's head and on every run that was `read`."""
        slices = tuple(self._slices)
        if self._job_events:
            assert self.job is not None
            head = Slice(self.job_id, self._read_version + 1, tuple(self._job_events), self.job)
            slices = (head, *slices)
        guards: tuple[Guard, ...] = (JobAt(self.job_id, self._read_version), *map(guard_of, read))
        return Decision(self.job_id, guards + beside, slices, command, not_before)


def guard_of(run: rs.OpenRun) -> Guard:
    """Return the guard on a run that a decision read: its due row, or its stream when withheld."""
    facts = run.facts
    if isinstance(run, rs.Withheld):
        return StreamAt(facts.run_id, facts.version)
    return RunAt(facts.run_id, facts.version)
