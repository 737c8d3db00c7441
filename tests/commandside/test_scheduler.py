"""The scheduler hands off what is due, once, under its terms, and never stops for the broker."""

import pytest

from commandside import fault_points
from commandside.firing.scheduler import LEASE_MS, NEAR_AHEAD_MS, NEAR_BEHIND_MS
from infra.memory.ready_queue import Faults
from tests.commandside.pass_scene import SHARDS, START, Scene
from tests.commandside.scene import Crashed


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_what_is_due_within_a_minute_is_handed_off_and_marked(scene: Scene) -> None:
    near, far = scene.once(30_000), scene.once(59_000, shard=3)
    scene.boot()
    scene.run_for(1_000)
    assert sorted(scene.runs_arrived()) == sorted((near.facts.run_id, far.facts.run_id))
    assert scene.is_marked(near, far)


def test_what_is_due_later_comes_into_sight_a_minute_before(scene: Scene) -> None:
    run = scene.once(90_000)
    scene.boot()
    scene.run_until(lambda: scene.times_arrived(run) > 0, 120_000)
    ((when, _),) = scene.arrived
    assert START + 30_000 <= when <= START + 31_100


def test_what_was_overdue_before_the_start_is_handed_off(scene: Scene) -> None:
    run = scene.once(-3_600_000)
    scene.boot()
    scene.run_for(1_000)
    assert scene.times_arrived(run) == 1


@pytest.mark.parametrize("after_ms", [0, 1_500, 4_000])
def test_what_is_defined_for_soon_is_handed_off_within_a_second_or_so(
    scene: Scene, after_ms: int
) -> None:
    scene.boot()
    scene.run_for(12_345)
    run, now = scene.once(after_ms), scene.clock.now()
    assert scene.run_until(lambda: scene.times_arrived(run) > 0, 1_100)
    assert scene.arrived[-1][0] - now <= 1_100


@pytest.mark.parametrize("late_ms", [1_400, 2_500, 4_500])
def test_what_is_defined_while_a_look_is_late_is_handed_off_by_that_look(
    scene: Scene, late_ms: int
) -> None:
    scene.boot()
    scene.run_for(12_345)
    run = scene.once(10)
    scene.clock.advance_ms(late_ms)
    assert scene.run_until(lambda: scene.times_arrived(run) > 0, 100)


def test_what_was_decided_just_before_a_look_and_committed_after_it_is_handed_off_by_the_next(
    scene: Scene,
) -> None:
    scene.boot()
    scene.run_for(12_345)
    run, now = scene.once(-600), scene.clock.now()
    assert scene.run_until(lambda: scene.times_arrived(run) > 0, 1_100)
    assert scene.arrived[-1][0] - now <= 1_100


def test_what_is_defined_late_inside_the_minute_is_handed_off_before_it_is_due(
    scene: Scene,
) -> None:
    scene.boot()
    scene.run_for(12_345)
    runs = [scene.once(after_ms) for after_ms in range(5_000, 60_000, 5_000)]
    scene.run_for(60_000)
    arrived = {run_id: when for when, run_id in reversed(scene.arrived)}
    assert all(arrived[run.facts.run_id] < run.facts.due_at for run in runs)


def test_a_row_that_two_passes_see_is_published_once(scene: Scene) -> None:
    process = scene.boot()
    scene.broker.holds = True
    run = scene.once(4_000)
    scene.run_for(3_000)
    scene.broker.holds = False
    scene.run_for(3_000)
    assert scene.times_arrived(run) == 1
    assert len(process.index.windows) > 5


def test_a_chunk_that_is_not_confirmed_is_published_again(scene: Scene) -> None:
    process = scene.boot()
    scene.run_for(500)
    scene.broker.holds = True
    run = scene.once(20_000)
    scene.run_for(11_000)
    assert process.hand_off.pending == 1
    scene.run_for(8_000)
    assert scene.times_arrived(run) == 2
    scene.broker.holds = False
    scene.run_for(1_000)
    assert scene.is_marked(run)


def test_what_is_due_within_two_seconds_goes_to_the_topics_that_are_never_paused(
    scene: Scene,
) -> None:
    soon, later = scene.once(1_000), scene.once(30_000)
    scene.boot()
    scene.run_for(500)
    assert scene.near == {soon.facts.run_id: True, later.facts.run_id: False}


def test_the_passes_are_those_of_the_protocol(scene: Scene) -> None:
    process = scene.boot()
    scene.run_for(30_000)
    windows = process.index.windows
    near = [w for w in windows if w[3] == NEAR_AHEAD_MS and -2_100 <= w[2] <= -NEAR_BEHIND_MS - 100]
    whole = [w for w in windows if w[2] < -(10**9)]
    edge = [w for w in windows if w[3] == 60_000 and w not in whole]
    assert 27 <= len(near) <= 30
    assert 27 <= len(edge) <= 30
    # At the start, when the broker is first heard of, and every 10 s.
    assert len(whole) == 4


def test_nothing_falls_between_two_edges(scene: Scene) -> None:
    scene.boot()
    runs = [scene.once(60_000 + 137 * n, shard=n % SHARDS) for n in range(100)]
    scene.run_for(20_000)
    assert sorted(scene.runs_arrived()) == sorted(run.facts.run_id for run in runs)
    assert all(when <= START + 60_000 for when, _ in scene.arrived)


def test_two_schedulers_share_the_shards_and_hand_off_each_row_once(scene: Scene) -> None:
    first = scene.boot()
    scene.run_for(500)
    second = scene.boot()
    scene.run_for(3_000)
    tick = scene.clock.tick()
    assert len(first.scheduler.owned(tick)) == len(second.scheduler.owned(tick)) == SHARDS // 2
    runs = [scene.once(30_000, shard=shard) for shard in range(SHARDS)]
    scene.run_for(12_000)
    assert sorted(scene.runs_arrived()) == sorted(run.facts.run_id for run in runs)


def test_the_shards_of_a_dead_scheduler_are_taken_over_and_their_window_is_read(
    scene: Scene,
) -> None:
    scene.boot()
    scene.run_for(2_000)
    scene.processes.clear()
    run = scene.once(7_500)
    scene.boot()
    scene.run_for(LEASE_MS + 1_500)
    assert scene.times_arrived(run) == 1
    assert scene.arrived[-1][0] <= run.facts.due_at


def test_shards_are_not_trusted_when_the_heartbeat_fails_for_five_seconds(scene: Scene) -> None:
    process = scene.boot()
    scene.run_for(2_000)
    tick = scene.clock.tick()
    assert process.scheduler.owned(tick)
    scene.clock.advance_ms(5_000)
    assert process.scheduler.owned(scene.clock.tick()) == []


def test_a_scheduler_that_slept_publishes_nothing_under_its_old_terms(scene: Scene) -> None:
    sleeper = scene.boot()
    scene.run_for(2_000)
    scene.processes.remove(sleeper)
    awake = scene.boot()
    scene.run_for(LEASE_MS + 2_000)
    assert len(awake.scheduler.owned(scene.clock.tick())) == SHARDS
    sleeper.index.windows.clear()
    sleeper.turn(scene.clock.tick())
    assert sum(shards for _, shards, _, _ in sleeper.index.windows) < SHARDS


def test_without_a_broker_it_says_so_once_and_hands_off_when_the_broker_is_back(
    scene: Scene,
) -> None:
    process = scene.boot()
    scene.run_for(500)
    scene.broker.away = True
    run = scene.once(2_000)
    scene.run_for(10_000)
    assert process.refused == []
    assert [name for name, _ in process.telemetry.alarms].count("hand_off_refused") >= 1
    assert process.telemetry.counts["engine_unavailable"] > 1
    scene.broker.away = False
    assert scene.run_until(lambda: scene.times_arrived(run) > 0, 2_500)


def test_without_a_broker_the_shards_stay_owned(scene: Scene) -> None:
    process = scene.boot()
    scene.broker.away = True
    scene.run_for(20_000)
    assert len(process.scheduler.owned(scene.clock.tick())) == SHARDS


def test_an_unavailable_database_is_said_and_what_was_confirmed_is_marked_later(
    scene: Scene,
) -> None:
    process = scene.boot()
    process.index.away = True
    scene.run_for(3_000)
    assert process.refused[0] == "the database is away"
    run = scene.once(5_000)
    process.index.away = False
    scene.run_for(2_000)
    assert scene.is_marked(run)


def test_draining_marks_what_is_confirmed_and_gives_the_shards_back_at_once(scene: Scene) -> None:
    process = scene.boot()
    run = scene.once(30_000)
    scene.run_for(20)
    assert scene.run_until(lambda: process.scheduler.drain(scene.clock.tick()), 1_000)
    assert scene.is_marked(run)
    scene.processes.clear()
    successor = scene.boot()
    assert len(successor.scheduler.owned(scene.clock.tick())) == SHARDS


def test_draining_does_not_wait_for_a_broker_that_is_away(scene: Scene) -> None:
    process = scene.boot()
    scene.broker.holds = True
    scene.once(30_000)
    scene.run_for(20)
    assert scene.run_until(lambda: process.scheduler.drain(scene.clock.tick()), 4_000)


@pytest.mark.parametrize(
    ("point", "times"),
    [
        (fault_points.DUE_READ, 1),
        (fault_points.PUBLISHED_NOT_CONFIRMED, 2),
        (fault_points.CONFIRMED_NOT_MARKED, 2),
        # Its successor cannot know what the broker holds.
        (fault_points.MARKED, 2),
    ],
)
def test_a_crash_between_any_two_steps_loses_nothing_and_publishes_at_most_twice(
    scene: Scene, point: str, times: int
) -> None:
    process = scene.boot()
    scene.run_for(500)
    process.faults.armed = point
    run = scene.once(4_000)
    with pytest.raises(Crashed):
        scene.run_for(5_000)
    scene.processes.clear()
    scene.boot()
    scene.run_for(10_000)
    assert scene.times_arrived(run) == times


def test_what_was_marked_before_a_restart_with_an_empty_broker_is_on_time(scene: Scene) -> None:
    scene.boot()
    run = scene.once(20_000)
    scene.run_for(3_000)
    assert scene.times_arrived(run) == 1
    scene.processes.clear()
    scene.boot()
    scene.run_for(12_000)
    assert scene.times_arrived(run) == 2
    assert scene.arrived[-1][0] <= run.facts.due_at


def test_lost_and_doubled_messages_are_made_good_by_the_audit(scene: Scene) -> None:
    scene.broker.faults = Faults(lost=0.3, doubled=0.3)
    scene.boot()
    runs = [scene.once(1_000 + 20 * n, shard=n % SHARDS) for n in range(100)]
    wanted = {run.facts.run_id for run in runs}
    leased: set[bytes] = set()

    def all_leased() -> bool:
        for run in runs:
            due = scene.clock.now() >= run.facts.due_at
            if due and run.facts.run_id not in leased and scene.times_arrived(run):
                scene.lease(run, b"s%015d" % len(leased))
                leased.add(run.facts.run_id)
        return leased == wanted

    assert scene.run_until(all_leased, 60_000)


def test_a_backlog_is_handed_off_in_lots_in_due_order(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commandside.firing.scheduler.WINDOW_MAX", 10)
    runs = [scene.once(1_000 * n - 50_000) for n in range(45)]
    scene.boot()
    assert scene.run_until(lambda: len(scene.arrived) >= 45, 1_000)
    assert scene.runs_arrived() == [run.facts.run_id for run in runs]
