"""Histories made by hand: what a right run leaves behind, step by step, for tests and figures.

Nothing here decides: whoever writes a history says what happens, and may say what is wrong.
"""

from hashlib import sha256
from typing import Any, Final

import msgspec

from domain.catalogue import NAMES, encode
from domain.ids import SLOT
from domain.job import events as je
from domain.job.events import JobSpec
from domain.retry import RetryPolicy
from domain.run import events as re
from domain.schedule.schedule import Cron, ScheduleSpec
from domain.target import HttpTarget
from tests.checker.check import check
from tests.checker.inputs import Fault, History, Hit, Operation, Scenario, Stored

START: Final = 1_800_000_000_000
"""2027-01-15T08:00:00Z, a whole minute."""
SECOND: Final = 1_000
MINUTE: Final = 60_000
TENANT: Final = bytes(15) + b"\x07"
SESSION: Final = bytes(15) + b"\x01"
TIMEOUT_MS: Final = 30_000
LEASE_MS: Final = 61_000
URL: Final = "https://hooks.example.com/v1"
TARGET: Final = HttpTarget("https", "hooks.example.com", 443, "/v1", "POST", (), URL)
RETRY: Final = RetryPolicy(3, "fixed", 5_000, 60_000, jitter="none")
TEMPLATE: Final = "{job_id}-{scheduled_ts}"
MINUTELY: Final = Cron("* * * * *", "* * * * *", "UTC")
BODY: Final = sha256(b"body").digest()


def spec(schedule: ScheduleSpec = MINUTELY, **fields: Any) -> JobSpec:
    """Return a spec in which a test says what it is about."""
    plain = JobSpec(schedule, TARGET, RETRY, TIMEOUT_MS, TEMPLATE, b"sealed")
    return msgspec.structs.replace(plain, **fields)


def broken(scene: "Scene", **scenario: Any) -> set[str]:
    """Return the invariants that a history violates."""
    report = check(scene.history(**scenario))
    print(report.text())
    return set(report.broken)


class Made:
    """A run that was planned: what its next events must say."""

    def __init__(self, run_id: bytes, planned: re.Scheduled) -> None:
        self.id, self.planned = run_id, planned
        self.attempt = self.fence = self.leased_at = 0


class Scene:
    """A log that is written by hand; `now` moves only where it is told to."""

    def __init__(self, shard: int = 0, at: int = START) -> None:
        self.now, self.shard = at, shard
        self.events: list[Stored] = []
        self.hits: list[Hit] = []
        self.clients: list[Operation] = []
        self.faults: list[Fault] = []
        self.versions: dict[bytes, int] = {}
        self.spec_versions: dict[bytes, int] = {}
        self._ids = 0

    def history(self, **scenario: Any) -> History:
        """Return what was written so far."""
        return History(
            events=list(self.events),
            hits=list(self.hits),
            clients=list(self.clients),
            faults=list(self.faults),
            scenario=Scenario(ended_at=self.now, **scenario),
        )

    def new_id(self) -> bytes:
        """Return an id that nothing has."""
        self._ids += 1
        return self._ids.to_bytes(16, "big")

    def put(self, stream: bytes, event: Any) -> int:
        """Append an event, and return its version."""
        version = self.versions[stream] = self.versions.get(stream, 0) + 1
        position = len(self.events) + 1
        name = NAMES[type(event)]
        if isinstance(event, je.Defined | je.Revised | je.Replanned):
            self.spec_versions[stream] = version
        self.events.append(Stored(self.shard, position, stream, version, name, encode(event)))
        return version

    # ---------------------------------------------------------------- a job

    def define(self, new: JobSpec | None = None, job: bytes = b"", life: int = 1) -> bytes:
        """Define a job, and let its client be told so."""
        job, new = job or self.new_id(), new or spec()
        version = self.put(job, je.Defined(self.now, TENANT, life, new, self.now))
        self.told("define", job, version, payload_sha256=BODY)
        return job

    def told(self, action: str, job: bytes, version: int, **fields: Any) -> None:
        """Let a client be answered, a moment after now."""
        at_us = self.now * 1_000
        said = Operation(
            "client", TENANT, action, at_us - 500, at_us + 500, "ok", job, 200, version=version
        )
        self.clients.append(msgspec.structs.replace(said, **fields))

    def pause(self, job: bytes, run: Made | None = None, **fields: Any) -> None:
        """Pause a job whose frontier is `run`."""
        held = run.id if run is not None else b""
        event = je.Paused(self.now, self.now, held, (held,) if held else (), tenant_id=TENANT)
        version = self.put(job, msgspec.structs.replace(event, **fields))
        if run is not None:
            self.put(run.id, re.Withdrawn(self.now, re.PAUSED))
        self.told("pause", job, version)

    def cancel(self, job: bytes, *waiting: Made, in_flight: tuple[bytes, ...] = ()) -> None:
        """Cancel a job, and what of it waits."""
        event = je.Cancelled(self.now, self.now, in_flight=in_flight, tenant_id=TENANT)
        version = self.put(job, event)
        for run in waiting:
            self.cancelled(run)
        self.told("cancel", job, version, in_flight=in_flight)

    # ---------------------------------------------------------------- a run

    def plan(self, job: bytes, nominal: int, **fields: Any) -> Made:
        """Plan the run of a slot."""
        version = self.spec_versions.get(job, 1)
        planned = re.Scheduled(
            self.now, job, TENANT, 1, SLOT, 0, nominal, nominal, 1, version, version, self.now
        )
        planned = msgspec.structs.replace(planned, **fields)
        made = Made(self.new_id(), planned)
        self.put(made.id, planned)
        return made

    def again(self, run: Made, due_at: int, **fields: Any) -> None:
        """Plan a run again."""
        run.planned = msgspec.structs.replace(
            run.planned, at=self.now, due_at=due_at, attempt=run.attempt + 1, passed=(), **fields
        )
        self.put(run.id, run.planned)

    def lease(self, run: Made, **fields: Any) -> None:
        """Lease a run, now or when it is due."""
        self.now = max(self.now, run.planned.due_at)
        run.attempt += 1
        run.leased_at = self.now
        leased = re.Leased(SESSION, bytes(8), self.now, self.now + LEASE_MS, run.attempt)
        run.fence = self.put(run.id, msgspec.structs.replace(leased, **fields))

    def hit(self, run: Made, status: int = 200, **fields: Any) -> None:
        """Let the target be called, a few milliseconds after now, and answer."""
        self.now += 5
        planned, at_us = run.planned, self.now * 1_000
        own = f"-m-{run.id[-4:].hex()}" if planned.kind in (1, 4, 5, 6) else ""
        key = f"jb_{planned.job_id.hex()}-{planned.nominal}{own}"
        hit = Hit(at_us, run.id, run.attempt, run.fence, key, URL, BODY, status, at_us + 2_000, key)
        self.now += 5
        self.hits.append(msgspec.structs.replace(hit, **fields))

    def fired(self, run: Made, outcome: str, then: str, **fields: Any) -> None:
        """Report an attempt."""
        p = run.planned
        fired = re.Fired(
            self.now,
            p.job_id,
            p.tenant_id,
            p.kind,
            p.nominal,
            p.due_at,
            run.leased_at,
            run.attempt,
            run.fence,
            outcome,
            then,
            200 if outcome == re.OK else 500 if outcome == re.FAILED else 0,
        )
        self.put(run.id, msgspec.structs.replace(fired, **fields))

    def completed(self, run: Made, outcome: str = re.SUCCEEDED, cause: str = "") -> None:
        """End a run that was reported."""
        self.put(run.id, re.Completed(self.now, outcome, cause))

    def succeed(self, run: Made) -> None:
        """Report a success, and end the run."""
        self.fired(run, re.OK, re.SUCCEEDED)
        self.completed(run)

    def fail(self, run: Made, delay: int = 5_000, **fields: Any) -> None:
        """Report a failure, and plan the retry."""
        self.fired(run, re.FAILED, re.RETRY, **fields)
        self.again(run, self.now + delay, cause="retry")

    def lose(self, run: Made, delay: int = 0) -> None:
        """Let an attempt be reclaimed when its lease is over, and plan the next."""
        self.now = max(self.now, run.leased_at + LEASE_MS)
        self.fired(run, re.LOST, re.RETRY)
        self.again(run, self.now + delay, cause="retry")

    def skipped(self, run: Made, verdict: str, cause: str = "") -> None:
        """Say why a run does not fire."""
        p = run.planned
        self.put(
            run.id,
            re.Skipped(
                self.now, p.job_id, p.tenant_id, p.nominal, verdict, cause, p.kind, p.due_at
            ),
        )

    def cancelled(self, run: Made, cause: str = "job cancelled") -> None:
        """Cancel a run."""
        p = run.planned
        self.put(
            run.id,
            re.Cancelled(
                self.now, p.job_id, p.tenant_id, p.nominal, cause, run.attempt, p.kind, p.due_at
            ),
        )

    def fire(self, run: Made) -> None:
        """Lease, call, succeed."""
        self.lease(run)
        self.hit(run)
        self.succeed(run)

    def chain(self, job: bytes, times: int, step: int = MINUTE) -> Made:
        """Let a job fire so many times from its next slot on; return the run that is open then."""
        nominal = self.now // step * step + step
        run = self.plan(job, nominal)
        for _ in range(times):
            self.fire(run)
            nominal += step
            run = self.plan(job, nominal, after=nominal - step)
        return run
