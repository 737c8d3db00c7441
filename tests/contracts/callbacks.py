"""What the stores of callbacks do, and the reactor over them, wherever they are."""

import asyncio
import json
from typing import Final, Protocol

import msgspec
import pytest

from commandside.callback_port import OWNER, CallbackDefaults, CallbackLog, Default
from commandside.commands.callback_reactor import VIEW, CallbackView, ReactorPorts
from commandside.definitions.sealing import Sealer, opened_target
from commandside.fault_points import CALLBACKS_DEFINED
from commandside.ports import Unavailable, Vault
from domain.callback import FAILURE, SKIPPED, SUCCESS, CallbackOf, Callbacks
from domain.envelope import Decision, Rejected
from domain.ids import callback_id
from domain.job import decide, redrive
from domain.job.callback import DELAY_MS
from domain.job.events import Defined, JobSpec
from domain.job.state import JobState
from domain.run.decide import Grant, Result, first_lease, report
from domain.run.events import FAILED, OK, Fired, Scheduled
from domain.run.state import InFlight, OpenRun, Ready
from domain.target import Header, HttpTarget, KafkaTarget
from infra.memory.feed import MemoryPositions
from projections.ports import Feed, Recorded
from tests.commandside.scene import Crashed, Faults, Telemetry
from tests.contracts.jobs import TENANT, define, job_id, once, ready_run, spec

OTHER: Final = bytes(15) + b"\x08"
TOLD: Final = HttpTarget(
    "https",
    "told.example",
    443,
    "/x",
    "POST",
    (Header("Authorization", b"Bearer x"), Header("X-Key", b"", "crm")),
    "https://told.example/x",
)
QUEUE: Final = KafkaTarget("main", "ends", "", ())
DIES: Final = Result(FAILED, "dead", 503, "")
SUCCEEDS: Final = Result(OK, "ok", 200)


class Bench(Protocol):
    """The ports over one log. Both tenants are there, with keys."""

    shards: int

    @property
    def feed(self) -> Feed:
        """The log."""

    @property
    def log(self) -> CallbackLog:
        """The log as the reactor uses it."""

    @property
    def defaults(self) -> CallbackDefaults:
        """The tenants' defaults."""

    @property
    def vault(self) -> Vault:
        """What seals."""

    def now(self) -> int:
        """Return the log's clock."""

    def tick(self) -> None:
        """Let that clock move on by a millisecond at least."""

    def append(self, decision: Decision) -> None:
        """Append a decision that holds."""

    def destroy(self, tenant_id: bytes) -> None:
        """Destroy a tenant's key."""


class Reactor:
    """A reactor's process, from its start until it dies; positions outlive it."""

    def __init__(self, bench: Bench, positions: MemoryPositions) -> None:
        self.faults, self.figures = Faults(), Telemetry()
        self._bench, self._positions = bench, positions
        self.now = bench.now
        ports = ReactorPorts(
            bench.log, bench.vault, positions, self.faults, self.figures, self._clock
        )
        self._view = CallbackView(ports)

    def _clock(self) -> int:
        return self.now()

    def read(self) -> list[Recorded]:
        """Read what the position does not cover, tell of it, and return it."""
        at = self._positions.load(VIEW)
        page = self._bench.feed.read(
            {shard: at.get(shard, 0) for shard in range(self._bench.shards)}, 10_000
        )
        self._view.apply(page, {one.shard: one.position for one in page})
        return page


def telling(bench: Bench, job: bytes, callbacks: Callbacks | None) -> JobSpec:
    """Return the spec of a one-time job that is due now, sealed."""
    plain = msgspec.structs.replace(
        spec(once(bench.now())),
        callbacks=callbacks,
        name="invoices",
        labels=(("team", "billing"),),
    )
    return Sealer(bench.vault, TENANT, job).new(msgspec.structs.asdict(plain))


def begun(bench: Bench, callbacks: Callbacks | None, shard: int = 3) -> tuple[JobState, InFlight]:
    """Append a job that is due now and the first lease of its run."""
    job = job_id(shard, bench.shards)
    decision = define(job, telling(bench, job, callbacks), bench.now())
    bench.append(decision)
    state = next(s.after for s in decision.slices if s.stream_id == job)
    assert isinstance(state, JobState)
    return state, leased(bench, state, ready_run(decision))


def leased(bench: Bench, state: JobState, run: Ready) -> InFlight:
    """Append the first lease of a run."""
    lease = first_lease(state, run, (), run.facts.due_at, Grant(b"s" * 16, b"n" * 8))
    assert isinstance(lease, Decision)
    bench.append(msgspec.structs.replace(lease, not_before=0))
    after = next(s.after for s in lease.slices if s.stream_id == run.facts.run_id)
    assert isinstance(after, InFlight)
    return after


def planned_of(bench: Bench, run: bytes) -> Scheduled:
    """Return the only plan of a run."""
    events = (one for shard in range(bench.shards) for one in bench.feed.read({shard: 0}, 10_000))
    (found,) = (
        one.event for one in events if one.stream_id == run and isinstance(one.event, Scheduled)
    )
    return found


def ended(
    bench: Bench, callbacks: Callbacks | None, result: Result = SUCCEEDS
) -> tuple[bytes, bytes, Fired]:
    """Append a job whose run ends at once; return its id, the run's, and the end."""
    state, run = begun(bench, callbacks)
    decision = report(state, run, run.facts.fence, result, bench.now(), alone=True)
    assert decision is not None
    bench.append(decision)
    piece = next(s for s in decision.slices if s.stream_id == run.facts.run_id)
    (fired,) = (event for event in piece.events if isinstance(event, Fired))
    return state.facts.job_id, run.facts.run_id, fired


def revised(bench: Bench, state: JobState, runs: tuple[OpenRun, ...], new: JobSpec) -> None:
    """Append a change of a job's spec."""
    decision = decide.revise(state, runs, new, "", decide.By(bench.now()))
    assert isinstance(decision, Decision)
    bench.append(decision)


def put(bench: Bench, callbacks: Callbacks, tenant_id: bytes = TENANT) -> Default:
    """Put a tenant's default, sealed."""
    sealed = Sealer(bench.vault, tenant_id, OWNER).callbacks(callbacks, None)
    made = asyncio.run(bench.defaults.put(tenant_id, sealed, "k", 0))
    assert not isinstance(made, Rejected)
    bench.tick()
    return made.default


def told(bench: Bench, run: bytes, version: int = 3) -> Defined | None:
    """Return the job that tells of an event, if there is one."""
    job = callback_id(run, version)
    return bench.log.defined([job]).get(job)


def callbacks_in(bench: Bench) -> list[Defined]:
    """Return every callback job of the log."""
    found: list[Defined] = []
    for shard in range(bench.shards):
        events = (one.event for one in bench.feed.read({shard: 0}, 10_000))
        found += [
            event
            for event in events
            if isinstance(event, Defined) and event.spec.callback_of is not None
        ]
    return found


def body(bench: Bench, job: bytes, defined: Defined) -> dict[str, object]:
    """Return what a callback job sends."""
    found: dict[str, object] = json.loads(bench.vault.open(TENANT, job, defined.spec.payload))
    return found


class CallbacksContract:
    """Needs the fixture `bench`."""

    # ------------------------------------------------------------ defaults

    def test_a_tenant_has_no_default_until_it_puts_one(self, bench: Bench) -> None:
        assert asyncio.run(bench.defaults.current(TENANT)) is None
        first = put(bench, Callbacks(on_failure=QUEUE))
        assert (first.version, first.callbacks) == (1, Callbacks(on_failure=QUEUE))
        assert asyncio.run(bench.defaults.current(TENANT)) == first
        assert asyncio.run(bench.defaults.current(OTHER)) is None

    def test_the_same_default_again_is_no_version(self, bench: Bench) -> None:
        put(bench, Callbacks(on_failure=QUEUE))
        made = asyncio.run(bench.defaults.put(TENANT, Callbacks(on_failure=QUEUE), "k", 0))
        assert not isinstance(made, Rejected)
        assert (made.changed, made.default.version) == (False, 1)

    def test_a_version_that_is_not_the_current_one_changes_nothing(self, bench: Bench) -> None:
        put(bench, Callbacks(on_failure=QUEUE))
        new = Callbacks(on_success=QUEUE)
        for version in (2, 7):
            made = asyncio.run(bench.defaults.put(TENANT, new, "k", version))
            gone = asyncio.run(bench.defaults.remove(TENANT, "k", version))
            for refused in (made, gone):
                assert isinstance(refused, Rejected)
                assert refused.code == "precondition"
        made = asyncio.run(bench.defaults.put(TENANT, new, "k", 1))
        assert not isinstance(made, Rejected)
        assert made.default.version == 2

    def test_a_default_that_is_removed_is_absent_and_can_be_put_again(self, bench: Bench) -> None:
        refused = asyncio.run(bench.defaults.remove(TENANT, "k", 0))
        assert refused is not None
        assert refused.code == "absent"
        put(bench, Callbacks(on_failure=QUEUE))
        assert asyncio.run(bench.defaults.remove(TENANT, "k", 1)) is None
        assert asyncio.run(bench.defaults.current(TENANT)) is None
        bench.tick()
        assert put(bench, Callbacks(on_failure=QUEUE)).version == 3

    def test_what_was_in_force_is_told_for_each_instant(self, bench: Bench) -> None:
        before = bench.now()
        first = put(bench, Callbacks(on_failure=QUEUE))
        second = put(bench, Callbacks(on_success=QUEUE))
        bench.tick()
        removed_at = bench.now()
        asyncio.run(bench.defaults.remove(TENANT, "k", 0))
        bench.tick()
        asked = [
            (TENANT, before),
            (TENANT, first.at),
            (TENANT, first.at + 1),
            (TENANT, second.at),
            (TENANT, removed_at),
            (TENANT, bench.now() + 1_000),
            (OTHER, bench.now()),
        ]
        found = bench.log.defaults(asked)
        assert found == [None, None, first, first, second, None, None]

    # ------------------------------------------------------------ the log

    def test_callbacks_are_in_use_from_the_first_of_a_job_or_a_tenant(self, bench: Bench) -> None:
        assert not bench.log.in_use()
        bench.log.note([job_id(1, bench.shards)])
        assert bench.log.in_use()

    def test_a_default_alone_is_a_use(self, bench: Bench) -> None:
        put(bench, Callbacks(on_failure=QUEUE))
        assert bench.log.in_use()

    def test_jobs_are_noted_and_tenants_are_found(self, bench: Bench) -> None:
        put(bench, Callbacks(on_failure=QUEUE))
        jobs = [job_id(1, bench.shards) for _ in range(3)]
        bench.log.note(jobs[:2])
        bench.log.note(jobs[1:2])
        assert bench.log.concerned([TENANT, OTHER], jobs) == ({TENANT}, set(jobs[:2]))
        assert bench.log.concerned([], []) == (set(), set())

    def test_a_spec_is_that_of_before_the_event(self, bench: Bench) -> None:
        state, run = begun(bench, None)
        job = state.facts.job_id
        new = msgspec.structs.replace(state.facts.spec, name="later")
        revised(bench, state, (run,), new)
        events = bench.feed.read({3: 0}, 100)
        at = next(one.position for one in events if one.version == 2 and one.stream_id == job)
        found = bench.log.specs([(job, at), (job, at + 1), (job, at + 1_000)])
        assert [one.name for one in found] == ["invoices", "later", "later"]

    def test_of_jobs_that_are_asked_for_those_that_exist_are_told(self, bench: Bench) -> None:
        state, _ = begun(bench, None)
        job = state.facts.job_id
        found = bench.log.defined([job, job_id(2, bench.shards)])
        assert list(found) == [job]
        assert found[job].spec == state.facts.spec

    # ------------------------------------------------------------ the reactor

    @pytest.mark.parametrize(
        ("result", "event", "said"),
        [(SUCCEEDS, SUCCESS, "run.succeeded"), (DIES, FAILURE, "run.dead")],
    )
    def test_an_end_is_told_by_a_job_of_its_own(
        self, bench: Bench, result: Result, event: int, said: str
    ) -> None:
        own = Callbacks(on_success=TOLD, on_failure=TOLD)
        job, run, fired = ended(bench, own, result)
        reactor = Reactor(bench, MemoryPositions())
        reactor.read()
        defined = told(bench, run)
        assert defined is not None
        assert defined.at == fired.at
        assert defined.spec.schedule == once(fired.at + DELAY_MS)
        assert defined.spec.callback_of == CallbackOf(job, run, run, 3, event)
        plain = opened_target(bench.vault, TENANT, callback_id(run, 3), defined.spec.target)
        assert plain == TOLD
        data = body(bench, callback_id(run, 3), defined)
        assert data["type"] == said
        assert reactor.figures.counts == {"callbacks_defined": 1}

    def test_a_job_without_callbacks_is_told_of_to_nobody(self, bench: Bench) -> None:
        ended(bench, None)
        reactor = Reactor(bench, MemoryPositions())
        assert reactor.read() != []
        assert callbacks_in(bench) == []
        assert reactor.read() == [], "its position is stored"

    def test_a_redrive_that_ends_is_told_of_beside_the_dead_run(self, bench: Bench) -> None:
        own = Callbacks(on_success=TOLD, on_failure=TOLD)
        state, run = begun(bench, own)
        dies = report(state, run, run.facts.fence, DIES, bench.now(), alone=True)
        assert dies is not None
        bench.append(dies)
        planned = planned_of(bench, run.facts.run_id)
        dead = redrive.Dead(run.facts.run_id, "dead", planned, bench.now())
        again = redrive.redrive(state, (), [dead], {}, decide.By(bench.now()))
        assert isinstance(again, Decision)
        bench.append(again)
        after = next(s.after for s in again.slices if isinstance(s.after, JobState))
        flying = leased(bench, after, ready_run(again))
        lives = report(after, flying, flying.facts.fence, SUCCEEDS, bench.now(), alone=True)
        assert lives is not None
        bench.append(lives)
        Reactor(bench, MemoryPositions()).read()
        found = [defined.spec.callback_of for defined in callbacks_in(bench)]
        assert {(of.run_id, of.event) for of in found if of is not None} == {
            (run.facts.run_id, FAILURE),
            (dead.redrive_id, SUCCESS),
        }

    def test_an_event_that_is_read_again_is_told_once(self, bench: Bench) -> None:
        ended(bench, Callbacks(on_success=TOLD))
        for _ in range(3):
            reactor = Reactor(bench, MemoryPositions())
            reactor.read()
            assert reactor.figures.alarms == []
        assert len(callbacks_in(bench)) == 1

    def test_a_crash_between_a_definition_and_its_position_defines_nothing_twice(
        self, bench: Bench
    ) -> None:
        positions = MemoryPositions()
        for result in (SUCCEEDS, DIES):
            ended(bench, Callbacks(on_success=TOLD, on_failure=QUEUE), result)
        doomed = Reactor(bench, positions)
        doomed.faults.armed = CALLBACKS_DEFINED
        with pytest.raises(Crashed):
            doomed.read()
        assert positions.load(VIEW) == {}
        assert len(callbacks_in(bench)) == 2
        again = Reactor(bench, positions)
        again.read()
        assert len(callbacks_in(bench)) == 2
        assert again.figures.counts["callbacks_defined"] == 0
        assert again.figures.alarms == []
        assert positions.load(VIEW) != {}

    def test_a_job_of_that_id_which_is_another_is_left_and_alarmed(self, bench: Bench) -> None:
        _, run, _ = ended(bench, Callbacks(on_success=TOLD))
        squatter = callback_id(run, 3)
        bench.append(define(squatter, spec(once(bench.now())), bench.now()))
        reactor = Reactor(bench, MemoryPositions())
        reactor.read()
        ((name, detail),) = reactor.figures.alarms
        assert name == "callbacks_differ"
        assert squatter.hex() in detail
        assert callbacks_in(bench) == []

    def test_definitions_that_come_too_late_are_sent_again(self, bench: Bench) -> None:
        _, run, _ = ended(bench, Callbacks(on_success=TOLD))
        positions = MemoryPositions()
        reactor = Reactor(bench, positions)
        reactor.now = lambda: bench.now() - 60_000
        with pytest.raises(Unavailable):
            reactor.read()
        assert (told(bench, run), positions.load(VIEW)) == (None, {})
        reactor.now = bench.now
        reactor.read()
        assert told(bench, run) is not None

    def test_whom_a_job_told_when_it_ended_is_told_whenever_it_is_read(self, bench: Bench) -> None:
        state, run = begun(bench, Callbacks(on_success=TOLD))
        report_of = report(state, run, run.facts.fence, SUCCEEDS, bench.now(), alone=True)
        assert report_of is not None
        bench.append(report_of)
        new = msgspec.structs.replace(state.facts.spec, callbacks=Callbacks(on_success=QUEUE))
        revised(bench, state, (), new)
        Reactor(bench, MemoryPositions()).read()
        defined = told(bench, run.facts.run_id)
        assert defined is not None
        assert isinstance(defined.spec.target, HttpTarget)

    def test_a_callback_has_no_callback_whatever_is_said_by_default(self, bench: Bench) -> None:
        put(bench, Callbacks(on_success=TOLD, on_failure=TOLD))
        ended(bench, Callbacks(on_success=QUEUE))
        positions = MemoryPositions()
        reactor = Reactor(bench, positions)
        reactor.read()
        (callback,) = callbacks_in(bench)
        of = callback.spec.callback_of
        assert of is not None
        job = callback_id(of.stream_id, of.version)
        decision = decide.define(
            decide.NewJob(job, TENANT, callback.spec), None, decide.By(callback.at)
        )
        assert isinstance(decision, Decision)
        run = ready_run(decision)
        state = next(s.after for s in decision.slices if s.stream_id == job)
        assert isinstance(state, JobState)
        flying = leased(bench, state, run)
        dead = report(state, flying, flying.facts.fence, DIES, bench.now(), alone=True)
        assert dead is not None
        bench.append(dead)
        assert reactor.read() != []
        assert len(callbacks_in(bench)) == 1

    def test_the_default_tells_of_jobs_that_do_not_say_it_themselves(self, bench: Bench) -> None:
        default = put(bench, Callbacks(on_success=TOLD, on_failure=TOLD))
        _, plain, _ = ended(bench, None, DIES)
        _, own, _ = ended(bench, Callbacks(on_failure=QUEUE), DIES)
        _, off, _ = ended(bench, Callbacks(off=(FAILURE,)), DIES)
        _, other, _ = ended(bench, Callbacks(off=(SKIPPED,)), DIES)
        Reactor(bench, MemoryPositions()).read()
        found = {run: told(bench, run) for run in (plain, own, off, other)}
        assert found[off] is None
        targets = {
            run: (type(defined.spec.target), defined.spec.callback_of.default)
            for run, defined in found.items()
            if defined is not None and defined.spec.callback_of is not None
        }
        assert targets == {
            plain: (HttpTarget, default.version),
            own: (KafkaTarget, 0),
            other: (HttpTarget, default.version),
        }
        defined = found[plain]
        assert defined is not None
        opened = opened_target(bench.vault, TENANT, callback_id(plain, 3), defined.spec.target)
        assert opened == TOLD

    def test_a_default_says_nothing_of_what_ended_before_it(self, bench: Bench) -> None:
        ended(bench, None)
        bench.tick()
        put(bench, Callbacks(on_success=TOLD))
        Reactor(bench, MemoryPositions()).read()
        assert callbacks_in(bench) == []

    def test_a_default_that_was_changed_since_defines_nothing_else(self, bench: Bench) -> None:
        put(bench, Callbacks(on_success=TOLD))
        _, run, _ = ended(bench, None)
        Reactor(bench, MemoryPositions()).read()
        bench.tick()
        put(bench, Callbacks(on_success=QUEUE))
        again = Reactor(bench, MemoryPositions())
        again.read()
        assert again.figures.alarms == []
        defined = told(bench, run)
        assert defined is not None
        assert isinstance(defined.spec.target, HttpTarget)

    def test_what_an_erased_tenant_would_be_told_is_counted(self, bench: Bench) -> None:
        ended(bench, Callbacks(on_success=TOLD))
        bench.destroy(TENANT)
        reactor = Reactor(bench, MemoryPositions())
        reactor.read()
        assert callbacks_in(bench) == []
        assert reactor.figures.counts == {"callbacks_erased": 1}

    def test_more_ends_than_a_transaction_holds_are_told_each_once(self, bench: Bench) -> None:
        runs = [ended(bench, Callbacks(on_success=QUEUE))[1] for _ in range(205)]
        Reactor(bench, MemoryPositions()).read()
        found = [defined.spec.callback_of for defined in callbacks_in(bench)]
        assert sorted(of.run_id for of in found if of is not None) == sorted(runs)
