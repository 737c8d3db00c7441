"""What the checker remembers of a job and its runs while it goes through their events.

None of this is the product's state: it is built from the events alone, and only by this package.
"""

from typing import Final

from domain.catalogue import DomainEvent
from domain.job.events import JobSpec
from domain.run.events import CatchUp, Passed
from tests.checker.inputs import Fault, HandOff, Hit, Kept, Operation, Row, Slots, Stored

READY, FLYING, ACCEPTED, REPORTED, WITHHELD, ENDED = range(6)
"""Of a run. REPORTED is between a `Fired` and what the same commit says of the run."""
STATES: Final = ("ready", "in flight", "accepted", "reported", "withheld", "ended")

ACTIVE, PAUSED, FINISHED, CANCELLED = range(1, 5)
"""Of a job."""

FOREVER: Final = 1 << 62
CLOCKS_MS: Final = 500
"""A process decides nothing where its clock and the database's differ by more; `at` may be either.
"""


class Attempt:
    """One `Leased`, and what became of it."""

    __slots__ = (
        "accepted",
        "at",
        "due_at",
        "ended_at",
        "ended_position",
        "error",
        "fence",
        "number",
        "outcome",
        "payload_version",
        "position",
        "session",
        "spec",
        "status",
        "until",
    )

    def __init__(self, number: int, fence: int, position: int, at: int) -> None:
        self.number, self.fence, self.position, self.at = number, fence, position, at
        self.until = 0
        self.session = b""
        self.due_at = 0
        self.payload_version = 0
        self.spec: JobSpec | None = None
        """The job's when it was leased."""
        self.accepted = False
        self.outcome = ""
        self.status = 0
        self.error = ""
        self.ended_at = 0
        """0 while nobody has said how it went."""
        self.ended_position = FOREVER


class Run:
    """One stream of a run."""

    __slots__ = (
        "abandoned",
        "attempts",
        "catch_up",
        "cause",
        "due_at",
        "ended_at",
        "fails",
        "first_due",
        "first_spec",
        "id",
        "kind",
        "lane",
        "last_fired_at",
        "leased_at",
        "life",
        "lost",
        "nominal",
        "owner",
        "payload_version",
        "planned_at",
        "ready_at",
        "retry_after",
        "spec_version",
        "state",
        "tenant",
        "then",
        "until",
        "verdict",
        "version",
    )

    def __init__(self, run_id: bytes) -> None:
        self.id = run_id
        self.state = READY
        self.version = 0
        self.tenant = b""
        self.life = self.kind = self.lane = self.nominal = 0
        self.planned_at = self.first_due = self.due_at = self.ready_at = 0
        """First `Scheduled`, its due instant; that of the last one, and when it was written."""
        self.spec_version = self.payload_version = self.first_spec = 0
        self.catch_up: CatchUp | None = None
        self.attempts: list[Attempt] = []
        self.fails = self.lost = self.abandoned = 0
        self.owner = b""
        self.leased_at = self.until = 0
        self.then = self.cause = self.verdict = ""
        """Of the last `Fired`; why it is withheld or how it ended."""
        self.retry_after = ""
        self.last_fired_at = 0
        self.ended_at = 0

    @property
    def begun(self) -> bool:
        return bool(self.attempts)

    @property
    def first_leased_at(self) -> int:
        return self.attempts[0].at if self.attempts else 0

    @property
    def is_open(self) -> bool:
        return self.state != ENDED


class Verdicts:
    """A range of slots that passed, where it was said and when."""

    __slots__ = ("at", "life", "on_job", "passed", "position")

    def __init__(self, passed: Passed, at: int, life: int, position: int, *, on_job: bool) -> None:
        self.passed, self.at, self.life, self.position = passed, at, life, position
        self.on_job = on_job


class Force:
    """A spec while it was in force: its slots in (after, until]."""

    __slots__ = ("after", "is_known", "life", "spec", "until", "version")

    def __init__(self, spec: JobSpec, version: int, life: int, after: int) -> None:
        self.spec, self.version, self.life = spec, version, life
        self.after, self.until = after, FOREVER
        self.is_known = True
        """Its slots can be worked out: zone data of before a change cannot be had any more."""


class Job:
    """The stream of a job, and what it says of the runs."""

    __slots__ = (
        "backfill",
        "backfill_place",
        "begun",
        "cancels",
        "catch_up",
        "cursor",
        "failures",
        "forces",
        "held",
        "id",
        "key",
        "life",
        "paused_at",
        "pauses",
        "payload_version",
        "ranges",
        "revised",
        "runs",
        "spec",
        "spec_version",
        "specs",
        "status",
        "statuses",
        "tenant",
        "until",
        "version",
    )

    def __init__(self, job_id: bytes) -> None:
        self.id = job_id
        self.tenant = b""
        self.key = ""
        self.version = self.life = self.status = 0
        self.spec: JobSpec | None = None
        self.specs: dict[int, JobSpec] = {}
        """Every version that says which body, key and target there are."""
        self.spec_version = self.payload_version = self.revised = 0
        """`revised`: version of the last event that came from a client's words."""
        self.cursor = 0
        self.held = b""
        self.catch_up: CatchUp | None = None
        self.begun = self.failures = self.paused_at = self.until = 0
        self.pauses: list[list[int]] = []
        """From when to when, and positions: [at, until, position, until position]."""
        self.cancels: list[tuple[int, int, int]] = []
        """Position, instant and version of each cancel."""
        self.statuses: list[int] = [0]
        """By version."""
        self.forces: list[Force] = []
        self.ranges: list[Verdicts] = []
        self.backfill: tuple[int, frozenset[int]] | None = None
        self.backfill_place = 0
        self.runs: dict[bytes, Run] = {}


class Case:
    """All that there is of one job."""

    __slots__ = (
        "clients",
        "decoded",
        "events",
        "hand_offs",
        "history",
        "hits",
        "job_id",
        "oracle",
        "rows",
    )

    def __init__(self, job_id: bytes) -> None:
        self.job_id = job_id
        self.events: list[Stored] = []
        """Of its stream and those of its runs, in commit order."""
        self.decoded: list[tuple[Stored, DomainEvent]] = []
        """Those that could be read, while the job is judged."""
        self.hits: dict[bytes, list[Hit]] = {}
        self.clients: list[Operation] = []
        self.hand_offs: list[HandOff] = []
        self.history: list[Kept] = []
        self.rows: list[Row] = []
        self.oracle: list[Slots] = []


class Faults:
    """What went wrong, and when."""

    def __init__(self, faults: list[Fault]) -> None:
        self.all = sorted(faults, key=lambda fault: fault.start)

    def within(self, start: int, end: int, job: bytes = b"") -> list[Fault]:
        """Return those that overlap [start, end] and concern a job."""
        return [
            fault
            for fault in self.all
            if fault.start <= end
            and fault.end >= start
            and (not fault.jobs or not job or job in fault.jobs)
        ]
