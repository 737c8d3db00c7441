"""What a dispatcher promises: on time, bounded, offsets in order, and an end."""

import msgspec

from commandside.ports import (
    Defer,
    Lease,
    Read,
    ReadDue,
)
from domain.instant import rfc3339
from domain.job.events import ALLOW
from domain.job.state import Finished
from domain.run.state import Ready
from infra.memory.fire_log import Fate
from infra.memory.targets import NEVER_US, Reply
from tests.commandside.scene import (
    SHARDS,
    START,
    STRIPES,
    Scene,
    chunk_of,
    drain,
    header,
    leases,
    struck,
)
from tests.contracts import jobs

MINUTE = 60_000


def test_a_due_run_is_leased_called_and_reported() -> None:
    scene = Scene()
    run = scene.one_time()
    scene.hand_off()
    scene.until(lambda: scene.ended(run))
    assert scene.names(run) == ["Scheduled", "Leased", "Fired", "Completed"]
    assert len(scene.deliverer.hits) == 1


def test_with_a_silent_broker_what_is_due_is_found_in_the_log_and_on_time() -> None:
    scene = Scene()
    scene.broker.away = True
    scene.run_ms(6_000)
    runs = [scene.one_time(in_ms=3_000, shard=shard) for shard in range(SHARDS)]
    scene.until(lambda: all(map(scene.ended, runs)))
    assert all(
        hit.at_us // 1_000 - run.facts.due_at <= 100 for run in runs for hit in scene.deliverer.hits
    )
    assert scene.telemetry.counts["entries_claimed"] == SHARDS


def test_with_a_broker_that_is_heard_the_log_is_not_looked_through() -> None:
    scene = Scene()
    scene.one_time(in_ms=3_000)
    scene.run_ms(20_000)
    assert not scene.sent(ReadDue)
    assert not scene.deliverer.hits


def test_nothing_is_called_before_its_instant() -> None:
    scene = Scene()
    run = scene.one_time(in_ms=5_000)
    scene.hand_off()
    scene.until(lambda: scene.ended(run))
    (hit,) = scene.deliverer.hits
    assert hit.at_us >= run.facts.due_at * 1_000


def test_a_node_whose_clock_is_ahead_holds_what_comes_back_as_early() -> None:
    scene = Scene()
    scene.skew_ms = 300
    run = scene.one_time(in_ms=5_000)
    scene.hand_off()
    scene.until(lambda: scene.ended(run))
    (hit,) = scene.deliverer.hits
    assert scene.telemetry.counts["leases_early"] == 1
    assert 0 <= hit.at_us // 1_000 - run.facts.due_at <= scene.skew_ms + 50


def test_a_call_carries_the_key_of_its_occurrence_and_the_fence_of_its_lease() -> None:
    scene = Scene()
    run = scene.one_time()
    scene.hand_off()
    scene.until(lambda: scene.ended(run))
    call = scene.deliverer.hits[0].call
    assert header(call, "Idempotency-Key").startswith(f"jb_{run.facts.job_id.hex()}/")
    assert header(call, "Tocsin-Attempt") == "1"
    assert header(call, "Tocsin-Fence") == "2"


def test_a_message_for_an_ended_run_is_dropped() -> None:
    scene = Scene()
    run = scene.one_time()
    scene.hand_off()
    scene.until(lambda: scene.ended(run))
    late = Ready(run.facts)
    scene.sender.publish([chunk_of(scene, late)], near=True)
    scene.run_ms(1_000)
    assert len(scene.deliverer.hits) == 1
    assert scene.telemetry.counts["leases_gone"] == 1


def test_a_message_that_comes_twice_costs_one_lease() -> None:
    scene = Scene()
    run = scene.one_time()
    chunk = chunk_of(scene, run)
    scene.sender.publish([chunk, chunk], near=True)
    scene.until(lambda: scene.ended(run))
    assert sum(len(request.wants) for request in leases(scene)) == 1
    assert scene.committed() == {0: 2}


def test_two_runs_of_one_job_are_never_in_one_lease() -> None:
    scene = Scene()
    run = scene.one_time(in_ms=100)
    standing = scene.log.standings([run.facts.job_id])[run.facts.job_id]
    scene.append(jobs.triggered(standing.job, standing.runs, scene.clock.now()))
    scene.hand_off()
    scene.until(lambda: scene.ended(run))
    scene.run_ms(10_000)
    assert all(len({w.job_id for w in r.wants}) == len(r.wants) for r in leases(scene))
    assert len(scene.deliverer.hits) == 2


# ------------------------------------------------------------------ recurring jobs


def test_the_end_of_a_run_plans_the_next_and_holds_it_if_it_is_near() -> None:
    scene = Scene()
    scene.clock.advance_ms(MINUTE - START % MINUTE - 500)
    scene.answer = lambda _call: Reply(latency_us=58_900_000)
    scene.define(
        msgspec.structs.replace(jobs.spec(jobs.minutely()), timeout_ms=60_000, payload=b"")
    )
    scene.hand_off()
    scene.until(lambda: len(scene.deliverer.hits) == 2)
    first, second = scene.deliverer.hits
    assert (second.at_us - first.at_us) // 1_000_000 == 60


def test_a_job_that_allows_overlap_plans_the_next_with_the_first_lease() -> None:
    scene = Scene()
    spec = jobs.spec(jobs.minutely(), payload=b"", overlap=ALLOW, overlap_limit=10)
    run = scene.define(spec)
    scene.answer = lambda _call: Reply(latency_us=20_000_000)
    scene.hand_off()
    scene.until(lambda: scene.deliverer.hits)
    assert scene.names(run) == ["Scheduled", "Leased"]
    assert len(scene.log.runs_of(run.facts.job_id)) == 2


def test_a_job_fires_as_often_as_it_may_and_is_finished() -> None:
    scene = Scene()
    run = scene.define(jobs.spec(jobs.minutely(), payload=b"", max_runs=2))
    for _ in range(5):
        scene.hand_off()
        scene.run_ms(MINUTE)
    assert len(scene.deliverer.hits) == 2
    standing = scene.log.standings([run.facts.job_id])[run.facts.job_id]
    assert isinstance(standing.job, Finished)
    assert standing.runs == ()


def test_a_first_lease_that_is_too_late_fires_the_newest_slot_and_skips_the_others() -> None:
    scene = Scene()
    run = scene.define(jobs.spec(jobs.minutely(), payload=b""))
    scene.clock.advance_ms(10 * MINUTE)
    scene.hand_off()
    scene.until(lambda: scene.deliverer.hits)
    assert scene.names(run) == ["Scheduled", "Skipped"]
    scheduled = header(scene.deliverer.hits[0].call, "Tocsin-Scheduled-For")
    assert scheduled == rfc3339(scene.clock.now() // MINUTE * MINUTE)


def test_a_run_that_another_blocks_is_deferred_and_fires_when_that_has_ended() -> None:
    scene = Scene()
    scene.answer = lambda _call: Reply(latency_us=4_000_000)
    run = scene.one_time(in_ms=100)
    scene.hand_off()
    scene.until(lambda: scene.deliverer.hits)
    standing = scene.log.standings([run.facts.job_id])[run.facts.job_id]
    scene.append(jobs.triggered(standing.job, standing.runs, scene.clock.now()))
    scene.hand_off()
    scene.until(lambda: scene.sent(Defer))
    for _ in range(10):
        scene.run_ms(1_000)
        scene.hand_off()
    assert len(scene.deliverer.hits) == 2


# ------------------------------------------------------------------ offsets


def test_an_offset_is_committed_when_all_of_its_message_and_of_those_before_are_settled() -> None:
    scene = Scene()
    late = scene.one_time(in_ms=30_000)
    scene.hand_off()
    early = scene.one_time(in_ms=1_000)
    scene.hand_off()
    scene.until(lambda: scene.ended(early))
    scene.run_ms(1_000)
    assert scene.committed() == {0: 0}
    scene.until(lambda: scene.ended(late))
    scene.run_ms(100)
    assert scene.committed() == {0: 2}


def test_without_a_broker_what_is_held_is_fired_all_the_same() -> None:
    scene = Scene()
    run = scene.one_time(in_ms=5_000)
    scene.hand_off()
    scene.run_ms(1_000)
    scene.broker.away = True
    scene.until(lambda: scene.ended(run))


def test_what_came_from_a_partition_that_was_lost_is_forgotten() -> None:
    scene = Scene()
    for shard in range(SHARDS):
        scene.one_time(in_ms=10_000, shard=shard)
    scene.hand_off()
    scene.run_ms(1_000)
    scene.broker.leave(scene.queue)
    scene.queue.assigned(set())
    scene.run_ms(20_000)
    assert scene.deliverer.hits == []
    assert scene.dispatcher.held == 0


# ------------------------------------------------------------------ bounds


def test_targets_that_never_answer_bound_what_is_leased() -> None:
    scene = Scene(concurrency=20)
    for number in range(200):
        scene.one_time(in_ms=100, shard=number % SHARDS)
    scene.answer = lambda _call: Reply(latency_us=NEVER_US)
    scene.hand_off()
    scene.run_ms(5_000)
    assert scene.dispatcher.unreported == 20
    assert len(scene.deliverer.hits) == 20


def test_every_stripe_gets_its_share_of_scarce_room() -> None:
    scene = Scene(concurrency=4)
    for number in range(100):
        scene.one_time(in_ms=100, shard=number % SHARDS)
    scene.answer = lambda _call: Reply(latency_us=200_000)
    scene.hand_off()
    scene.run_ms(1_000)
    stripes = {
        int.from_bytes(w.job_id[:4], "big") % STRIPES for r in leases(scene) for w in r.wants
    }
    assert stripes == set(range(STRIPES))


def test_a_full_heap_stops_fetching_what_is_due_later() -> None:
    scene = Scene(heap_max=10)
    scene.fates = lambda _s, request: struck(request, Lease, Fate.DOWN)
    for _ in range(50):
        scene.one_time(in_ms=60_000)
        scene.hand_off()
    scene.run_ms(5_000)
    assert 10 < scene.dispatcher.held < 50 + 10


def test_what_is_due_and_cannot_be_leased_counts_as_held() -> None:
    scene = Scene(heap_max=10)
    scene.fates = lambda _s, request: struck(request, Lease, Fate.DOWN)
    for _ in range(100):
        scene.one_time(in_ms=1)
        terms = dict(scene.log.terms)
        chunks = scene.index.window(terms, -1, scene.clock.now() + MINUTE, 1_000)
        scene.sender.publish(chunks, near=True)
        scene.index.mark(scene.sender.confirmed())
        scene.run_ms(50)
    assert scene.dispatcher.held <= 2 * 10 + 64
    scene.fates = lambda _s, _r: Fate.DONE
    scene.run_ms(30_000)
    assert len(scene.deliverer.hits) == 100


# ------------------------------------------------------------------ drain


def test_a_drain_reports_what_is_in_flight_and_ends_the_session() -> None:
    """DUP-05: the session ends after the calls."""
    scene = Scene()
    scene.answer = lambda _call: Reply(latency_us=3_000_000)
    run = scene.one_time(in_ms=100)
    waits = scene.one_time(in_ms=5_000)
    scene.hand_off()
    scene.until(lambda: scene.deliverer.hits)
    session = scene.dispatcher.session_id
    drain(scene)
    assert scene.ended(run)
    assert scene.names(waits) == ["Scheduled"]
    assert scene.log.has_ended(session)


def test_a_drain_gives_back_what_is_leased_and_not_called() -> None:
    scene = Scene()
    run = scene.one_time()
    scene.hand_off()
    scene.until(lambda: scene.sent(Lease))
    drain(scene)
    assert scene.deliverer.hits == []
    assert scene.names(run) == ["Scheduled", "Leased", "Fired", "Scheduled"]


def test_a_drain_while_a_job_is_read_for_its_lease_ends() -> None:
    scene = Scene()
    scene.define(jobs.spec(jobs.minutely(), payload=b"", overlap=ALLOW, overlap_limit=10))
    scene.hand_off()
    scene.until(lambda: scene.sent(Read))
    drain(scene)
    assert scene.deliverer.hits == []


def test_what_a_drained_dispatcher_held_is_fired_by_the_next() -> None:
    scene = Scene()
    run = scene.one_time(in_ms=5_000)
    scene.hand_off()
    scene.run_ms(1_000)
    drain(scene)
    scene.queue.close()
    scene.boot()
    scene.until(lambda: scene.ended(run))
    assert len(scene.deliverer.hits) == 1
