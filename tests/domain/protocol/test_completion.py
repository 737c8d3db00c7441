"""Protocol §8: an accepted attempt goes from heartbeat to heartbeat, and ends as any other does."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.envelope import Decision, Rejected
from domain.job import events as je
from domain.job import state as js
from domain.run import accepted
from domain.run import events as re
from domain.run import state as rs
from domain.run.accepted import Progress
from domain.run.decide import ABANDONED, LOST, Result
from domain.schedule.schedule import FixedDelay
from tests.domain.protocol.scene import FAILED, JOB, MINUTE, SECOND, Desk, once, spec

BEAT_MS = 30 * SECOND
LEASE_MS = BEAT_MS + BEAT_MS // 3
HOUR = 60 * MINUTE


def job(**fields: object) -> je.JobSpec:
    limits = {"heartbeat_timeout_ms": BEAT_MS, "max_run_time_ms": HOUR}
    return msgspec.structs.replace(spec(), **limits | fields)


def taken(new: je.JobSpec | None = None) -> tuple[Desk, rs.Awaiting]:
    """Return a job whose link was leased and accepted a second later."""
    desk = Desk()
    desk.define(new or job())
    run = desk.begin()
    desk.now += SECOND
    return desk, accept(desk, run)


def accept(desk: Desk, run: rs.InFlight) -> rs.Awaiting:
    decision = accepted.accept(desk.head().facts.spec, run, run.facts.fence, desk.now)
    assert decision is not None
    assert desk.commit(decision)
    state = desk.due[run.facts.run_id]
    assert isinstance(state, rs.Awaiting)
    return state


def beat(desk: Desk, progress: Progress | None = None) -> Decision | Rejected | None:
    run = desk.only()
    said = accepted.extend(desk.head(), run, run.facts.fence, desk.now, progress)
    if isinstance(said, Decision):
        assert desk.commit(said)
    return said


def lapse(desk: Desk, run: rs.Awaiting) -> re.Fired:
    desk.now = max(desk.now, run.until)
    result = accepted.lapsed(desk.head().facts.spec, run, desk.now)
    assert desk.report(run, result)
    return next(e for e in reversed(desk.streams[run.facts.run_id]) if isinstance(e, re.Fired))


def refusal(said: Decision | Rejected | None) -> str:
    assert isinstance(said, Rejected)
    return said.code


# -------------------------------------------------------------------- accept


def test_an_accepted_attempt_has_no_owner_and_a_lease_of_a_heartbeat_and_a_third() -> None:
    desk, run = taken()
    assert run.until == desk.now + LEASE_MS
    assert desk.last(run.facts.run_id) == ["Scheduled", "Leased", "Accepted"]
    assert desk.only() == run


@pytest.mark.parametrize("fence", [1, 3])
def test_what_another_attempt_accepted_is_nothing(fence: int) -> None:
    desk = Desk()
    desk.define(job())
    run = desk.begin()
    assert run.facts.fence == 2
    assert accepted.accept(job(), run, fence, desk.now) is None


def test_an_attempt_that_was_given_up_is_not_accepted() -> None:
    desk = Desk()
    desk.define(job())
    run = desk.begin()
    desk.report(run, LOST)
    again = desk.only()
    assert accepted.accept(job(), again, again.facts.fence, desk.now) is None


def test_a_job_that_says_nothing_has_five_minutes_between_beats_and_a_day_in_all() -> None:
    desk, run = taken(spec())
    assert run.until == desk.now + 400 * SECOND
    short, quick = taken(spec(max_run_time_ms=2 * MINUTE))
    assert quick.until == short.now - SECOND + 2 * MINUTE
    assert accepted.run_time_ms(spec()) == 24 * HOUR


def test_slots_that_pass_while_a_handler_works_are_overlap_and_the_next_follows_its_end() -> None:
    desk, run = taken()
    desk.now += 5 * MINUTE
    desk.report(run, accepted.succeeded(run, desk.now, b'"done"'))
    assert [(p.verdict, p.count) for p in desk.passed()] == [(re.OVERLAP, 5)]
    assert desk.frontier().facts.nominal > desk.now


def test_a_delay_from_completion_is_counted_from_the_handlers_end() -> None:
    desk, run = taken(spec(FixedDelay("PT1M", MINUTE), heartbeat_timeout_ms=BEAT_MS))
    desk.now += 25 * SECOND
    beat(desk)
    desk.now += 20 * SECOND
    state = desk.only()
    desk.report(state, accepted.succeeded(state, desk.now, b""))
    assert desk.frontier().facts.nominal == desk.now + MINUTE
    assert desk.last(run.facts.run_id)[-3:] == ["Extended", "Fired", "Completed"]


# -------------------------------------------------------------------- heartbeats


def test_a_beat_within_a_third_of_the_last_that_was_written_costs_no_event() -> None:
    desk, run = taken()
    desk.now += BEAT_MS // 3 - 1
    assert beat(desk, Progress(50, "half")) is None
    desk.now += 1
    assert isinstance(beat(desk, Progress(60, "more")), Decision)
    assert desk.streams[run.facts.run_id][-2:] == [
        re.Extended(desk.now, desk.now + LEASE_MS),
        re.Progressed(desk.now, 60, "more"),
    ]


def test_a_beat_before_the_acceptance_is_written_is_heard_and_changes_nothing() -> None:
    desk = Desk()
    desk.define(job())
    desk.begin()
    assert beat(desk) is None


@given(st.lists(st.integers(0, BEAT_MS), max_size=60))
def test_whoever_beats_in_time_keeps_the_run_and_few_beats_are_written(gaps: list[int]) -> None:
    desk, run = taken(job(max_run_time_ms=0))
    start = desk.now
    for gap in gaps:
        desk.now += gap
        state = desk.only()
        assert isinstance(state, rs.Awaiting)
        assert state.until >= desk.now, "a beat within the time-out finds the lease in force"
        beat(desk)
        state = desk.only()
        assert isinstance(state, rs.Awaiting)
        assert state.until >= desk.now + BEAT_MS
    written = desk.last(run.facts.run_id).count("Extended")
    assert written <= (desk.now - start) // (BEAT_MS // 3)


def test_no_beat_leads_beyond_the_longest_time_and_the_last_of_it_is_given_whole() -> None:
    desk, run = taken(job())
    last = run.leased_at + HOUR
    while desk.now + 10 * SECOND < last:
        desk.now += 10 * SECOND
        beat(desk)
    state = desk.only()
    assert isinstance(state, rs.Awaiting)
    assert state.until == last
    assert beat(desk) is None
    desk.now = last
    assert refusal(beat(desk)) == "overtime"


def test_a_beat_after_a_cancel_is_told_that_the_job_is_gone_and_a_success_still_counts() -> None:
    desk, run = taken()
    desk.cancel()
    assert refusal(beat(desk)) == "gone"
    desk.report(run, accepted.succeeded(run, desk.now, b""))
    assert desk.states[run.facts.run_id] == rs.Ended(run.facts.run_id, 5, re.SUCCEEDED)


def test_a_beat_of_an_earlier_life_is_told_that_the_job_is_gone() -> None:
    desk, run = taken()
    desk.cancel()
    desk.define(job())
    said = accepted.extend(desk.head(), desk.due[run.facts.run_id], 2, desk.now, None)
    assert refusal(said) == "gone"


def test_a_beat_of_an_attempt_that_another_has_followed_is_refused() -> None:
    desk, run = taken()
    lapse(desk, run)
    waiting = desk.only()
    assert refusal(accepted.extend(desk.head(), waiting, 2, desk.now, None)) == "superseded"
    second = desk.lease_when_due()
    assert refusal(accepted.extend(desk.head(), second, 2, desk.now, None)) == "superseded"
    assert desk.decide_report(run, accepted.succeeded(run, desk.now, b"")) is None


# -------------------------------------------------------------------- ends


def test_silence_is_a_lost_attempt_with_the_retry_of_one() -> None:
    desk, run = taken()
    fired = lapse(desk, run)
    assert (fired.outcome, fired.then, fired.error) == (re.LOST, re.RETRY, accepted.UNHEARD)
    again = desk.only()
    assert isinstance(again, rs.Ready)
    assert (again.facts.lost, again.facts.fails, again.facts.due_at) == (1, 0, desk.now)


def test_too_long_a_time_is_a_failure() -> None:
    desk, run = taken(job())
    desk.due[run.facts.run_id] = late = msgspec.structs.replace(run, until=run.leased_at + HOUR)
    desk.now = late.until
    result = accepted.lapsed(job(), late, desk.now - 3)
    assert (result.outcome, result.error) == (re.FAILED, accepted.OVERTIME)
    assert result.elapsed_us == HOUR * 1_000


def test_the_lease_of_a_process_lapses_as_it_did() -> None:
    desk = Desk()
    desk.define(job())
    assert accepted.lapsed(job(), desk.begin(), desk.now) is LOST


def test_a_success_after_the_lapse_counts_until_the_retry_is_leased() -> None:
    desk, run = taken(once(Desk().now + MINUTE, heartbeat_timeout_ms=BEAT_MS))
    lapse(desk, run)
    desk.report(run, accepted.succeeded(desk.only(), desk.now, b""))
    assert desk.last(run.facts.run_id)[-2:] == ["Fired", "Completed"]
    assert desk.due == {}


def test_a_failure_is_retried_by_the_policy_and_says_why() -> None:
    desk, run = taken()
    desk.now += 10 * SECOND
    desk.report(run, accepted.failed(run, desk.now, "disk full", retry=True))
    fired = desk.streams[run.facts.run_id][-2]
    assert isinstance(fired, re.Fired)
    assert (fired.status, fired.error, fired.body) == (202, accepted.BY_HANDLER, b"disk full")
    assert fired.elapsed_us == 11_000_000
    again = desk.only()
    assert (again.facts.fails, again.facts.due_at) == (1, desk.now + 5 * SECOND)


def test_a_failure_that_is_not_to_be_retried_ends_the_run_and_the_chain_goes_on() -> None:
    desk, run = taken()
    desk.report(run, accepted.failed(run, desk.now, "no such account", retry=False))
    assert desk.streams[run.facts.run_id][-1] == re.Completed(desk.now, re.DEAD, "handler")
    assert desk.frontier().facts.nominal > desk.now


@pytest.mark.parametrize(
    ("result", "follows"),
    [(FAILED, re.WITHDRAWN), (ABANDONED, re.WITHDRAWN), (Result(re.OK, "ok", 202), re.SUCCEEDED)],
)
def test_the_end_of_an_accepted_attempt_of_a_paused_job(result: Result, follows: str) -> None:
    desk, run = taken()
    desk.pause()
    assert desk.due[run.facts.run_id] == run, "a pause leaves what is in flight alone"
    assert isinstance(beat_after(desk, run), Decision)
    held = desk.due[run.facts.run_id]
    assert isinstance(held, rs.Awaiting)
    desk.report(held, result)
    fired = next(e for e in reversed(desk.streams[run.facts.run_id]) if isinstance(e, re.Fired))
    assert fired.then == follows


def beat_after(desk: Desk, run: rs.Awaiting) -> Decision | Rejected | None:
    desk.now += BEAT_MS // 3
    said = accepted.extend(desk.head(), run, run.facts.fence, desk.now, None)
    assert isinstance(said, Decision)
    assert desk.commit(said)
    return said


def test_a_newer_occurrence_takes_the_place_of_an_accepted_one() -> None:
    desk, run = taken(job(overlap=je.CANCEL_OTHER))
    frontier = desk.frontier()
    desk.now = frontier.facts.due_at
    assert desk.lease(frontier) is not None
    assert desk.last(run.facts.run_id)[-1] == "Cancelled"


def test_an_accepted_run_counts_towards_the_limit_of_overlap() -> None:
    desk, run = taken(job(overlap=je.ALLOW, overlap_limit=1))
    frontier = desk.frontier()
    desk.now = frontier.facts.due_at
    assert desk.lease(frontier) is None
    desk.report(run, Result(re.OK, "ok", 202))
    assert desk.lease(frontier) is not None


def test_a_complete_and_an_acceptance_that_cross_are_one_end() -> None:
    desk = Desk()
    desk.define(job())
    run = desk.begin()
    late = accepted.accept(job(), run, run.facts.fence, desk.now)
    desk.report(run, accepted.succeeded(run, desk.now, b""))
    assert late is not None
    assert not desk.commit(late)
    assert isinstance(desk.head(), js.Active)
    assert desk.head().facts.job_id == JOB
