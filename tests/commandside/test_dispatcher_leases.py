"""No call without its committed lease, nor later than a second after it was asked for."""

from commandside.ports import (
    Append,
    Lease,
    Renew,
)
from domain.job.events import ALLOW
from domain.run import events as re
from infra.memory.fire_log import Fate
from infra.memory.targets import Reply
from tests.commandside.scene import SHARDS, START, Scene, header, leases, once, struck
from tests.contracts import jobs

MINUTE = 60_000


# ------------------------------------------------------------------ no call without a lease


def test_a_lease_that_the_log_did_not_get_calls_nobody() -> None:
    scene = Scene()
    scene.one_time()
    scene.hand_off()
    scene.fates = lambda _s, request: struck(request, Lease, Fate.DOWN)
    scene.run_ms(10_000)
    assert scene.sent(Lease)
    assert scene.deliverer.hits == []


def test_nothing_is_leased_before_the_session_is_known() -> None:
    scene = Scene()
    scene.one_time(in_ms=1)
    scene.hand_off()
    scene.fates = lambda _s, request: struck(request, Renew, Fate.DOWN)
    scene.boot()
    scene.run_ms(5_000)
    assert scene.sent(Renew)
    assert scene.sent(Lease) == []


def test_nothing_is_sent_later_than_a_second_after_its_lease_statement() -> None:
    scene = Scene()
    run = scene.one_time()
    scene.hand_off()
    scene.until(lambda: scene.sent(Lease))
    scene.clock.advance_ms(1_000)
    scene.step()
    assert scene.deliverer.hits == []
    scene.until(lambda: scene.ended(run))
    names = ["Scheduled", "Leased", "Fired", "Scheduled", "Leased", "Fired", "Completed"]
    assert scene.names(run) == names
    fired = scene.events(run.facts.run_id)[2]
    assert isinstance(fired, re.Fired)
    assert fired.outcome == re.ABANDONED


def test_leases_ahead_of_the_room_are_called_as_it_comes_or_given_back_within_a_second() -> None:
    scene = Scene(concurrency=4)
    runs = [scene.one_time(in_ms=1_000, shard=n % SHARDS) for n in range(400)]
    scene.answer = lambda _call: Reply(latency_us=10_000)
    scene.hand_off()
    scene.until(lambda: len(scene.deliverer.hits) > 100)
    scene.answer = lambda _call: Reply(latency_us=20_000_000)
    scene.until(lambda: scene.telemetry.counts["leases_abandoned"])
    sent_at = {request.nonce: at for at, request in scene.requests if isinstance(request, Lease)}
    scene.run_ms(3_000)
    for hit in scene.deliverer.hits:
        run_id = bytes.fromhex(header(hit.call, "Tocsin-Run-Id").removeprefix("rn_"))
        leased = [e for e in scene.events(run_id) if isinstance(e, re.Leased)]
        fence = int(header(hit.call, "Tocsin-Attempt"))
        asked = sent_at.get(leased[fence - 1].nonce)
        assert asked is None or hit.at_us <= (asked + 1_000) * 1_000
    assert len(runs) == 400


def test_a_lease_whose_fate_is_unknown_is_read_back_only_after_its_expiry() -> None:
    scene = Scene()
    run = scene.one_time()
    scene.hand_off()
    scene.fates = once(Lease, Fate.REPLY_LOST)
    scene.until(lambda: scene.sent(Lease))
    (lease,) = leases(scene)
    scene.until(lambda: scene.ended(run))
    kinds = [(at, type(r).__name__) for at, r in scene.requests if at > START]
    first = next(at for at, name in kinds if name == "ReadBack")
    assert first > lease.expires_at
    assert [n for at, n in kinds if at < first and n not in ("Renew", "Lease")] == []
    # It was ours, and past its deadline: given back at once, then fired.
    assert scene.names(run)[2:4] == ["Fired", "Scheduled"]
    assert len(scene.deliverer.hits) == 1


def test_a_lease_that_never_arrived_is_taken_again_after_it_was_read_back() -> None:
    scene = Scene()
    run = scene.one_time()
    scene.hand_off()
    scene.fates = once(Lease, Fate.REQUEST_LOST)
    scene.until(lambda: scene.ended(run))
    assert scene.names(run) == ["Scheduled", "Leased", "Fired", "Completed"]


def test_a_lease_that_arrives_late_refuses_itself() -> None:
    scene = Scene()
    run = scene.one_time()
    scene.hand_off()
    scene.fates = once(Lease, Fate.STALLED)
    scene.until(lambda: scene.ended(run))
    scene.run_ms(10_000)
    assert scene.names(run) == ["Scheduled", "Leased", "Fired", "Completed"]


def test_a_decided_lease_whose_fate_is_unknown_is_read_back_too() -> None:
    scene = Scene()
    spec = jobs.spec(jobs.minutely(), payload=b"", overlap=ALLOW, overlap_limit=10)
    run = scene.define(spec)
    scene.hand_off()
    scene.fates = once(Append, Fate.REPLY_LOST)
    scene.until(lambda: scene.ended(run))
    assert scene.names(run)[:4] == ["Scheduled", "Leased", "Fired", "Scheduled"]
    assert len(scene.log.runs_of(run.facts.job_id)) == 1


# ------------------------------------------------------------------ sessions


def test_a_session_is_renewed_before_it_ends() -> None:
    scene = Scene()
    scene.run_ms(60_000)
    assert scene.log.sessions[scene.dispatcher.session_id].until > scene.clock.now()
    assert len(scene.sent(Renew)) <= 21


def test_a_process_whose_session_was_ended_takes_a_new_one_and_goes_on() -> None:
    scene = Scene()
    scene.run_ms(100)
    old = scene.dispatcher.session_id
    scene.log.end(old)
    run = scene.one_time()
    scene.hand_off()
    scene.until(lambda: scene.ended(run))
    assert scene.dispatcher.session_id != old


def test_a_session_that_has_only_expired_is_renewed_and_keeps_its_calls() -> None:
    scene = Scene()
    scene.answer = lambda _call: Reply(latency_us=20_000_000)
    run = scene.one_time(in_ms=100)
    scene.hand_off()
    scene.until(lambda: scene.deliverer.hits)
    session = scene.dispatcher.session_id
    scene.log.sessions[session].until = scene.clock.now()
    other = scene.one_time(in_ms=10)
    scene.hand_off()
    scene.until(lambda: scene.ended(other))
    assert scene.dispatcher.session_id == session
    assert scene.names(run) == ["Scheduled", "Leased", "Fired", "Completed"]
