"""Runs whose body is an object of the store: read, kept, held while the store is away."""

import msgspec
import pytest

from commandside.firing.bodies import KEPT_BYTES_MAX, Bodies
from commandside.firing.reports import Flight
from commandside.payload_port import PayloadObject
from domain.job.events import JobSpec
from domain.payload import ALTERED, MISSING, UNAVAILABLE, PayloadRef, ref_of
from domain.run import events as re
from domain.run.state import Ready
from domain.schedule.schedule import ScheduleSpec
from infra.memory.payloads import MemoryPayloadReads, MemoryPayloadStore
from infra.memory.targets import Reply
from tests.commandside.scene import Scene, Telemetry, drain
from tests.contracts import jobs
from tests.contracts.payload_store import written

MINUTES_MS = 120_000


def stored(scene: Scene, body: bytes, *, in_ms: int = 1_000, minutely: bool = False) -> Ready:
    """Define a job whose body is an object."""
    job_id = jobs.job_id(0, 8)
    schedule: ScheduleSpec = jobs.once(scene.clock.now() + in_ms)
    if minutely:
        schedule = jobs.minutely()
    decision = jobs.define(job_id, with_body(scene, job_id, schedule, body), scene.clock.now())
    scene.append(decision)
    return jobs.ready_run(decision)


def with_body(scene: Scene, job_id: bytes, schedule: ScheduleSpec, body: bytes) -> JobSpec:
    data = scene.vault.seal(jobs.TENANT, job_id, body)
    wanted = PayloadObject(jobs.TENANT, job_id, ref_of(data))
    scene.objects.put([(wanted, data)])
    spec = jobs.spec(schedule, payload=b"sealed digest")
    return msgspec.structs.replace(spec, payload_ref=wanted.ref)


def fired(scene: Scene, run: Ready) -> list[re.Fired]:
    return [event for event in scene.events(run.facts.run_id) if isinstance(event, re.Fired)]


def completed(scene: Scene, run: Ready) -> re.Completed:
    last = scene.events(run.facts.run_id)[-1]
    assert isinstance(last, re.Completed)
    return last


def test_the_target_gets_the_body_that_is_in_the_store() -> None:
    scene = Scene()
    body = bytes(range(256)) * 4_096
    run = stored(scene, body)
    scene.hand_off()
    scene.until(lambda: scene.ended(run))
    assert [hit.call.body for hit in scene.deliverer.hits] == [body]
    assert completed(scene, run).outcome == re.SUCCEEDED


def test_a_recurring_job_reads_its_body_once() -> None:
    scene = Scene()
    stored(scene, b"x" * 20_000, minutely=True)
    while len(scene.deliverer.hits) < 5:
        scene.hand_off()
        scene.step()
    assert {hit.call.body for hit in scene.deliverer.hits} == {b"x" * 20_000}
    assert scene.reads.count == 1


def test_runs_that_wait_for_one_object_share_its_read() -> None:
    scene = Scene()
    run = stored(scene, b"x" * 20_000)
    scene.reads.slow = True
    scene.hand_off()
    scene.until(lambda: scene.dispatcher.unreported == 1)
    assert scene.reads.count == 1
    assert scene.deliverer.hits == []
    scene.reads.slow = False
    scene.until(lambda: scene.ended(run))
    assert len(scene.deliverer.hits) == 1
    assert [event.outcome for event in fired(scene, run)] == [re.OK]


@pytest.mark.parametrize("reason", [MISSING, ALTERED])
def test_an_object_that_is_gone_or_altered_ends_the_run_with_that_reason(reason: str) -> None:
    scene = Scene()
    run, other = stored(scene, b"x" * 20_000), stored(scene, b"y" * 20_000)
    (mine,) = [one for one in scene.objects.objects if one.job_id == run.facts.job_id]
    if reason == MISSING:
        scene.objects.delete([mine])
    else:
        scene.objects.objects[mine] = scene.objects.objects[mine][:-1] + b"?"
    scene.hand_off()
    scene.until(lambda: scene.ended(run) and scene.ended(other))
    assert completed(scene, run).outcome == re.DEAD
    (event,) = fired(scene, run)
    assert (event.outcome, event.error) == (re.FAILED, reason)
    # Its neighbour is sent as if nothing were.
    assert [hit.call.body for hit in scene.deliverer.hits] == [b"y" * 20_000]


def test_a_store_that_is_away_for_long_costs_one_attempt_of_no_kind_and_then_the_run_fires() -> (
    None
):
    scene = Scene()
    run = stored(scene, b"x" * 20_000)
    scene.objects.away = True
    scene.hand_off()
    for _ in range(3):
        scene.run_ms(MINUTES_MS)
        scene.hand_off()
    assert not scene.ended(run)
    assert scene.deliverer.hits == []
    assert {event.outcome for event in fired(scene, run)} == {re.ABANDONED}
    assert {event.error for event in fired(scene, run)} == {UNAVAILABLE}
    assert len(fired(scene, run)) == 1
    scene.objects.away = False
    for _ in range(40):
        scene.run_ms(1_000)
        scene.hand_off()
    assert completed(scene, run).outcome == re.SUCCEEDED
    assert [hit.call.body for hit in scene.deliverer.hits] == [b"x" * 20_000]
    assert scene.dispatcher.held == 0


def test_others_are_not_held_while_the_store_is_away() -> None:
    scene = Scene()
    held, other = stored(scene, b"x" * 20_000), scene.one_time(in_ms=60_000)
    scene.objects.away = True
    scene.hand_off()
    scene.until(lambda: scene.ended(other))
    assert not scene.ended(held)
    late = [hit for hit in scene.deliverer.hits if hit.call.body == b""]
    assert len(late) == 1
    assert scene.telemetry.observed["lateness_ms"][0] < 100


def test_a_read_that_takes_longer_than_the_send_deadline_serves_the_next_attempt() -> None:
    scene = Scene()
    run = stored(scene, b"x" * 20_000)
    scene.reads.slow = True
    scene.hand_off()
    scene.until(lambda: fired(scene, run))
    assert (fired(scene, run)[0].outcome, fired(scene, run)[0].error) == (re.ABANDONED, UNAVAILABLE)
    scene.reads.slow = False
    while not scene.ended(run):
        scene.hand_off()
        scene.run_ms(1_000)
    assert scene.reads.count == 1
    assert len(scene.deliverer.hits) == 1


def test_a_retry_sends_the_body_that_was_sent_first_though_the_job_has_another_now() -> None:
    scene = Scene()
    scene.answer = lambda _call: Reply(status=500)
    run = stored(scene, b"first" * 4_000)
    scene.hand_off()
    scene.until(lambda: fired(scene, run))
    standing = scene.log.standings([run.facts.job_id])[run.facts.job_id]
    spec = with_body(scene, run.facts.job_id, standing.job.facts.spec.schedule, b"second" * 4_000)
    scene.append(jobs.revised(standing.job, standing.runs, spec, scene.clock.now()))
    scene.answer = lambda _call: Reply()
    while not scene.ended(run):
        scene.hand_off()
        scene.run_ms(1_000)
    assert [hit.call.body for hit in scene.deliverer.hits] == [b"first" * 4_000] * 2


def test_an_erased_tenant_has_no_bodies() -> None:
    scene = Scene()
    run = stored(scene, b"x" * 20_000)
    scene.vault.destroy(jobs.TENANT)
    scene.hand_off()
    scene.until(lambda: scene.ended(run))
    assert completed(scene, run).outcome == re.DEAD
    assert fired(scene, run)[0].error == "key_gone"
    assert scene.deliverer.hits == []


def test_a_drain_gives_back_what_waits_for_its_body() -> None:
    scene = Scene()
    run = stored(scene, b"x" * 20_000)
    scene.reads.slow = True
    scene.hand_off()
    scene.until(lambda: scene.dispatcher.unreported == 1)
    drain(scene)
    assert [event.outcome for event in fired(scene, run)] == [re.ABANDONED]
    assert scene.names(run)[-1] == "Scheduled"


def test_what_is_kept_is_bounded() -> None:
    scene = Scene()
    store = MemoryPayloadStore()
    reads = MemoryPayloadReads(store, reads_max=1_000)
    bodies = Bodies(reads, Telemetry())
    run = scene.one_time()
    job = scene.log.standings([run.facts.job_id])[run.facts.job_id].job

    def ask(ref: PayloadRef) -> bool:
        flight = Flight(run, job, 0, alone=True)  # type: ignore[arg-type]  # its facts are enough
        return bodies.whole(flight, msgspec.structs.replace(spec, payload_ref=ref), 1) is not None

    spec = jobs.spec(jobs.minutely())
    refs = []
    for _ in range(KEPT_BYTES_MAX // (1024 * 1024) + 10):
        wanted, data = written(1024 * 1024)
        mine = PayloadObject(run.facts.tenant_id, run.facts.job_id, wanted.ref)
        store.put([(mine, data)])
        refs.append(wanted.ref)
        assert not ask(wanted.ref)
        assert len(bodies.poll(0)[0]) == 1
    kept = [ref for ref in refs if ask(ref)]
    assert kept == refs[10:]
