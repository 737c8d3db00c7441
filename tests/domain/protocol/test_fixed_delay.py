"""A fixed delay (§7): each run so long after the end of the one before, and nothing ever missed."""

from collections import Counter
from typing import Final

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from domain import chain
from domain.ids import SLOT
from domain.instant import DAY
from domain.job import events as je
from domain.job import state as js
from domain.job.decide import replan
from domain.run import events as re
from domain.run.decide import LOST, Result
from domain.schedule.schedule import FixedDelay
from tests.domain.protocol.scene import FAILED, MINUTE, SECOND, START, Desk, spec
from tests.domain.protocol.test_laws import JobMachine

DEAD: Final = Result(re.FAILED, "dead", 404)
DELAY: Final = FixedDelay("PT1M", MINUTE)


def job(schedule: FixedDelay = DELAY, **fields: object) -> Desk:
    """Return a job that fires a minute after each end."""
    desk = Desk()
    desk.define(spec(schedule, **fields))
    return desk


def slow(desk: Desk, ms: int = 90 * SECOND, result: Result | None = None) -> int:
    """Fire once; return the instant at which the run ended."""
    run = desk.begin()
    desk.now += ms
    desk.report(run, *(() if result is None else (result,)))
    return desk.now


def test_the_first_run_is_a_delay_after_the_definition_or_at_the_start() -> None:
    assert job().frontier().facts.nominal == START + MINUTE
    assert job(starts_at=START + DAY).frontier().facts.nominal == START + DAY
    anchored = FixedDelay("PT1M", MINUTE, START + DAY)
    assert job(anchored).frontier().facts.nominal == START + DAY


def test_each_next_run_is_a_delay_after_the_end_and_no_slot_is_in_between() -> None:
    desk = job()
    for _ in range(3):
        ended = slow(desk)
        assert desk.frontier().facts.nominal == desk.frontier().facts.due_at == ended + MINUTE
    assert desk.passed() == []
    planned = [event for event in desk.log if isinstance(event, re.Scheduled)]
    assert [event.nominal - event.after for event in planned] == [MINUTE] * 4


def test_the_end_is_that_of_the_last_retry_whether_it_succeeds_or_not() -> None:
    desk = job()
    for result in (FAILED, FAILED, FAILED):
        run = desk.lease_when_due()
        desk.now += 10 * SECOND
        desk.report(run, result)
    assert desk.frontier().facts.nominal == desk.now + MINUTE
    ended = slow(desk, result=DEAD)
    assert desk.frontier().facts.nominal == ended + MINUTE


def test_a_run_whose_process_died_is_followed_after_the_retry_that_ends_it() -> None:
    desk = job()
    run = desk.begin()
    desk.now = run.until
    desk.report(run, LOST)
    again = desk.lease_when_due()
    desk.now += SECOND
    desk.report(again)
    assert desk.frontier().facts.nominal == desk.now + MINUTE


def test_a_run_that_comes_ten_days_late_fires_and_nothing_was_missed() -> None:
    desk = job()
    first = desk.frontier().facts
    desk.now += 10 * DAY
    ended = slow(desk)
    assert desk.last(first.run_id)[-1] == "Completed"
    assert desk.frontier().facts.nominal == ended + MINUTE
    assert desk.passed() == []


def test_no_word_for_missed_slots_keeps_a_late_run_from_firing() -> None:
    for misfire in (je.NONE, je.ALL, je.LATEST):
        desk = job(misfire=misfire)
        desk.now += DAY
        assert desk.lease(desk.frontier()) is not None


def test_a_command_finds_no_slots_to_settle() -> None:
    head = job().head()
    assert chain.settle(head, START, START + DAY, 0, None) == ()


def test_a_run_that_is_older_than_it_may_be_is_skipped_and_followed_from_then() -> None:
    desk = job(max_lateness_ms=90 * SECOND)
    first = desk.frontier().facts
    desk.now = first.due_at + 91 * SECOND
    assert desk.lease(desk.frontier()) is None
    assert desk.last(first.run_id)[-1] == "Skipped"
    assert desk.frontier().facts.nominal == desk.now + MINUTE


def test_a_manual_run_does_not_move_the_chain() -> None:
    desk = job()
    before = desk.frontier()
    desk.trigger()
    (manual,) = [run for run in desk.due.values() if not run.facts.is_link]
    leased = desk.lease(manual)
    assert leased is not None
    desk.now += 20 * SECOND
    desk.report(leased)
    assert desk.frontier() == before


def test_a_manual_run_in_the_way_skips_the_run_and_the_next_is_counted_from_there() -> None:
    desk = job()
    desk.trigger()
    (manual,) = [run for run in desk.due.values() if not run.facts.is_link]
    assert desk.lease(manual) is not None
    first = desk.frontier()
    desk.now = first.facts.due_at + SECOND
    assert desk.lease(first) is None
    assert desk.last(first.facts.run_id)[-1] == "Skipped"
    assert desk.frontier().facts.nominal == desk.now + MINUTE


def test_a_pause_that_ends_before_the_run_was_due_keeps_its_instant() -> None:
    desk = job()
    before = desk.frontier().facts
    desk.now += 10 * SECOND
    desk.pause()
    desk.now += 10 * SECOND
    desk.resume()
    assert desk.frontier().facts.nominal == before.nominal
    assert desk.frontier().facts.run_id == before.run_id


def test_a_pause_over_the_instant_skips_it_and_the_next_is_counted_from_the_resume() -> None:
    desk = job()
    before = desk.frontier().facts
    desk.pause()
    desk.now += DAY
    desk.resume()
    assert desk.last(before.run_id)[-1] == "Skipped"
    assert desk.frontier().facts.nominal == desk.now + MINUTE
    assert desk.passed() == []


def test_a_resume_that_catches_up_fires_the_one_that_was_withheld() -> None:
    for catch_up in ("latest", "all"):
        desk = job()
        before = desk.frontier().facts
        desk.pause()
        desk.now += DAY
        desk.resume(catch_up)
        assert desk.frontier().facts.run_id == before.run_id
        ended = slow(desk)
        assert desk.frontier().facts.nominal == ended + MINUTE


def test_a_run_in_flight_over_a_whole_pause_is_followed_at_its_end() -> None:
    desk = job()
    run = desk.begin()
    desk.pause()
    desk.now += 5 * SECOND
    desk.resume("latest")
    assert desk.only().facts.run_id == run.facts.run_id
    desk.now += 5 * SECOND
    desk.report(run)
    assert desk.frontier().facts.nominal == desk.now + MINUTE


def test_a_run_that_ends_while_paused_is_followed_from_the_resume() -> None:
    desk = job()
    run = desk.begin()
    desk.pause()
    desk.now += 5 * SECOND
    desk.report(run)
    assert desk.due == {}
    desk.now += 5 * SECOND
    desk.resume("all")
    assert desk.frontier().facts.nominal == desk.now + MINUTE


def test_an_edit_elsewhere_keeps_the_instant_that_was_promised() -> None:
    desk = job(ends_at=START + DAY)
    before = desk.frontier().facts
    for fields in ({"name": "other"}, {"ends_at": START + 2 * DAY}, {"max_runs": 5}):
        desk.now += SECOND
        desk.revise(spec(DELAY, **fields))
        assert (desk.frontier().facts.run_id, desk.frontier().facts.nominal) == (
            before.run_id,
            before.nominal,
        )


def test_an_edit_of_the_delay_counts_from_the_edit() -> None:
    desk = job()
    desk.now += 10 * SECOND
    desk.revise(spec(FixedDelay("PT5M", 5 * MINUTE)))
    assert desk.frontier().facts.nominal == desk.now + 5 * MINUTE


def test_an_edit_while_a_run_is_in_flight_counts_from_its_end() -> None:
    desk = job()
    run = desk.begin()
    desk.revise(spec(FixedDelay("PT5M", 5 * MINUTE)))
    desk.now += 10 * SECOND
    desk.report(run)
    assert desk.frontier().facts.nominal == desk.now + 5 * MINUTE


def test_an_edit_of_the_start_moves_the_first_run_and_no_other() -> None:
    desk = job(starts_at=START + DAY)
    desk.revise(spec(DELAY, starts_at=START + 2 * DAY))
    assert desk.frontier().facts.nominal == START + 2 * DAY
    desk.now += 1
    desk.revise(spec(DELAY))
    assert desk.frontier().facts.nominal == desk.now + MINUTE
    slow(desk)
    before = desk.frontier().facts.nominal
    desk.now += 1
    desk.revise(spec(DELAY, starts_at=START))
    assert desk.frontier().facts.nominal == before


def test_an_end_before_the_instant_finishes_the_job() -> None:
    desk = job()
    desk.revise(spec(DELAY, ends_at=START + MINUTE - 1))
    assert isinstance(desk.job, js.Finished)
    assert desk.due == {}


def test_a_job_that_has_begun_as_often_as_it_may_is_finished() -> None:
    desk = job(max_runs=2)
    slow(desk)
    slow(desk)
    assert isinstance(desk.job, js.Finished)
    assert desk.passed() == []
    desk.revise(spec(DELAY, max_runs=3))
    assert desk.frontier().facts.nominal == desk.now + MINUTE


def test_fewer_runs_than_have_begun_finish_the_job_at_the_edit() -> None:
    desk = job(max_runs=9)
    slow(desk)
    desk.revise(spec(DELAY, max_runs=1))
    assert isinstance(desk.job, js.Finished)


def test_failures_in_a_row_pause_it_and_the_probe_is_a_delay_after_the_resume() -> None:
    desk = job(pause_after=1)
    slow(desk, result=DEAD)
    assert isinstance(desk.job, js.Paused)
    desk.now = desk.job.until
    desk.resume("latest")
    assert desk.frontier().facts.nominal == desk.now + MINUTE


def test_other_zone_data_move_nothing() -> None:
    desk = job()
    desk.now += 1
    assert replan(desk.job, desk.runs(), "2030z", desk.now) is None


def test_a_cancelled_job_that_is_defined_again_counts_from_there() -> None:
    desk = job()
    slow(desk)
    desk.cancel()
    desk.now += DAY
    desk.define(spec(DELAY))
    assert desk.frontier().facts.nominal == desk.now + MINUTE
    assert desk.passed() == []


def test_jitter_lengthens_each_delay_by_the_part_of_the_job() -> None:
    desk = job(jitter_ms=20 * SECOND)
    spread = desk.frontier().facts.due_at - desk.frontier().facts.nominal
    assert 0 < spread <= 20 * SECOND
    ended = slow(desk)
    assert desk.frontier().facts.due_at == ended + MINUTE + spread


# ------------------------------------------------------------------ at random

delays = st.builds(
    spec,
    st.sampled_from((DELAY, FixedDelay("PT3M", 3 * MINUTE))),
    max_lateness_ms=st.sampled_from((0, 0, 90 * SECOND)),
    jitter_ms=st.sampled_from((0, 0, 20 * SECOND)),
    max_runs=st.sampled_from((0, 0, 0, 6)),
    pause_after=st.sampled_from((0, 0, 2)),
    payload=st.sampled_from((b"one", b"two")),
)


class DelayMachine(JobMachine):
    """The laws of a job, where the schedule is a fixed delay."""

    def advance(self, until: int) -> None:
        self.desk.now = until

    @initialize(new=delays)
    def start(self, new: je.JobSpec) -> None:
        self.desk.define(new)

    @rule(new=delays)
    def revise(self, new: je.JobSpec) -> None:
        self.desk.revise(new)

    @precondition(lambda self: isinstance(self.desk.job, js.Cancelled))
    @rule(new=delays)
    def define_again(self, new: je.JobSpec) -> None:
        self.desk.define(new)

    @precondition(lambda _: False)
    @rule(ms=st.none(), overlap=st.none())
    def revise_to_one_time(self, ms: int, overlap: int) -> None:
        """Not here."""

    @invariant()
    def an_instant_is_a_delay_after_what_was_decided_then(self) -> None:
        """Whoever reads the log can tell why: nothing of it depends on when a process ran."""
        specs = {
            version: event.spec
            for version, event in enumerate(self.desk.job_events, 1)
            if isinstance(event, je.Defined | je.Revised)
        }
        for event in self.desk.log:
            if isinstance(event, re.Scheduled) and (event.kind, event.cause) == (SLOT, ""):
                schedule = specs[event.spec_version].schedule
                assert isinstance(schedule, FixedDelay)
                assert event.nominal == event.after + schedule.step_ms

    @invariant()
    def nothing_is_missed(self) -> None:
        assert self.desk.passed() == []
        verdicts = Counter(e.verdict for e in self.desk.log if isinstance(e, re.Skipped))
        assert not verdicts[re.MISFIRE]


TestTheLawsOfAFixedDelay = DelayMachine.TestCase
