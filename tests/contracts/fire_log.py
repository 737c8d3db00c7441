"""What every fire log does, in memory or on Postgres."""

import itertools
import struct
import time
from typing import Final, Protocol, TypeVar

import msgspec
import pytest

from commandside.ports import (
    ENTRY,
    ENTRY_BYTES,
    Append,
    AppendReply,
    Defer,
    DoneReply,
    DueReply,
    End,
    Failed,
    FireLog,
    Granted,
    Lease,
    LeaseReply,
    LogReply,
    LogRequest,
    Read,
    ReadBack,
    ReadBackReply,
    ReadDue,
    ReadReply,
    ReadSpecs,
    Renew,
    SpecsReply,
    Standing,
    Want,
)
from domain.envelope import BegunBeside, Decision, RunAt, StreamAt
from domain.job.events import ALLOW, LATEST, JobSpec
from domain.run.events import SUCCEEDED
from domain.run.state import Ended, InFlight, Ready
from tests.contracts import jobs

PATIENCE_S: Final = 30.0
EXPIRY_MS: Final = 5_000
MINUTE: Final = 60_000
_ids = itertools.count(1)
Reply = TypeVar("Reply", bound=LogReply)


class Bench(Protocol):
    """A log under test."""

    @property
    def log(self) -> FireLog:
        """The log."""

    def rest(self) -> None:
        """Let the log get on: wait for its sockets, or let virtual time pass."""


class Desk:
    """Asks a log one thing at a time, and waits for the answer."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.log = bench, bench.log
        self.session = self.new_id()
        self.nonce = self.new_id()[8:]

    @staticmethod
    def new_id() -> bytes:
        return next(_ids).to_bytes(16, "big")

    def ask(self, stripe: int, request: LogRequest, kind: type[Reply]) -> Reply:
        """Return the reply, which must be of this kind."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.log.idle(stripe):
            assert self.log.poll() == []
            assert time.monotonic() < deadline, "the stripe does not become idle"
            self.bench.rest()
        ticket = self.log.submit(stripe, request)
        while True:
            for reply in self.log.poll():
                assert reply.ticket == ticket
                assert isinstance(reply, kind), reply
                return reply
            assert time.monotonic() < deadline, "no reply"
            self.bench.rest()

    def now(self) -> int:
        return self.ask(0, Read(()), ReadReply).at

    def begin(self) -> bytes:
        """Start the session that leases are taken under."""
        request = Renew(self.session, starts=True)
        assert self.ask(self.log.stripes, request, DoneReply).ok
        return self.session

    def append(self, *decisions: Decision, session: bytes = b"", expires: int = 0) -> AppendReply:
        expires = expires or self.now() + EXPIRY_MS
        return self.ask(0, Append(decisions, expires, session), AppendReply)

    def lease(self, *wants: Want, nonce: bytes = b"", session: bytes = b"") -> LeaseReply:
        expires = self.now() + EXPIRY_MS
        request = Lease(session or self.session, nonce or self.nonce, wants, expires)
        return self.ask(0, request, LeaseReply)

    def leased(self, run: Ready) -> Granted:
        """Lease one run, which must be possible."""
        (granted,) = self.lease(jobs.want(run)).granted
        return granted

    def standing(self, job_id: bytes) -> Standing | None:
        return self.ask(0, Read((job_id,)), ReadReply).jobs.get(job_id)

    def run(self, job_id: bytes) -> Ready:
        """Return the only open run of a job, which waits."""
        standing = self.standing(job_id)
        assert standing is not None
        (run,) = standing.runs
        assert isinstance(run, Ready)
        return run

    def new_job(self, spec: JobSpec, at: int, shard: int = 0) -> Ready:
        """Define a job as of `at`, and return its first run."""
        job_id = jobs.job_id(shard, self.log.shards)
        decision = jobs.define(job_id, spec, at)
        assert tuple(self.append(decision).refused) == ()
        return jobs.ready_run(decision)

    def due_job(self, *, payload: bytes = b"body") -> Ready:
        """Define a one-time job that is due, and return its run."""
        now = self.now()
        return self.new_job(jobs.spec(jobs.once(now - 1_000), payload=payload), now - 2_000)

    def late_minutely(
        self,
        *,
        minutes: int,
        overlap: int = 0,
        limit: int = 1,
        misfire: int = LATEST,
        max_runs: int = 0,
    ) -> Ready:
        """Define a job that fires with every minute, its first run late by so many and a second."""
        now = self.now()
        spec = jobs.spec(
            jobs.minutely(),
            overlap=overlap,
            overlap_limit=limit,
            misfire=misfire,
            max_runs=max_runs,
        )
        job_id = jobs.job_id(0, self.log.shards)
        planned = jobs.define(job_id, spec, (now // MINUTE - minutes) * MINUTE - 1)
        decision = jobs.due(planned, now - minutes * MINUTE - 1_000)
        assert tuple(self.append(decision).refused) == ()
        return jobs.ready_run(decision)


class FireLogContract:
    """Subclasses give a fixture `bench`."""

    @pytest.fixture
    def desk(self, bench: Bench) -> Desk:
        return Desk(bench)

    # ---------------------------------------------------------------- append and read

    def test_a_definition_is_read_as_a_job_and_its_run(self, desk: Desk) -> None:
        run = desk.due_job()
        standing = desk.standing(run.facts.job_id)
        assert standing is not None
        assert standing.job.facts.job_id == run.facts.job_id
        assert standing.job.facts.spec.payload == b"body"
        assert standing.runs == (run,)

    def test_a_job_that_does_not_exist_is_not_read(self, desk: Desk) -> None:
        assert desk.standing(jobs.job_id(0, desk.log.shards)) is None

    def test_jobs_are_read_in_one_request(self, desk: Desk) -> None:
        runs = [desk.due_job() for _ in range(3)]
        found = desk.ask(0, Read([r.facts.job_id for r in runs]), ReadReply).jobs
        assert {job_id: found[job_id].runs for job_id in found} == {
            run.facts.job_id: (run,) for run in runs
        }

    def test_positions_grow_in_the_order_of_decisions(self, desk: Desk) -> None:
        now = desk.now()
        spec = jobs.spec(jobs.once(now + MINUTE))
        ids = [jobs.job_id(0, desk.log.shards) for _ in range(3)]
        reply = desk.append(*(jobs.define(job_id, spec, now) for job_id in ids))
        assert list(reply.positions) == sorted(set(reply.positions))
        assert len(reply.positions) == 3
        assert min(reply.positions) > 0

    def test_a_decision_whose_guard_fails_is_dropped_whole_and_its_neighbours_commit(
        self, desk: Desk
    ) -> None:
        run, now = desk.due_job(), desk.now()
        taken = jobs.define(run.facts.job_id, jobs.spec(jobs.once(now)), now)
        free = jobs.job_id(0, desk.log.shards)
        reply = desk.append(taken, jobs.define(free, jobs.spec(jobs.once(now)), now))
        assert tuple(reply.refused) == (0,)
        assert reply.positions[0] == 0
        assert desk.run(run.facts.job_id) == run
        assert desk.standing(free) is not None

    @pytest.mark.parametrize("guard", ["run", "stream", "beside", "early", "job"])
    def test_each_guard_holds_when_true_and_refuses_when_not(self, desk: Desk, guard: str) -> None:
        run, now = desk.due_job(), desk.now()
        facts = run.facts
        standing = desk.standing(facts.job_id)
        assert standing is not None
        decision = jobs.triggered(standing.job, standing.runs, now)
        true, false = {
            "run": (RunAt(facts.run_id, 1), RunAt(facts.run_id, 2)),
            "stream": (StreamAt(facts.run_id, 1), StreamAt(facts.run_id, 0)),
            "beside": (
                BegunBeside(facts.job_id, bytes(16), 0),
                BegunBeside(facts.job_id, bytes(16), 1),
            ),
            "early": (now - 1_000, now + MINUTE),
            "job": (decision.guards[0], msgspec.structs.replace(decision.guards[0], version=9)),
        }[guard]
        if isinstance(true, int):
            good = msgspec.structs.replace(decision, not_before=true)
            bad = msgspec.structs.replace(decision, not_before=false)
        else:
            good = msgspec.structs.replace(decision, guards=(true,))
            bad = msgspec.structs.replace(decision, guards=(false,))
        assert tuple(desk.append(bad).refused) == (0,)
        assert tuple(desk.append(good).refused) == ()

    def test_a_run_without_a_row_fails_the_guard_on_it(self, desk: Desk) -> None:
        run, now = desk.due_job(), desk.now()
        standing = desk.standing(run.facts.job_id)
        assert standing is not None
        decision = jobs.triggered(standing.job, standing.runs, now)
        absent = msgspec.structs.replace(decision, guards=(RunAt(bytes(15) + b"\1", 1),))
        assert tuple(desk.append(absent).refused) == (0,)

    def test_an_expired_append_does_nothing(self, desk: Desk) -> None:
        now = desk.now()
        job_id = jobs.job_id(0, desk.log.shards)
        reply = desk.append(jobs.define(job_id, jobs.spec(jobs.once(now)), now), expires=now - 1)
        assert reply.expired
        assert desk.standing(job_id) is None

    def test_an_append_of_leases_needs_a_session_that_lives(self, desk: Desk) -> None:
        now = desk.now()
        job_id = jobs.job_id(0, desk.log.shards)
        decision = jobs.define(job_id, jobs.spec(jobs.once(now)), now)
        assert tuple(desk.append(decision, session=desk.session).refused) == (0,)
        assert desk.standing(job_id) is None
        assert tuple(desk.append(decision, session=desk.begin()).refused) == ()

    def test_a_command_is_taken_once(self, desk: Desk) -> None:
        now = desk.now()
        job_id, command = jobs.job_id(0, desk.log.shards), desk.new_id()
        decision = jobs.define(job_id, jobs.spec(jobs.once(now)), now, command=command)
        assert tuple(desk.append(decision).refused) == ()
        again = msgspec.structs.replace(decision, guards=())
        assert tuple(desk.append(again).refused) == (0,)

    def test_the_specs_of_old_versions_stay_readable(self, desk: Desk) -> None:
        now = desk.now()
        run = desk.new_job(jobs.spec(jobs.once(now + MINUTE), payload=b"old"), now)
        standing = desk.standing(run.facts.job_id)
        assert standing is not None
        new = jobs.spec(jobs.once(now + MINUTE), payload=b"new")
        desk.append(jobs.revised(standing.job, standing.runs, new, now))
        wants = [(run.facts.job_id, 2), (run.facts.job_id, 1)]
        specs = desk.ask(0, ReadSpecs(wants), SpecsReply).specs
        assert [specs[want].payload for want in wants] == [b"new", b"old"]

    # ---------------------------------------------------------------- lease

    def test_a_due_run_is_leased_with_its_job(self, desk: Desk) -> None:
        run = desk.due_job()
        session = desk.begin()
        reply = desk.lease(jobs.want(run))
        (granted,) = reply.granted
        facts = granted.run.facts
        assert (facts.run_id, facts.version, facts.attempt, facts.fence) == (
            run.facts.run_id, 2, 1, 2,
        )  # fmt: skip
        assert (granted.run.owner, granted.run.nonce) == (session, desk.nonce)
        assert granted.run.leased_at == facts.first_leased_at == reply.at
        assert granted.run.until == reply.at + 1_000 + 30_000 + 30_000
        assert granted.job.facts.job_id == run.facts.job_id
        assert granted.alone
        standing = desk.standing(run.facts.job_id)
        assert standing is not None
        assert standing.runs == (granted.run,)

    def test_a_lease_answers_for_every_run_in_it(self, desk: Desk) -> None:
        desk.begin()
        due = [desk.due_job() for _ in range(3)]
        now = desk.now()
        early = desk.new_job(jobs.spec(jobs.once(now + MINUTE)), now)
        late = desk.late_minutely(minutes=5)
        taken = desk.due_job()
        desk.leased(taken)
        reply = desk.lease(*map(jobs.want, (due[0], early, due[1], taken, late, due[2])))
        assert [g.run.facts.run_id for g in reply.granted] == [r.facts.run_id for r in due]
        assert [run_id for run_id, _ in reply.early] == [early.facts.run_id]
        assert 0 < reply.early[0][1] <= MINUTE
        assert list(reply.gone) == [taken.facts.run_id]
        assert list(reply.decide) == [late.facts.run_id]

    @pytest.mark.parametrize("wrong", ["run", "version", "job"])
    def test_a_hint_that_is_not_true_is_gone(self, desk: Desk, wrong: str) -> None:
        desk.begin()
        run = desk.due_job()
        asked = {
            "run": Want(bytes(15) + b"\1", 1, run.facts.job_id),
            "version": Want(run.facts.run_id, 2, run.facts.job_id),
            "job": Want(run.facts.run_id, 1, jobs.job_id(0, desk.log.shards)),
        }[wrong]
        reply = desk.lease(asked)
        assert list(reply.gone) == [asked.run_id]
        assert desk.run(run.facts.job_id) == run

    def test_nothing_is_leased_for_a_session_that_is_not_there(self, desk: Desk) -> None:
        run = desk.due_job()
        assert desk.lease(jobs.want(run)).session_ended
        assert desk.run(run.facts.job_id) == run

    def test_nothing_is_leased_for_a_session_that_has_ended(self, desk: Desk) -> None:
        run, session = desk.due_job(), desk.begin()
        desk.ask(desk.log.stripes, End(session), DoneReply)
        assert desk.lease(jobs.want(run)).session_ended
        assert desk.run(run.facts.job_id) == run

    def test_an_expired_lease_fails_and_leases_nothing(self, desk: Desk) -> None:
        run, session = desk.due_job(), desk.begin()
        request = Lease(session, desk.nonce, [jobs.want(run)], desk.now() - 1)
        assert not desk.ask(0, request, Failed).unknown
        assert desk.run(run.facts.job_id) == run

    def test_a_run_beside_one_in_flight_is_decided_elsewhere(self, desk: Desk) -> None:
        desk.begin()
        run = desk.late_minutely(minutes=0)
        desk.leased(run)
        standing = desk.standing(run.facts.job_id)
        assert standing is not None
        manual = jobs.triggered(standing.job, standing.runs, desk.now())
        desk.append(manual)
        reply = desk.lease(jobs.want(jobs.ready_run(manual)))
        assert list(reply.decide) == [jobs.ready_run(manual).facts.run_id]

    def test_a_job_that_plans_at_its_lease_is_decided_elsewhere(self, desk: Desk) -> None:
        desk.begin()
        run = desk.late_minutely(minutes=0, overlap=ALLOW, limit=10)
        assert list(desk.lease(jobs.want(run)).decide) == [run.facts.run_id]

    def test_a_job_that_counts_its_runs_is_decided_elsewhere(self, desk: Desk) -> None:
        desk.begin()
        run = desk.late_minutely(minutes=0, max_runs=3)
        assert list(desk.lease(jobs.want(run)).decide) == [run.facts.run_id]

    def test_a_slot_of_a_backfill_is_decided_elsewhere(self, desk: Desk) -> None:
        desk.begin()
        standing = desk.standing(desk.late_minutely(minutes=0).facts.job_id)
        assert standing is not None
        desk.append(asked := jobs.backfilled(standing.job, standing.runs, desk.now()))
        run = jobs.ready_run(asked)
        assert list(desk.lease(jobs.want(run)).decide) == [run.facts.run_id]

    def test_of_two_runs_of_one_job_only_the_first_is_leased(self, desk: Desk) -> None:
        desk.begin()
        run = desk.due_job()
        standing = desk.standing(run.facts.job_id)
        assert standing is not None
        manual = jobs.triggered(standing.job, standing.runs, desk.now())
        desk.append(manual)
        second = jobs.ready_run(manual)
        reply = desk.lease(jobs.want(run), jobs.want(second))
        assert [g.run.facts.run_id for g in reply.granted] == [run.facts.run_id]
        assert list(reply.decide) == [second.facts.run_id]

    def test_a_manual_run_is_not_alone_while_its_jobs_chain_goes_on(self, desk: Desk) -> None:
        desk.begin()
        now = desk.now()
        run = desk.new_job(jobs.spec(jobs.minutely()), now)
        standing = desk.standing(run.facts.job_id)
        assert standing is not None
        manual = jobs.triggered(standing.job, standing.runs, now)
        desk.append(manual)
        assert not desk.leased(jobs.ready_run(manual)).alone

    # ---------------------------------------------------------------- report

    def test_a_reported_one_time_run_is_over(self, desk: Desk) -> None:
        desk.begin()
        run = desk.due_job()
        granted = desk.leased(run)
        decision = jobs.succeeded(granted, desk.now())
        assert tuple(desk.append(decision).refused) == ()
        standing = desk.standing(run.facts.job_id)
        assert standing is not None
        assert standing.runs == ()
        ended = decision.slices[0].after
        assert isinstance(ended, Ended)
        assert ended.verdict == SUCCEEDED

    def test_a_reported_recurring_run_is_followed_by_the_next(self, desk: Desk) -> None:
        desk.begin()
        run = desk.late_minutely(minutes=0)
        granted, now = desk.leased(run), desk.now()
        desk.append(jobs.succeeded(granted, now))
        following = desk.run(run.facts.job_id)
        assert following.facts.nominal == (now // MINUTE + 1) * MINUTE

    def test_the_same_report_is_taken_once(self, desk: Desk) -> None:
        desk.begin()
        decision = jobs.succeeded(desk.leased(desk.due_job()), desk.now())
        assert tuple(desk.append(decision).refused) == ()
        assert tuple(desk.append(decision).refused) == (0,)

    def test_a_report_of_a_job_that_was_changed_meanwhile_is_refused(self, desk: Desk) -> None:
        desk.begin()
        now = desk.now()
        run = desk.due_job()
        granted = desk.leased(run)
        new = jobs.spec(granted.job.facts.spec.schedule, payload=b"new")
        desk.append(jobs.revised(granted.job, (granted.run,), new, now))
        assert tuple(desk.append(jobs.succeeded(granted, now)).refused) == (0,)

    # ---------------------------------------------------------------- what has no event

    def test_runs_that_are_due_soon_are_read_as_entries_the_earliest_first(
        self, desk: Desk
    ) -> None:
        now = desk.now()
        # Of a past that no other test has, so that these are the first.
        early, earlier = (
            desk.new_job(jobs.spec(jobs.once(now - 50 * MINUTE - n)), now - 60 * MINUTE)
            for n in range(2)
        )
        late = desk.new_job(jobs.spec(jobs.once(now + MINUTE)), now)
        entries = desk.ask(0, ReadDue([0], 1_000, 10_000), DueReply).entries
        found = [record[0] for record in struct.iter_unpack(ENTRY, entries)]
        assert found[:2] == [earlier.facts.run_id, early.facts.run_id]
        assert late.facts.run_id not in found
        assert len(desk.ask(0, ReadDue([0], 1_000, 1), DueReply).entries) == ENTRY_BYTES
        desk.begin()
        desk.leased(earlier)
        entries = desk.ask(0, ReadDue([0], 1_000, 1), DueReply).entries
        assert next(struct.iter_unpack(ENTRY, entries))[0] == early.facts.run_id

    def test_a_deferred_run_can_still_be_leased(self, desk: Desk) -> None:
        desk.begin()
        run = desk.due_job()
        desk.ask(0, Defer([(run.facts.run_id, 1, desk.now() + MINUTE)]), DoneReply)
        assert desk.run(run.facts.job_id) == run
        desk.leased(run)

    def test_a_lease_is_read_back_by_its_nonce_alone(self, desk: Desk) -> None:
        desk.begin()
        runs = [desk.due_job() for _ in range(2)]
        granted = desk.leased(runs[0])
        desk.lease(jobs.want(runs[1]), nonce=b"another!")
        wants = [jobs.want(run) for run in runs]
        ours = desk.ask(0, ReadBack(desk.nonce, wants, desk.now() - 1), ReadBackReply).ours
        assert list(ours) == [granted]

    def test_a_read_back_before_the_expiry_fails(self, desk: Desk) -> None:
        run = desk.due_job()
        request = ReadBack(desk.nonce, [jobs.want(run)], desk.now() + MINUTE)
        assert not desk.ask(0, request, Failed).unknown

    def test_a_session_is_renewed_until_it_has_ended(self, desk: Desk) -> None:
        session, own = desk.begin(), desk.log.stripes
        assert desk.ask(own, Renew(session), DoneReply).ok
        assert desk.ask(own, End(session), DoneReply).ok
        assert not desk.ask(own, Renew(session), DoneReply).ok
        assert not desk.ask(own, Renew(session, starts=True), DoneReply).ok

    def test_a_session_that_never_began_is_not_renewed(self, desk: Desk) -> None:
        assert not desk.ask(desk.log.stripes, Renew(desk.new_id()), DoneReply).ok

    def test_a_stripe_is_not_idle_while_a_request_is_out(self, desk: Desk) -> None:
        desk.now()
        desk.log.submit(0, Read(()))
        assert not desk.log.idle(0)
        deadline = time.monotonic() + PATIENCE_S
        while not desk.log.poll():
            assert time.monotonic() < deadline
            desk.bench.rest()
        assert desk.log.idle(0)

    def test_in_flight_runs_are_read_as_such(self, desk: Desk) -> None:
        desk.begin()
        run = desk.due_job()
        desk.leased(run)
        standing = desk.standing(run.facts.job_id)
        assert standing is not None
        assert isinstance(standing.runs[0], InFlight)
