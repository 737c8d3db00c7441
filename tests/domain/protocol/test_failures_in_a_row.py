"""A job that is paused after so many links in a row that ended dead, and tried again."""

import msgspec

from domain.job import events as je
from domain.job import state as js
from domain.run import events as re
from domain.run.decide import Result
from tests.domain.protocol.scene import FAILED, MINUTE, OK, Desk, spec

DEAD = Result(re.FAILED, "dead", 404)


def job(pause_after: int = 3, **fields: object) -> Desk:
    """Return a minutely job that is paused after so many failures."""
    desk = Desk()
    desk.define(msgspec.structs.replace(spec(), pause_after=pause_after, **fields))
    return desk


def paused(desk: Desk) -> js.Paused | None:
    """Return the job if it is paused."""
    return desk.job if isinstance(desk.job, js.Paused) else None


def test_a_job_is_paused_by_the_last_failure_it_may_have_in_a_row() -> None:
    desk = job()
    desk.fire(DEAD)
    desk.fire(DEAD)
    assert paused(desk) is None
    desk.fire(DEAD)
    stopped = paused(desk)
    assert stopped is not None
    assert (stopped.cause, stopped.until) == ("failures", desk.now + MINUTE)
    assert desk.due == {}


def test_a_success_between_failures_begins_the_count_anew() -> None:
    desk = job()
    for result in (DEAD, DEAD, OK, DEAD, DEAD):
        desk.fire(result)
    assert paused(desk) is None
    assert desk.head().facts.failures == 2


def test_retries_are_not_counted_and_a_success_without_failures_writes_no_job_event() -> None:
    desk = job(1)
    desk.fire(FAILED)
    desk.report(desk.lease_when_due())
    desk.fire()
    assert [type(event) for event in desk.job_events] == [je.Defined]


def test_the_probe_that_fails_pauses_again_for_longer() -> None:
    desk = job(1)
    desk.fire(DEAD)
    waits = []
    for _ in range(9):
        stopped = paused(desk)
        assert stopped is not None
        waits.append((stopped.until - desk.now) // MINUTE)
        desk.now = stopped.until
        desk.resume("latest")
        desk.fire(DEAD)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_the_probe_that_succeeds_ends_it() -> None:
    desk = job(1)
    desk.fire(DEAD)
    stopped = paused(desk)
    assert stopped is not None
    desk.now = stopped.until
    desk.resume("latest")
    desk.fire()
    assert isinstance(desk.head(), js.Active)
    assert desk.head().facts.failures == 0
    assert len(desk.links()) == 1


def test_an_edit_that_asks_for_no_pause_forgets_the_count() -> None:
    desk = job()
    desk.fire(DEAD)
    desk.revise(spec())
    assert desk.head().facts.failures == 0


def test_a_manual_run_that_fails_is_not_counted() -> None:
    desk = job(1)
    desk.trigger()
    (manual,) = [r for r in desk.due.values() if not r.facts.is_link]
    run = desk.lease(manual)
    assert run is not None
    desk.report(run, DEAD)
    assert paused(desk) is None


def test_where_runs_may_overlap_failures_are_counted_as_they_end() -> None:
    desk = job(2, overlap=je.ALLOW, overlap_limit=10)
    first, second = desk.begin(), desk.begin()
    desk.report(first, DEAD)
    desk.report(second, DEAD)
    assert paused(desk) is not None
