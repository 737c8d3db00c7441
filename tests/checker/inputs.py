"""What the checker is told: one struct for each line of its files, and all of them as a History.

Instants are of one host clock that no test fakes: `…_us` in microseconds since the epoch, all
others in milliseconds as in the product. In JSON bytes are base64. A field that a harness does not
know keeps its default, and what would need it is not judged.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from projections.due_index import DueRow, HeadRow
from projections.rows import AttemptRow, BoardRow, RunRow

OK, FAIL, INFO = "ok", "fail", "info"
"""How a client's call ended: 2xx; an answer that refuses; a cut or time-out: may have happened."""


class Stored(msgspec.Struct, frozen=True, gc=False):
    """E, `events.jsonl`: a row of the events table, with the bytes as they are stored.

    `db_time` is the database clock (ms) at the commit; 0 where the harness did not stamp it, the
    `at` of the event stands for it then.
    """

    shard: int
    position: int
    stream: bytes
    version: int
    name: str
    data: bytes
    db_time: int = 0


class Hit(msgspec.Struct, frozen=True, gc=False):
    """H, `hits.jsonl`: a request (or message) that reached a target of the test.

    `at_us` is its first byte, `answered_us` the end of the answer (0: none was sent whole), with
    `status`. A message that its broker took has status 200. `run` are the 16 bytes of
    `Tocsin-Run-Id`. `tenant` is whose target it is. `headers` are all others, names in lower case.
    """

    at_us: int
    run: bytes
    attempt: int
    fence: int
    key: str
    url: str
    body_sha256: bytes
    status: int = 0
    answered_us: int = 0
    webhook_id: str = ""
    tenant: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    possible_duplicate: bool = False


class Operation(msgspec.Struct, frozen=True, gc=False):
    """C, `clients.jsonl`: one call of the API, from its invocation to its answer.

    `action` is define, revise, pause, resume, cancel, trigger, backfill, redrive, read, list,
    heartbeat, complete or fail. `command` is the `Idempotency-Key` as sent, scoped by tenant and
    job. `body_sha256` is that of the request; `payload_sha256` that of the body that the job's
    fires carry from then on, where the operation says it (define, revise). `version` is the job's
    in the answer. `in_flight` are the runs that the answer names, None where it does not say.
    """

    client: str
    tenant: bytes
    action: str
    invoked_us: int
    returned_us: int
    outcome: Literal["ok", "fail", "info"]
    job: bytes = b""
    status: int = 0
    command: str = ""
    body_sha256: bytes = b""
    payload_sha256: bytes | None = None
    version: int = 0
    min_version: int = 0
    in_flight: tuple[bytes, ...] | None = None


class Fault(msgspec.Struct, frozen=True, gc=False):
    """N, `faults.jsonl`: something that was done to the system, from when to when (ms).

    `kind` is what it takes away: dispatcher, scheduler, postgres, broker, target, network, clock,
    disk, api, clickhouse, projector. `name` is the scenario's word for it, such as F31. A fault of
    a target concerns the jobs named, all where none is.
    """

    kind: str
    name: str
    start: int
    end: int
    jobs: tuple[bytes, ...] = ()
    detail: str = ""


class Slots(msgspec.Struct, frozen=True, gc=False):
    """O, `oracle.jsonl`: the slots of a job's schedule in [since, until] ms, as somebody else says.

    `spec_version` is the version of the job's event that holds the schedule. The checker walks the
    minutes itself for cron of five fields; what is here goes before that.
    """

    job: bytes
    spec_version: int
    since: int
    until: int
    slots: tuple[int, ...]


class HandOff(msgspec.Struct, frozen=True, gc=False):
    """M, `hand_offs.jsonl`: an entry that was published, or claimed from the log directly."""

    at_us: int
    run: bytes
    version: int
    kind: Literal["publish", "claim"] = "publish"


class Text(msgspec.Struct, frozen=True, gc=False):
    """T, `texts.jsonl`: what somebody could read: an answer, a log line, a metric, an error.

    `tenant` is who was shown it, empty for the operator.
    """

    where: str
    text: str
    tenant: bytes = b""


class Sample(msgspec.Struct, frozen=True, gc=False):
    """R, `samples.jsonl`: a resource of a process at an instant (ms)."""

    at: int
    process: str
    resource: str
    value: float


class Due(DueRow, frozen=True, gc=False, tag="due", tag_field="table"):
    """P: a row of `due_index`, without its volatile columns."""


class Head(HeadRow, frozen=True, gc=False, tag="head", tag_field="table"):
    """P: a row of `job_heads`."""


class Board(BoardRow, frozen=True, gc=False, tag="board", tag_field="table"):
    """P: a row of the live job board."""


class Command(msgspec.Struct, frozen=True, gc=False, tag="command", tag_field="table"):
    """P: a row of `commands`."""

    job_id: bytes
    command_id: bytes
    body_hash: bytes
    version: int
    position: int
    at: int


class Session(msgspec.Struct, frozen=True, gc=False, tag="session", tag_field="table"):
    """P: a row of `sessions`, or the last that was seen of one."""

    session_id: bytes
    until: int
    ended: bool


class Standing(msgspec.Struct, frozen=True, gc=False, tag="position", tag_field="table"):
    """P: where a view stands in a shard; `due_index` and `job_heads` always stand at the end."""

    view: str
    shard: int
    position: int


Row = Due | Head | Board | Command | Session | Standing
"""P, `projections.jsonl`: the field `table` says which."""


class Attempt(AttemptRow, frozen=True, gc=False, array_like=False, tag="attempt", tag_field="kept"):
    """Q: an attempt, as the run history has it."""


class Run(RunRow, frozen=True, gc=False, array_like=False, tag="run", tag_field="kept"):
    """Q: a run, or a range of slots that did not fire."""


Kept = Attempt | Run
"""Q, `history.jsonl`: each row once (FINAL); the field `kept` says which."""


class Budget(msgspec.Struct, frozen=True, gc=False):
    """The most that a resource of a process may ever be."""

    resource: str
    most: float
    process: str = ""


class Probe(msgspec.Struct, frozen=True, gc=False):
    """The fresh job after the last heal, which must fire on time (I23)."""

    job: bytes


class Canary(msgspec.Struct, frozen=True, gc=False):
    """A text that only one tenant may ever see (I16)."""

    tenant: bytes
    text: str


class Scenario(msgspec.Struct, frozen=True):
    """`scenario.json`: what the harness knows of the run as a whole. All of it may be left out."""

    name: str = ""
    seed: int = 0
    command: str = ""
    """What reproduces it, in one line."""
    settled_at: int = 0
    """T_quiesce, ms: an occurrence due (with its lateness) by then must have ended. 0: the dump may
    be cut anywhere, and nothing is asked of what is open."""
    ended_at: int = 0
    """T_end, ms: when the dump was taken."""
    quiescent: bool = False
    """All views had the time to reach the head: projections and history are compared whole."""
    early_ms: int = 100
    """S of I10: clocks of host and database may differ by so much."""
    late_ms: int = 2_000
    """B of the lateness allowance."""
    send_ms: int = 6_000
    """G of I8: send deadline and connect timeout."""
    recover_ms: int = 30_000
    """R of I23: from the last heal to everything handled."""
    exact_hits: bool = True
    """H holds every request of every target; else what was not seen is not missed."""
    starts_with_log: bool = True
    """E begins with the installation; a dump of one tenant or from the middle does not."""
    expected: tuple[str, ...] = ()
    """Paths that the run must have taken (names of `report.PATHS`): a zero of one is a failure."""
    counted: dict[str, int] = {}
    """Paths that only the harness sees: fence_refusals, ambiguous_commits."""
    secrets: tuple[str, ...] = ()
    """Texts that may stand nowhere (I22)."""
    canaries: tuple[Canary, ...] = ()
    budgets: tuple[Budget, ...] = ()
    probe: Probe | None = None
    up: bool | None = None
    """All processes were up at the end; None where nobody looked."""


class History(msgspec.Struct):
    """Everything about one run. Any part may be empty; E is what most is judged by."""

    events: Sequence[Stored] = ()
    hits: Sequence[Hit] | None = None
    """None: not recorded, here and below, hence not judged. Empty: recorded, and there were none.
    """
    clients: Sequence[Operation] = ()
    faults: Sequence[Fault] = ()
    oracle: Sequence[Slots] = ()
    projections: Sequence[Row] | None = None
    history: Sequence[Kept] | None = None
    hand_offs: Sequence[HandOff] | None = None
    texts: Sequence[Text] = ()
    samples: Sequence[Sample] = ()
    before: Sequence[Stored] = ()
    """An earlier dump of E, which this one must begin with (I13)."""
    scenario: Scenario = Scenario()


FILES: Final[dict[str, Any]] = {
    "events": Stored,
    "hits": Hit,
    "clients": Operation,
    "faults": Fault,
    "oracle": Slots,
    "projections": Row,
    "history": Kept,
    "hand_offs": HandOff,
    "texts": Text,
    "samples": Sample,
    "before": Stored,
}
"""Field of a History and stem of its file → what a line is."""


def read(folder: Path) -> History:
    """Read the files of a folder; one that is not there is a part that was not recorded.

    Raises ValueError with file and line where a line is not what its file promises.
    """
    found: dict[str, Any] = {}
    for field, kind in FILES.items():
        path = folder / f"{field}.jsonl"
        if path.exists():
            found[field] = _lines(path, kind)
    path = folder / "scenario.json"
    if path.exists():
        found["scenario"] = msgspec.json.decode(path.read_bytes(), type=Scenario)
    return History(**found)


def write(folder: Path, history: History) -> None:
    """Write a history as the files that `read` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    encoder = msgspec.json.Encoder()
    for field in FILES:
        part = getattr(history, field)
        if part is not None:
            (folder / f"{field}.jsonl").write_bytes(encoder.encode_lines(part))
    (folder / "scenario.json").write_bytes(encoder.encode(history.scenario))


_SHARED: Final[dict[Any, str]] = {Stored: "name", Hit: "url"}
"""Texts that are alike in a million lines, and are kept once."""


def _lines(path: Path, kind: Any) -> list[Any]:
    decoder = msgspec.json.Decoder(kind)
    shared = _SHARED.get(kind)
    found = []
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                row = decoder.decode(line)
            except msgspec.DecodeError as error:
                raise ValueError(f"{path.name}:{number}: {error}") from error
            if shared is not None:
                msgspec.structs.force_setattr(row, shared, sys.intern(getattr(row, shared)))
            found.append(row)
    return found
