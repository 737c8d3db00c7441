"""What every command log does, in memory or on Postgres."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

import msgspec
import pytest

from commandside.command_port import Accepted, BodyDiffers, CommandLog, Decide
from commandside.ports import Unavailable
from domain.envelope import Command, Decision, Rejected, RunAt, Slice
from domain.job import decide as job
from domain.job import events as je
from domain.job import state as js
from domain.job.redrive import TELLING, TELLING_MAX, tell
from domain.run import events as re
from domain.run import state as rs
from tests.contracts import jobs

MINUTE: Final = 60_000
FIRST: Final = b"first".ljust(16, b".")
SECOND: Final = b"second".ljust(16, b".")
Answer = TypeVar("Answer")


class Bench(Protocol):
    """A log under test: opens it, runs one scenario, and closes it."""

    def run(self, scenario: Callable[[CommandLog], Awaitable[Answer]]) -> Answer: ...

    def now(self) -> int: ...


def accepted(answer: Accepted | BodyDiffers | Rejected) -> Accepted:
    assert isinstance(answer, Accepted), answer
    return answer


def by(at: int, command: bytes = b"", body: bytes = b"hash") -> job.By:
    return job.By(at, command=Command(command, body) if command else None)


def pausing(command: bytes = b"") -> Decide:
    return lambda state, runs, at: job.pause(state, runs, by(at, command))


def resuming(command: bytes = b"") -> Decide:
    return lambda state, runs, at: job.resume(state, runs, by(at, command))


def triggering(command: bytes, *, overlap: bool = False) -> Decide:
    return lambda state, runs, at: job.trigger(
        state, runs, command, by(at, command), allow_overlap=overlap
    )


class CommandLogContract:
    """Subclasses give a fixture `bench`."""

    # ---------------------------------------------------------------- definitions

    def test_a_definition_is_answered_with_its_version_place_and_instant(
        self, bench: Bench
    ) -> None:
        async def scenario(log: CommandLog) -> None:
            at = bench.now()
            decision = minutely(log, at)
            done = accepted(await log.define(decision))
            assert (done.version, done.at, done.replayed) == (1, at, False)
            assert done.position > 0
            assert isinstance(done.job, js.Active)
            assert [type(run) for run in done.runs] == [rs.Ready]

        bench.run(scenario)

    def test_a_job_that_exists_is_not_defined_again(self, bench: Bench) -> None:
        async def scenario(log: CommandLog) -> None:
            decision = minutely(log, bench.now())
            accepted(await log.define(decision))
            answer = await log.define(decision)
            assert isinstance(answer, Rejected)
            assert answer.code == "exists"

        bench.run(scenario)

    def test_a_definition_that_is_repeated_answers_as_the_first_time(self, bench: Bench) -> None:
        async def scenario(log: CommandLog) -> None:
            decision = minutely(log, bench.now(), FIRST)
            first = accepted(await log.define(decision))
            accepted(await log.command(decision.job_id, b"", b"", pausing()))
            again = accepted(await log.define(decision))
            assert again.replayed
            assert (again.version, again.position, again.at) == (
                first.version,
                first.position,
                first.at,
            )
            assert isinstance(again.job, js.Paused)

        bench.run(scenario)

    def test_the_same_command_id_with_another_body_is_refused(self, bench: Bench) -> None:
        async def scenario(log: CommandLog) -> None:
            decision = minutely(log, bench.now(), FIRST)
            accepted(await log.define(decision))
            other = minutely(log, bench.now(), FIRST, body=b"other", job_id=decision.job_id)
            assert isinstance(await log.define(other), BodyDiffers)
            answer = await log.command(decision.job_id, FIRST, b"other", pausing(FIRST))
            assert isinstance(answer, BodyDiffers)

        bench.run(scenario)

    def test_definitions_at_the_same_time_are_all_there_at_places_of_their_own(
        self, bench: Bench
    ) -> None:
        async def scenario(log: CommandLog) -> None:
            at = bench.now()
            decisions = [minutely(log, at, shard=n % 8) for n in range(300)]
            answers = await asyncio.gather(*(log.define(decision) for decision in decisions))
            assert len({accepted(answer).position for answer in answers}) == len(decisions)

        bench.run(scenario)

    def test_a_definition_sent_twice_at_the_same_time_has_one_effect(self, bench: Bench) -> None:
        """DUP-03."""

        async def scenario(log: CommandLog) -> None:
            decision = minutely(log, bench.now(), FIRST)
            answers = await asyncio.gather(*(log.define(decision) for _ in range(5)))
            assert sum(not accepted(answer).replayed for answer in answers) == 1
            assert len({accepted(answer).position for answer in answers}) == 1

        bench.run(scenario)

    # ---------------------------------------------------------------- load

    def test_a_decision_is_committed_until_its_last_instant_and_not_after_it(
        self, bench: Bench
    ) -> None:
        now = bench.now()
        late, good = (
            jobs.define(jobs.job_id(3, 64), jobs.spec(jobs.once(now + MINUTE)), now)
            for _ in range(2)
        )
        late = msgspec.structs.replace(late, not_after=now - MINUTE)
        good = msgspec.structs.replace(good, not_after=now + MINUTE)

        async def scenario(log: CommandLog) -> list[object]:
            made = await log.define_all([late, good])
            return [*made, await log.standing(late.job_id), await log.standing(good.job_id)]

        refused, made, nothing, standing = bench.run(scenario)
        assert isinstance(refused, Unavailable)
        assert isinstance(made, Accepted)
        assert nothing is None
        assert standing is not None

    def test_a_command_is_committed_until_its_last_instant_and_not_after_it(
        self, bench: Bench
    ) -> None:
        now = bench.now()
        decision = jobs.define(jobs.job_id(3, 64), jobs.spec(jobs.minutely()), now)

        def pausing_by(last: int) -> Decide:
            def decide(
                state: js.JobState | None, runs: tuple[rs.OpenRun, ...], at: int
            ) -> job.Outcome:
                outcome = job.pause(state, runs, by(at))
                assert isinstance(outcome, Decision)
                return msgspec.structs.replace(outcome, not_after=last)

            return decide

        async def scenario(log: CommandLog) -> Accepted | BodyDiffers | Rejected:
            await log.define(decision)
            with pytest.raises(Unavailable):
                await log.command(decision.job_id, b"", b"", pausing_by(now - MINUTE))
            standing = await log.standing(decision.job_id)
            assert standing is not None
            assert isinstance(standing.job, js.Active)
            return await log.command(decision.job_id, b"", b"", pausing_by(now + MINUTE))

        assert isinstance(accepted(bench.run(scenario)).job, js.Paused)

    def test_open_runs_are_counted_by_the_second_that_they_wake_in(self, bench: Bench) -> None:
        async def scenario(log: CommandLog) -> None:
            at = bench.now()
            second = at // 1_000 + 3_600
            for shard, due in ((0, 0), (1, 999), (2, 1_000), (2, 5_000)):
                instant = second * 1_000 + due
                spec = jobs.spec(jobs.once(instant))
                accepted(await log.define(jobs.define(jobs.job_id(shard, log.shards), spec, at)))
            low = second * 1_000
            assert await log.due_per_second([(low, low + 2_000)]) == {second: 2, second + 1: 1}
            both = [(low + 1_000, low + 2_000), (low + 5_000, low + 6_000)]
            assert await log.due_per_second(both) == {second + 1: 1, second + 5: 1}
            assert await log.due_per_second([]) == {}
            assert await log.due_per_second([(low + 6_000, low + 7_000)]) == {}

        bench.run(scenario)

    # ---------------------------------------------------------------- commands

    def test_a_command_on_no_job_is_decided_on_nothing(self, bench: Bench) -> None:
        async def scenario(log: CommandLog) -> None:
            answer = await log.command(jobs.job_id(0, log.shards), FIRST, b"", pausing(FIRST))
            assert isinstance(answer, Rejected)
            assert answer.code == "absent"

        bench.run(scenario)

    def test_a_command_is_decided_on_the_job_as_it_is(self, bench: Bench) -> None:
        async def scenario(log: CommandLog) -> None:
            decision = minutely(log, bench.now())
            defined = accepted(await log.define(decision))
            paused = accepted(await log.command(decision.job_id, b"", b"", pausing()))
            assert paused.version == 2
            assert paused.position > defined.position
            assert isinstance(paused.job, js.Paused)

        bench.run(scenario)

    def test_a_command_that_is_repeated_has_one_effect_whatever_came_between(
        self, bench: Bench
    ) -> None:
        async def scenario(log: CommandLog) -> None:
            decision = minutely(log, bench.now())
            accepted(await log.define(decision))
            first = accepted(await log.command(decision.job_id, FIRST, b"hash", pausing(FIRST)))
            accepted(await log.command(decision.job_id, SECOND, b"hash", resuming(SECOND)))
            again = accepted(await log.command(decision.job_id, FIRST, b"hash", pausing(FIRST)))
            assert again.replayed
            assert (again.version, again.position, again.at) == (
                first.version,
                first.position,
                first.at,
            )
            assert isinstance(again.job, js.Active)

        bench.run(scenario)

    def test_a_refusal_is_not_recorded(self, bench: Bench) -> None:
        async def scenario(log: CommandLog) -> None:
            decision = minutely(log, bench.now())
            accepted(await log.define(decision))
            accepted(await log.command(decision.job_id, b"", b"", pausing()))
            refused = await log.command(decision.job_id, FIRST, b"hash", triggering(FIRST))
            assert isinstance(refused, Rejected)
            accepted(await log.command(decision.job_id, b"", b"", resuming()))
            done = accepted(await log.command(decision.job_id, FIRST, b"hash", triggering(FIRST)))
            assert not done.replayed

        bench.run(scenario)

    def test_a_command_with_nothing_to_do_is_recorded(self, bench: Bench) -> None:
        async def scenario(log: CommandLog) -> None:
            decision = minutely(log, bench.now())
            accepted(await log.define(decision))
            first = accepted(await log.command(decision.job_id, FIRST, b"hash", resuming(FIRST)))
            accepted(await log.command(decision.job_id, b"", b"", pausing()))
            again = accepted(await log.command(decision.job_id, FIRST, b"hash", resuming(FIRST)))
            assert (first.version, again.version, again.replayed) == (1, 1, True)
            assert isinstance(again.job, js.Paused)

        bench.run(scenario)

    def test_commands_at_the_same_time_hold_one_after_the_other(self, bench: Bench) -> None:
        async def scenario(log: CommandLog) -> None:
            decision = minutely(log, bench.now())
            accepted(await log.define(decision))
            ids = [n.to_bytes(16, "big") for n in range(1, 6)]
            answers = await asyncio.gather(
                *(
                    log.command(decision.job_id, each, b"hash", triggering(each, overlap=True))
                    for each in ids
                )
            )
            assert sorted(accepted(answer).version for answer in answers) == [2, 3, 4, 5, 6]
            standing = await log.standing(decision.job_id)
            assert standing is not None
            assert len(standing.runs) == 6

        bench.run(scenario)

    # ---------------------------------------------------------------- reads

    def test_a_job_that_is_not_there_has_no_standing(self, bench: Bench) -> None:
        async def scenario(log: CommandLog) -> None:
            assert await log.standing(jobs.job_id(0, log.shards)) is None

        bench.run(scenario)

    def test_a_paused_job_stands_with_its_withheld_run_and_resumes_it(self, bench: Bench) -> None:
        async def scenario(log: CommandLog) -> None:
            decision = minutely(log, bench.now())
            accepted(await log.define(decision))
            accepted(await log.command(decision.job_id, b"", b"", pausing()))
            standing = await log.standing(decision.job_id)
            assert standing is not None
            assert [type(run) for run in standing.runs] == [rs.Withheld]
            resumed = accepted(await log.command(decision.job_id, b"", b"", resuming()))
            assert [type(run) for run in resumed.runs] == [rs.Ready]
            assert resumed.runs[0].facts.run_id == standing.runs[0].facts.run_id

        bench.run(scenario)

    def test_a_stream_is_read_page_by_page(self, bench: Bench) -> None:
        async def scenario(log: CommandLog) -> None:
            decision = minutely(log, bench.now())
            accepted(await log.define(decision))
            for _ in range(2):
                accepted(await log.command(decision.job_id, b"", b"", pausing()))
                accepted(await log.command(decision.job_id, b"", b"", resuming()))
            first = await log.events(decision.job_id, decision.job_id, 0, 2)
            rest = await log.events(decision.job_id, decision.job_id, 2, 100)
            assert [type(event) for event in first] == [je.Defined, je.Paused]
            assert [type(event) for event in rest] == [je.Resumed, je.Paused, je.Resumed]

        bench.run(scenario)

    def test_events_of_some_kinds_are_read_with_their_versions_the_newest_of_them(
        self, bench: Bench
    ) -> None:
        async def scenario(log: CommandLog) -> None:
            mine = minutely(log, bench.now())
            accepted(await log.define(mine))
            for _ in range(2):
                accepted(await log.command(mine.job_id, b"", b"", pausing()))
                accepted(await log.command(mine.job_id, b"", b"", resuming()))
            kinds = (je.Defined, je.Resumed)
            found = await log.told(mine.job_id, kinds, 10)
            assert [(n, type(event)) for n, event in found] == [
                (1, je.Defined),
                (3, je.Resumed),
                (5, je.Resumed),
            ]
            assert [n for n, _ in await log.told(mine.job_id, kinds, 2)] == [3, 5]
            assert await log.told(jobs.job_id(0, log.shards), kinds, 2) == []

        bench.run(scenario)

    def test_events_of_a_run_are_told_by_its_id_alone(self, bench: Bench) -> None:
        async def scenario(log: CommandLog) -> None:
            mine = minutely(log, bench.now())
            accepted(await log.define(mine))
            accepted(await log.command(mine.job_id, b"", b"", pausing()))
            run = jobs.ready_run(mine).facts.run_id
            found = await log.told(run, TELLING, TELLING_MAX)
            assert [(n, type(event)) for n, event in found] == [
                (1, re.Scheduled),
                (2, re.Withdrawn),
            ]
            dead = tell(run, found)
            assert dead is not None
            assert (dead.status, dead.planned.job_id) == ("withdrawn", mine.job_id)
            assert tell(bytes(16), await log.told(bytes(16), TELLING, TELLING_MAX)) is None
            assert tell(mine.job_id, await log.told(mine.job_id, TELLING, TELLING_MAX)) is None

        bench.run(scenario)

    def test_the_last_events_are_those_of_streams_that_exist(self, bench: Bench) -> None:
        async def scenario(log: CommandLog) -> None:
            mine, other = minutely(log, bench.now()), minutely(log, bench.now())
            for decision in (mine, other):
                accepted(await log.define(decision))
            accepted(await log.command(mine.job_id, b"", b"", pausing()))
            runs = [jobs.ready_run(decision).facts.run_id for decision in (mine, other)]
            found = await log.last_events([runs[0], bytes(16), runs[1]])
            assert {run: type(event) for run, event in found.items()} == {
                runs[0]: re.Withdrawn,
                runs[1]: re.Scheduled,
            }
            assert await log.last_events([]) == {}

        bench.run(scenario)

    def test_the_stream_of_a_run_is_read_through_its_own_job_only(self, bench: Bench) -> None:
        async def scenario(log: CommandLog) -> None:
            mine, other = minutely(log, bench.now()), minutely(log, bench.now())
            run = jobs.ready_run(mine).facts.run_id
            for decision in (mine, other):
                accepted(await log.define(decision))
            events = await log.events(mine.job_id, run, 0, 10)
            assert [type(event) for event in events] == [re.Scheduled]
            assert await log.events(other.job_id, run, 0, 10) == []
            assert await log.events(other.job_id, mine.job_id, 0, 10) == []

        bench.run(scenario)

    def test_the_newest_event_of_a_kind_is_found_in_each_stream_that_has_one(
        self, bench: Bench
    ) -> None:
        async def scenario(log: CommandLog) -> None:
            mine, other = minutely(log, bench.now()), minutely(log, bench.now())
            runs = [jobs.ready_run(decision).facts.run_id for decision in (mine, other)]
            for decision in (mine, other):
                accepted(await log.define(decision))
            for _ in range(2):
                accepted(await log.command(mine.job_id, b"", b"", pausing()))
                accepted(await log.command(mine.job_id, b"", b"", resuming()))
            asked = [*runs, bytes(16)]
            found = await log.latest(asked, re.Withdrawn)
            assert list(found) == runs[:1]
            newest = await log.latest(asked, re.Scheduled)
            assert set(newest) == set(runs)
            whole = await log.events(mine.job_id, runs[0], 0, 100)
            assert newest[runs[0]] == whole[-1]
            assert await log.latest([], re.Fired) == {}

        bench.run(scenario)

    def test_a_decision_about_a_run_alone_leaves_the_job_at_its_version(self, bench: Bench) -> None:
        async def scenario(log: CommandLog) -> None:
            decision = minutely(log, bench.now())
            accepted(await log.define(decision))
            run_id = jobs.ready_run(decision).facts.run_id

            def again(
                _job: js.JobState | None, runs: tuple[rs.OpenRun, ...], at: int
            ) -> Decision | None:
                (run,) = runs
                facts = run.facts
                event = re.Withdrawn(at, re.PAUSED)
                after = rs.evolve(run_id, run, event)
                assert isinstance(after, rs.Withheld)
                own = Slice(run_id, facts.version + 1, (event,), after)
                return Decision(facts.job_id, (RunAt(run_id, facts.version),), (own,))

            done = accepted(await log.command(decision.job_id, b"", b"", again))
            assert done.version == 1
            assert done.position > 0
            assert isinstance(done.job, js.Active)
            assert done.at >= bench.now() - MINUTE

        bench.run(scenario)


def minutely(  # noqa: PLR0913 - what tests vary
    log: CommandLog,
    at: int,
    command: bytes = b"",
    *,
    body: bytes = b"hash",
    shard: int = 0,
    job_id: bytes = b"",
) -> Decision:
    """Return the definition of a job that fires with every minute."""
    new = job.NewJob(
        job_id or jobs.job_id(shard, log.shards), jobs.TENANT, jobs.spec(jobs.minutely())
    )
    decision = job.define(new, None, by(at, command, body))
    assert isinstance(decision, Decision)
    return decision
