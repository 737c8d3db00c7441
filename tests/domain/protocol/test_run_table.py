"""Protocol §4: each cell of run state by event, legal or not, and what follows a `Fired`."""

from itertools import product

import pytest

from domain.job import state as js
from domain.run import events as re
from domain.run import state as rs
from domain.run.decide import ABANDONED, LOST, Result
from tests.domain.protocol.scene import (
    FAILED,
    JOB,
    MINUTE,
    OK,
    POLICY,
    SECOND,
    SESSION,
    START,
    TENANT,
    Desk,
    once,
    spec,
)

RUN = bytes(16)
SCHEDULED = re.Scheduled(START, JOB, TENANT, 1, 0, 0, START, START, 1, 1, 1, START - 1)
LEASED = re.Leased(SESSION, bytes(8), START, START + MINUTE, 1)
ACCEPTED = re.Accepted(START, START + MINUTE)
EXTENDED = re.Extended(START, START + MINUTE)
WITHDRAWN = re.Withdrawn(START, re.PAUSED)
COMPLETED = re.Completed(START, re.SUCCEEDED)
SKIPPED = re.Skipped(START, JOB, TENANT, START, re.PAUSED)
CANCELLED = re.Cancelled(START, JOB, TENANT, START)


def fired(outcome: str, *, late: bool = False) -> re.Fired:
    facts = (START, JOB, TENANT, 0, START, START, START, 1, 2)
    return re.Fired(*facts, outcome, re.SUCCEEDED, late=late)


WAYS: dict[str, tuple[re.RunEvent, ...]] = {
    "none": (),
    "scheduled": (SCHEDULED,),
    "begun": (SCHEDULED, LEASED, fired(re.FAILED), SCHEDULED),
    "leased": (SCHEDULED, LEASED),
    "accepted": (SCHEDULED, LEASED, ACCEPTED),
    "withdrawn": (SCHEDULED, WITHDRAWN),
    "withdrawn begun": (SCHEDULED, LEASED, fired(re.FAILED), WITHDRAWN),
    "completed": (SCHEDULED, LEASED, fired(re.OK), COMPLETED),
    "skipped": (SCHEDULED, SKIPPED),
    "cancelled": (SCHEDULED, CANCELLED),
}
EVENTS: dict[str, re.RunEvent] = {
    "Scheduled": SCHEDULED,
    "Leased": LEASED,
    "Accepted": ACCEPTED,
    "Extended": EXTENDED,
    "Fired ok": fired(re.OK),
    "Fired ok late": fired(re.OK, late=True),
    "Fired failed": fired(re.FAILED),
    "Withdrawn": WITHDRAWN,
    "Skipped": SKIPPED,
    "Cancelled": CANCELLED,
    "Completed": COMPLETED,
}
LEGAL = {
    "none": {"Scheduled"},
    "scheduled": {"Scheduled", "Leased", "Fired ok late", "Withdrawn", "Skipped", "Cancelled"},
    # Its end without a call: the occurrence has expired.
    "begun": {"Scheduled", "Leased", "Fired ok late", "Withdrawn", "Cancelled", "Completed"},
    "leased": {"Accepted", "Fired ok", "Fired ok late", "Fired failed", "Cancelled"},
    "accepted": {"Extended", "Fired ok", "Fired ok late", "Fired failed", "Cancelled"},
    "withdrawn": {"Scheduled", "Fired ok late", "Skipped", "Cancelled"},
    "withdrawn begun": {"Scheduled", "Fired ok late", "Cancelled"},
    "completed": set(),
    "skipped": set(),
    "cancelled": set(),
}


def fold(events: tuple[re.RunEvent, ...]) -> rs.RunState | None:
    state: rs.RunState | None = None
    for event in events:
        state = rs.evolve(RUN, state, event)
    return state


@pytest.mark.parametrize(("state", "event"), list(product(WAYS, EVENTS)))
def test_a_run_takes_the_events_of_its_state_and_no_other(state: str, event: str) -> None:
    before = fold(WAYS[state])
    if event in LEGAL[state]:
        assert rs.evolve(RUN, before, EVENTS[event]) != before
    else:
        with pytest.raises(AssertionError):
            rs.evolve(RUN, before, EVENTS[event])


@pytest.fixture
def desk() -> Desk:
    """A one-time job, due at 08:00."""
    desk = Desk()
    desk.define(once(START))
    return desk


def fired_of(desk: Desk, run: rs.InFlight) -> re.Fired:
    found = [e for e in desk.streams[run.facts.run_id] if isinstance(e, re.Fired)]
    return found[-1]


def ended(desk: Desk, run: rs.InFlight) -> re.Completed:
    last = desk.streams[run.facts.run_id][-1]
    assert isinstance(last, re.Completed)
    return last


def attempt(desk: Desk, result: Result) -> rs.InFlight:
    """Lease the one run at its due instant and report."""
    run = desk.only()
    desk.now = max(desk.now, run.facts.due_at)
    leased = desk.lease(run)
    assert leased is not None
    if result is LOST:
        desk.now = leased.until
    desk.report(leased, result)
    return leased


def test_a_success_completes_the_run(desk: Desk) -> None:
    run = attempt(desk, OK)
    assert ended(desk, run).outcome == re.SUCCEEDED
    assert fired_of(desk, run).then == re.SUCCEEDED


def test_a_failure_is_retried_after_the_delay_of_the_policy(desk: Desk) -> None:
    attempt(desk, FAILED)
    facts = desk.only().facts
    assert facts.due_at == desk.now + POLICY.base_ms
    assert (facts.attempt, facts.fails) == (1, 1)


def test_the_wish_of_the_target_is_never_earlier_than_the_backoff(desk: Desk) -> None:
    attempt(desk, Result(re.FAILED, "retry", 503, retry_after_ms=1_000))
    assert desk.only().facts.due_at == desk.now + POLICY.base_ms


def test_the_wish_of_the_target_puts_a_retry_off(desk: Desk) -> None:
    attempt(desk, Result(re.FAILED, "retry", 503, retry_after_ms=60_000))
    assert desk.only().facts.due_at == desk.now + MINUTE


def test_the_last_failure_allowed_is_a_dead_letter(desk: Desk) -> None:
    for _ in range(POLICY.max_attempts - 1):
        attempt(desk, FAILED)
    run = attempt(desk, FAILED)
    assert (ended(desk, run).outcome, ended(desk, run).cause) == (re.DEAD, "attempts")


def test_a_status_that_is_not_retried_is_a_dead_letter_at_once(desk: Desk) -> None:
    run = attempt(desk, Result(re.FAILED, "dead", 404))
    assert (ended(desk, run).outcome, ended(desk, run).cause) == (re.DEAD, "status")


def test_lost_attempts_do_not_count_as_failures_and_the_sixth_is_the_end(desk: Desk) -> None:
    delays = []
    for _ in range(5):
        attempt(desk, LOST)
        delays.append(desk.only().facts.due_at - desk.now)
    assert delays == [0, 1_000, 5_000, 30_000, 120_000]
    assert desk.only().facts.fails == 0
    run = attempt(desk, LOST)
    assert (ended(desk, run).outcome, ended(desk, run).cause) == (re.DEAD, "lost")


def test_abandoned_attempts_count_towards_neither_and_have_their_own_bound(desk: Desk) -> None:
    for _ in range(100):
        attempt(desk, ABANDONED)
    facts = desk.only().facts
    assert (facts.fails, facts.lost, facts.abandoned) == (0, 0, 100)
    run = attempt(desk, ABANDONED)
    assert ended(desk, run).cause == "abandoned"


def test_a_retry_beyond_the_age_limit_is_the_end_now(desk: Desk) -> None:
    run = attempt(desk, Result(re.FAILED, "retry", 503, retry_after_ms=POLICY.max_age_ms + 1))
    assert ended(desk, run).cause == "age"


def test_the_failure_of_a_cancelled_job_is_its_end(desk: Desk) -> None:
    run = desk.begin()
    desk.cancel()
    desk.report(run, FAILED)
    assert fired_of(desk, run).then == re.CANCELLED
    assert desk.last(run.facts.run_id)[-1] == "Cancelled"


def test_the_failure_of_a_paused_job_is_withheld(desk: Desk) -> None:
    run = desk.begin()
    desk.pause()
    desk.report(run, FAILED)
    assert fired_of(desk, run).then == re.WITHDRAWN
    assert desk.due == {}


def test_the_success_of_a_cancelled_job_completes_its_run(desk: Desk) -> None:
    run = desk.begin()
    desk.cancel()
    desk.report(run)
    assert ended(desk, run).outcome == re.SUCCEEDED
    assert isinstance(desk.head(), js.Cancelled)


def test_a_late_success_completes_the_run_and_its_retry_dies(desk: Desk) -> None:
    run = desk.begin()
    desk.now = run.until
    desk.lapse(run)
    desk.report(run, OK)
    assert fired_of(desk, run).late
    assert desk.due == {}


def test_a_late_failure_is_dropped_as_its_retry_exists(desk: Desk) -> None:
    run = desk.begin()
    desk.now = run.until
    desk.lapse(run)
    assert desk.report(run, FAILED) is None


def test_a_late_success_is_refused_once_the_run_is_leased_again(desk: Desk) -> None:
    run = desk.begin()
    desk.now = run.until
    desk.lapse(run)
    assert desk.lease(desk.only()) is not None
    assert desk.report(run, OK) is None


def test_a_late_success_of_a_withheld_run_completes_it(desk: Desk) -> None:
    run = desk.begin()
    desk.pause()
    desk.now = run.until
    desk.lapse(run)
    desk.report(run, OK)
    assert ended(desk, run).outcome == re.SUCCEEDED


def test_a_report_decided_before_a_command_is_refused(desk: Desk) -> None:
    run = desk.begin()
    decision = desk.decide_report(run, FAILED)
    assert decision is not None
    desk.cancel()
    assert not desk.commit(decision)


def test_a_retry_of_a_recurring_job_holds_its_chain() -> None:
    desk = Desk()
    desk.define(spec())
    desk.fire(FAILED)
    desk.now += 2 * MINUTE + SECOND
    run = desk.lease(desk.only())
    assert run is not None
    desk.report(run)
    assert [p.verdict for p in desk.passed()] == [re.OVERLAP]
