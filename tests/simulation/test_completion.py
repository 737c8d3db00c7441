"""Asynchronous completion on the whole simulated installation: beats, silence, races, jumps."""

import msgspec
import pytest

from commandside.commands.completions import RunReply
from domain.instant import HOUR, MINUTE, SECOND
from domain.job import decide as job
from domain.job import events as je
from domain.run import accepted
from domain.run import events as re
from domain.run.accepted import Progress
from domain.run.state import Awaiting, Ready
from tests.contracts import jobs
from tests.simulation.handlers import Busy, Handlers, now
from tests.simulation.ledger import wrongs
from tests.simulation.story import Story
from tests.simulation.world import SHARDS, START, World

BEAT_MS = 30 * SECOND
LEASE_MS = BEAT_MS + BEAT_MS // 3
WARM_MS = 70 * SECOND
"""Since when the audit loop is trusted with accepted attempts."""


class Scene:
    """A world whose target takes everything, and one job."""

    def __init__(self, *, recurring: bool = False, **fields: object) -> None:
        self.world = World(7)
        self.handlers = Handlers(self.world)
        self.due = START + WARM_MS + 50 * SECOND
        schedule = jobs.minutely() if recurring else jobs.once(self.due)
        limits = {"heartbeat_timeout_ms": BEAT_MS, "max_run_time_ms": HOUR}
        spec = msgspec.structs.replace(jobs.spec(schedule, payload=b""), **limits | fields)
        decision = jobs.define(jobs.job_id(3, SHARDS), spec, START + recurring * WARM_MS)
        self.job_id = decision.job_id
        if recurring:
            self.world.run_until(START + WARM_MS)
        assert self.world.log.append([decision], self.world.clock.now()).refused == ()
        self.run_id = jobs.ready_run(decision).facts.run_id
        self.until(lambda: self.handlers.taken)
        self.rest(SECOND)

    def until(self, true: object) -> None:
        """Run until something is so."""
        assert callable(true)
        for _ in range(10_000):
            if true():
                return
            self.rest(100)
        raise AssertionError("it has not happened")

    def rest(self, ms: int) -> None:
        """Let so much time pass."""
        self.world.run_until(self.world.clock.now() + ms)

    def names(self) -> list[str]:
        """Return the events of the first run."""
        return [type(event).__name__ for event in self.world.log.events_of(self.run_id)]

    def fired(self) -> list[re.Fired]:
        """Return the attempts of the first run that have ended."""
        events = self.world.log.events_of(self.run_id)
        return [event for event in events if isinstance(event, re.Fired)]

    def command(self, verb: object) -> None:
        """Give a job command."""
        assert callable(verb)
        log = self.world.commands
        now(log.command(self.job_id, b"", b"", lambda s, runs, at: verb(s, runs, job.By(at))))


def status(said: RunReply | str) -> str:
    return said if isinstance(said, str) else said.status


def test_a_handler_accepts_beats_and_completes() -> None:
    scene = Scene()
    handler = scene.handlers.of_run(1)
    assert scene.names() == ["Scheduled", "Leased", "Accepted"]
    for percent in (20, 40, 60, 80):
        scene.rest(25 * SECOND)
        assert status(handler.beat(Progress(percent))) == "running"
    scene.rest(35 * SECOND)
    assert status(handler.complete(b'{"rows":3}')) == "succeeded"
    (fired,) = scene.fired()
    assert (fired.outcome, fired.status, fired.body, fired.attempt) == (
        re.OK,
        202,
        b'{"rows":3}',
        1,
    )
    assert fired.elapsed_us >= 135_000_000
    assert scene.names().count("Extended") == 4
    assert len(scene.handlers.taken) == 1


def test_the_end_can_be_said_again_and_another_end_cannot() -> None:
    scene = Scene()
    handler = scene.handlers.of_run(1)
    first = handler.complete()
    events = scene.names()
    assert handler.complete() == first
    assert handler.fail("no") == "ended"
    assert handler.beat() == "ended"
    assert scene.names() == events


def test_a_failure_can_be_said_again_and_is_retried_with_the_same_key() -> None:
    scene = Scene()
    handler = scene.handlers.of_run(1)
    first = handler.fail("disk full")
    assert isinstance(first, RunReply)
    assert first.status == "waiting"
    assert first.next_attempt_at is not None
    assert handler.fail("disk full") == first
    assert scene.fired()[0].body == b"disk full"
    scene.until(lambda: len(scene.handlers.taken) == 2)
    repeated = handler.fail("disk full")
    assert isinstance(repeated, RunReply)
    assert (repeated.status, repeated.lease_until) == ("running", None)
    assert handler.complete() == "superseded"
    second = scene.handlers.of_run(2)
    scene.rest(SECOND)
    assert status(second.complete()) == "succeeded"
    assert handler.fail("disk full") == "superseded"


def test_silence_is_a_retry_and_who_comes_back_is_told_so() -> None:
    scene = Scene()
    first = scene.handlers.of_run(1)
    scene.rest(LEASE_MS - 5 * SECOND)
    assert len(scene.fired()) == 0
    scene.until(lambda: len(scene.handlers.taken) == 2)
    (lost,) = scene.fired()
    assert (lost.outcome, lost.error) == (re.LOST, accepted.UNHEARD)
    calls = [hit.call for deliverer in scene.world.deliverers for hit in deliverer.hits]
    assert b"Tocsin-Possible-Duplicate: true" in calls[-1].headers
    scene.rest(SECOND)
    before = scene.names()
    assert [first.complete(), first.fail("no"), first.beat()] == ["superseded"] * 3
    assert scene.names() == before
    assert status(scene.handlers.of_run(2).complete()) == "succeeded"
    assert first.complete() == "superseded"


def test_a_success_between_the_lapse_and_the_retry_ends_the_run() -> None:
    scene = Scene()
    handler = scene.handlers.of_run(1)
    scene.world.processes[2].kill()
    scene.world.processes[3].kill()
    far = scene.world.clock.now() + HOUR
    scene.world.hold(2, far)
    scene.world.hold(3, far)
    scene.until(scene.fired)
    assert isinstance(scene.world.log.due[scene.run_id].run, Ready)
    assert handler.beat() == "superseded"
    assert handler.fail("no") == "superseded"
    assert status(handler.complete()) == "succeeded"
    assert [fired.late for fired in scene.fired()] == [False, True]
    assert len(scene.handlers.taken) == 1


def test_no_call_follows_a_dispatchers_death_once_the_work_is_taken() -> None:
    scene = Scene()
    for number in (2, 3):
        scene.world.processes[number].kill()
    scene.rest(25 * SECOND)
    handler = scene.handlers.of_run(1)
    assert status(handler.beat()) == "running"
    scene.rest(30 * SECOND)
    assert status(handler.complete()) == "succeeded"
    assert scene.names().count("Leased") == 1


def test_a_cancel_tells_the_next_beat_to_stop_and_no_retry_follows() -> None:
    scene = Scene()
    handler = scene.handlers.of_run(1)
    scene.command(job.cancel)
    assert handler.beat() == "gone"
    assert status(handler.fail("stopped")) == "cancelled"
    assert handler.beat() == "gone"
    assert handler.complete() == "ended"
    scene.rest(5 * MINUTE)
    assert len(scene.handlers.taken) == 1


def test_a_cancelled_job_whose_handler_says_nothing_ends_with_its_lease() -> None:
    scene = Scene()
    scene.command(job.cancel)
    scene.rest(LEASE_MS + 5 * SECOND)
    assert scene.names()[-2:] == ["Fired", "Cancelled"]
    assert scene.handlers.of_run(1).beat() == "gone"


def test_slots_that_pass_while_the_work_is_taken_are_skipped_as_overlap() -> None:
    scene = Scene(recurring=True)
    handler = scene.handlers.of_run(1)
    for _ in range(10):
        scene.rest(20 * SECOND)
        handler.beat()
    assert len(scene.handlers.taken) == 1
    assert status(handler.complete()) == "succeeded"
    scene.until(lambda: len(scene.handlers.taken) == 2)
    following = scene.world.log.runs_of(scene.job_id)[0]
    planned = scene.world.log.events_of(following.facts.run_id)[0]
    assert isinstance(planned, re.Scheduled)
    assert [(gone.verdict, gone.count) for gone in planned.passed] == [(re.OVERLAP, 3)]


def test_a_newer_occurrence_that_takes_the_place_tells_the_older_handler_to_stop() -> None:
    scene = Scene(recurring=True, overlap=je.CANCEL_OTHER)
    first = scene.handlers.taken[0]
    scene.rest(20 * SECOND)
    first.beat()
    scene.until(lambda: len(scene.handlers.taken) == 2)
    assert first.beat() == "gone"
    assert first.complete() == "ended"


def test_too_long_a_time_fails_the_attempt_whatever_its_handler_beats() -> None:
    scene = Scene(max_run_time_ms=2 * MINUTE)
    handler = scene.handlers.of_run(1)
    said = "running"
    while said == "running":
        scene.rest(10 * SECOND)
        said = status(handler.beat())
    assert said in ("overtime", "superseded")
    scene.until(scene.fired)
    (fired,) = scene.fired()
    assert (fired.outcome, fired.error, fired.then) == (re.FAILED, accepted.OVERTIME, re.RETRY)


def test_a_jump_of_the_clock_costs_one_retry_and_never_two_ends() -> None:
    scene = Scene()
    handler = scene.handlers.of_run(1)
    scene.world.clock.advance_ms(3 * MINUTE)
    said = status(handler.beat())
    assert said in ("running", "superseded")
    scene.rest(2 * MINUTE)
    last = scene.handlers.taken[-1]
    assert status(last.complete()) in ("succeeded", "superseded")
    scene.rest(MINUTE)
    assert scene.names().count("Completed") == 1


def test_an_outage_of_the_log_does_not_count_as_silence() -> None:
    scene = Scene()
    handler = scene.handlers.of_run(1)
    scene.world.log.away = True
    scene.rest(90 * SECOND)
    assert handler.beat() == "unavailable"
    scene.world.log.away = False
    scene.rest(25 * SECOND)
    assert status(handler.beat()) == "running"
    assert isinstance(scene.world.log.due[scene.run_id].run, Awaiting)
    assert status(handler.complete()) == "succeeded"


class Hours(Story):
    """A story of jobs whose handlers take most of their work."""

    def __init__(self, seed: int, *, jobs: int, hours: int) -> None:
        super().__init__(seed, jobs=jobs, hours=hours)
        self.busy_handlers = Busy(self.world, seed + 2)

    def _one_time(self) -> je.JobSpec:
        return self._limited(super()._one_time())

    def _recurring(self) -> je.JobSpec:
        return self._limited(super()._recurring())

    def _limited(self, spec: je.JobSpec) -> je.JobSpec:
        whole = self.random.choice((0, 2 * MINUTE, HOUR))
        return msgspec.structs.replace(spec, heartbeat_timeout_ms=BEAT_MS, max_run_time_ms=whole)


@pytest.mark.parametrize("seed", [11, 13])
def test_hours_of_handlers_that_beat_stall_die_and_come_late(seed: int) -> None:
    story = Hours(seed, jobs=120, hours=6)
    story.play()
    world, answers = story.world, story.busy_handlers.answers
    print(f"seed {seed}: {dict(sorted(answers.items()))}")
    assert wrongs(world.log, world.deliverers, world.clock.now() - HOUR) == []
    for seen in ("beat: running", "complete: succeeded", "fail: waiting", "dead: dead"):
        assert answers[seen], seen
    assert answers["complete: superseded"], "somebody came late"
    assert world.figures.counts["attempts_accepted"] > 50
