"""A host that says it is strained is asked for less, and for more again as it recovers."""

import random
from collections import Counter

import pytest

from commandside.firing.breaker import (
    BUCKET_US,
    PAUSE_US,
    PAUSE_US_MAX,
    RETRIES_FREE,
    STRAINED_MIN,
    Breaker,
)
from commandside.firing.bulkhead import GATES_LOOKED_AT, Bulkhead, Gate
from commandside.firing.timing import Entry, Parcel
from commandside.ports import Read
from domain.run.events import Fired
from infra.memory.targets import Reply
from tests.commandside.test_bulkhead import HANGS, WORKS, Hosts

SHARE = 16
HOST = (HANGS, 443)


def opened(now_us: int = 0) -> Breaker:
    """Return a breaker that has just opened."""
    breaker = Breaker(SHARE)
    for _ in range(STRAINED_MIN):
        assert breaker.limit == SHARE
        breaker.landed(503, "", 0, now_us)
    assert breaker.limit == 0
    return breaker


# ---------------------------------------------------------------- the breaker alone


@pytest.mark.parametrize("error", ["timeout", "connect", "reset"])
def test_a_host_that_does_not_answer_opens_it_as_one_that_asks_for_less_does(error: str) -> None:
    breaker = Breaker(SHARE)
    assert [breaker.landed(0, error, 0, 0) for _ in range(STRAINED_MIN)][-1]


@pytest.mark.parametrize(("status", "error"), [(500, ""), (404, ""), (301, ""), (0, "tls")])
def test_a_failure_that_is_not_strain_opens_nothing(status: int, error: str) -> None:
    breaker = Breaker(SHARE)
    assert not any(breaker.landed(status, error, 0, 0) for _ in range(1_000))
    assert breaker.limit == SHARE


def test_a_minority_of_strained_answers_opens_nothing() -> None:
    breaker = Breaker(SHARE)
    for _ in range(200):
        breaker.landed(200, "", 0, 0)
        breaker.landed(200, "", 0, 0)
        assert not breaker.landed(503, "", 0, 0)


def test_a_trial_is_one_call_and_what_it_answers_is_one_more_or_a_longer_pause() -> None:
    breaker = opened()
    now, pause = 0, PAUSE_US
    for _ in range(10):
        breaker.turn(now + pause - 1)
        assert breaker.limit == 0
        now += pause
        breaker.turn(now)
        assert breaker.limit == 1
        assert breaker.landed(503, "", 0, now)
        pause = min(2 * pause, PAUSE_US_MAX)
    breaker.turn(now + pause)
    for places in range(1, SHARE):
        assert breaker.limit == places
        breaker.landed(200, "", 0, now + pause)
    assert breaker.is_closed


def test_answers_to_calls_from_before_it_opened_say_nothing_of_the_trial() -> None:
    breaker = opened()
    breaker.turn(PAUSE_US)
    assert not breaker.landed(0, "timeout", PAUSE_US + 5, PAUSE_US + 4)
    breaker.landed(200, "", PAUSE_US + 5, PAUSE_US + 4)
    assert breaker.limit == 1


@pytest.mark.parametrize("status", [0, 204, 404, 500])
def test_a_host_that_answers_without_strain_gets_its_share_back(status: int) -> None:
    """A queue's answer has no status; a path that is gone says nothing of its host."""
    breaker = opened()
    breaker.turn(PAUSE_US)
    for _ in range(SHARE):
        breaker.landed(status, "", 0, PAUSE_US)
    assert breaker.is_closed


def test_confirmations_of_a_queue_are_no_failures() -> None:
    breaker = Breaker(SHARE)
    for _ in range(10 * RETRIES_FREE):
        breaker.began(retry=True)
        breaker.landed(0, "", 0, 0)
    assert not breaker.is_spent


def test_what_was_counted_is_forgotten() -> None:
    breaker = Breaker(SHARE)
    for turn in range(20):
        breaker.turn(turn * BUCKET_US)
        for _ in range(STRAINED_MIN // 2 - 1):
            assert not breaker.landed(503, "", 0, turn * BUCKET_US)


def test_it_is_not_forgotten_while_it_is_open() -> None:
    breaker = opened()
    breaker.turn(PAUSE_US - 1)
    assert not breaker.is_calm(PAUSE_US - 1)
    breaker.turn(PAUSE_US)
    assert not breaker.is_calm(PAUSE_US)
    for _ in range(2):
        breaker.turn(PAUSE_US + 2 * BUCKET_US)
    assert breaker.is_calm(PAUSE_US + 2 * BUCKET_US)


def test_retries_are_a_fifth_at_a_host_that_fails_half_the_time() -> None:
    """F78."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    breaker, called, waiting = Breaker(SHARE), Counter[bool](), 0
    for at in range(0, 3_600 * 1_000_000, 10_000):
        if at % 250_000 == 0:
            breaker.turn(at)
        retry = at % 20_000 == 0 and waiting > 0
        if retry and breaker.is_spent:
            continue
        waiting -= retry
        called[retry] += 1
        breaker.began(retry=retry)
        failed = chance.random() < 0.5
        waiting += failed
        breaker.landed(500 if failed else 200, "", 0, at)
    assert called[True] > RETRIES_FREE
    assert called[True] <= 0.2 * called.total(), called


def test_retries_flow_as_soon_as_the_host_answers_again() -> None:
    breaker = Breaker(SHARE)
    for _ in range(1_000):
        breaker.began(retry=True)
        breaker.landed(500, "", 0, 0)
    assert breaker.is_spent
    for _ in range(2_001):
        breaker.landed(200, "", 0, 0)
    assert not breaker.is_spent


# ---------------------------------------------------------------- gates


def shut(bulkhead: Bulkhead) -> Gate:
    """Return the gate of a host whose breaker has opened."""
    gate = bulkhead.gate(HOST)
    for _ in range(STRAINED_MIN):
        if gate.breaker.landed(503, "", 0, 0):
            bulkhead.opened(gate)
    return gate


def test_two_versions_of_a_run_that_wait_give_both_places_back() -> None:
    bulkhead = Bulkhead(SHARE)
    gate = shut(bulkhead)
    entries: list[Entry] = [(0, b"run", b"job", version, Parcel(0)) for version in (1, 2)]
    for entry in entries:
        assert bulkhead.bars(entry, HOST)
        assert bulkhead.hold(entry, HOST)
    bulkhead.turn(PAUSE_US, window=True)
    gate.breaker.landed(200, "", 0, PAUSE_US)
    assert bulkhead.release() == ([], entries, [])
    for entry in entries:
        bulkhead.passed(entry)
    assert gate.passing == 0


def test_hosts_that_are_well_are_not_remembered_and_one_window_is_not_for_all_that_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bulkhead, turned = Bulkhead(SHARE), Counter[int]()
    monkeypatch.setattr(Breaker, "turn", lambda _, now_us: turned.update((now_us,)))
    gates = [bulkhead.gate((f"{n}.example.com", 443)) for n in range(10_000)]
    for number, gate in enumerate(gates):
        gate.breaker.landed(500 if number % 2 else 200, "", 0, 0)
    for window in range(100):
        bulkhead.turn(window, window=True)
    assert max(turned.values()) <= GATES_LOOKED_AT
    kept = [bulkhead.gate(gate.origin) is gate for gate in gates]
    assert kept == [bool(number % 2) for number in range(10_000)]


# ---------------------------------------------------------------- a dispatcher


def strained(hosts: Hosts) -> None:
    """Let the host that hangs answer 503 at once instead."""
    hosts.scene.answer = lambda call: Reply(
        503 if call.host == HANGS and hosts.hanging else 200, latency_us=2_000
    )


def test_a_strained_host_is_asked_ever_more_rarely_and_its_jobs_are_not_leased() -> None:
    hosts = Hosts()
    strained(hosts)
    runs = hosts.many(HANGS, 200)
    hosts.scene.hand_off()
    hosts.run_ms(30_000)
    # Those in flight when it opened, and a probe after 1, 2, 4, 8 and 16 seconds.
    assert len(hosts.scene.deliverer.hits) < STRAINED_MIN + SHARE + 8
    assert hosts.scene.telemetry.counts["breakers_opened"] >= 4
    assert hosts.scene.dispatcher.held > 100
    hosts.finish(runs)
    fired = [e for run in runs for e in hosts.scene.events(run.facts.run_id)]
    assert sum(isinstance(event, Fired) for event in fired) < 200 + STRAINED_MIN + SHARE + 40


def test_a_strained_host_makes_nobody_else_late() -> None:
    hosts = Hosts()
    strained(hosts)
    hosts.many(HANGS, 200)
    hosts.scene.hand_off()
    hosts.run_ms(5_000)
    others = hosts.many(WORKS, 100, in_ms=2_000)
    hosts.scene.hand_off()
    hosts.scene.until(lambda: all(hosts.scene.ended(run) for run in others))
    assert max(hosts.late_ms(run) for run in others) < 100


def test_what_has_piled_up_does_not_fall_upon_a_host_that_comes_back() -> None:
    """F79, in each dispatcher."""
    hosts = Hosts()
    strained(hosts)
    runs = hosts.many(HANGS, 200)
    hosts.scene.hand_off()
    hosts.run_ms(10_000)
    before = len(hosts.scene.deliverer.hits)
    hosts.hanging = False
    hosts.finish(runs)
    starts = [hit.at_us for hit in hosts.scene.deliverer.hits[before:]]
    first_ms = [at for at in starts if at < starts[0] + 2_000]
    assert len(first_ms) == 1, "a probe alone, until it has answered"


def test_a_host_that_nobody_calls_any_more_is_forgotten() -> None:
    hosts = Hosts()
    strained(hosts)
    runs = hosts.many(HANGS, 40)
    hosts.scene.hand_off()
    hosts.run_ms(3_000)
    hosts.finish(runs)
    hosts.run_ms(30_000)
    reads = len([r for _, r in hosts.scene.requests if isinstance(r, Read)])
    others = hosts.many(WORKS, 20)
    hosts.scene.hand_off()
    hosts.scene.until(lambda: all(hosts.scene.ended(run) for run in others))
    assert len([r for _, r in hosts.scene.requests if isinstance(r, Read)]) == reads
