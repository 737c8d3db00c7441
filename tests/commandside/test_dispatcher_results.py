"""A result is kept until the log has taken it; what it says follows from the job as it is."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from commandside.deliverer_port import AnyCall
from commandside.firing.calls import Calls
from commandside.firing.reports import Flight
from commandside.ports import (
    SESSION_MS,
    Append,
    LogRequest,
    Renew,
)
from domain.chain import Chain
from domain.envelope import Decision
from domain.job import decide as job
from domain.job import state as js
from domain.job.decide import By
from domain.job.events import ALLOW
from domain.run import events as re
from domain.run.state import Facts, Ready
from domain.schedule.schedule import ScheduleBreach
from infra.memory.fire_log import Fate
from infra.memory.targets import Reply
from tests.commandside.scene import Scene, drain, failing_job, header, once, struck
from tests.contracts import jobs

MINUTE = 60_000


# ------------------------------------------------------------------ results


def test_a_result_is_kept_until_the_log_takes_it() -> None:
    scene = Scene()
    run = scene.one_time()
    scene.hand_off()
    scene.fates = lambda _s, request: struck(request, Append, Fate.DOWN)
    scene.until(lambda: scene.deliverer.hits)
    scene.run_ms(60_000)
    assert scene.dispatcher.unreported == 1
    scene.fates = lambda _s, _r: Fate.DONE
    scene.until(lambda: scene.dispatcher.unreported == 0)
    assert scene.ended(run)
    assert len(scene.deliverer.hits) == 1


def test_a_report_of_unknown_fate_is_decided_again_and_has_nothing_left_to_say() -> None:
    scene = Scene()
    run = scene.one_time()
    scene.hand_off()
    scene.fates = once(Append, Fate.REPLY_LOST)
    scene.until(lambda: scene.ended(run))
    scene.run_ms(1_000)
    assert scene.names(run) == ["Scheduled", "Leased", "Fired", "Completed"]
    assert scene.dispatcher.unreported == 0


def test_a_report_that_was_lost_is_sent_again() -> None:
    scene = Scene()
    run = scene.one_time()
    scene.hand_off()
    scene.fates = once(Append, Fate.REQUEST_LOST)
    scene.until(lambda: scene.ended(run))
    assert scene.names(run) == ["Scheduled", "Leased", "Fired", "Completed"]


def test_a_late_success_is_reported_after_its_lease_has_lapsed() -> None:
    scene = Scene()
    run = scene.one_time()
    scene.hand_off()
    scene.fates = lambda _s, request: struck(request, (Append, Renew), Fate.DOWN)
    scene.until(lambda: scene.deliverer.hits)
    scene.run_ms(SESSION_MS + 1_000)
    scene.audit()
    assert scene.names(run) == ["Scheduled", "Leased", "Fired", "Scheduled"]
    scene.fates = lambda _s, _r: Fate.DONE
    scene.until(lambda: scene.ended(run))
    late = scene.events(run.facts.run_id)[4]
    assert isinstance(late, re.Fired)
    assert late.late
    assert len(scene.deliverer.hits) == 1


def test_a_cancel_while_a_call_is_under_way_keeps_the_retry_from_being_planned() -> None:
    scene = Scene()
    run = scene.one_time()
    scene.answer = lambda _call: Reply(status=500, latency_us=1_000_000)
    scene.hand_off()
    scene.until(lambda: scene.deliverer.hits)
    standing = scene.log.standings([run.facts.job_id])[run.facts.job_id]
    cancel = job.cancel(standing.job, standing.runs, By(scene.clock.now()))
    assert isinstance(cancel, Decision)
    scene.append(cancel)
    scene.until(lambda: scene.ended(run))
    assert scene.names(run) == ["Scheduled", "Leased", "Fired", "Cancelled"]
    assert scene.telemetry.counts["reports_refused"] == 1


def test_an_answer_that_says_gone_ends_the_run_and_pauses_the_job() -> None:
    scene = Scene()
    run = scene.define(jobs.spec(jobs.minutely(), payload=b""))
    scene.answer = lambda _call: Reply(status=410)
    scene.hand_off()
    scene.until(lambda: scene.ended(run))
    last = scene.events(run.facts.run_id)[-1]
    assert isinstance(last, re.Completed)
    assert last.outcome == re.DEAD
    assert type(scene.events(run.facts.job_id)[-1]).__name__ == "Paused"
    assert scene.log.runs_of(run.facts.job_id) == ()


def test_a_tenant_without_a_key_has_a_dead_letter_and_no_call() -> None:
    scene = Scene()
    job_id, now = jobs.job_id(0, scene.log.shards), scene.clock.now()
    sealed = scene.vault.seal(jobs.TENANT, job_id, b"body")
    defined = jobs.define(job_id, jobs.spec(jobs.once(now + 100), payload=sealed), now)
    scene.append(defined)
    run = jobs.ready_run(defined)
    scene.vault.destroy(jobs.TENANT)
    scene.hand_off()
    scene.until(lambda: scene.ended(run))
    assert scene.deliverer.hits == []


def test_a_header_that_would_forge_another_is_a_dead_letter_with_a_reason() -> None:
    scene = Scene()
    job_id, now = jobs.job_id(0, scene.log.shards), scene.clock.now()
    sealed = scene.vault.seal(jobs.TENANT, job_id, b"body")
    spec = jobs.spec(jobs.once(now + 100), payload=sealed)
    forging = msgspec.structs.replace(spec, content_type="text/plain\r\nForged: yes")
    defined = jobs.define(job_id, forging, now)
    scene.append(defined)
    run = jobs.ready_run(defined)
    beside = scene.one_time(shard=1)
    scene.hand_off()
    scene.until(lambda: scene.ended(run) and scene.ended(beside))
    assert scene.names(run) == ["Scheduled", "Leased", "Fired", "Completed"]
    fired, completed = scene.events(run.facts.run_id)[2:]
    assert isinstance(fired, re.Fired)
    assert isinstance(completed, re.Completed)
    assert (fired.error, completed.outcome) == ("unsendable", re.DEAD)
    assert len(scene.deliverer.hits) == 1


def test_a_call_waits_while_its_keys_cannot_be_read_and_is_given_back_in_time() -> None:
    scene = Scene()
    run = scene.one_time()
    scene.vault.away = True
    sealed = scene.vault.seal(jobs.TENANT, run.facts.job_id, b"body")
    standing = scene.log.standings([run.facts.job_id])[run.facts.job_id]
    spec = msgspec.structs.replace(standing.job.facts.spec, payload=sealed)
    scene.append(jobs.revised(standing.job, standing.runs, spec, scene.clock.now()))
    scene.hand_off()
    scene.until(lambda: "Fired" in scene.names(run))
    given_back = scene.events(run.facts.run_id)[3]
    assert isinstance(given_back, re.Fired)
    assert given_back.outcome == re.ABANDONED
    scene.vault.away = False
    scene.until(lambda: scene.ended(run))
    assert [hit.call.body for hit in scene.deliverer.hits] == [b"body"]


# ------------------------------------------------------------------ retries


def test_a_failure_is_tried_again_when_its_backoff_says() -> None:
    scene = Scene()
    run = scene.one_time()
    scene.answer = lambda call: Reply(status=503 if header(call, "Tocsin-Attempt") == "1" else 200)
    scene.hand_off()
    scene.until(lambda: "Fired" in scene.names(run))
    scene.run_ms(100)
    again = scene.events(run.facts.run_id)[3]
    assert isinstance(again, re.Scheduled)
    assert 5_000 <= again.due_at - again.at <= 10_000
    scene.hand_off()
    scene.until(lambda: scene.ended(run))
    assert scene.deliverer.hits[1].at_us >= again.due_at * 1_000


def test_every_attempt_has_the_same_key_and_body() -> None:
    scene = Scene()
    run = failing_job(scene, payload=b"first")
    standing = scene.log.standings([run.facts.job_id])[run.facts.job_id]
    sealed = scene.vault.seal(jobs.TENANT, run.facts.job_id, b"second")
    spec = msgspec.structs.replace(
        standing.job.facts.spec, payload=sealed, key_template="{job_id}-new-{scheduled_ts}"
    )
    scene.append(jobs.revised(standing.job, standing.runs, spec, scene.clock.now()))
    scene.answer = lambda _call: Reply()
    scene.hand_off()
    scene.until(lambda: scene.ended(run))
    assert [hit.call.body for hit in scene.deliverer.hits] == [b"first", b"first"]
    assert len(set(scene.keys())) == 1


def test_a_wish_to_be_left_alone_is_kept() -> None:
    scene = Scene()
    run = scene.one_time()
    scene.answer = lambda _call: Reply(status=429, headers=(("Retry-After", "120"),))
    scene.hand_off()
    scene.until(lambda: "Fired" in scene.names(run))
    scene.run_ms(100)
    again = scene.events(run.facts.run_id)[3]
    assert isinstance(again, re.Scheduled)
    assert again.due_at - again.at == 120_000


def test_a_job_that_always_fails_is_a_dead_letter_in_the_end() -> None:
    scene = Scene()
    run = scene.one_time()
    scene.answer = lambda _call: Reply(status=500)
    scene.hand_off()
    for _ in range(20):
        waiting = scene.log.runs_of(run.facts.job_id)
        if waiting:
            scene.clock.advance_ms(max(0, waiting[0].facts.due_at - scene.clock.now()))
            scene.run_ms(300)
            scene.hand_off()
    assert scene.ended(run)
    assert len(scene.deliverer.hits) == 16
    assert len(set(scene.keys())) == 1


# ------------------------------------------------------------------ results that have no luck


def broken_for(run: Ready, whole: Callable[..., object], broken: list[bool]) -> Callable[..., Any]:
    """Return a method of a flight that fails for one run, as only a bug can."""

    def method(flight: Flight, *rest: object) -> object:
        if broken and flight.run.facts.run_id == run.facts.run_id:
            raise ValueError("no such state")
        return whole(flight, *rest)

    return method


@pytest.mark.parametrize("step", ["result", "decide"])
def test_a_result_that_cannot_be_decided_on_stands_in_nobodys_way_and_is_kept(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    scene = Scene()
    run, other = scene.one_time(), scene.one_time()
    broken = [True]
    monkeypatch.setattr(Flight, step, broken_for(run, getattr(Flight, step), broken))
    scene.hand_off()
    scene.until(lambda: scene.ended(other))
    scene.run_ms(10_000)
    assert not scene.ended(run)
    assert [name for name, _ in scene.telemetry.alarms] == ["reports_stuck"]
    broken.clear()
    scene.until(lambda: scene.ended(run))
    assert scene.names(run) == ["Scheduled", "Leased", "Fired", "Completed"]
    assert len(scene.deliverer.hits) == 2


def test_results_that_cannot_be_decided_on_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commandside.firing.reporting.PARKED_MAX", 3)
    scene = Scene()
    runs = [scene.one_time() for _ in range(5)]
    monkeypatch.setattr(Flight, "decide", broken_for(runs[0], Flight.decide, []))
    for name in ("report", "report_among"):
        monkeypatch.setattr(f"commandside.firing.reports.{name}", lambda *_a, **_n: 1 // 0)
    scene.hand_off()
    scene.until(lambda: len(scene.deliverer.hits) == 5)
    scene.run_ms(1_000)
    assert scene.dispatcher.unreported == 3
    assert [name for name, _ in scene.telemetry.alarms].count("reports_given_up") == 2


def test_a_drain_does_not_wait_for_a_result_that_cannot_be_decided_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    run = scene.one_time()
    monkeypatch.setattr(Flight, "decide", broken_for(run, Flight.decide, [True]))
    scene.hand_off()
    scene.until(lambda: scene.telemetry.counts["reports_parked"])
    drain(scene)
    assert scene.dispatcher.unreported == 0
    assert ("reports_given_up", run.facts.run_id.hex()) in scene.telemetry.alarms


def test_a_success_is_reported_however_often_its_job_was_changed_in_between() -> None:
    scene = Scene()
    run = scene.define(jobs.spec(jobs.minutely(), payload=b""))
    left = list(range(12))

    def change(_stripe: int, request: LogRequest) -> Fate:
        if left and isinstance(request, Append):
            by = By(scene.clock.now())
            standing = scene.log.standings([run.facts.job_id])[run.facts.job_id]
            turn = job.resume if isinstance(standing.job, js.Paused) else job.pause
            decision = turn(standing.job, standing.runs, by)
            assert isinstance(decision, Decision)
            left.pop()
            scene.append(decision)
        return Fate.DONE

    scene.fates = change
    scene.hand_off()
    scene.until(lambda: scene.ended(run))
    assert scene.names(run) == ["Scheduled", "Leased", "Fired", "Completed"]
    assert scene.telemetry.counts["reports_refused"] == 12
    assert len(scene.deliverer.hits) == 1


def test_a_first_lease_that_cannot_be_decided_is_left_to_the_audit_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    spec = jobs.spec(jobs.minutely(), payload=b"", overlap=ALLOW, overlap_limit=2)
    runs = [scene.define(spec), scene.one_time(in_ms=70_000)]
    monkeypatch.setattr("commandside.firing.leasing.first_lease", lambda *_: 1 // 0)
    scene.hand_off()
    scene.until(lambda: scene.ended(runs[1]))
    assert [name for name, _ in scene.telemetry.alarms] == ["leases_given_up"]
    assert scene.names(runs[0]) == ["Scheduled"]
    assert scene.dispatcher.held == 0


def test_a_call_that_cannot_be_made_is_given_back_and_stands_in_nobodys_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    run, other = scene.one_time(), scene.one_time()
    whole = Calls.build

    def build(calls: Calls, facts: Facts, *rest: Any, **named: Any) -> AnyCall:
        if facts.run_id == run.facts.run_id:
            raise ValueError("no such template")
        return whole(calls, facts, *rest, **named)

    monkeypatch.setattr(Calls, "build", build)
    scene.hand_off()
    scene.until(lambda: scene.ended(other))
    scene.until(lambda: "Fired" in scene.names(run))
    fired = scene.events(run.facts.run_id)[2]
    assert isinstance(fired, re.Fired)
    assert fired.outcome == re.ABANDONED
    assert scene.telemetry.alarms[0][0] == "calls_not_built"


def test_a_report_whose_schedule_cannot_answer_reads_the_jobs_runs_and_pauses_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def raises(*_: object) -> None:
        raise ScheduleBreach("the zone is gone")

    scene = Scene()
    run = scene.define(jobs.spec(jobs.minutely(), payload=b""))
    scene.hand_off()
    scene.clock.advance_us((run.facts.due_at - scene.clock.now()) * 1_000)
    scene.until(lambda: scene.deliverer.hits)
    monkeypatch.setattr(Chain, "after_end", raises)
    scene.until(lambda: scene.ended(run))
    paused = scene.log.heads[run.facts.job_id][0]
    assert isinstance(paused, js.Paused)
    assert (paused.cause, paused.reason) == ("schedule_error", "the zone is gone")
    scene.until(lambda: scene.dispatcher.unreported == 0)


def test_failures_in_a_row_are_counted_in_the_job_and_pause_it() -> None:
    scene = Scene()
    spec = msgspec.structs.replace(jobs.spec(jobs.minutely(), payload=b""), pause_after=2)
    run = scene.define(spec)
    scene.answer = lambda _call: Reply(status=404)
    for failures in (1, 2):
        scene.hand_off()
        scene.until(lambda: scene.log.heads[run.facts.job_id][0].facts.failures == failures)  # noqa: B023 - asked at once
    paused = scene.log.heads[run.facts.job_id][0]
    assert isinstance(paused, js.Paused)
    assert paused.cause == "failures"
    scene.until(lambda: scene.dispatcher.unreported == 0)
