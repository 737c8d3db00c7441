"""The lease transaction, and the first lease that is a decision of its own (section 7)."""

from tests.model.commit import commit
from tests.model.rules import catch_up, first_after, settle, through
from tests.model.state import (
    NO,
    Broken,
    Cfg,
    Job,
    Memory,
    Op,
    Run,
    State,
    begun,
    chain,
    cursor,
    get,
    hold,
    put,
    slot_of,
    slots_after,
    stream,
)


def _check_lease(c: Cfg, s: State, r: Run) -> None:
    head = get(s, r.id)
    if head is None or head.ver != r.ver:
        at = (r.id, r.ver + 1, r.ver)
        raise Broken("I13 Leased of run %d at version %d, which has no version %d before it" % at)
    if s.now < r.due or (chain(r) and s.now < slot_of(r)):
        raise Broken("I10 early: run %d leased at %d, due %d" % (r.id, s.now, r.due))
    if s.job.st == "C" or r.life != s.job.life:
        raise Broken("I8 Leased after an acknowledged cancel")
    if s.job.st == "P":
        raise Broken("I8 Leased while paused")
    if r.spec != s.job.spec:
        raise Broken("I8 Leased under spec %d after an edit to %d" % (r.spec, s.job.spec))
    if chain(r) and not any(x[0] == slot_of(r) for x in s.owed):
        raise Broken("I2 phantom: slot %d was not in force when it passed" % slot_of(r))
    if s.job.ov != "allow" and not r.att and any(begun(x) for x in s.runs if x.id != r.id):
        raise Broken("I17 overlap at run %d" % r.id)


def leased(c: Cfg, s: State, r: Run, d: int) -> State:
    """Append Leased for r; dispatcher d now holds it."""
    _check_lease(c, s, r)
    body = r.body if r.att and c.mut != "payload_not_pinned" else r.spec
    n = r._replace(
        ver=r.ver + 1,
        st="L",
        att=r.att + 1,
        fence=r.ver + 1,
        until=s.now + c.lease,
        body=body,
        first=s.now if r.first == NO else r.first,
    )
    return hold(put(s, n), d, ("L", n.id, n.fence, s.now, n.att, body))


def leasable(c: Cfg, s: State, m: tuple[int, int]) -> Run | None:
    """Return the due row at (run, version) if it is ready and due."""
    r = get(s, m[0])
    if r is None:
        if c.mut == "unique_key_only":  # the insert at version + 1 meets no row
            return Run(m[0], m[1], "S", 0, s.job.spec)
        return None
    if r.ver != m[1] and c.mut != "lease_any_version":
        return None
    if r.st != "S" or (r.due > s.now and c.mut != "due_by_local_clock"):
        return None
    return r


def lease_step(c: Cfg, s: State, m: tuple[int, int], d: int) -> State | None:
    """Lease, skip, switch to a newer slot, or leave alone."""
    r = leasable(c, s, m)
    if r is None:
        return None
    # A run that has begun holds its place already: counting again could trap two of them.
    ov = s.job.ov
    busy = ov != "allow" and not r.att and any(begun(x) for x in s.runs if x.id != r.id)
    if busy and c.mut != "no_overlap_check":
        if not chain(r) or ov == "buffer_one":
            return None  # stays scheduled, woken at the other's end
        return _blocked(c, s, r)
    if chain(r) and not r.att and not c.one_time and s.now - r.due > c.grace:
        return _misfire(c, s, r, d)
    if ov == "allow" and chain(r) and not r.att:
        # Decided before its commit, hence guarded.
        return hold(s, d, ("l", r.id, r.ver, s.job.ver, tuple(_follow(c, s, s.job))))
    return leased(c, s, r, d)


def _blocked(c: Cfg, s: State, r: Run) -> State | None:
    """The frontier does not fire, as another run is in flight; the chain goes on after now."""
    ops: list[Op] = [("run", r.id, (("st", "E"), ("verdict", "overlap")))]
    if c.one_time:
        ops += first_after(c, s.job, max(s.job.through, slot_of(r)), s.now)
    else:
        ops += settle(c, s, [x for x in s.runs if x.id != r.id])
        ops += through(c, max(s.now, s.job.through)) + first_after(c, s.job, s.now, s.now)
    return commit(c, s, (((r.id, r.ver),), s.job.ver, tuple(ops), s.now))


def lease_commit(c: Cfg, s: State, mem: Memory, d: int) -> State:
    """Commit a lease that was decided before, or have it refused."""
    _, i, ver, jver, ops = mem
    r = leasable(c, s, (i, ver))
    if r is None or r.ver != ver or s.job.ver != jver:
        return hold(s, d, ("I",))
    after = commit(c, s, ((), jver, ops, s.now))
    assert after is not None
    return leased(c, after, r, d)


def _follow(c: Cfg, s: State, job: Job) -> list[Op]:
    """Allow: the link after the frontier that is being leased now."""
    owed = catch_up(c, job)
    if owed:
        return [("cu", owed[0], job.ch), ("next", owed[0], s.now)]
    end: list[Op] = [("cu", NO, NO)] * (job.ch != NO)
    closed = job._replace(cl=NO, ch=NO)
    return end + first_after(c, closed, cursor(s), s.now)


def _misfire(c: Cfg, s: State, r: Run, d: int) -> State | None:
    """Policy decides which of the missed slots fires, in one append."""
    now, job, own = s.now, s.job, slot_of(r)
    new = [k for k in slots_after(c, job, cursor(s)) if k <= now]
    owed, in_cu = catch_up(c, job), own <= job.ch
    cand = [own] + (owed if in_cu else new)
    go = _goes(c, cand, now)
    later = [k for k in cand if c.misfire == "all" and go is not None and k > go]
    gone = [k for k in [own, *owed, *new] if k != go and k not in later]
    ops: list[Op] = []
    if own != go:
        ops.append(("run", r.id, (("st", "E"), ("verdict", "misfire"))))
        ops.append(("skip", (own, "misfire", "own")))
    ops += [("skip", (k, "misfire", "range")) for k in gone if k != own]
    ops += through(c, max(now, job.through))
    if later:
        # Slots up to the cursor have their verdict.
        ops.append(("cu", go, job.ch) if in_cu else ("cu", max(go or 0, job.through), now))
    elif job.ch != NO:
        ops.append(("cu", NO, NO))
    if go is None:
        ops += first_after(c, job, now, now)
    elif go != own:
        ops.append(("next", go, now))
    after = commit(c, s, (((r.id, r.ver),), job.ver, tuple(ops), now))
    if after is None or go is None:
        return after
    fires = get(after, r.id if go == own else stream(c, job, go))
    assert fires is not None
    if job.ov == "allow":
        after = commit(c, after, ((), after.job.ver, tuple(_follow(c, after, after.job)), now))
        assert after is not None
    return leased(c, after, fires, d)


def _goes(c: Cfg, cand: list[int], now: int) -> int | None:
    inside = [k for k in cand if k >= now - c.window]
    if c.misfire == "skip" or not inside:
        return None
    return inside[-1] if c.misfire == "latest" else inside[0]
