"""Every action of the world: one transaction, one send, or one fault."""

from collections.abc import Iterator

from tests.model.commit import commit
from tests.model.lease import lease_commit, lease_step
from tests.model.rules import Command, conclude, is_flying
from tests.model.state import (
    Broken,
    Cfg,
    Decision,
    Memory,
    Run,
    State,
    begun,
    get,
    hold,
    link,
    put,
)

Step = tuple[str, int, State]
"""Label, whether it is a fault, and the state after it."""


def steps(c: Cfg, s: State) -> Iterator[Step]:
    """Yield all that can happen next."""
    if s.now < c.T:
        yield _tick(c, s)
    yield from _scheduler(c, s)
    seen: set[Memory] = set()
    for d, mem in enumerate(s.disp):
        if mem not in seen:
            seen.add(mem)
            yield from _dispatcher(c, s, d, mem)
    yield from _handlers(c, s)
    yield from _commands(c, s)
    if c.archive:  # ended runs leave the log; late messages stay
        for r in s.runs:
            if r.st == "E" and s.job.st != "A":
                left = tuple(x for x in s.runs if x.id != r.id)
                yield "archive %d" % r.id, 0, s._replace(runs=left)
    if s.faults and s.now + c.lease < c.T:  # only while there is time left to recover
        yield from _faults(c, s)


def _tick(c: Cfg, s: State) -> Step:
    t, owed = s.now + 1, s.owed
    if s.job.st in "AP" and t in c.sched[s.job.sch]:
        busy = any(link(s.job, r) and begun(r) for r in s.runs)
        owed = tuple(sorted((*owed, (t, int(busy), int(s.job.st == "P")))))
    return "tick", 0, s._replace(now=t, owed=owed)


def _scheduler(c: Cfg, s: State) -> Iterator[Step]:
    """Publish, then mark; the auditor hands off again, and lapses leases that are over."""
    for r in s.runs:
        p = (r.id, r.ver, s.term)
        soon = r.st == "S" and r.due <= s.now + c.horizon
        if soon and not c.direct and not r.marked and p not in s.pend:
            if c.mut == "mark_before_publish":
                yield "mark", 0, put(s, r._replace(marked=1))._replace(pend=s.pend | {p})
            else:
                after = put(s, r._replace(pub=1))
                after = after._replace(pend=s.pend | {p}, kafka=s.kafka | {p[:2]})
                yield "publish %d v%d" % p[:2], 0, after
        if c.auditor and c.mut != "no_auditor":
            yield from _audit(c, s, r)
    for p in s.pend:
        yield _second_step(c, s, p)


def _audit(c: Cfg, s: State, r: Run) -> Iterator[Step]:
    now = s.now
    if r.st == "S" and r.marked and now > r.due and (r.id, r.ver) not in s.kafka:
        again = put(s, r._replace(pub=1))._replace(kafka=s.kafka | {(r.id, r.ver)})
        yield "auditor hands %d v%d off again" % (r.id, r.ver), 0, again
    early = c.mut == "lease_by_local_clock"
    if is_flying(r) and (now >= r.until or early):
        if now < r.until and now < c.T:
            raise Broken("I5 reclaimed at %d, lease ends at %d" % (now, r.until))
        dec = conclude(c, s, r, "lost")
        assert dec is not None
        n = commit(c, s, dec)
        if n is not None:
            yield "auditor: lease of %d lapsed" % r.id, 0, n


def _second_step(c: Cfg, s: State, p: tuple[int, int, int]) -> Step:
    r, q = get(s, p[0]), s._replace(pend=s.pend - {p})
    if c.mut == "mark_before_publish":
        if r:
            q = put(q, r._replace(pub=int(r.ver == p[1])))
        return "publish after mark", 0, q._replace(kafka=s.kafka | {p[:2]})
    if p[2] == s.term or c.mut == "term_not_checked":
        current = r is not None and (r.ver == p[1] or c.mut == "mark_ignores_version")
        if r is not None and current and r.st == "S":
            if p[2] != s.term and c.term_law:
                raise Broken("term: a deposed owner wrote a mark")
            return "mark %d v%d" % p[:2], 0, put(q, r._replace(marked=1))
    return "mark of %d v%d refused" % p[:2], 0, q


def _handlers(c: Cfg, s: State) -> Iterator[Step]:
    """Asynchronous handlers, through the API."""
    now = s.now
    for tok in s.hand:
        r, q = get(s, tok[0]), s._replace(hand=s.hand - {tok})
        if r is None or r.st == "E" or (r.fence != tok[1] and c.mut != "async_no_fence"):
            yield "completion refused", 0, q
            continue
        if r.fence != tok[1]:
            raise Broken("I5 completion with fence %d, a later Leased has %d" % (tok[1], r.fence))
        dec = conclude(c, s, r, "ok")
        assert dec is not None
        n = commit(c, put(q, r._replace(ok=1)), dec)
        if n is not None:
            yield "handler completes %d" % r.id, 0, n
        if r.st == "A" and r.until < now + c.lease and now < c.T - c.lease:
            beat = put(s, r._replace(ver=r.ver + 1, until=now + c.lease))
            yield "heartbeat %d" % r.id, 0, beat


def _commands(c: Cfg, s: State) -> Iterator[Step]:
    for n, (cmd, dec) in enumerate(s.api):
        q = s._replace(api=s.api[:n] + s.api[n + 1 :])
        i = q.cmds.index(cmd)
        after = commit(c, q._replace(cmds=q.cmds[:i] + q.cmds[i + 1 :]), dec)
        yield "{} {}".format(cmd, "committed" if after else "raced, decides again"), 0, after or q
        if after and s.faults and cmd == "trigger":
            lost = after._replace(cmds=q.cmds, faults=s.faults - 1)
            yield f"{cmd} committed, reply lost", 1, lost
    if len(s.api) >= c.apis:
        return
    busy = [a for a, _ in s.api]
    for cmd in sorted(set(s.cmds)):
        if cmd not in busy:
            yield from _decided(c, s, cmd)


def _decided(c: Cfg, s: State, cmd: str) -> Iterator[Step]:
    command = Command(c, s)
    dec = command.decide(cmd)
    i = s.cmds.index(cmd)
    if dec == "replay":
        if c.mut != "trigger_id_from_clock":
            rest = s.cmds[:i] + s.cmds[i + 1 :]
            yield "trigger replayed", 0, s._replace(cmds=rest)
        elif not get(s, 101):  # the repeat gets a new id
            bump = ("job", s.job._replace(ver=s.job.ver + 1))
            guards = tuple((r.id, r.ver) for r in command.alive)
            again: Decision = guards, s.job.ver, (bump, ("next", 101, s.now)), s.now
            yield "trigger decided again", 0, _held(s, cmd, again)
    elif isinstance(dec, tuple):
        yield f"{cmd} decided", 0, _held(s, cmd, dec)


def _held(s: State, cmd: str, dec: Decision) -> State:
    return s._replace(api=tuple(sorted((*s.api, (cmd, dec)))))


def _faults(c: Cfg, s: State) -> Iterator[Step]:
    q = s._replace(faults=s.faults - 1)
    if "wipe" in c.kinds and len(s.kafka) > 1:
        yield "WIPE", 1, q._replace(kafka=frozenset())
    if "lose" in c.kinds:
        for m in s.kafka:
            yield "LOSE %d v%d" % m, 1, q._replace(kafka=s.kafka - {m})
    if "crash" in c.kinds:
        for d, mem in enumerate(s.disp):
            if mem[0] != "I":
                yield f"DISPATCHER DIES holding {mem[:3]}", 1, hold(q, d, ("I",))
    if "owner_crash" in c.kinds:
        for p in s.pend:
            yield "OWNER DIES before its second step", 1, q._replace(pend=s.pend - {p})
    if "depose" in c.kinds and s.pend:
        yield "DEPOSED", 1, q._replace(term=s.term + 1)
    for tok in s.hand:
        yield "HANDLER DIES", 1, q._replace(hand=s.hand - {tok})


def _dispatcher(c: Cfg, s: State, d: int, mem: Memory) -> Iterator[Step]:
    match mem[0]:
        case "I":
            yield from _idle(c, s, d)
        case "U":
            yield _read_back(c, s, d, mem)
        case "l":
            label = "lease %d commits or is refused" % mem[1]
            yield label, 0, lease_commit(c, s, mem, d)
        case "L":
            yield from _send(c, s, d, mem)
        case "R":
            yield _report(c, s, d, mem)
        case "D":
            yield _conclude(c, s, d, mem)


def _idle(c: Cfg, s: State, d: int) -> Iterator[Step]:
    ready = [(r.id, r.ver) for r in s.runs if r.st == "S"]
    for m in ready if c.direct else s.kafka:
        n = lease_step(c, s, m, d)
        if n is None:
            continue
        yield "lease %d v%d" % m, 0, n
        if c.lease_unknown and s.faults and s.now + c.lease < c.T:
            q = s._replace(faults=s.faults - 1)
            n2 = lease_step(c, q, m, d)
            assert n2 is not None
            new = set(n2.disp) - set(q.disp)
            if len(new) == 1:
                mine = new.pop()
                at = n2.disp.index(mine)
                yield "lease committed, reply lost", 1, hold(n2, at, ("U", mine))
                yield "lease lost before commit", 1, hold(q, d, ("U", ("N", *m)))


def _read_back(c: Cfg, s: State, d: int, mem: Memory) -> Step:
    """By (run, version) and nonce."""
    if mem[1][0] == "L":
        return "read back: mine", 0, hold(s, d, mem[1])
    r = get(s, mem[1][1])
    if c.mut == "readback_any" and r and r.st == "L" and r.fence == mem[1][2] + 1:
        taken = ("L", r.id, r.fence, s.now, r.att, r.body)
        return "read back: taken for mine", 0, hold(s, d, taken)
    return "read back: not mine", 0, hold(s, d, ("I",))


def _send(c: Cfg, s: State, d: int, mem: Memory) -> Iterator[Step]:
    _, i, fence, t, att, body = mem
    if s.now - t > c.send and c.mut != "no_send_deadline":
        yield "too late to send %d" % i, 0, hold(s, d, ("R", i, fence, "aband"))
        return
    r = get(s, i)
    if r is None or r.fence != fence or r.st != "L":
        raise Broken("I8b request sent under a superseded lease of run %d" % i)
    if r.hits >> att & 1:
        raise Broken("I6 two requests for attempt %d of run %d" % (att, i))
    if r.hb not in (-1, body):
        raise Broken("I4 attempts of run %d carry different payloads" % i)
    for o in c.outcomes:
        hit = r._replace(hits=r.hits | 1 << att, hb=body, ok=int(r.ok or o == "ok"))
        q = put(s, hit)
        if o == "acc":
            q = q._replace(hand=s.hand | {(i, fence)})
        yield "send %d attempt %d: %s" % (i, att, o), 0, hold(q, d, ("R", i, fence, o))


def _report(c: Cfg, s: State, d: int, mem: Memory) -> Step:
    _, i, fence, o = mem
    r = get(s, i)
    if r is None or r.st == "E" or (r.fence != fence and c.mut != "no_fence"):
        return "report on %d refused" % i, 0, hold(s, d, ("I",))
    dec = conclude(c, s, r, o)
    if dec is None:
        return "late failure of %d dropped" % i, 0, hold(s, d, ("I",))
    return "report on %d decided" % i, 0, hold(s, d, ("D", i, fence, o, dec))


def _conclude(c: Cfg, s: State, d: int, mem: Memory) -> Step:
    _, i, fence, o, dec = mem
    if c.mut == "next_separate" and len(dec[2]) > 1:
        later = ((), dec[1], dec[2][1:], dec[3])
        n = commit(c, s, (dec[0], dec[1], dec[2][:1], dec[3]))
        mine = ("D", i, fence, o, later)
        return "Completed alone", 0, hold(n, d, mine) if n else hold(s, d, ("R", i, fence, o))
    r, n = get(s, i), commit(c, s, dec)
    if n is None or r is None:
        return "report on %d raced, decides again" % i, 0, hold(s, d, ("R", i, fence, o))
    if r.fence != fence:
        raise Broken("I5 report with fence %d, a later Leased has %d" % (fence, r.fence))
    if o == "ok" and not r.ok:
        raise Broken("I1 Completed without a 2xx")
    return "report on %d: %s" % (i, o), 0, hold(n, d, ("I",))
