"""What overlap and misfire policies need of a fire log, in memory or on Postgres."""

import time

import msgspec
import pytest

from commandside.ports import Granted
from domain.job.events import ALL, CANCEL_OTHER
from domain.run.decide import Grant, first_lease
from domain.run.events import CatchUp
from domain.run.state import InFlight, Ready
from tests.contracts import jobs
from tests.contracts.fire_log import MINUTE, PATIENCE_S, Bench, Desk


def decided(desk: Desk, job_id: bytes, *, at: int = 0, early: bool = False) -> InFlight:
    """Decide the lease of the run of a job that waits, append it, and return what it leased.

    `early`: as if it were `at` already.
    """
    standing = desk.standing(job_id)
    assert standing is not None
    (run,) = [r for r in standing.runs if isinstance(r, Ready)]
    beside = tuple(r for r in standing.runs if r is not run)
    grant = Grant(desk.session, desk.nonce)
    decision = first_lease(standing.job, run, beside, at or desk.now(), grant)
    assert decision is not None
    if early:
        decision = msgspec.structs.replace(decision, not_before=0)
    assert tuple(desk.append(decision, session=desk.session).refused) == ()
    (leased,) = [part.after for part in decision.slices if isinstance(part.after, InFlight)]
    return leased


def granted_when_due(desk: Desk, run: Ready) -> InFlight:
    """Lease a run by the statement, once it is due."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        reply = desk.lease(jobs.want(run))
        if reply.granted:
            return reply.granted[0].run
        assert reply.early, reply
        assert time.monotonic() < deadline, "the run does not become due"
        desk.bench.rest()


class PoliciesContract:
    """Subclass this with a fixture `bench`."""

    @pytest.fixture
    def desk(self, bench: Bench) -> Desk:
        return Desk(bench)

    def test_a_catch_up_rides_on_the_runs_of_its_job_until_it_is_empty(self, desk: Desk) -> None:
        desk.begin()
        run = desk.late_minutely(minutes=2, misfire=ALL)
        assert desk.lease(jobs.want(run)).decide == [run.facts.run_id]
        ends: list[int] = []
        granted = decided(desk, run.facts.job_id)
        for _ in range(4):
            rest = granted.facts.catch_up
            assert rest is not None
            ends.append((rest.end - granted.facts.nominal) // MINUTE)
            standing = desk.standing(run.facts.job_id)
            assert standing is not None
            report = jobs.succeeded(Granted(granted, standing.job, alone=True), desk.now())
            assert tuple(desk.append(report).refused) == ()
            if rest.end == granted.facts.nominal:
                break
            waits = desk.run(run.facts.job_id)
            cursor = max(rest.cursor, desk.now() // MINUTE * MINUTE)
            assert waits.facts.catch_up in (
                CatchUp(waits.facts.nominal, rest.end, rest.cursor),
                CatchUp(waits.facts.nominal, rest.end, cursor),
            )
            granted = granted_when_due(desk, waits)
        assert ends == list(range(ends[0], -1, -1))
        assert desk.run(run.facts.job_id).facts.nominal > run.facts.nominal + 2 * MINUTE

    def test_the_run_in_flight_is_cancelled_by_the_lease_of_the_next_one(self, desk: Desk) -> None:
        desk.begin()
        run = desk.late_minutely(minutes=0, overlap=CANCEL_OTHER)
        old = decided(desk, run.facts.job_id)
        standing = desk.standing(run.facts.job_id)
        assert standing is not None
        (waits,) = [r for r in standing.runs if isinstance(r, Ready)]
        new = decided(desk, run.facts.job_id, at=waits.facts.due_at, early=True)
        after = desk.standing(run.facts.job_id)
        assert after is not None
        open_runs = {r.facts.run_id for r in after.runs}
        assert old.facts.run_id not in open_runs
        assert new.facts.run_id in open_runs

    def test_a_redrive_is_decided_elsewhere(self, desk: Desk) -> None:
        desk.begin()
        standing = desk.standing(desk.late_minutely(minutes=0).facts.job_id)
        assert standing is not None
        desk.append(asked := jobs.redriven(standing.job, standing.runs, desk.now()))
        run = jobs.ready_run(asked)
        assert list(desk.lease(jobs.want(run)).decide) == [run.facts.run_id]
