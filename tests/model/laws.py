"""The laws of states, and what can be left out of a state without changing what follows."""

from tests.model.state import (
    NO,
    Broken,
    Cfg,
    Memory,
    Run,
    State,
    chain,
    cursor,
    is_open,
    slot_of,
    status,
)

UNREDUCED = {
    "no_fence",
    "lease_any_version",
    "unique_key_only",
    "mark_ignores_version",
    "term_not_checked",
    "mark_before_publish",
    "no_send_deadline",
    "half_decision",
    "guard_only_written",
    "no_job_guard",
    "next_separate",
    "readback_any",
}
"""Broken rules under which what is spent can come back."""


def canon(c: Cfg, s: State) -> State:
    """Drop what can no longer change anything: stale messages, refused reports, spent fields."""
    runs = tuple(_spent(r) for r in s.runs)
    ended = {r.id for r in runs if r.st == "E"}
    said = {k for k, _ in s.skips} | {slot_of(r) for r in runs if r.st == "E" and chain(r)}
    owed = tuple((k, 0, 0) if k in said else (k, b, p) for k, b, p in s.owed)
    s = s._replace(runs=runs, owed=owed)
    if c.mut in UNREDUCED:
        return s
    ver = {r.id: r.ver for r in runs}
    fence = {r.id: r.fence for r in runs}
    kafka = s.kafka
    if not c.archive:
        kafka = frozenset(m for m in kafka if ver.get(m[0]) == m[1])
    pend = frozenset(p for p in s.pend if ver.get(p[0]) == p[1] and p[2] == s.term)
    disp = tuple(sorted(_memory(c, s, m, (ver, fence, ended)) for m in s.disp))
    api = tuple(
        a for a in s.api if a[1][1] == s.job.ver and all(ver.get(i) == v for i, v in a[1][0])
    )
    hand = s.hand
    if c.mut != "async_no_fence":
        hand = frozenset(t for t in hand if t[0] not in ended and fence.get(t[0]) == t[1])
    return s._replace(kafka=kafka, pend=pend, disp=disp, api=api, hand=hand)


def _spent(r: Run) -> Run:
    if r.st == "E":
        return Run(r.id, 0, "E", 0, 0, verdict=r.verdict, life=r.life)
    if r.st in "LA":
        return r._replace(due=0, marked=0, pub=0)
    if r.st == "W":
        return r._replace(until=NO, marked=0, pub=0)
    return r._replace(until=NO)


def _memory(
    c: Cfg, s: State, m: Memory, known: tuple[dict[int, int], dict[int, int], set[int]]
) -> Memory:
    ver, fence, ended = known
    if m[0] == "L" and s.now - m[3] > c.send:
        m = ("R", m[1], m[2], "aband")
    if m[0] == "D" and (s.job.ver != m[4][1] or any(ver.get(i) != v for i, v in m[4][0])):
        m = ("R", *m[1:4])
    if m[0] == "R" and (m[1] in ended or fence.get(m[1]) != m[2]):
        return ("I",)
    if m[0] == "l" and (ver.get(m[1]) != m[2] or s.job.ver != m[3]):
        return ("I",)
    return m


def check(c: Cfg, s: State) -> None:
    """Raise Broken for a state that no rule allows."""
    links = [r for r in s.runs if chain(r)]
    if status(c, s) == "A":
        mine = [r for r in links if r.life == s.job.life]
        waiting = [r for r in mine if r.st == "S" and not r.att]
        front = waiting if s.job.ov == "allow" else [r for r in mine if is_open(r)]
        # Runs that were begun before an edit ended their overlap may still be there.
        most = 9 if c.overlaps else 1
        if not 1 <= len(front) <= most or len(waiting) > 1:
            raise Broken("I9 active job with %d open next occurrences" % len(front))
    for r in s.runs:
        if c.i14 and r.st == "S" and r.marked and not r.pub:
            at = (r.id, r.ver)
            raise Broken("I14 run %d v%d is marked handed off and was never published" % at)
        if r.fails > c.attempts or r.lost > c.lost_max + 1:
            raise Broken("attempts of run %d are not bounded" % r.id)
    if sum(1 for r in s.runs if not chain(r)) > c.cmds.count("trigger"):
        raise Broken("I19 one trigger command created two runs")
    if c.one_time:
        _check_once(c, s, links)
    else:
        _check_ledger(c, s, links)


def _check_ledger(c: Cfg, s: State, links: list[Run]) -> None:
    job, place = s.job, cursor(s)
    for k, _, _ in s.owed:
        mine = [r for r in links if slot_of(r) == k and not _given_back(s, r)]
        n = sum(1 for x, _ in s.skips if x == k) + sum(1 for r in mine if r.st == "E")
        if n > 1:
            raise Broken("I9 slot %d has %d verdicts" % (k, n))
        missed = not n and k <= place and all(r.st == "W" for r in mine)
        if missed and job.st in "AF" and not c.archive and not job.cl < k <= job.ch:
            raise Broken("I9 slot %d passed without a run or a verdict" % k)


def _given_back(s: State, r: Run) -> bool:
    """Tell whether a frontier of an earlier life was cancelled, so that its slot is free again."""
    later = (x for x in s.runs if x.life > r.life and slot_of(x) == slot_of(r) and chain(x))
    return r.verdict == "cancel" and any(later)


def _check_once(c: Cfg, s: State, links: list[Run]) -> None:
    """The end of the only link implies the job's: then nothing that was asked for is left."""
    k = c.sched[s.job.sch][0]
    ended = [r for r in links if slot_of(r) == k and r.st == "E"]
    if s.job.st == "A" and status(c, s) == "F" and not ended:
        raise Broken("one-time: the occurrence at %d is lost" % k)


def goal(c: Cfg, s: State) -> bool:
    """Tell whether nothing is left to do: each slot that passed in force has its one verdict."""
    if status(c, s) == "A":
        return False
    for r in s.runs:
        if r.st in "SLA" or (r.st == "W" and r.att and s.job.st != "P"):
            return False
    if s.job.st == "P" or c.one_time:
        return True
    said = {k for k, _ in s.skips} | {slot_of(r) for r in s.runs if r.st == "E" and chain(r)}
    known = {slot_of(r) for r in s.runs if chain(r)}
    return all(k in said or (c.archive and k not in known) for k, _, _ in s.owed)
