"""Random commands, leases, reports and hours on one job: what holds whatever happens (§14)."""

from collections import Counter
from typing import Final

from hypothesis import HealthCheck, Phase, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from domain import chain
from domain.envelope import Decision
from domain.idempotency import manual_suffix
from domain.ids import BACKFILL, OWN_KEY, SLOT
from domain.instant import LAST
from domain.job import events as je
from domain.job import state as js
from domain.run import events as re
from domain.run import state as rs
from domain.run.backfill import is_current
from domain.run.decide import ABANDONED
from domain.schedule.schedule import OneTime, plan
from tests.domain.protocol.scene import (
    FAILED,
    GONE,
    MINUTE,
    OK,
    SECOND,
    START,
    Desk,
    cron,
    once,
    spec,
)

END_OF_TIME: Final = LAST - LAST % MINUTE - 20 * MINUTE
"""So near to the last instant that a schedule runs out of slots."""
SCHEDULES: Final = [cron(t) for t in ("* * * * *", "*/2 * * * *", "*/3 * * * *", "5 * * * *")]
STEPS: Final = st.sampled_from(
    (1, SECOND, 7 * SECOND, 20 * SECOND, MINUTE, 61 * SECOND, 3 * MINUTE, 61 * MINUTE)
)
RESULTS: Final = st.sampled_from((OK, OK, OK, FAILED, FAILED, ABANDONED, GONE))

recurring = st.builds(
    spec,
    st.sampled_from(SCHEDULES),
    overlap=st.sampled_from(
        (je.SKIP, je.SKIP, je.ALLOW, je.BUFFER_ONE, je.BUFFER_ALL, je.CANCEL_OTHER)
    ),
    overlap_limit=st.sampled_from((1, 2, 3)),
    misfire=st.sampled_from((je.LATEST, je.LATEST, je.ALL, je.ALL, je.NONE)),
    catch_up_window_ms=st.sampled_from((0, 0, 5 * MINUTE)),
    max_lateness_ms=st.sampled_from((0, 0, 0, 90 * SECOND)),
    jitter_ms=st.sampled_from((0, 0, 20 * SECOND)),
    payload=st.sampled_from((b"one", b"two")),
)


class JobMachine(RuleBasedStateMachine):
    """One job and its runs, from its first definition on."""

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk()
        self.attempts: list[rs.InFlight] = []
        self.pending: list[Decision] = []
        self.owed: dict[int, tuple[bool, bool]] = {}
        """Slots that passed while in force: was a link in flight then, was the job paused?"""
        self.judged = 0
        self.cursor = 0
        self.plain = True
        """Verdicts can be held against `owed`: at most one run at a time, no jitter."""

    def advance(self, until: int) -> None:
        job = self.desk.job
        if isinstance(job, js.Active | js.Paused) and not job.facts.spec.is_one_time:
            busy = bool(chain.begun_links(job, self.desk.runs()))
            slots = plan(job.facts.spec.schedule)
            slot = slots.next_after(self.desk.now)
            while slot is not None and slot <= until:
                self.owed[slot] = (busy, isinstance(job, js.Paused))
                slot = slots.next_after(slot)
        self.desk.now = until

    @rule(ms=STEPS)
    def tick(self, ms: int) -> None:
        self.advance(min(self.desk.now + ms, LAST))

    @precondition(lambda self: self.desk.due)
    @rule(data=st.data())
    def wait_for_a_run(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from(sorted(self.desk.due.values(), key=_by_id)))
        at = run.facts.due_at if isinstance(run, rs.Ready) else run.until
        self.advance(max(at, self.desk.now))

    @initialize(new=recurring, late=st.booleans())
    def start(self, new: je.JobSpec, late: bool) -> None:
        self.desk.now = END_OF_TIME if late else START
        self.note(new)
        self.desk.define(new)

    def note(self, new: je.JobSpec) -> None:
        self.plain &= new.overlap in (je.SKIP, je.BUFFER_ONE) and new.jitter_ms == 0

    @precondition(lambda self: isinstance(self.desk.job, js.Cancelled))
    @rule(new=recurring)
    def define_again(self, new: je.JobSpec) -> None:
        self.note(new)
        self.desk.define(new)

    @rule(new=recurring)
    def revise(self, new: je.JobSpec) -> None:
        self.note(new)
        self.desk.revise(new)

    @rule(ms=STEPS, overlap=st.sampled_from((je.SKIP, je.ALLOW)))
    def revise_to_one_time(self, ms: int, overlap: int) -> None:
        at = self.desk.now + ms
        if at < LAST:
            new = once(at, overlap=overlap)
            self.note(new)
            self.desk.revise(new)

    @rule()
    def pause(self) -> None:
        self.desk.pause()

    @rule(catch_up=st.sampled_from(("", "none", "latest", "all")))
    def resume(self, catch_up: str) -> None:
        self.desk.resume(catch_up)

    @rule(rare=st.integers(0, 5))
    def cancel(self, rare: int) -> None:
        assume(rare == 0)
        self.desk.cancel()
        assert self.desk.cancel() is None, "done already"

    @rule(allow=st.booleans())
    def trigger(self, allow: bool) -> None:
        self.desk.trigger(allow_overlap=allow)

    @rule(back=STEPS, ahead=STEPS, rerun=st.booleans())
    def backfill(self, back: int, ahead: int, rerun: bool) -> None:
        since = max(START, self.desk.now - back)
        self.desk.backfill(since, min(since + ahead, self.desk.now), rerun=rerun)

    @precondition(lambda self: self.desk.dead())
    @rule(data=st.data(), per_second=st.sampled_from((0, 1, 10)))
    def redrive(self, data: st.DataObject, per_second: int) -> None:
        dead = data.draw(st.lists(st.sampled_from(self.desk.dead()), min_size=1, unique=True))
        self.desk.redrive(*dead, per_second=per_second)

    @precondition(lambda self: self.desk.due)
    @rule(data=st.data())
    def lease(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from(sorted(self.desk.due.values(), key=_by_id)))
        self.leased(self.desk.lease(run))

    @precondition(lambda self: self.desk.due)
    @rule(late=STEPS, long=STEPS, result=RESULTS, turns=st.integers(1, 4))
    def take_turns(self, late: int, long: int, result: object, turns: int) -> None:
        """Lease what is due first, some time late, and report it some time later."""
        assert isinstance(result, type(OK))
        for _ in range(turns):
            ready = [r for r in self.desk.due.values() if isinstance(r, rs.Ready)]
            if not ready:
                return
            run = min(ready, key=lambda r: (r.facts.due_at, r.facts.run_id))
            self.advance(min(max(self.desk.now, run.facts.due_at + late), LAST))
            leased = self.desk.lease(run)
            self.leased(leased)
            if leased is not None:
                self.advance(min(self.desk.now + long, LAST))
                self.desk.report(leased, result)
            self.no_slot_has_two_verdicts()

    def leased(self, run: rs.InFlight | None) -> None:
        if run is None:
            return
        job, facts = self.desk.head(), run.facts
        assert isinstance(job, js.Active | js.Finished), "P6"
        assert facts.spec_version == job.facts.spec_version, "P6"
        assert self.desk.now >= facts.due_at >= facts.nominal, "P9"
        pairs = {(r.facts.run_id, r.facts.attempt) for r in self.attempts}
        assert (facts.run_id, facts.attempt) not in pairs, "P10"
        self.attempts.append(run)

    @precondition(lambda self: self.attempts)
    @rule(data=st.data(), result=RESULTS)
    def report(self, data: st.DataObject, result: object) -> None:
        """Any attempt may report at any time, lapsed and superseded ones too."""
        run = data.draw(st.sampled_from(self.attempts))
        assert isinstance(result, type(OK))
        now = self.desk.due.get(run.facts.run_id)
        decision = self.desk.decide_report(run, result)
        if decision is not None:
            assert self.desk.commit(decision)
            assert now is None or now.facts.fence == run.facts.fence, "P8"

    @precondition(lambda self: self.attempts)
    @rule(data=st.data(), result=RESULTS)
    def decide_for_later(self, data: st.DataObject, result: object) -> None:
        run = data.draw(st.sampled_from(self.attempts))
        assert isinstance(result, type(OK))
        decision = self.desk.decide_report(run, result)
        if decision is not None:
            self.pending.append(decision)

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def commit_late(self, data: st.DataObject) -> None:
        """The guards decide: whole, or not at all."""
        decision = data.draw(st.sampled_from(range(len(self.pending))))
        self.desk.commit(self.pending.pop(decision))

    @rule()
    def lapse(self) -> None:
        for run in list(self.desk.due.values()):
            if isinstance(run, rs.InFlight) and run.until <= self.desk.now:
                self.desk.lapse(run)

    @invariant()
    def an_active_job_has_its_next_link(self) -> None:
        """P12: one frontier where runs may overlap, else one link open."""
        job = self.desk.job
        if job is None or not isinstance(job, js.Active):
            return
        waiting = [r for r in self.desk.links() if isinstance(r, rs.Ready) and not r.facts.begun]
        assert len(waiting) <= 1
        if not job.facts.spec.is_one_time:
            needed = waiting if job.facts.spec.plans_at_lease else self.desk.links()
            assert needed, "the chain has stopped"
        elif not self.desk.links():
            assert isinstance(job.facts.spec.schedule, OneTime)
            assert job.facts.spec.schedule.run_at in self.ended_slots(), "an occurrence is lost"

    @invariant()
    def a_paused_or_cancelled_job_has_nothing_ready(self) -> None:
        if isinstance(self.desk.job, js.Paused | js.Cancelled):
            assert not [r for r in self.desk.due.values() if isinstance(r, rs.Ready)]

    @invariant()
    def a_backfill_has_one_open_run(self) -> None:
        """Or, in a pause, the place where it goes on; where it is over, there is none."""
        job = self.desk.job
        if job is None:
            return
        mine = [run for run in self.desk.runs() if is_current(job, run.facts)]
        going = job.facts.backfill is not None
        paused = isinstance(job, js.Paused)
        if isinstance(job, js.Cancelled):
            assert not going
        else:
            assert len(mine) == going or (paused and going and not mine), "it has stopped"

    @invariant()
    def a_redrive_sends_what_the_dead_run_sent(self) -> None:
        """P7 for the occurrence: key and body, whatever was edited since."""
        for asked in self.desk.job_events:
            if not isinstance(asked, je.RedriveRequested):
                continue
            for dead, run in zip(asked.redriven, asked.runs, strict=True):
                before, after = self._sent(dead), self._sent(run)
                assert len({*before, *after}) == 1, self.story(after[0][0])

    def _sent(self, run: bytes) -> list[tuple[int, str, int]]:
        """Return what each attempt of a run sent: slot, suffix of the key, version of the body."""
        events = self.desk.streams[run]
        plans = [event for event in events if isinstance(event, re.Scheduled)]
        suffix = manual_suffix(run) if plans[0].kind in OWN_KEY else ""
        leased = [n for n, event in enumerate(events) if isinstance(event, re.Leased)]
        pinned = [
            next(p for p in reversed(events[:n]) if isinstance(p, re.Scheduled)) for n in leased
        ]
        return [(p.nominal, suffix, p.payload_version) for p in pinned or plans]

    @invariant()
    def a_slot_is_sent_by_one_run(self) -> None:
        """One occurrence, one key: a slot that was sent is no missed one."""
        sent = Counter(
            (event.life, event.nominal)
            for events in self.desk.streams.values()
            if isinstance(event := events[0], re.Scheduled) and event.kind in (SLOT, BACKFILL)
            if any(isinstance(later, re.Leased) for later in events)
        )
        assert all(count == 1 for count in sent.values()), self.story(max(sent)[1])

    @invariant()
    def a_withheld_run_is_found_again(self) -> None:
        """Deviation (d): all that a resume must schedule again is in the list of the pause."""
        if isinstance(self.desk.job, js.Paused):
            known = {run.facts.run_id for run in self.desk.runs()}
            for run_id, state in self.desk.states.items():
                if isinstance(state, rs.Withheld):
                    facts = state.facts
                    assert run_id in known or (facts.is_link and not facts.begun)

    @invariant()
    def the_cursor_falls_only_to_now(self) -> None:
        """§1: it grows, except that withdrawing a future frontier takes it back to `at`."""
        if self.desk.job is not None and not self.desk.job.facts.spec.is_one_time:
            cursor = chain.cursor_of(self.desk.job, self.desk.runs())
            assert cursor >= min(self.cursor, self.desk.now)
            self.cursor = cursor

    @invariant()
    def body_and_instant_of_a_run_never_change(self) -> None:
        """P7: pinned by the first `Leased`."""
        for events in self.desk.streams.values():
            planned = [event for event in events if isinstance(event, re.Scheduled)]
            assert len({(event.nominal, event.kind, event.life) for event in planned}) == 1
            begun = [event.payload_version for event in planned if event.attempt > 1]
            assert len(set(begun)) <= 1

    @invariant()
    def no_slot_has_two_verdicts(self) -> None:
        """P13, as far as the ledger goes."""
        ranges = self.desk.passed()
        for p in ranges[self.judged :]:
            covered = [slot for slot in self.owed if p.first <= slot <= p.last]
            assert p.count is None or p.count == len(covered)
            assert p.first in self.owed, "a verdict for a slot that was not in force"
            if self.plain:
                true = {_true_verdict(*self.owed[slot]) for slot in covered}
                said = re.MISFIRE if p.verdict == re.EXPIRED else p.verdict
                # A catch-up may be of a pause: a slot of it that does not fire was missed twice.
                twice = p.cause in ("catch_up", "catch_up_window", "max_lateness")
                assert true == {said} or (twice and true <= {said, re.PAUSED})
        self.judged = len(ranges)
        ended = self.ended_slots()
        for slot in self.owed:
            verdicts = sum(p.first <= slot <= p.last for p in ranges) + (slot in ended)
            assert verdicts <= 1, self.story(slot)

    def ended_slots(self) -> set[int]:
        """Return the slots of links that have ended; one cancelled before its instant is none."""
        found = set()
        for run_id, state in self.desk.states.items():
            first, last = self.desk.streams[run_id][0], self.desk.streams[run_id][-1]
            assert isinstance(first, re.Scheduled)
            if isinstance(state, rs.Ended) and first.kind == SLOT and last.at >= first.nominal:
                found.add(first.nominal)
        return found

    def teardown(self) -> None:
        """Cancelled and drained, every run has ended and every slot has its one verdict."""
        if self.desk.job is None:
            return
        self.desk.cancel()
        for run in list(self.desk.due.values()):
            assert isinstance(run, rs.InFlight)
            self.advance(max(self.desk.now, run.until))
            self.desk.lapse(run)
        assert not self.desk.due
        self.no_slot_has_two_verdicts()
        ended = self.ended_slots()
        for slot in self.owed:
            ranges = self.desk.passed()
            covered = any(p.first <= slot <= p.last for p in ranges)
            assert covered or slot in ended, f"no verdict: {self.story(slot)}"

    def story(self, slot: int) -> str:
        """Return what happened, instants in seconds from the slot in question."""
        lines = [f"slot {slot}"]
        for event in self.desk.log:
            words = [type(event).__name__, f"{(event.at - slot) / SECOND:+}"]
            if isinstance(event, re.Scheduled):
                words.append(f"nominal {(event.nominal - slot) / SECOND:+} kind {event.kind}")
            cursor = getattr(event, "cursor", 0)
            if cursor:
                words.append(f"cursor {(cursor - slot) / SECOND:+}")
            for p in getattr(event, "passed", ()):
                first, last = (p.first - slot) / SECOND, (p.last - slot) / SECOND
                words.append(f"{p.verdict} {first:+} to {last:+}")
            lines.append(" ".join(words))
        return "\n".join(lines)


def _by_id(run: rs.OpenRun) -> bytes:
    return run.facts.run_id


def _true_verdict(busy: bool, paused: bool) -> str:
    if paused:
        return re.PAUSED
    return re.OVERLAP if busy else re.MISFIRE


JobMachine.TestCase.settings = settings(
    # The story names what happened; shrinking forty steps takes minutes.
    phases=[Phase.explicit, Phase.generate],
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestTheLawsOfOneJob = JobMachine.TestCase
