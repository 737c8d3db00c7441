"""Leases and reports over the log in memory without processes, so that a year takes seconds.

Time goes from one thing that happens to the next. Who would lease or report does it at once, unless
the installation is `away`; all decisions and guards are the real ones.
"""

import random
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from commandside.ports import LeaseReply, Want
from domain.envelope import Decision
from domain.job import decide as job
from domain.job import state as js
from domain.job.ending import report_among
from domain.job.events import JobSpec
from domain.run import events as re
from domain.run import state as rs
from domain.run.decide import Grant, Result, first_lease
from infra.memory.clock import VirtualClock
from infra.memory.log import MemoryLog
from tests.contracts import jobs

SHARDS: Final = 8
NONCE: Final = bytes(8)
SESSION: Final = bytes(15) + b"\x01"
DEFER_MS: Final = 60_000
OK: Final = Result(re.OK, "ok", 200)
FAILED: Final = Result(re.FAILED, "retry", 500)

Say = Callable[[rs.InFlight], tuple[int, Result]]
"""How long an attempt takes, ms, and its result."""


class LongRun:
    """Some jobs over a long time."""

    def __init__(self, start: int, seed: int = 1) -> None:
        self.clock = VirtualClock(start)
        self.log = MemoryLog(self.clock.now, SHARDS)
        self.random = random.Random(seed)
        self.say: Say = lambda _run: (1_000, OK)
        self.fired: list[rs.InFlight] = []
        self.steps = 0
        self._ends: list[tuple[int, bytes, rs.InFlight, Result]] = []
        self._deeds: list[tuple[int, int, Callable[[], None]]] = []
        self._commands = 0

    # ---------------------------------------------------------------- jobs

    def define(self, spec: JobSpec, shard: int = 0) -> bytes:
        """Define a job and return its id."""
        job_id = jobs.job_id(shard, SHARDS)
        self._append(jobs.define(job_id, spec, self.clock.now()))
        return job_id

    def head(self, job_id: bytes) -> js.JobState:
        """Return a job's state."""
        return self.log.heads[job_id][0]

    def runs(self, job_id: bytes) -> tuple[rs.OpenRun, ...]:
        """Return a job's open runs as a command reads them."""
        found: dict[bytes, rs.OpenRun] = {r.facts.run_id: r for r in self.log.runs_of(job_id)}
        head = self.head(job_id)
        if isinstance(head, js.Paused):
            for run_id in (*head.runs, *((head.held,) if head.held else ())):
                state: rs.RunState | None = None
                for event in self.log.events_of(run_id):
                    assert isinstance(event, re.RunEvent)
                    state = rs.evolve(run_id, state, event)
                if isinstance(state, rs.Withheld):
                    found[run_id] = state
        return tuple(found.values())

    def command(
        self,
        job_id: bytes,
        decide: Callable[[js.JobState | None, tuple[rs.OpenRun, ...], job.By], job.Outcome],
    ) -> job.Outcome:
        """Carry out a command now."""
        outcome = decide(self.head(job_id), self.runs(job_id), job.By(self.clock.now()))
        if isinstance(outcome, Decision):
            self._append(outcome)
        return outcome

    def revise(self, job_id: bytes, spec: JobSpec) -> job.Outcome:
        """Change a job's spec."""
        return self.command(job_id, lambda head, runs, by: job.revise(head, runs, spec, "", by))

    def trigger(self, job_id: bytes) -> job.Outcome:
        """Ask for a manual run."""
        self._commands += 1
        salt = self._commands.to_bytes(16, "big")
        return self.command(job_id, lambda head, runs, by: job.trigger(head, runs, salt, by))

    def at(self, when: int, deed: Callable[[], None]) -> None:
        """Plan a deed."""
        heappush(self._deeds, (when, len(self._deeds) + self.steps, deed))

    # ---------------------------------------------------------------- time

    def run_until(self, until: int) -> None:
        """Let everything happen that is due by then."""
        while True:
            when = self._next()
            if when > until:
                break
            self._go_to(when)
            self.steps += 1
            if self._deeds and self._deeds[0][0] <= when:
                heappop(self._deeds)[2]()
            elif self._ends and self._ends[0][0] <= when:
                _, _, run, result = heappop(self._ends)
                self._report(run, result)
            else:
                self._lease()
        self._go_to(until)

    def sleep_until(self, until: int) -> None:
        """Let nothing at all happen until then: an outage of everything."""
        self._go_to(until)

    def _next(self) -> int:
        found = [queue[0][0] for queue in (self._ends, self._deeds) if queue]
        waits = next((w for w, run_id in self.log.wakes if self._is_ready(run_id)), None)
        return min([*found, *([] if waits is None else [waits])], default=1 << 62)

    def _is_ready(self, run_id: bytes) -> bool:
        return isinstance(self.log.due[run_id].run, rs.Ready)

    def _go_to(self, at: int) -> None:
        self.clock.advance_ms(max(0, at - self.clock.now()))
        self.log.start(SESSION)

    def _lease(self) -> None:
        run = next(
            row.run for row in self.log.waking(self.clock.now()) if isinstance(row.run, rs.Ready)
        )
        want = Want(run.facts.run_id, run.facts.version, run.facts.job_id)
        reply = self.log.lease(1, SESSION, NONCE, [want], self.clock.now())
        assert isinstance(reply, LeaseReply)
        assert not reply.gone, "a job that is not active has nothing ready"
        leased = [granted.run for granted in reply.granted] or self._decide(run)
        for flight in leased:
            took, result = self.say(flight)
            self.fired.append(flight)
            heappush(self._ends, (self.clock.now() + took, flight.facts.run_id, flight, result))

    def _decide(self, run: rs.Ready) -> list[rs.InFlight]:
        facts = run.facts
        beside = tuple(r for r in self.log.runs_of(facts.job_id) if r is not run)
        at = self.clock.now()
        decision = first_lease(self.head(facts.job_id), run, beside, at, Grant(SESSION, NONCE))
        if decision is None:
            self.log.defer([(facts.run_id, facts.version, at + DEFER_MS)])
            return []
        self._append(decision)
        return [part.after for part in decision.slices if isinstance(part.after, rs.InFlight)]

    def _report(self, run: rs.InFlight, result: Result) -> None:
        facts = run.facts
        row = self.log.due.get(facts.run_id)
        if row is None:
            return
        runs = self.runs(facts.job_id)
        head, at = self.head(facts.job_id), self.clock.now()
        decision = report_among(head, row.run, runs, facts.fence, result, at)
        if decision is not None:
            self._append(decision)

    def _append(self, decision: Decision) -> None:
        done = self.log.append([decision], self.clock.now())
        assert not done.refused, "nothing moves between a decision and its append"

    # ---------------------------------------------------------------- what is seen

    def events(self) -> int:
        """Return how many events there are."""
        return sum(len(stream) for stream in self.log.streams.values())
