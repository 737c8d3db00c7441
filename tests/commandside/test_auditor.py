"""The auditor finds by itself what was lost, and reclaims nothing too early."""

import importlib
import itertools
from collections.abc import Sequence

import pytest

from commandside import fault_points
from commandside.firing.auditor import Auditor, AuditorPorts
from commandside.firing.hand_off import SILENT_MS, Canary, HandOff, SelfHandOff
from commandside.ports import SESSION_MS, Unavailable
from domain.envelope import Decision
from domain.job import decide as job
from domain.job.state import Active, JobState, Paused
from domain.run.events import Fired
from domain.run.state import InFlight, OpenRun, Ready
from infra.memory.due_index import MemoryDueIndex
from infra.memory.log import LogCorrupt
from infra.memory.ready_queue import Faults as QueueFaults
from infra.memory.ready_queue import MemoryReadyQueue
from tests.commandside.pass_scene import SHARDS, Scene
from tests.commandside.scene import Crashed, Faults, Telemetry
from tests.contracts import jobs

DEATH_MS = SESSION_MS + 1_000
"""From a dispatcher's death to the retry of what it held, with an auditor long connected."""


@pytest.fixture
def scene() -> Scene:
    return Scene()


def due_and_leased(scene: Scene) -> Ready:
    """Let a scheduler be connected for long, then have a run leased."""
    scene.run_for(15_000)
    run = scene.once(0)
    scene.lease(run)
    return run


def is_ready_again(scene: Scene, run: Ready) -> bool:
    row = scene.log.due.get(run.facts.run_id)
    return row is not None and isinstance(row.run, Ready) and row.run.facts.attempt == 1


# -------------------------------------------------------------------- pauses that end


def test_a_pause_that_has_an_end_is_over_within_two_seconds_of_it(scene: Scene) -> None:
    process = scene.boot()
    scene.run_for(1_000)
    job_id = jobs.job_id(0, SHARDS)
    scene.log.append(
        [jobs.define(job_id, jobs.spec(jobs.minutely()), scene.clock.now())], scene.clock.now()
    )
    whole = scene.log.whole(job_id)
    until = scene.clock.now() + 10_000
    pause = job.pause(whole.job, whole.runs, job.By(scene.clock.now()), until=until)
    assert isinstance(pause, Decision)
    scene.log.append([pause], scene.clock.now())
    scene.run_for(9_900)
    assert isinstance(scene.log.heads[job_id][0], Paused)
    assert scene.run_until(lambda: isinstance(scene.log.heads[job_id][0], Active), 2_000)
    assert process.telemetry.counts["pauses_ended"] == 1
    (run,) = scene.log.runs_of(job_id)
    assert isinstance(run, Ready)


# -------------------------------------------------------------------- dead dispatchers


def test_what_a_dead_dispatcher_held_is_ready_again_when_its_session_is_over(
    scene: Scene,
) -> None:
    process = scene.boot()
    run = due_and_leased(scene)
    assert scene.run_until(lambda: is_ready_again(scene, run), DEATH_MS)
    assert process.telemetry.counts["sessions_reaped"] == 1
    (fired,) = [e for e in scene.log.events_of(run.facts.run_id) if isinstance(e, Fired)]
    assert fired.outcome == "lost"


def test_the_retry_of_a_lapsed_lease_is_published_at_once(scene: Scene) -> None:
    scene.boot()
    run = due_and_leased(scene)
    scene.arrived.clear()
    assert scene.run_until(lambda: is_ready_again(scene, run), DEATH_MS)
    assert scene.run_until(lambda: scene.times_arrived(run) > 0, 50)


def test_a_session_that_was_ended_in_order_lets_its_leases_lapse_within_a_second(
    scene: Scene,
) -> None:
    scene.boot()
    run = due_and_leased(scene)
    (owner,) = scene.log.sessions
    scene.log.end(owner)
    assert scene.run_until(lambda: is_ready_again(scene, run), 1_100)


def test_nothing_is_reclaimed_before_the_auditor_has_been_connected_for_eleven_seconds(
    scene: Scene,
) -> None:
    run = scene.once(0)
    scene.lease(run)
    scene.clock.advance_ms(3_600_000)
    scene.boot()
    assert not scene.run_until(lambda: is_ready_again(scene, run), 10_900)
    assert scene.run_until(lambda: is_ready_again(scene, run), 1_000)


def test_an_outage_of_the_database_starts_the_wait_anew(scene: Scene) -> None:
    process = scene.boot()
    run = due_and_leased(scene)
    process.index.away = True
    scene.processes.clear()
    scene.clock.advance_ms(60_000)
    process.index.away = False
    scene.processes.append(process)
    assert not scene.run_until(lambda: is_ready_again(scene, run), 10_900)
    assert scene.run_until(lambda: is_ready_again(scene, run), 1_000)


def test_more_lapses_than_fit_one_append_are_all_done_at_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commandside.firing.auditor.BATCH_MAX", 10)
    scene.boot()
    scene.run_for(15_000)
    runs = [scene.once(0, shard=n % SHARDS) for n in range(45)]
    for run in runs:
        scene.lease(run)
    assert scene.run_until(
        lambda: all(is_ready_again(scene, run) for run in runs), DEATH_MS + 1_500
    )


@pytest.mark.parametrize(
    "point",
    [
        fault_points.SESSIONS_REAPED,
        fault_points.LAPSES_DECIDED,
        fault_points.LAPSES_APPENDED,
    ],
)
def test_a_crash_while_reclaiming_leaves_it_to_the_next_auditor(scene: Scene, point: str) -> None:
    process = scene.boot()
    run = due_and_leased(scene)
    process.faults.armed = point
    with pytest.raises(Crashed):
        scene.run_for(DEATH_MS + 1_000)
    scene.processes.clear()
    scene.boot()
    scene.arrived.clear()
    assert scene.run_until(lambda: scene.times_arrived(run) > 0, 20_000)
    fired = [e for e in scene.log.events_of(run.facts.run_id) if isinstance(e, Fired)]
    assert [event.outcome for event in fired] == ["lost"]


def test_an_auditor_alone_does_it_for_all_shards(scene: Scene) -> None:
    telemetry, faults = Telemetry(), Faults()
    queue = MemoryReadyQueue(scene.broker, produces=True, consumes=False)
    hand_off = HandOff(MemoryDueIndex(scene.log), queue, faults, telemetry)
    auditor = Auditor(
        AuditorPorts(lambda _tick: range(SHARDS), faults, telemetry),
        hand_off,
        SelfHandOff(queue, SHARDS, telemetry),
    )
    run = scene.once(0, shard=5)
    scene.lease(run)

    def look() -> bool:
        auditor.run_one_batch(scene.clock.tick())
        return is_ready_again(scene, run)

    assert scene.run_until(look, 12_500)


# -------------------------------------------------------------------- what cannot be decided


def poison(monkeypatch: pytest.MonkeyPatch, module: str, name: str, bad: set[bytes]) -> None:
    """Let a decision about these runs fail as only a bug can."""
    whole = getattr(importlib.import_module(module), name)

    def decide(job: JobState, run: OpenRun, *rest: object, **named: object) -> Decision | None:
        if run.facts.run_id in bad:
            raise ValueError("no such state")
        found: Decision | None = whole(job, run, *rest, **named)
        return found

    monkeypatch.setattr(f"{module}.{name}", decide)


def test_a_lease_whose_end_cannot_be_decided_stands_in_nobodys_way_and_is_tried_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commandside.firing.auditor.BATCH_MAX", 2)
    process = scene.boot()
    scene.run_for(15_000)
    runs = [scene.once(0, shard=n % SHARDS) for n in range(8)]
    for run in runs:
        scene.lease(run)
    bad = {run.facts.run_id for run in runs[:6]}
    poison(monkeypatch, "commandside.firing.auditor", "report_among", bad)
    assert scene.run_until(
        lambda: all(is_ready_again(scene, run) for run in runs[6:]), DEATH_MS + 6_000
    )
    assert not any(is_ready_again(scene, run) for run in runs[:6])
    assert {name for name, _ in process.telemetry.alarms} == {"lapses_stuck"}
    bad.clear()
    assert scene.run_until(lambda: all(is_ready_again(scene, run) for run in runs), 31_000)


def test_a_lapse_that_fails_is_tried_at_growing_distances(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = scene.boot()
    run = due_and_leased(scene)
    poison(monkeypatch, "commandside.firing.auditor", "report_among", {run.facts.run_id})
    scene.run_for(DEATH_MS + 110_000)
    assert process.telemetry.counts["lapses_parked"] == 5


def test_a_lapse_that_the_log_does_not_bear_stands_in_nobodys_way(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = scene.boot()
    run, other = due_and_leased(scene), scene.once(0)
    scene.lease(other)
    whole = process.index.append

    def append(decisions: Sequence[Decision], expires_at: int) -> list[bool]:
        if any(part.stream_id == run.facts.run_id for d in decisions for part in d.slices):
            raise LogCorrupt("there is such an event")
        return whole(decisions, expires_at)

    monkeypatch.setattr(process.index, "append", append)
    assert scene.run_until(lambda: is_ready_again(scene, other), DEATH_MS)
    assert not is_ready_again(scene, run)
    monkeypatch.setattr(process.index, "append", whole)
    assert scene.run_until(lambda: is_ready_again(scene, run), 6_000)


# -------------------------------------------------------------------- lost messages


def test_what_nobody_leased_is_handed_off_again_five_seconds_after_it_was_due(
    scene: Scene,
) -> None:
    scene.boot()
    scene.broker.faults = QueueFaults(lost=1.0)
    run = scene.once(10_000)
    scene.run_for(3_000)
    scene.broker.faults = QueueFaults()
    assert scene.run_until(lambda: scene.times_arrived(run) > 0, 20_000)
    assert 5_000 <= scene.arrived[-1][0] - run.facts.due_at <= 6_100


def test_what_is_still_queued_is_not_handed_off_again_for_two_minutes(scene: Scene) -> None:
    scene.commits = False
    scene.boot()
    run = scene.once(1_000)
    scene.run_for(119_000)
    assert scene.times_arrived(run) == 1
    scene.run_for(3_000)
    assert scene.times_arrived(run) == 2


def test_each_hand_off_of_a_row_waits_longer_than_the_last(scene: Scene) -> None:
    scene.boot()
    scene.once(1_000)
    scene.run_for(120_000)
    times = [when for when, _ in scene.arrived]
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert len(gaps) >= 3
    assert gaps == sorted(gaps)
    assert gaps[-1] > 3 * gaps[0]


def test_after_a_wipe_everything_outstanding_is_published_again_before_it_is_due(
    scene: Scene,
) -> None:
    scene.boot()
    runs = [scene.once(8_000 + 1_000 * n, shard=n % SHARDS) for n in range(40)]
    scene.run_for(3_000)
    scene.arrived.clear()
    scene.broker.wipe()
    scene.run_for(4_000)
    assert {run.facts.run_id for run in runs} <= set(scene.runs_arrived())
    assert scene.is_marked(*runs)


def test_after_a_wipe_that_only_silence_tells_everything_comes_again_within_fifteen_seconds(
    scene: Scene,
) -> None:
    process = scene.boot()
    runs = [scene.once(5_000 + 1_000 * n, shard=n % SHARDS) for n in range(40)]
    scene.run_for(3_000)
    scene.arrived.clear()
    scene.broker.wipe(noticeable=False)

    def look() -> bool:
        if scene.consumer.silent_ms(scene.clock.mono_us()) > SILENT_MS:
            scene.consumer.rebuild()
        return {run.facts.run_id for run in runs} <= set(scene.runs_arrived())

    assert scene.run_until(look, 15_000)
    assert process.telemetry.counts["rows_handed_off_again"] >= 40


def test_what_a_wiped_broker_held_of_shards_that_are_taken_over_later_comes_before_it_is_due(
    scene: Scene,
) -> None:
    scene.boot()
    dead = scene.boot()
    runs = [scene.once(30_000, shard=shard) for shard in range(SHARDS)]
    scene.run_for(12_000)
    assert scene.is_marked(*runs)
    assert 0 < len(dead.scheduler.owned(scene.clock.tick())) < SHARDS
    scene.processes.remove(dead)
    scene.arrived.clear()
    scene.broker.wipe()
    scene.run_for(9_000)
    assert {run.facts.run_id for run in runs} <= set(scene.runs_arrived())


def test_marks_of_shards_that_are_taken_over_are_kept_where_the_broker_is_the_same(
    scene: Scene,
) -> None:
    dead, other = scene.boot(), scene.boot()
    scene.run_for(3_000)
    for shard in range(SHARDS):
        scene.once(30_000, shard=shard)
    scene.run_for(12_000)
    scene.processes.remove(dead)
    scene.arrived.clear()
    scene.run_for(12_000)
    assert len(other.scheduler.owned(scene.clock.tick())) == SHARDS
    assert scene.arrived == []


def test_marks_that_a_new_broker_confirmed_are_not_taken_back(scene: Scene) -> None:
    scene.boot()
    run = scene.once(30_000)
    scene.run_for(2_000)
    scene.broker.wipe()
    scene.run_for(4_000)
    scene.arrived.clear()
    scene.run_for(15_000)
    assert scene.times_arrived(run) == 0


def test_a_scheduler_that_starts_after_a_wipe_does_not_take_old_places_for_queued_ones(
    scene: Scene,
) -> None:
    scene.boot()
    scene.commits = False
    for _ in range(5):
        scene.once(1_000)
    run = scene.once(3_000)
    scene.run_for(1_000)
    scene.processes.clear()
    scene.broker.wipe()
    scene.arrived.clear()
    scene.clock.advance_ms(2_500)
    scene.consumer.take(1)
    scene.boot()
    assert scene.run_until(lambda: scene.times_arrived(run) > 0, 15_000)


def test_a_crash_while_marks_are_taken_back_leaves_it_to_the_five_second_rule(
    scene: Scene,
) -> None:
    process = scene.boot()
    run = scene.once(8_000)
    scene.run_for(3_000)
    process.faults.armed = fault_points.MARKS_FORGOTTEN
    scene.broker.wipe()
    with pytest.raises(Crashed):
        scene.run_for(5_000)
    scene.processes.clear()
    scene.arrived.clear()
    scene.boot()
    assert scene.run_until(lambda: scene.times_arrived(run) > 0, 15_000)


# -------------------------------------------------------------------- the canary


def test_clients_that_hear_no_canary_are_rebuilt_and_each_time_more_patiently(
    scene: Scene,
) -> None:
    rebuilt: list[int] = []

    class Mute(MemoryReadyQueue):
        def rebuild(self) -> None:
            rebuilt.append(scene.clock.mono_us() // 1_000)

    start = scene.clock.now()
    canary = Canary(Mute(scene.broker, produces=True, consumes=False))
    scene.run_until(lambda: (canary.look(scene.clock.tick()), False)[1], 80_000)
    assert [when - start for when in rebuilt] == [10_000, 30_000, 70_000]


def test_a_canary_goes_out_every_two_seconds(scene: Scene) -> None:
    scene.boot()
    heard = set()

    def look() -> bool:
        heard.add(scene.broker.beat_us)
        return False

    scene.run_until(look, 20_000)
    assert 10 <= len(heard) <= 12


# -------------------------------------------------------------------- figures


def test_an_overdue_run_is_counted(scene: Scene) -> None:
    process = scene.boot()
    scene.broker.faults = QueueFaults(lost=1.0)
    scene.once(0)
    scene.run_for(20_000)
    assert process.telemetry.gauges["overdue_runs"] == 1
    assert process.telemetry.gauges["oldest_overdue_ms"] >= 10_000


def test_chains_are_checked_part_by_part_when_there_are_many(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commandside.firing.auditor.HEADS_MAX", 4)
    process = scene.boot()
    scene.run_for(1)
    for n in range(SHARDS):
        spec = jobs.spec(jobs.minutely())
        at = scene.clock.now()
        scene.log.append([jobs.define(jobs.job_id(n, SHARDS), spec, at)], at + 1_000)
    (job_id, *_) = scene.log.heads
    (run,) = scene.log.runs_of(job_id)
    scene.log._unplan(run.facts.run_id)
    assert scene.run_until(lambda: process.telemetry.gauges["broken_chains"] == 1, 60_000)


# -------------------------------------------------------------------- hand-off by writers


def test_a_writer_publishes_what_it_has_just_committed_and_is_due_soon(scene: Scene) -> None:
    queue = MemoryReadyQueue(scene.broker, produces=True, consumes=False)
    own = SelfHandOff(queue, SHARDS, Telemetry())
    soon, later = scene.once(1_500), scene.once(3_000)
    assert own.offer((soon, later), scene.clock.now()) == 1
    scene.run_for(10)
    assert scene.runs_arrived() == [soon.facts.run_id]
    assert not scene.is_marked(soon)


def test_a_writer_without_a_broker_leaves_it_to_the_scheduler(scene: Scene) -> None:
    queue = MemoryReadyQueue(scene.broker, produces=True, consumes=False)
    own = SelfHandOff(queue, SHARDS, Telemetry())
    scene.broker.away = True
    assert own.offer([scene.once(0)], scene.clock.now()) == 0
    with pytest.raises(Unavailable):
        queue.publish([], near=True)


def test_runs_that_are_not_ready_are_not_offered(scene: Scene) -> None:
    run = scene.once(0)
    scene.lease(run)
    leased = scene.log.due[run.facts.run_id].run
    assert isinstance(leased, InFlight)
    queue = MemoryReadyQueue(scene.broker, produces=True, consumes=False)
    assert SelfHandOff(queue, SHARDS, Telemetry()).offer([leased], scene.clock.now()) == 0


def test_a_writer_beside_a_hand_off_leaves_it_its_confirmations(scene: Scene) -> None:
    process = scene.boot()
    scene.broker.holds = True
    run = scene.once(30_000)
    scene.run_for(1_000)
    scene.broker.holds = False
    SelfHandOff(process.queue, SHARDS, Telemetry()).offer([scene.once(0)], scene.clock.now())
    scene.run_for(100)
    assert scene.is_marked(run)
