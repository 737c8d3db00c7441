"""What must be true of a log and of the requests that left, whatever happened."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

from commandside.deliverer_port import Call
from domain.catalogue import DomainEvent
from domain.job import events as je
from domain.job import state as js
from domain.run import events as re
from domain.run import state as rs
from domain.schedule.schedule import FixedDelay
from domain.slots import Slots
from infra.memory.log import MemoryLog
from infra.memory.targets import Hit, MemoryDeliverer

DEADLINE_MS: Final = 1_000
EARLY_MS: Final = 100
"""Clocks of host and database may differ by so much."""
SLACK_MS: Final = 30
"""The clock that measures the second may run a little slow."""


def wrongs(log: MemoryLog, deliverers: list[MemoryDeliverer], until: int) -> list[str]:
    """Return what is wrong, in words; slots up to `until` must have their verdict."""
    ledger = Ledger(log)
    hits = [hit for deliverer in deliverers for hit in deliverer.hits]
    return [
        *ledger.unfinished(until),
        *ledger.slots(until),
        *ledger.index(),
        *ledger.requests(hits),
    ]


class Ledger:
    """The log, stream by stream."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self.jobs: dict[bytes, list[je.JobEvent]] = {}
        self.runs: dict[bytes, list[re.RunEvent]] = {}
        self.states: dict[bytes, rs.RunState] = {}
        self.heads: dict[bytes, js.JobState] = {}
        for stream in log.streams:
            events = log.events_of(stream)
            if isinstance(events[0], je.JobEvent):
                self._job(stream, events)
            else:
                self._run(stream, events)

    def _job(self, stream: bytes, events: list[DomainEvent]) -> None:
        state: js.JobState | None = None
        mine = self.jobs[stream] = []
        for event in events:
            assert isinstance(event, je.JobEvent)
            mine.append(event)
            state = js.evolve(stream, state, event)
        assert state is not None
        self.heads[stream] = state

    def _run(self, stream: bytes, events: list[DomainEvent]) -> None:
        state: rs.RunState | None = None
        mine = self.runs[stream] = []
        for event in events:
            # The fold asserts that nothing follows an end, and that each step is legal.
            assert isinstance(event, re.RunEvent)
            mine.append(event)
            state = rs.evolve(stream, state, event)
        assert state is not None
        self.states[stream] = state

    # ---------------------------------------------------------------- ends

    def unfinished(self, until: int) -> Iterator[str]:
        """Runs that were due and have not ended, and runs that ended in two commits."""
        for stream, state in self.states.items():
            if isinstance(state, rs.Reported):
                yield f"run {stream.hex()} stops after a Fired"
            elif not isinstance(state, rs.Ended | rs.Withheld) and state.facts.due_at <= until:
                yield f"run {stream.hex()} was due and is {type(state).__name__}"

    # ---------------------------------------------------------------- slots

    def slots(self, until: int) -> Iterator[str]:
        """Slots of the schedule in force that have no verdict, or more than one."""
        ends: dict[bytes, Counter[int]] = defaultdict(Counter)
        passed: dict[bytes, list[re.Passed]] = defaultdict(list)
        for stream, events in self.runs.items():
            first = events[0]
            assert isinstance(first, re.Scheduled)
            for event in events:
                if isinstance(event, re.Scheduled):
                    passed[event.job_id] += event.passed
            if first.kind == 0 and isinstance(self.states[stream], rs.Ended):
                ends[first.job_id][first.nominal] += 1
        for job_id, job_events in self.jobs.items():
            for job_event in job_events:
                passed[job_id] += getattr(job_event, "passed", ())
            for slot in _in_force(job_id, job_events, until):
                ranges = sum(1 for p in passed[job_id] if p.first <= slot <= p.last)
                verdicts = ends[job_id][slot] + ranges
                if verdicts != 1:
                    yield (
                        f"slot {slot} of job {job_id.hex()} has {verdicts} verdicts:"
                        f" {ends[job_id][slot]} runs, {ranges} ranges"
                    )

    # ---------------------------------------------------------------- index

    def index(self) -> Iterator[str]:
        """Rows and heads that are not the fold of their streams."""
        for stream, state in self.states.items():
            row = self._log.due.get(stream)
            open_run = isinstance(state, rs.Ready | rs.InFlight | rs.Awaiting)
            if (row.run if row else None) != (state if open_run else None):
                yield f"the due row of {stream.hex()} is not its fold"
        for job_id, job in self.heads.items():
            if self._log.heads[job_id][0] != job:
                yield f"the head of {job_id.hex()} is not its fold"

    # ---------------------------------------------------------------- requests

    def requests(self, hits: list[Hit]) -> Iterator[str]:
        """Requests without their lease, early, late, doubled, or under a key of their own."""
        seen: set[tuple[bytes, int]] = set()
        keys: dict[bytes, str] = {}
        owners: dict[str, tuple[bytes, int]] = {}
        for hit in hits:
            run_id = bytes.fromhex(header(hit.call, "Tocsin-Run-Id").removeprefix("rn_"))
            attempt = int(header(hit.call, "Tocsin-Attempt"))
            key = header(hit.call, "Idempotency-Key")
            if (run_id, attempt) in seen:
                yield f"attempt {attempt} of {run_id.hex()} was sent twice"
            seen.add((run_id, attempt))
            if keys.setdefault(run_id, key) != key:
                yield f"run {run_id.hex()} has two keys"
            occurrence = self._occurrence(run_id)
            if owners.setdefault(key, occurrence) != occurrence:
                yield f"key {key} has two occurrences"
            yield from self._lease_of(run_id, attempt, hit.at_us)

    def _occurrence(self, run_id: bytes) -> tuple[bytes, int]:
        first = self.runs[run_id][0]
        assert isinstance(first, re.Scheduled)
        return first.job_id, first.nominal

    def _lease_of(self, run_id: bytes, attempt: int, at_us: int) -> Iterator[str]:
        due_at = 0
        for event, written in zip(
            self.runs.get(run_id, ()), self._log.streams.get(run_id, ()), strict=True
        ):
            if isinstance(event, re.Scheduled):
                due_at = event.due_at
            elif isinstance(event, re.Leased) and event.attempt == attempt:
                if event.at < due_at or at_us < (due_at - EARLY_MS) * 1_000:
                    yield f"attempt {attempt} of {run_id.hex()} was before its instant"
                # Decided on what was read a while before, it may be older than its commit.
                sent = at_us // 1_000 - written.committed_at
                if not -1 <= sent <= DEADLINE_MS + SLACK_MS:
                    yield f"attempt {attempt} of {run_id.hex()} was sent {sent} ms after its lease"
                return
        yield f"attempt {attempt} of {run_id.hex()} was sent without a lease"


def _in_force(job_id: bytes, events: list[je.JobEvent], until: int) -> Iterator[int]:
    """Return the slots that a job's schedules had while each was in force."""
    spec: je.JobSpec | None = None
    since = 0
    for event in events:
        if isinstance(event, je.Defined | je.Revised | je.Cancelled | je.Finished):
            if spec is not None:
                yield from _between(job_id, spec, since, min(event.at, until))
            over = isinstance(event, je.Cancelled | je.Finished)
            spec = None if isinstance(event, je.Cancelled | je.Finished) else event.spec
            since = event.cursor if over or isinstance(event, je.Revised) else event.at
    if spec is not None:
        yield from _between(job_id, spec, since, until)


def _between(job_id: bytes, spec: je.JobSpec, after: int, until: int) -> Iterator[int]:
    if isinstance(spec.schedule, FixedDelay):
        return  # it has no slots but those that ends of runs give it
    slots = Slots(job_id, spec).plan
    slot = slots.next_after(after)
    while slot is not None and slot <= until:
        yield slot
        slot = slots.next_after(slot)


def header(call: Call, name: str) -> str:
    """Return a header of a call, empty where it has none."""
    for line in call.headers:
        head, _, value = line.partition(b": ")
        if head == name.encode():
            return value.decode()
    return ""
