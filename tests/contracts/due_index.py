"""What every due index does, in memory or on Postgres."""

import struct
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec
import pytest

from commandside.ports import (
    ENTRY,
    ENTRY_BYTES,
    SESSION_MS,
    Chunk,
    Defer,
    DoneReply,
    DueIndex,
    End,
    FireLog,
    Published,
    Ref,
    Renew,
    ShardLeases,
)
from domain import chain
from domain.envelope import Decision
from domain.job import decide as job
from domain.run.accepted import accept, lapsed
from domain.run.decide import LOST, report
from domain.run.state import Awaiting, InFlight, Ready
from tests.contracts import jobs
from tests.contracts.fire_log import Desk

OWNER: Final = b"scheduler".ljust(16, b".")
LEASE_MS: Final = 10_000
MINUTE: Final = 60_000
BEAT_MS: Final = 30_000
LIMIT: Final = 5_000


class Bench(Protocol):
    """The index under test, the log beside it, and who owns the shards."""

    index: DueIndex
    leases: ShardLeases
    log: FireLog

    def rest(self) -> None:
        """Let the log get on."""

    def pass_ms(self, ms: int) -> None:
        """Let time pass for everything that is stored."""


class Hand:
    """Does to an index what a scheduler does."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.index = bench, bench.index
        self.desk = Desk(bench)
        self.terms = bench.leases.heartbeat(OWNER, LEASE_MS)

    @property
    def shards(self) -> range:
        return range(self.bench.log.shards)

    def now(self) -> int:
        return self.desk.now()

    def append(self, *decisions: Decision) -> None:
        assert all(self.index.append(decisions, self.now() + 5_000))

    def once(self, at: int, *, shard: int = 0, exact: bool = False) -> Ready:
        """Define a one-time job due at this instant, whatever the clock says."""
        spec = msgspec.structs.replace(jobs.spec(jobs.once(at)), exact=exact)
        decision = jobs.define(jobs.job_id(shard, self.bench.log.shards), spec, at - 1)
        self.append(decision)
        return jobs.ready_run(decision)

    def window(self, after: int = -1, until: int = 1 << 60, limit: int = LIMIT) -> list[Chunk]:
        return self.index.window(self.terms, after, until, limit)

    def publish(self, chunks: Sequence[Chunk]) -> list[Published]:
        return [Published(c, Ref("due", 0, place)) for place, c in enumerate(chunks)]

    def hand_off(self) -> int:
        return self.index.mark(self.publish(self.window()))

    def lease(self, run: Ready) -> InFlight:
        if not self.bench.log.idle(0):
            self.desk.now()
        self.desk.begin()
        return self.desk.leased(run).run


def runs_of(chunks: Sequence[Chunk]) -> list[bytes]:
    return [run_id for chunk in chunks for run_id, *_ in struct.iter_unpack(ENTRY, chunk.entries)]


def lapse(index: DueIndex, shards: Sequence[int], at: int) -> list[Decision]:
    """Return what an auditor decides about the leases that are over."""
    found = []
    for standing, run in index.lapsed(shards, LIMIT):
        alone = chain.is_alone(run, standing.runs)
        decision = report(standing.job, run, run.facts.fence, LOST, at, alone=alone)
        assert decision is not None
        found.append(decision)
    return found


class DueIndexContract:
    """Subclasses give a fixture `bench`."""

    @pytest.fixture
    def hand(self, bench: Bench) -> Hand:
        return Hand(bench)

    # ---------------------------------------------------------------- window

    def test_a_planned_run_is_in_the_window_with_its_ids_version_and_instant(
        self, hand: Hand
    ) -> None:
        run = hand.once(hand.now() + MINUTE)
        (chunk,) = hand.window()
        facts = run.facts
        entry = (facts.run_id, facts.job_id, facts.tenant_id, facts.version, facts.due_at)
        assert struct.unpack(ENTRY, chunk.entries) == entry
        assert (chunk.shard, chunk.second, chunk.lane) == (0, facts.due_at // 1_000, 0)
        assert chunk.term == hand.terms[0]

    def test_the_window_begins_after_one_instant_and_ends_with_the_other(self, hand: Hand) -> None:
        at = hand.now() + MINUTE
        runs = [hand.once(at + offset) for offset in (0, 1, 2)]
        found = runs_of(hand.window(after=at, until=at + 2))
        assert found == [run.facts.run_id for run in runs[1:]]

    def test_shards_of_others_are_not_in_the_window(self, hand: Hand) -> None:
        mine, other = hand.once(hand.now(), shard=1), hand.once(hand.now(), shard=2)
        found = hand.index.window({1: hand.terms[1]}, -1, 1 << 60, LIMIT)
        assert runs_of(found) == [mine.facts.run_id]
        assert other.facts.run_id in runs_of(hand.window())

    def test_a_chunk_holds_one_shard_one_second_and_one_lane(self, hand: Hand) -> None:
        second = hand.now() // 1_000 * 1_000 + MINUTE
        hand.once(second, shard=1)
        hand.once(second + 999, shard=1)
        hand.once(second + 1_000, shard=1)
        hand.once(second, shard=2)
        hand.once(second, shard=1, exact=True)
        sizes = [
            (c.shard, c.second - second // 1_000, c.lane, len(c.entries) // ENTRY_BYTES)
            for c in hand.window()
        ]
        assert sorted(sizes) == [(1, 0, 0, 2), (1, 0, 1, 1), (1, 1, 0, 1), (2, 0, 0, 1)]

    def test_the_window_is_cut_at_the_limit_and_keeps_what_is_due_first(self, hand: Hand) -> None:
        at = hand.now() + MINUTE
        runs = [hand.once(at + offset, shard=offset % 3) for offset in (4, 1, 3, 2, 0)]
        found = runs_of(hand.window(limit=2))
        assert sorted(found) == sorted(run.facts.run_id for run in (runs[4], runs[1]))

    def test_a_chunk_is_no_longer_than_a_message_may_be(self, hand: Hand) -> None:
        at = hand.now() + MINUTE
        spec = jobs.spec(jobs.once(at))
        made = [
            jobs.define(jobs.job_id(0, hand.bench.log.shards), spec, at - 1) for _ in range(1_200)
        ]
        for start in range(0, len(made), 200):
            hand.append(*made[start : start + 200])
        chunks = hand.window()
        assert [len(c.entries) // ENTRY_BYTES for c in chunks] == [1_000, 200]
        assert len(set(runs_of(chunks))) == len(made)

    def test_a_run_in_flight_is_not_in_the_window(self, hand: Hand) -> None:
        run = hand.once(hand.now() - 1)
        hand.lease(run)
        assert hand.window() == []

    # ---------------------------------------------------------------- mark

    def test_what_is_marked_is_handed_off_once(self, hand: Hand) -> None:
        hand.once(hand.now())
        assert hand.hand_off() == 1
        assert hand.window() == []

    def test_a_mark_of_an_older_version_is_refused(self, hand: Hand) -> None:
        run = hand.once(hand.now() + MINUTE)
        published = hand.publish(hand.window())
        standing = hand.desk.standing(run.facts.job_id)
        assert standing is not None
        spec = msgspec.structs.replace(standing.job.facts.spec, timeout_ms=1_000)
        hand.append(jobs.revised(standing.job, standing.runs, spec, hand.now()))
        assert hand.index.mark(published) == 0
        assert runs_of(hand.window()) == [run.facts.run_id]

    def test_a_mark_under_an_old_term_is_refused(self, hand: Hand) -> None:
        hand.once(hand.now())
        published = hand.publish(hand.window())
        hand.bench.leases.release(OWNER)
        hand.terms = hand.bench.leases.heartbeat(b"another".ljust(16, b"."), LEASE_MS)
        assert hand.index.mark(published) == 0
        assert len(hand.window()) == 1

    def test_a_deferred_run_is_handed_off_anew_at_its_new_instant(self, hand: Hand) -> None:
        run = hand.once(hand.now())
        hand.hand_off()
        later = hand.now() + MINUTE
        row = (run.facts.run_id, run.facts.version, later)
        hand.desk.ask(0, Defer((row,)), DoneReply)
        assert hand.window(until=later - 1) == []
        assert runs_of(hand.window(until=later)) == [run.facts.run_id]

    # ---------------------------------------------------------------- stale

    def test_marks_that_are_taken_back_let_their_rows_be_handed_off_again(self, hand: Hand) -> None:
        runs = [hand.once(hand.now() + 1_000, shard=shard) for shard in hand.shards]
        assert hand.hand_off() == len(runs)
        before = hand.now() + MINUTE
        assert hand.index.unmark(hand.shards, before, LIMIT) == len(runs)
        assert hand.index.unmark(hand.shards, before, LIMIT) == 0
        assert hand.hand_off() == len(runs)

    def test_no_more_marks_are_taken_back_than_is_said(self, hand: Hand) -> None:
        for shard in hand.shards:
            hand.once(hand.now() + 1_000, shard=shard)
        count, before = hand.hand_off(), hand.now() + MINUTE
        assert hand.index.unmark(hand.shards, before, 3) == 3
        assert hand.index.unmark(hand.shards, before, LIMIT) == count - 3

    def test_marks_of_later_of_rows_far_ahead_and_of_others_stay(self, hand: Hand) -> None:
        hand.once(hand.now() + 1_000, shard=0)
        hand.once(hand.now() + 10 * MINUTE, shard=1)
        assert hand.hand_off() == 2
        before = hand.now() + MINUTE
        assert hand.index.unmark(hand.shards, 1, LIMIT) == 0
        assert hand.index.unmark([2, 3], before, LIMIT) == 0
        assert hand.index.unmark(hand.shards, before, LIMIT) == 1

    def test_what_was_never_handed_off_is_stale_five_seconds_after_its_instant(
        self, hand: Hand
    ) -> None:
        run = hand.once(hand.now() + 1_000)
        assert hand.index.stale(hand.shards, lambda _ref: True, LIMIT) == []
        hand.bench.pass_ms(7_000)
        found = hand.index.stale(hand.shards, lambda _ref: True, LIMIT)
        assert runs_of(found) == [run.facts.run_id]
        assert found[0].term == hand.terms[0]

    def test_what_is_still_queued_is_not_stale(self, hand: Hand) -> None:
        hand.once(hand.now())
        hand.hand_off()
        hand.bench.pass_ms(MINUTE)
        asked: list[Ref] = []

        def queued(ref: Ref) -> bool:
            asked.append(ref)
            return False

        assert hand.index.stale(hand.shards, queued, LIMIT) == []
        assert asked == [Ref("due", 0, 0)]

    def test_each_hand_off_of_a_version_rests_longer_than_the_last(self, hand: Hand) -> None:
        hand.once(hand.now())
        hand.hand_off()
        rests = []
        for _ in range(4):
            waited = 0
            while not (found := hand.index.stale(hand.shards, lambda _ref: True, LIMIT)):
                hand.bench.pass_ms(1_000)
                waited += 1
            hand.index.mark(hand.publish(found))
            rests.append(waited)
        assert rests == sorted(rests)
        assert rests[-1] >= 3 * rests[0] > 0

    def test_after_a_new_incarnation_everything_due_is_stale_at_once(self, hand: Hand) -> None:
        due, later = hand.once(hand.now() - 1), hand.once(hand.now() + MINUTE)
        hand.hand_off()
        assert runs_of(hand.index.stale(hand.shards, None, LIMIT)) == [due.facts.run_id]
        assert later.facts.run_id != due.facts.run_id

    def test_a_run_in_flight_is_never_stale(self, hand: Hand) -> None:
        run = hand.once(hand.now() - 10_000)
        hand.lease(run)
        assert hand.index.stale(hand.shards, None, LIMIT) == []

    # ---------------------------------------------------------------- lapse

    def test_a_lease_that_is_in_force_has_not_lapsed(self, hand: Hand) -> None:
        hand.lease(hand.once(hand.now() - 1))
        assert hand.index.lapsed(hand.shards, LIMIT) == []

    def test_a_lease_lapses_with_its_own_end(self, hand: Hand) -> None:
        run = hand.lease(hand.once(hand.now() - 1))
        hand.bench.pass_ms(run.until - run.leased_at + 1_000)
        ((standing, found),) = hand.index.lapsed(hand.shards, LIMIT)
        assert found.facts == run.facts
        assert standing.job.facts.job_id == run.facts.job_id
        assert [r.facts.run_id for r in standing.runs] == [run.facts.run_id]

    def test_a_lease_lapses_when_its_session_has_ended(self, hand: Hand) -> None:
        run = hand.lease(hand.once(hand.now() - 1))
        hand.desk.ask(hand.bench.log.stripes, End(hand.desk.session), DoneReply)
        ((_, found),) = hand.index.lapsed(hand.shards, LIMIT)
        assert found.facts.run_id == run.facts.run_id

    def test_an_accepted_attempt_lapses_with_its_own_end_alone(self, hand: Hand) -> None:
        run = hand.lease(hand.once(hand.now() - 1))
        standing = hand.desk.standing(run.facts.job_id)
        assert standing is not None
        spec = msgspec.structs.replace(
            standing.job.facts.spec, heartbeat_timeout_ms=BEAT_MS, max_run_time_ms=10 * BEAT_MS
        )
        decision = accept(spec, run, run.facts.fence, hand.now())
        assert decision is not None
        assert tuple(hand.desk.append(decision).refused) == ()
        hand.desk.ask(hand.bench.log.stripes, End(hand.desk.session), DoneReply)
        assert hand.index.lapsed(hand.shards, LIMIT) == []
        standing = hand.desk.standing(run.facts.job_id)
        assert standing is not None
        (awaiting,) = standing.runs
        assert isinstance(awaiting, Awaiting)
        assert (awaiting.facts.attempt, awaiting.leased_at) == (1, run.leased_at)
        hand.bench.pass_ms(awaiting.until - hand.now() + 1_000)
        assert hand.index.lapsed(hand.shards, LIMIT, accepted=False) == []
        ((found, over),) = hand.index.lapsed(hand.shards, LIMIT)
        assert over.facts == awaiting.facts
        result = lapsed(spec, over, hand.now())
        lost = report(found.job, over, over.facts.fence, result, hand.now(), alone=True)
        assert lost is not None
        assert list(hand.index.append([lost], hand.now() + 5_000)) == [True]
        assert hand.desk.run(run.facts.job_id).facts.lost == 1
        assert hand.index.lapsed(hand.shards, LIMIT) == []

    def test_leases_in_shards_of_others_are_theirs(self, hand: Hand) -> None:
        hand.lease(hand.once(hand.now() - 1, shard=0))
        hand.desk.ask(hand.bench.log.stripes, End(hand.desk.session), DoneReply)
        assert hand.index.lapsed([1, 2, 3], LIMIT) == []

    def test_a_lapse_is_appended_once(self, hand: Hand) -> None:
        run = hand.lease(hand.once(hand.now() - 1))
        hand.desk.ask(hand.bench.log.stripes, End(hand.desk.session), DoneReply)
        decisions = lapse(hand.index, hand.shards, hand.now())
        assert list(hand.index.append(decisions, hand.now() + 5_000)) == [True]
        assert list(hand.index.append(decisions, hand.now() + 5_000)) == [False]
        again = hand.desk.run(run.facts.job_id)
        assert (again.facts.lost, again.facts.fails) == (1, 0)

    def test_a_decision_that_comes_after_its_expiry_is_refused(self, hand: Hand) -> None:
        run = hand.lease(hand.once(hand.now() - 1))
        hand.desk.ask(hand.bench.log.stripes, End(hand.desk.session), DoneReply)
        decisions = lapse(hand.index, hand.shards, hand.now())
        assert list(hand.index.append(decisions, hand.now() - 1_000)) == [False]
        assert run.facts.run_id in {r.facts.run_id for _, r in hand.index.lapsed(hand.shards, 9)}

    # ---------------------------------------------------------------- sessions

    def test_only_sessions_that_have_expired_are_reaped(self, hand: Hand) -> None:
        hand.desk.begin()
        assert hand.index.reap() == 0
        hand.bench.pass_ms(SESSION_MS + 1_000)
        assert hand.index.reap() == 1
        assert hand.index.reap() == 0
        renewal = Renew(hand.desk.session)
        assert not hand.desk.ask(hand.bench.log.stripes, renewal, DoneReply).ok

    def test_a_session_that_expired_and_was_not_reaped_is_renewed(self, hand: Hand) -> None:
        run = hand.lease(hand.once(hand.now() - 1))
        hand.bench.pass_ms(SESSION_MS + 1_000)
        assert hand.desk.ask(hand.bench.log.stripes, Renew(hand.desk.session), DoneReply).ok
        assert hand.index.reap() == 0
        assert hand.index.lapsed(hand.shards, LIMIT) == []
        assert run.facts.attempt == 1

    # ---------------------------------------------------------------- health

    def test_a_healthy_index_has_nothing_to_report(self, hand: Hand) -> None:
        now = hand.now()
        decision = jobs.define(
            jobs.job_id(0, hand.bench.log.shards), jobs.spec(jobs.minutely()), now
        )
        hand.append(decision)
        hand.once(now + MINUTE)
        health = hand.index.health(hand.shards)
        assert (health.broken_chains, health.overdue_runs) == (0, 0)

    def test_a_run_that_waits_ten_seconds_after_its_instant_is_overdue(self, hand: Hand) -> None:
        hand.once(hand.now())
        hand.bench.pass_ms(12_000)
        health = hand.index.health(hand.shards)
        assert health.overdue_runs == 1
        assert 12_000 <= health.oldest_overdue_ms < MINUTE

    def test_a_recurring_job_in_flight_has_an_unbroken_chain(self, hand: Hand) -> None:
        now = hand.now()
        spec = jobs.spec(jobs.minutely())
        decision = jobs.due(
            jobs.define(jobs.job_id(0, hand.bench.log.shards), spec, now - 2 * MINUTE), now - 1
        )
        hand.append(decision)
        hand.lease(jobs.ready_run(decision))
        assert hand.index.health(hand.shards).broken_chains == 0

    def test_a_pause_that_is_over_is_shown_with_what_it_withheld(self, hand: Hand) -> None:
        now = hand.now()
        spec = jobs.spec(jobs.minutely())
        decision = jobs.define(jobs.job_id(0, hand.bench.log.shards), spec, now)
        hand.append(decision)
        run = jobs.ready_run(decision)
        standing = hand.desk.standing(run.facts.job_id)
        assert standing is not None
        pause = job.pause(standing.job, standing.runs, job.By(now), until=now + 300)
        assert isinstance(pause, Decision)
        hand.append(pause)
        while True:
            before = hand.now()
            found = hand.index.to_resume(hand.shards, LIMIT)
            if found:
                break
            assert before < now + MINUTE, "the pause does not end"
            hand.bench.rest()
        assert hand.now() >= now + 300
        (whole,) = found
        assert [r.facts.run_id for r in whole.runs] == [run.facts.run_id]
        resumed = job.resume(whole.job, whole.runs, job.By(hand.now()))
        assert isinstance(resumed, Decision)
        hand.append(resumed)
        assert hand.index.to_resume(hand.shards, LIMIT) == []

    def test_a_pause_without_an_end_is_never_over(self, hand: Hand) -> None:
        now = hand.now()
        spec = jobs.spec(jobs.minutely())
        decision = jobs.define(jobs.job_id(0, hand.bench.log.shards), spec, now)
        hand.append(decision)
        standing = hand.desk.standing(decision.job_id)
        assert standing is not None
        pause = job.pause(standing.job, standing.runs, job.By(now))
        assert isinstance(pause, Decision)
        hand.append(pause)
        assert hand.index.to_resume(hand.shards, LIMIT) == []

    def test_a_paused_or_cancelled_job_has_no_chain_to_break(self, hand: Hand) -> None:
        now = hand.now()
        for command in (job.pause, job.cancel):
            job_id = jobs.job_id(0, hand.bench.log.shards)
            hand.append(jobs.define(job_id, jobs.spec(jobs.minutely()), now))
            standing = hand.desk.standing(job_id)
            assert standing is not None
            decision = command(standing.job, standing.runs, job.By(now))
            assert isinstance(decision, Decision)
            hand.append(decision)
        assert hand.index.health(hand.shards).broken_chains == 0
