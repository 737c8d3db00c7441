"""The pure deciders: settle, plan, conclude (a report), and the commands."""

from collections.abc import Callable

from tests.model.commit import runs_ahead
from tests.model.state import (
    NO,
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
    is_open,
    link,
    readable,
    slot_of,
    slots_after,
    status,
)


def settle(c: Cfg, s: State, runs: list[Run], own: tuple[int, ...] = ()) -> list[Op]:
    """Close the book of the current schedule up to now: a verdict for each slot passed."""
    job, now = s.job, s.now
    if c.one_time:
        return []
    first = max([r.first for r in runs if link(job, r) and begun(r)] + [NO])
    out: list[Op] = [("skip", (k, "misfire", "range")) for k in catch_up(c, job)]
    out += [("cu", NO, NO)] * (job.ch != NO)
    taken = {slot_of(r) for r in runs if link(job, r) and r.st != "W"}
    for k in slots_after(c, job, cursor(s)):
        if k > now:
            break
        if k in own or k in taken:
            continue
        verdict = "overlap" if first != NO and k > first else "misfire"
        if job.st == "P" and k > job.pat:
            verdict = "paused"
        out.append(("skip", (k, verdict, "range")))
    return out


def catch_up(c: Cfg, job: Job) -> list[int]:
    """Return the missed slots that are still to fire."""
    return [k for k in c.sched[job.sch] if job.cl < k <= job.ch]


def through(c: Cfg, x: int) -> list[Op]:
    """Write the cursor of the head: only where it is ahead of a slot that will still fire."""
    return [("through", x)] if runs_ahead(c) else []


def finish(c: Cfg, job: Job, at: int) -> list[Op]:
    """Return the end of the job; that of a one-time job is implied, so nothing is appended."""
    if c.one_time:
        return []
    done = job._replace(st="F", ver=job.ver + 1, cl=NO, ch=NO, through=max(job.through, at))
    return [("job", done)]


def first_after(c: Cfg, job: Job, x: int, at: int) -> list[Op]:
    """Plan the first slot later than `x`, or finish. One that is past is due now."""
    nx = slots_after(c, job, x)
    return [("next", nx[0], max(nx[0], at))] if nx else finish(c, job, max(x, at))


def plan(c: Cfg, s: State, r: Run) -> list[Op]:
    """The next link after `r`, first leased at L and ended at E (section 7)."""
    job, start, end = s.job, r.first, s.now
    place = max(job.through, slot_of(r))
    if c.mut == "next_from_now":
        return first_after(c, job, end, end)
    if c.one_time:
        return first_after(c, job, place if c.mut != "one_time_passes" else end, end)
    passed = [k for k in slots_after(c, job, place) if k <= end]
    owed, hi, ops = catch_up(c, job), job.ch, list[Op]()
    if c.misfire == "all" and job.ch == NO and passed and passed[0] <= start:
        owed, hi = [k for k in passed if k <= start], start  # one catch-up at a time
        passed = passed[len(owed) :]
    keeps = job.ov == "buffer_one" and not owed
    keep = next((k for k in passed if k > start), None) if keeps else None
    for k in passed:
        if k != keep:
            late = k <= start and c.mut != "all_overlap"
            ops.append(("skip", (k, "misfire" if late else "overlap", "range")))
    ops += through(c, max(end, job.through))
    if owed:
        return [*ops, ("cu", owed[0], hi), ("next", owed[0], end)]
    ops += [("cu", NO, NO)] * (job.ch != NO)
    if keep is not None:
        return [*ops, ("next", keep, end)]
    return ops + first_after(c, job, end, end)


def conclude(c: Cfg, s: State, r: Run, outcome: str) -> Decision | None:
    """What a report (or a lapse: outcome lost) appends. None: nothing to say any more."""
    job, now = s.job, s.now
    if outcome != "ok" and not is_flying(r):
        return None  # a late failure: the lapse has scheduled the retry
    f = _what_follows(c, s, r, outcome)
    worn = r.fails + (outcome == "fail") >= c.attempts or r.lost + (outcome == "lost") > c.lost_max
    if f.get("verdict") == "dead" and not worn:
        raise Broken("I1 run %d dead-lettered with attempts left" % r.id)
    ops: list[Op] = [("run", r.id, tuple(sorted(f.items())))]
    alone = not any(link(job, x) and is_open(x) and x.id != r.id for x in s.runs)
    if f["st"] == "E" and link(job, r) and job.ov != "allow" and job.st == "A" and alone:
        ops += [*plan(c, s, r), ("spec", job.spec)]
    return ((r.id, r.ver),), job.ver, tuple(ops), now


def is_flying(r: Run) -> bool:
    """Tell whether an attempt of the run may be under way."""
    return r.st in "LA"


def _what_follows(c: Cfg, s: State, r: Run, outcome: str) -> dict[str, int | str]:
    job, now = s.job, s.now
    if outcome == "ok":
        return {"st": "E", "verdict": "ok"}
    if outcome == "acc":
        return {"st": "A", "until": min(now + c.lease, c.T)}
    f: dict[str, int | str] = {}
    fails, lost = r.fails + (outcome == "fail"), r.lost + (outcome == "lost")
    if outcome == "fail":
        f["fails"] = fails
    if outcome == "lost":
        f["lost"] = lost
    if c.mut == "reclaim_keeps_attempt" and outcome == "lost":
        f["att"] = r.att - 1
    worn = outcome == "lost" and lost > c.lost_max and c.mut != "lost_unbounded"
    if (outcome == "fail" and fails >= c.attempts) or worn:
        return f | {"st": "E", "verdict": "dead"}
    over = job.st == "C" or (r.life != job.life and c.mut != "retry_old_life")
    if over and c.mut != "retry_after_cancel":
        return f | {"st": "E", "verdict": "cancel"}
    if job.st == "P":
        return f | {"st": "W"}
    due = now if outcome != "fail" else min(now + 1, c.T)
    return f | {"st": "S", "due": due, "spec": job.spec if c.mut != "retry_old_spec" else r.spec}


def close_held(c: Cfg, s: State, held: list[Run]) -> list[Op]:
    """Verdicts up to now for a paused job: its withheld occurrence if that has passed, ranges."""
    late = [r for r in held if slot_of(r) <= s.now and not c.one_time]
    ops: list[Op] = []
    for r in late:
        ops.append(("run", r.id, (("st", "E"), ("verdict", "paused"))))
        ops.append(("skip", (slot_of(r), "paused", "own")))
    return ops + settle(c, s, readable(s), tuple(slot_of(r) for r in late))


def reads(runs: list[Run]) -> tuple[tuple[int, int], ...]:
    """Return the guards on the runs that a command has read."""
    return tuple((r.id, r.ver) for r in runs)


class Command:
    """A command while it is decided: what it reads, and the frontier in its two forms."""

    def __init__(self, c: Cfg, s: State) -> None:
        self.c, self.s, self.now, self.job = c, s, s.now, s.job
        self.st = status(c, s)
        self.alive = readable(s)
        self.idle = [r for r in self.alive if r.st == "S"]
        self.held = [r for r in self.alive if r.id == self.job.held]
        self.front = [r for r in self.idle if link(self.job, r) and not r.att]

    def settled(self) -> int:
        """Return the cursor after settling; a withdrawn or cancelled frontier gives it back."""
        place = cursor(self.s)
        waits = bool(self.front or self.held)
        if self.st == "F":
            return max(place, self.now)
        if self.c.one_time:
            return min(place, self.now) if waits else place
        return self.now if waits else max(place, self.now)

    def decide(self, cmd: str) -> Decision | str | None:
        """Return what the command appends, `replay` for a repeat, None where it is refused."""
        commands: dict[str, Callable[[], list[Op] | str | None]] = {
            "cancel": self.cancel,
            "define": self.define,
            "edit": self.edit,
            "pause": self.pause,
            "resume": self.resume,
            "trigger": self.trigger,
        }
        ops = commands[cmd]()
        if ops is None or isinstance(ops, str):
            return ops
        return reads(self.alive), self.job.ver, tuple(ops), self.now

    def cancel(self) -> list[Op] | None:
        """Tombstone: every run that is not in flight ends."""
        if self.st == "C":
            return None
        job = self.job._replace(st="C", ver=self.job.ver + 1, through=self.settled())
        own = tuple(slot_of(r) for r in self.held)
        ops: list[Op] = [("job", job)]
        ops += settle(self.c, self.s, self.alive, own) if self.st != "F" else []
        if self.c.mut != "cancel_no_reappend":
            ops += [
                ("run", r.id, (("st", "E"), ("verdict", "cancel")))
                for r in self.alive
                if r.st == "S" or (r.st == "W" and (r.att or not chain(r) or r in self.held))
            ]
        return ops

    def pause(self) -> list[Op] | None:
        """Withdraw what waits, and remember it with what is in flight."""
        if self.st != "A":
            return None
        kept = tuple(r.id for r in self.alive if r.st == "S" or self.c.mut != "pause_forgets")
        job = self.job._replace(
            st="P",
            ver=self.job.ver + 1,
            pat=self.now,
            held=self.front[0].id if self.front else NO,
            kept=kept,
            through=self.settled(),
        )
        settles = self.c.mut != "pause_no_settle"
        ops: list[Op] = [("job", job)]
        ops += settle(self.c, self.s, self.alive) if settles else []
        if self.c.mut != "pause_no_withdraw":
            ops += [("run", r.id, (("st", "W"),)) for r in self.idle]
        return ops

    def resume(self) -> list[Op] | None:
        """Begun and manual runs are due now; the chain goes on after now."""
        if self.st != "P":
            return None
        c, s, now, job = self.c, self.s, self.now, self.job
        new = job._replace(
            st="A", ver=job.ver + 1, pat=NO, held=NO, kept=(), through=self.settled()
        )
        ops: list[Op] = [("job", new)]
        ops += close_held(c, s, self.held) if c.mut != "resume_forgets" else []
        back = (("due", now), ("spec", job.spec), ("st", "S"))
        ops += [("run", r.id, back) for r in self.alive if r.st == "W" and (r.att or not chain(r))]
        waits = [r for r in self.held if slot_of(r) > now or c.one_time]
        if waits:
            due = max(slot_of(waits[0]), now)
            return [*ops, ("run", waits[0].id, (("due", due), ("spec", job.spec), ("st", "S")))]
        if job.ov != "allow" and any(link(job, r) and begun(r) for r in self.alive):
            return ops
        skips_one = c.mut == "resume_forgets"
        after = new.through if c.one_time else now + skips_one
        return ops + first_after(c, new, after, now)

    def edit(self) -> list[Op] | None:
        """Planned again under the new spec; a future frontier goes where the schedule says."""
        if self.st not in "APF" or (self.st == "F" and not self.c.one_time):
            return None
        c, now, job = self.c, self.now, self.job
        turn = len(c.edits) - self.s.cmds.count("edit")
        sch, ov = c.edits[turn], c.overlaps[turn] if c.overlaps else job.ov
        moved = sch != job.sch
        lacks = self._lacks_frontier(ov)
        if c.one_time and moved and c.sched[sch][0] <= now:
            return None
        place = max(self.settled(), now) if moved or lacks else job.through
        new = job._replace(
            spec=job.spec + 1,
            sch=sch,
            ov=ov,
            ver=job.ver + 1,
            held=NO if moved else job.held,
            through=place,
        )
        ops: list[Op] = [("job", new)]
        ops += self._settle_edit() if moved or lacks else []
        for r in self.idle:
            ops += self._replan(r, new, moved=moved)
        if (self.st == "F" and moved) or lacks:
            ops += first_after(c, new, place, now)
        return ops

    def _lacks_frontier(self, ov: str) -> bool:
        """P12: an edit to allow while a run is in flight plans the link that no end will plan."""
        if self.c.mut == "edit_overlap_plans_nothing":
            return False
        return self.st == "A" and ov == "allow" != self.job.ov and not self.front

    def define(self) -> list[Op] | None:
        """The next life of a cancelled job: it begins after now, and knows no run of before."""
        if self.st != "C":
            return None
        c, job, now = self.c, self.job, self.now
        place = max(job.through, now)
        new = job._replace(
            st="A", ver=job.ver + 1, spec=job.spec + 1, life=job.life + 1, through=place
        )
        return [("job", new), *first_after(c, new, place, now)]

    def _settle_edit(self) -> list[Op]:
        if self.st == "F":
            return []
        return close_held(self.c, self.s, self.held)

    def _replan(self, r: Run, new: Job, *, moved: bool) -> list[Op]:
        c, now = self.c, self.now
        if moved and r in self.front and slot_of(r) > now:
            nx = slots_after(c, new, now)
            if not nx or nx[0] != slot_of(r):
                how: tuple[tuple[str, str], ...] = (("st", "W"),)
                if c.mut == "supersede_ends":
                    how = (("st", "E"), ("verdict", "superseded"))
                return [("run", r.id, how), *first_after(c, new, now, now)]
        if c.mut == "edit_no_bump":
            return []
        return [("run", r.id, (("spec", new.spec), ("st", "S")))]

    def trigger(self) -> list[Op] | str | None:
        """A manual run, due now; its id comes from the command."""
        if self.st not in "AF":
            return None
        if get(self.s, 100):
            return "replay"
        c, job = self.c, self.job
        busy = any(begun(r) for r in self.alive)
        if job.ov != "allow" and busy and c.mut != "no_overlap_check":
            return None
        ops: list[Op] = [("next", 100, self.now)]
        if c.mut != "trigger_no_job_event":
            ops.insert(0, ("job", job._replace(ver=job.ver + 1)))
        return ops
