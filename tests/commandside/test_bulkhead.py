"""A host that hangs has its share of the calls, and what is over it holds nobody back."""

from collections import Counter
from typing import Final

import msgspec
import pytest

from commandside.deliverer_port import Call
from commandside.ports import Defer, Read
from domain.run.events import ABANDONED, Fired
from domain.run.state import Ready
from infra.memory.targets import Reply
from tests.commandside.scene import SHARDS, Scene, drain
from tests.contracts import jobs

CONCURRENCY: Final = 32
SHARE: Final = 16
ROUNDS_MAX: Final = 100
HANGS: Final = "hangs.example.com"
WORKS: Final = "works.example.com"


class Hosts:
    """A scene with two hosts, of which one hangs for as long as `hanging` says."""

    def __init__(self, *, share: int = SHARE) -> None:
        self.scene = Scene(concurrency=CONCURRENCY, host_share=share)
        self.scene.answer = self._answer
        self.hanging = True
        self.open: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    def _answer(self, call: Call) -> Reply:
        hangs = call.host == HANGS and self.hanging
        return Reply(latency_us=60_000_000 if hangs else 2_000)

    def define(self, host: str, *, in_ms: int = 1_000, shard: int = 0, port: int = 443) -> Ready:
        """Define a one-time job that calls a host."""
        spec = jobs.spec(jobs.once(self.scene.clock.now() + in_ms), payload=b"")
        target = msgspec.structs.replace(spec.target, host=host, port=port)
        return self.scene.define(msgspec.structs.replace(spec, target=target), shard=shard)

    def many(self, host: str, count: int, *, in_ms: int = 1_000) -> list[Ready]:
        return [self.define(host, in_ms=in_ms, shard=n % SHARDS) for n in range(count)]

    def run_ms(self, ms: int) -> None:
        """Run for so long, with canaries coming through."""
        for _ in range(ms // 1_000):
            self.scene.sender.beat()
            self.scene.run_ms(1_000)

    def finish(self, runs: list[Ready]) -> None:
        """Let the host work again, and hand off retries until all runs have ended."""
        self.hanging = False
        for _ in range(ROUNDS_MAX):
            if all(self.scene.ended(run) for run in runs):
                return
            self.scene.hand_off()
            self.run_ms(5_000)
        raise AssertionError("they have not all ended")

    def late_ms(self, run: Ready) -> int:
        """Return how late a run's first call was."""
        wanted = run.facts.run_id.hex().encode()
        hits = self.scene.deliverer.hits
        first = next(hit for hit in hits if any(wanted in line for line in hit.call.headers))
        return first.at_us // 1_000 - run.facts.due_at

    def calls_open(self, host: str) -> int:
        """Return how many calls of a host are in flight, by the targets' own account."""
        now_us = self.scene.clock.mono_us()
        return sum(
            1
            for hit in self.scene.deliverer.hits
            if hit.call.host == host and hit.at_us + 30_000_000 > now_us
        )


def test_a_host_that_hangs_makes_nobody_else_late() -> None:
    hosts = Hosts()
    hosts.many(HANGS, 300)
    others = [hosts.define(WORKS, in_ms=1_500 + 100 * n, shard=n % SHARDS) for n in range(200)]
    hosts.scene.hand_off()
    hosts.scene.until(lambda: all(hosts.scene.ended(run) for run in others))
    assert max(hosts.late_ms(run) for run in others) < 100
    assert hosts.calls_open(HANGS) == SHARE


def p99_late_ms(tenth: str) -> int:
    """Return how late calls of nine hosts are, that each get one every 50 ms, beside a tenth."""
    hosts = Hosts()
    nine = [f"h{n}.example.com" for n in range(9)]
    runs = [
        (host, hosts.define(host, in_ms=1_500 + 50 * turn, shard=(10 * turn + n) % SHARDS))
        for turn in range(60)
        for n, host in enumerate([*nine, tenth])
    ]
    hosts.scene.hand_off()
    others = [run for host, run in runs if host in nine]
    hosts.scene.until(lambda: all(hosts.scene.ended(run) for run in others))
    late = sorted(hosts.late_ms(run) for run in others)
    return late[len(late) * 99 // 100]


def test_one_hanging_host_of_ten_leaves_the_nine_at_most_twice_as_late_as_alone() -> None:
    assert p99_late_ms(HANGS) <= 2 * p99_late_ms(WORKS)


def test_another_port_of_the_host_that_hangs_is_another_service() -> None:
    hosts = Hosts()
    hosts.scene.answer = lambda call: Reply(latency_us=60_000_000 if call.port == 443 else 2_000)
    hosts.many(HANGS, 300)
    others = [hosts.define(HANGS, in_ms=1_500 + 100 * n, port=8443) for n in range(20)]
    hosts.scene.hand_off()
    hosts.scene.until(lambda: all(hosts.scene.ended(run) for run in others))
    assert max(hosts.late_ms(run) for run in others) < 100


def test_others_that_are_due_at_the_instant_at_which_a_host_begins_to_hang_lose_little() -> None:
    hosts = Hosts()
    hosts.many(HANGS, 300)
    others = hosts.many(WORKS, 100)
    hosts.scene.hand_off()
    hosts.scene.until(lambda: all(hosts.scene.ended(run) for run in others))
    assert max(hosts.late_ms(run) for run in others) < 1_000


def test_what_waits_for_a_place_is_not_leased_and_goes_on_when_the_host_does() -> None:
    hosts = Hosts()
    scene = hosts.scene
    runs = hosts.many(HANGS, 200)
    scene.hand_off()
    hosts.run_ms(10_000)
    assert scene.dispatcher.unreported == SHARE
    assert scene.dispatcher.held == 200 - SHARE
    hosts.finish(runs)
    fired = [e for run in runs for e in scene.events(run.facts.run_id) if isinstance(e, Fired)]
    assert Counter(event.outcome for event in fired)[ABANDONED] <= 2 * CONCURRENCY
    assert scene.dispatcher.held == 0


def test_a_burst_at_a_host_that_is_quick_costs_no_reading() -> None:
    hosts = Hosts()
    runs = hosts.many(WORKS, 2_000)
    hosts.scene.hand_off()
    hosts.scene.until(lambda: all(hosts.scene.ended(run) for run in runs))
    assert hosts.scene.sent(Read) == []
    assert hosts.scene.telemetry.counts["entries_set_aside"] == 0


def test_what_has_waited_for_a_minute_waits_in_the_due_index() -> None:
    hosts = Hosts()
    scene = hosts.scene
    runs = hosts.many(HANGS, 100)
    scene.hand_off()
    hosts.run_ms(50_000)
    assert scene.sent(Defer) == []
    hosts.run_ms(20_000)
    assert scene.sent(Defer) != []
    assert scene.dispatcher.held <= 2 * SHARE
    hosts.finish(runs)


def test_no_more_than_a_bound_is_held_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commandside.firing.bulkhead.HELD_MAX", 20)
    hosts = Hosts()
    hosts.many(HANGS, 200)
    hosts.scene.hand_off()
    hosts.run_ms(3_000)
    assert hosts.scene.dispatcher.held <= 20
    assert hosts.scene.telemetry.counts["leases_deferred"] > 100


def test_no_more_jobs_than_a_bound_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commandside.firing.bulkhead.KNOWN_MAX", 5)
    hosts = Hosts()
    runs = hosts.many(HANGS, 100)
    hosts.scene.hand_off()
    hosts.run_ms(3_000)
    hosts.finish(runs)


def test_a_job_that_calls_another_host_now_is_not_kept_back_for_long() -> None:
    hosts = Hosts()
    scene = hosts.scene
    hosts.many(HANGS, 100)
    scene.hand_off()
    hosts.run_ms(3_000)
    later = hosts.define(WORKS, in_ms=100)
    scene.hand_off()
    scene.until(lambda: scene.ended(later))
    assert hosts.late_ms(later) < 100


def test_a_drain_leaves_what_is_held_to_the_next_dispatcher() -> None:
    hosts = Hosts()
    scene = hosts.scene
    runs = hosts.many(HANGS, 100)
    scene.hand_off()
    hosts.run_ms(5_000)
    drain(scene)
    assert scene.dispatcher.held == 0
    scene.queue.close()
    scene.boot()
    hosts.finish(runs)
