"""Every overlap and misfire policy under seeded random play, which goes deeper than rules drawn.

The laws are those of `test_laws`; here most steps are leases that come too late and runs that take
too long, so that catch-ups and buffers are open while commands come.
"""

import os
import random
from collections import Counter
from typing import Final

import pytest

from domain.job import events as je
from domain.run import events as re
from domain.run import state as rs
from domain.run.decide import ABANDONED, Result
from tests.domain.protocol.scene import FAILED, GONE, MINUTE, OK, SECOND, START, cron, once, spec
from tests.domain.protocol.test_laws import JobMachine

SEED: Final = int(os.environ.get("TOCSIN_POLICY_SEED", "20270115"))
PLAYS: Final = int(os.environ.get("TOCSIN_POLICY_PLAYS", "15"))
"""Plays of each pair of policies."""
STEPS: Final = 40
DEAD: Final = Result("failed", "dead", 404)
SCHEDULES: Final = [cron(t) for t in ("* * * * *", "*/2 * * * *", "*/3 * * * *", "5 * * * *")]
WAITS: Final = (1, SECOND, 20 * SECOND, MINUTE, 61 * SECOND, 3 * MINUTE, 17 * MINUTE, 61 * MINUTE)


class Play:
    """One job of the given policies, played with."""

    def __init__(self, seed: str, overlap: int, misfire: int, *, limited: bool = False) -> None:
        self.random = random.Random(seed)
        self.limits, self.limited = random.Random(f"{seed} runs"), limited
        self.overlap, self.misfire = overlap, misfire
        self.machine = JobMachine()
        self.machine.desk.now = START
        self._define()

    def _spec(self) -> je.JobSpec:
        pick = self.random.choice
        # Mostly the policies in question; an edit may change them.
        other = self.random.random() < 0.3
        return spec(
            pick(SCHEDULES),
            overlap=pick(range(5)) if other else self.overlap,
            overlap_limit=pick((1, 2, 3, 10)),
            misfire=pick(range(3)) if other else self.misfire,
            catch_up_window_ms=pick((0, 0, 0, 5 * MINUTE)),
            max_lateness_ms=pick((0, 0, 0, 90 * SECOND, 30 * MINUTE)),
            jitter_ms=pick((0, 0, 0, 20 * SECOND)),
            max_runs=self.limits.choice((0, 0, 6)) if self.limited else 0,
            pause_after=pick((0, 0, 1, 3)),
            payload=pick((b"one", b"two")),
        )

    def _define(self) -> None:
        new = self._spec()
        self.machine.note(new)
        self.machine.desk.define(new)

    def _revise(self) -> None:
        new = self._spec()
        if self.random.random() < 0.1:
            new = once(self.machine.desk.now + self.random.choice(WAITS), overlap=new.overlap)
        self.machine.note(new)
        self.machine.desk.revise(new)

    def step(self) -> None:
        """Do something, and look at every law."""
        desk, machine = self.machine.desk, self.machine
        dice = self.random.randrange(100)
        if dice < 60:
            self._turn()
        elif dice < 66:
            machine.advance(desk.now + self.random.choice(WAITS))
        elif dice < 74:
            self._revise()
        elif dice < 78:
            desk.pause()
        elif dice < 86:
            desk.resume(self.random.choice(("", "none", "latest", "latest", "all", "all")))
        elif dice < 88:
            since = max(START, desk.now - self.random.choice(WAITS))
            desk.backfill(since, desk.now, rerun=self.random.random() < 0.3)
            if dead := desk.dead():
                desk.redrive(*dead[-3:], per_second=self.random.choice((0, 1)))
        elif dice < 90:
            desk.trigger(allow_overlap=self.random.random() < 0.5)
        elif dice < 93:
            machine.lapse()
        elif dice < 98:
            self._report_some()
        elif dice < 99:
            desk.cancel()
        else:
            self._define()
        self.look()

    def _turn(self) -> None:
        desk = self.machine.desk
        ready = [r for r in desk.due.values() if isinstance(r, rs.Ready)]
        if not ready:
            self._report_some()
            return
        run = min(ready, key=lambda r: (r.facts.due_at, r.facts.run_id))
        late = self.random.choice((0, *WAITS))
        self.machine.advance(max(desk.now, run.facts.due_at + late))
        leased = desk.lease(run)
        self.machine.leased(leased)
        if leased is not None and self.random.random() < 0.8:
            self.machine.advance(desk.now + self.random.choice(WAITS))
            if leased.until > desk.now or leased.facts.run_id in desk.due:
                desk.report(leased, self._result())

    def _report_some(self) -> None:
        if self.machine.attempts:
            run = self.random.choice(self.machine.attempts[-6:])
            self.machine.desk.report(run, self._result())

    def _result(self) -> Result:
        return self.random.choice((OK, OK, OK, FAILED, FAILED, ABANDONED, GONE, DEAD))

    def look(self) -> None:
        """Check the laws that hold at every instant."""
        machine = self.machine
        machine.an_active_job_has_its_next_link()
        machine.a_paused_or_cancelled_job_has_nothing_ready()
        machine.a_withheld_run_is_found_again()
        machine.a_backfill_has_one_open_run()
        machine.a_slot_is_sent_by_one_run()
        machine.a_redrive_sends_what_the_dead_run_sent()
        machine.the_cursor_falls_only_to_now()
        machine.no_slot_has_two_verdicts()


@pytest.mark.parametrize("misfire", range(3), ids=je.MISFIRE_NAMES)
@pytest.mark.parametrize("overlap", range(5), ids=je.OVERLAP_NAMES)
def test_every_slot_has_one_true_verdict_under(overlap: int, misfire: int) -> None:
    for number in range(PLAYS):
        seed = f"{SEED} {overlap} {misfire} {number}"
        print(f"seed {seed}")
        play = Play(seed, overlap, misfire, limited=number % 2 == 1)
        for _ in range(STEPS):
            play.step()
        play.machine.body_and_instant_of_a_run_never_change()
        play.machine.teardown()


def test_the_plays_come_to_catch_ups_buffers_and_kept_slots() -> None:
    seen: Counter[str] = Counter()
    for overlap in range(5):
        play = Play(f"{SEED} {overlap}", overlap, je.ALL)
        for _ in range(8 * STEPS):
            play.step()
        for event in play.machine.desk.log:
            if isinstance(event, re.Scheduled) and event.catch_up is not None:
                seen["catch-up" if event.catch_up.end else "kept"] += 1
            if isinstance(event, re.Cancelled):
                seen[event.cause] += 1
            for gone in getattr(event, "passed", ()):
                seen[f"{gone.verdict} {gone.cause}"] += 1
    assert {"catch-up", "kept", re.SUPERSEDED, "overlap buffer"} <= set(seen), seen
