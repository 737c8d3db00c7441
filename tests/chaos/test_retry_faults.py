"""What comes of a run when its target does this or that: one end, one key, and no hurry."""

from collections import Counter
from collections.abc import Iterator

import pytest

from domain.retry import ONE_TIME_DEFAULT, RetryPolicy, delay_ms
from domain.run import events as re
from tests.chaos.wired import POLICY, TIMEOUT_MS, WiredScene, wired_scene
from tests.contracts import jobs
from tests.engines import sink_faults as faults
from tests.engines.sink import Request, TargetServer

OK = faults.says()
DAY_MS = 86_400_000


@pytest.fixture
def scene(sink: TargetServer) -> Iterator[WiredScene]:
    with wired_scene(sink) as found:
        yield found


def keys(requests: list[Request]) -> set[str]:
    return {request.header("Idempotency-Key") for request in requests}


def attempts(requests: list[Request]) -> list[str]:
    return [request.header("Tocsin-Attempt") for request in requests]


def test_f65_an_attempt_at_the_very_deadline_has_one_result(scene: WiredScene) -> None:
    late = faults.late(TIMEOUT_MS / 1000)
    scene.sink.behave("/", faults.in_turn(late, late, OK))
    run = scene.soon()
    requests = scene.finish(run)
    assert scene.sink.reached["/"] >= 1
    assert len(scene.ends(run)) == 1
    assert len(scene.fired(run)) == len(requests)
    assert all((one.status == 200) != (one.error == "timeout") for one in scene.fired(run))


def test_f68_a_whole_2xx_header_block_is_a_success_and_the_lost_body_is_noted(
    scene: WiredScene,
) -> None:
    scene.sink.behave("/", faults.reset(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbegun"))
    run = scene.soon()
    assert len(scene.finish(run)) == scene.sink.reached["/"] == 1
    (fired,) = scene.fired(run)
    assert (fired.outcome, fired.status, fired.error) == (re.OK, 200, "reset")
    assert [end.outcome for end in scene.ends(run)] == [re.SUCCEEDED]


@pytest.mark.parametrize(
    ("wish", "wait_ms"),
    [
        ("0", 2_000),
        ("1", 2_000),
        ("-1", 2_000),
        ("120", 120_000),
        ("1000000000", DAY_MS),
        ("99999999999999999999999", DAY_MS),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 2_000),
        ("Fri, 31 Dec 2398 23:59:59 GMT", DAY_MS),
        ("soon", 2_000),
        ("1_000", 2_000),
        ("\xb2", 2_000),
        ("1, 2", 2_000),
    ],
)
def test_f73_a_wish_to_retry_later_is_clamped_and_never_earlier_than_the_backoff(
    scene: WiredScene, wish: str, wait_ms: int
) -> None:
    asks = faults.says(503, f"Retry-After: {wish}")
    scene.sink.behave("/", faults.in_turn(asks, OK))
    policy = RetryPolicy(5, "fixed", 2_000, 3_600_000, jitter="none", max_age_ms=7 * DAY_MS)
    run = scene.soon(retry=policy)
    scene.until(lambda: len(scene.planned(run)) == 2, "a second attempt is planned")
    assert scene.sink.reached["/"] == 1
    again = scene.planned(run)[1]
    assert again.due_at - again.at == wait_ms


def test_f74_gone_ends_the_run_and_pauses_its_job_in_one_append(scene: WiredScene) -> None:
    scene.sink.behave("/", faults.says(410))
    run = scene.define(scene.spec(jobs.minutely()))
    scene.hand_off()
    assert len(scene.finish(run)) == scene.sink.reached["/"] == 1
    (end,) = scene.ends(run)
    paused = scene.events(run.facts.job_id)[-1]
    assert type(paused).__name__ == "Paused"
    assert (end.outcome, getattr(paused, "at", 0)) == (re.DEAD, end.at)
    assert scene.log.runs_of(run.facts.job_id) == ()


def test_f75_a_handler_whose_answer_is_lost_is_called_again_with_the_same_key(
    scene: WiredScene,
) -> None:
    scene.sink.behave("/", faults.in_turn(faults.reset(), OK))
    run = scene.soon()
    requests = scene.finish(run)
    assert scene.sink.reached["/"] == 2
    assert len(keys(requests)) == 1
    assert attempts(requests) == ["1", "2"]
    assert [(one.outcome, one.error) for one in scene.fired(run)] == [
        (re.FAILED, "reset"),
        (re.OK, ""),
    ]
    assert len(scene.ends(run)) == 1


def test_f77_an_attempt_that_was_given_up_and_its_retry_are_told_apart_by_their_handler(
    scene: WiredScene,
) -> None:
    """The first process hangs in its call until its lease is over; a second one calls again."""
    scene.sink.behave("/", faults.in_turn(faults.hang, OK))
    run = scene.soon()
    scene.until(lambda: scene.sink.reached["/"], "the first call has come")
    scene.clock.advance_us(60_000_000)
    scene.audit()
    scene.queue.close()
    scene.boot()
    scene.hand_off()
    first, second = scene.finish(run)
    assert scene.sink.reached["/"] == 2
    assert first.header("Idempotency-Key") == second.header("Idempotency-Key") != ""
    assert attempts([first, second]) == ["1", "2"]
    assert int(first.header("Tocsin-Fence")) < int(second.header("Tocsin-Fence"))
    assert first.header("Tocsin-Possible-Duplicate") == ""
    assert second.header("Tocsin-Possible-Duplicate") == "true"
    assert len(scene.ends(run)) == 1


def test_f80_a_success_after_our_deadline_is_followed_by_a_retry_with_the_same_key(
    scene: WiredScene,
) -> None:
    scene.sink.behave("/", faults.in_turn(faults.late(2 * TIMEOUT_MS / 1000), OK))
    run = scene.soon()
    requests = scene.finish(run)
    assert len(keys(requests)) == 1
    assert attempts(requests) == ["1", "2"]
    assert [one.error for one in scene.fired(run)] == ["timeout", ""]
    assert len(scene.ends(run)) == 1
    assert scene.sink.reached["/"] >= 1


def test_f79_runs_that_failed_together_come_back_apart() -> None:
    """All targets are down for an hour from the second at which everything was due."""
    hour_ms, slice_ms, runs = 3_600_000, 60_000, 20_000
    slices: Counter[int] = Counter()
    for number in range(runs):
        run_id, at, failures = number.to_bytes(16, "big"), 0, 0
        while at < hour_ms:
            failures += 1
            at += delay_ms(ONE_TIME_DEFAULT, run_id, failures)
            slices[at // slice_ms] += 1
        assert failures > 1, "it has failed while they were down"
    back = hour_ms // slice_ms
    usual = sum(slices[n] for n in range(back - 10, back)) / 10
    assert max(slices[n] for n in range(back, max(slices) + 1)) <= 2 * usual


def test_a_target_that_always_fails_is_dead_after_its_attempts(scene: WiredScene) -> None:
    scene.sink.behave("/", faults.says(500))
    run = scene.soon()
    requests = scene.finish(run)
    assert attempts(requests) == [str(n) for n in range(1, POLICY.max_attempts + 1)]
    assert [end.outcome for end in scene.ends(run)] == [re.DEAD]
