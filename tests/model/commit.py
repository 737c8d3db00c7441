"""Guards, then all of a decision or none of it; and the ghost record that judges verdicts."""

from tests.model.state import (
    Broken,
    Cfg,
    Decision,
    Job,
    Op,
    Run,
    State,
    begun,
    chain,
    cursor,
    get,
    link,
    put,
    slot_of,
    stream,
)


def commit(c: Cfg, s: State, dec: Decision) -> State | None:
    """Return the state after a decision, None where a guard does not hold."""
    guards, jver, ops, at = dec
    stale = [i for i, v in guards if (get(s, i) or Run(i, 0, "E", 0, 0)).ver != v]
    if c.mut == "guard_only_written":
        written = {o[1] for o in ops if o[0] == "run"}
        stale = [i for i in stale if i in written]
    unguarded = c.mut == "no_job_guard" and not any(o[0] == "job" for o in ops)
    if jver is not None and s.job.ver != jver and not unguarded:
        return None
    if stale and c.mut != "half_decision":
        return None
    if stale and not [o for o in ops if o[0] == "job" or (o[0] == "run" and o[1] not in stale)]:
        return None
    for o in ops:
        s = _apply(c, s, o, (at, stale, ops))
    return s


def _apply(c: Cfg, s: State, o: Op, rest: tuple[int, list[int], tuple[Op, ...]]) -> State:
    at, stale, ops = rest
    if o[0] == "run":
        return s if o[1] in stale else _append(s, o, at)
    if o[0] == "next":
        return _plan(c, s, o, ops)
    if o[0] == "job":
        return _owed(c, s, o[1], at)._replace(job=o[1])
    if o[0] == "through":
        return s._replace(job=s.job._replace(through=o[1]))
    if o[0] == "cu":
        return s._replace(job=s.job._replace(cl=o[1], ch=o[2]))
    if o[0] == "skip":
        return _skip(c, s, *o[1])
    assert o[0] == "spec"
    return s


def _append(s: State, o: Op, at: int) -> State:
    r = get(s, o[1])
    assert r is not None
    if r.st == "E":
        raise Broken("I3 event after the end of run %d" % r.id)
    f = dict(o[2])
    f.setdefault("marked", 0)
    f.setdefault("pub", 0)
    s = put(s, r._replace(ver=r.ver + 1, **f))
    if f.get("st") == "E" and chain(r) and r.att and at < s.now:
        s = s._replace(owed=tuple((k, 0 if k > at else b, z) for k, b, z in s.owed))
    return s


def _plan(c: Cfg, s: State, o: Op, ops: tuple[Op, ...]) -> State:
    """A planned stream is new: nobody looks for one that was withdrawn."""
    _, k, due = o
    spec = s.job.spec if c.mut != "no_job_guard" else decided_spec(ops, s)
    i = k if k >= 100 else stream(c, s.job, k)
    if get(s, i) is not None:
        raise Broken("I9 slot %d cannot be planned: its stream is there" % k)
    if k < 100 and k <= cursor(s) and not runs_ahead(c):
        raise Broken("P14 slot %d is planned at cursor %d" % (k, cursor(s)))
    return put(s, Run(i, 1, "S", due, spec, life=s.job.life))


def runs_ahead(c: Cfg) -> bool:
    """Tell whether the cursor may be past a slot that is still to fire, hence kept in the head."""
    return c.misfire == "all" or "buffer_one" in (c.overlap, *c.overlaps)


def decided_spec(ops: tuple[Op, ...], s: State) -> int:
    """Return the spec that a decision was made with."""
    return next((int(o[1]) for o in ops if o[0] == "spec"), s.job.spec)


def _owed(c: Cfg, s: State, new: Job, at: int) -> State:
    """A command takes effect at its own instant: correct the record of slots passed since."""
    old = s.job
    if at >= s.now or (old.st, old.sch) == (new.st, new.sch):
        return s
    keep = [
        (k, b, int(new.st == "P") if k > at else z)
        for k, b, z in s.owed
        if k <= at or (new.st in "AP" and k in c.sched[new.sch])
    ]
    busy = int(any(link(new, r) and begun(r) for r in s.runs))
    if new.st in "AP":
        have = {x[0] for x in keep}
        slots = [k for k in c.sched[new.sch] if at < k <= s.now and k not in have]
        keep += [(k, busy, int(new.st == "P")) for k in slots]
    return s._replace(owed=tuple(sorted(keep)))


def _skip(c: Cfg, s: State, k: int, verdict: str, why: str) -> State:
    # A frontier cancelled before its instant is no verdict: a later life has the slot anew.
    mine = [r for r in s.runs if chain(r) and slot_of(r) == k and r.st == "E"]
    ended = any(r.life == s.job.life or r.verdict != "cancel" for r in mine)
    if any(k == x for x, _ in s.skips) or (ended and why != "own"):
        raise Broken("I9 two verdicts for slot %d" % k)
    _check_verdict(c, s, k, verdict, why)
    if why == "own":  # an ended run carries its own verdict
        return s
    return s._replace(skips=tuple(sorted((*s.skips, (k, verdict)))))


def _check_verdict(c: Cfg, s: State, k: int, verdict: str, why: str) -> None:
    """The verdict of a passed slot must be what was true when it passed."""
    rec = [x for x in s.owed if x[0] == k]
    if not rec:
        raise Broken("I2 verdict for slot %d, which never was in force" % k)
    _, busy, paused = rec[0]
    if why == "own" or "allow" in (c.overlap, *c.overlaps):
        return
    good = {
        "overlap": busy and not paused,
        "paused": paused,
        "misfire": not busy and not paused,
    }[verdict]
    if not good:
        raise Broken(
            "verdict %s for slot %d is untrue (busy=%d paused=%d)" % (verdict, k, busy, paused)
        )
