"""What the model's world is made of. Instants are small integers on the database clock.

The stream of a slot is planned under one version of the spec: id = 1000 * spec + slot. Manual runs
are 100, 101, ... Fields marked `ghost` are for the checks only; no rule reads them.
"""

from typing import Any, NamedTuple

NO = -1
Memory = tuple[Any, ...]
"""What a dispatcher holds: `I` idle, `l` a lease decided, `L` leased, `R` to report, `D` decided,
`U` a commit of unknown outcome."""
Op = tuple[Any, ...]
Decision = tuple[tuple[tuple[int, int], ...], int | None, tuple[Op, ...], int]
"""Guards on runs, guard on the job, what is appended, and the instant it was decided at."""


class Broken(Exception):
    """A law is broken by the step being taken."""


class Cfg(NamedTuple):
    """One small world: its job, its faults, and the rule that is broken on purpose."""

    name: str
    overlap: str = "skip"
    """skip, allow or buffer_one"""
    misfire: str = "latest"
    """latest, all or skip"""
    grace: int = 9
    """A first lease later than this is a misfire."""
    window: int = 99
    sched: tuple[tuple[int, ...], ...] = ((1, 3),)
    """Slots of each schedule; an edit moves to another one."""
    edits: tuple[int, ...] = ()
    """Schedule after each edit, in order; the same one is an edit of the payload only."""
    overlaps: tuple[str, ...] = ()
    """Overlap after each edit, in order; empty where no edit changes it."""
    one_time: bool = False
    """Each schedule has one slot, which never passes; the end of the job is implied."""
    T: int = 5
    lease: int = 2
    send: int = 0
    horizon: int = 1
    attempts: int = 2
    lost_max: int = 2
    ndisp: int = 2
    faults: int = 2
    cmds: tuple[str, ...] = ()
    apis: int = 1
    """Commands decided at the same time."""
    outcomes: tuple[str, ...] = ("ok", "fail")
    lease_unknown: bool = False
    archive: bool = False
    auditor: bool = True
    direct: bool = False
    """Leave the hint layer out: each scheduled row can be leased."""
    kinds: tuple[str, ...] = ("lose", "wipe", "crash", "depose", "owner_crash")
    i14: bool = True
    """False: do not check the mark itself, only what follows from it."""
    term_law: bool = True
    """False: do not check the term rule itself, only what follows from it."""
    mut: str = ""


class Run(NamedTuple):
    """A run: S scheduled, L leased, A accepted, W withdrawn, E ended."""

    id: int
    ver: int
    st: str
    due: int
    spec: int
    att: int = 0
    fence: int = 0
    until: int = NO
    body: int = NO
    fails: int = 0
    lost: int = 0
    first: int = NO
    marked: int = 0
    """Volatile."""
    pub: int = 0
    """Ghost: this version has been published."""
    hits: int = 0
    """Ghost: a bit for each attempt on the wire."""
    hb: int = NO
    """Ghost: payload of the first hit."""
    ok: int = 0
    """Ghost: the handler has answered 2xx."""
    verdict: str = ""
    life: int = 1


class Job(NamedTuple):
    """A job's head: A active, P paused, C cancelled, F finished. Written by its own events only."""

    st: str
    ver: int
    spec: int
    sch: int
    through: int
    """Slots up to here have a run or a verdict; open links after it push the cursor further."""
    pat: int = NO
    held: int = NO
    kept: tuple[int, ...] = ()
    """Runs that the pause withdrew or found in flight: where a resume looks."""
    cl: int = NO
    ch: int = NO
    """Open catch-up: the slots in (cl, ch] are still to fire."""
    ov: str = "skip"
    life: int = 1


class State(NamedTuple):
    """Everything there is at one moment."""

    now: int
    job: Job
    runs: tuple[Run, ...]
    kafka: frozenset[tuple[int, int]]
    pend: frozenset[tuple[int, int, int]]
    """Owners between publish and mark."""
    term: int
    disp: tuple[Memory, ...]
    api: tuple[tuple[str, Decision], ...]
    """Commands decided and not yet committed."""
    hand: frozenset[tuple[int, int]]
    """Asynchronous handlers at work."""
    skips: tuple[tuple[int, str], ...]
    owed: tuple[tuple[int, int, int], ...]
    """Ghost: (slot, busy, paused) for each slot that passed while in force."""
    faults: int
    cmds: tuple[str, ...]


def init(c: Cfg) -> State:
    """Return the world after the definition of the job."""
    s0 = c.sched[0][0]
    job = Job("A", 1, 0, 0, 0, ov=c.overlap)
    runs = (Run(s0, 1, "S", s0, 0),)
    empty: frozenset[Any] = frozenset()
    idle = (("I",),) * c.ndisp
    return State(0, job, runs, empty, empty, 1, idle, (), empty, (), (), c.faults, c.cmds)


def get(s: State, i: int) -> Run | None:
    """Return the run with this id, whatever its state."""
    return next((r for r in s.runs if r.id == i), None)


def put(s: State, r: Run) -> State:
    """Return the state with this run in it."""
    return s._replace(runs=tuple(sorted([x for x in s.runs if x.id != r.id] + [r])))


def hold(s: State, d: int, mem: Memory) -> State:
    """Return the state with dispatcher `d` holding `mem`."""
    return s._replace(disp=tuple(sorted((*s.disp[:d], mem, *s.disp[d + 1 :]))))


def slot_of(r: Run) -> int:
    """Return the nominal instant of a link."""
    return r.id % 1000


def stream(c: Cfg, job: Job, k: int) -> int:
    """Return the id of slot `k` as planned now."""
    return k if c.mut == "slot_without_spec" else 1000 * job.spec + k


def chain(r: Run) -> bool:
    """Tell whether the run is a link of the chain."""
    return slot_of(r) < 100


def link(job: Job, r: Run) -> bool:
    """Tell whether the run is a link of the chain of the job's current life."""
    return chain(r) and r.life == job.life


def is_open(r: Run) -> bool:
    """Tell whether the run has a due row."""
    return r.st in "SLA"


def begun(r: Run) -> bool:
    """Tell whether the run has been leased and has not ended."""
    return r.att > 0 and r.st != "E"


def cursor(s: State) -> int:
    """Return max(head, nominal instants of open links): no fire writes the head."""
    links = [slot_of(r) for r in s.runs if link(s.job, r) and (is_open(r) or begun(r))]
    return max([s.job.through, *links])


def slots_after(c: Cfg, job: Job, x: int) -> list[int]:
    """Return the slots of the schedule in force that are later than `x`."""
    return [k for k in c.sched[job.sch] if k > x]


def status(c: Cfg, s: State) -> str:
    """Return the job's state with an implied end seen: a one-time job without an open link."""
    if c.one_time and s.job.st == "A" and not any(link(s.job, r) and is_open(r) for r in s.runs):
        return "F"
    return s.job.st


def readable(s: State) -> list[Run]:
    """Return the runs that a command reads: due rows, and those named by the pause."""
    return [
        r for r in s.runs if is_open(r) or (r.st == "W" and s.job.st == "P" and r.id in s.job.kept)
    ]
