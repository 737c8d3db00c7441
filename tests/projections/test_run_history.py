"""Rows of the run history, folded from single events."""

import msgspec
import pytest

from domain.catalogue import DomainEvent
from domain.ids import MANUAL
from domain.job import events as je
from domain.run import events as re
from projections.ports import Recorded
from projections.rows import AttemptRow, RunRow
from projections.run_history import NO_RUN, rows
from tests.projections.scripted import JOB, NOON, TENANT, fired, run_id

RUN = run_id(5)
GONE = re.Passed(NOON + 60_000, NOON + 180_000, 3, re.OVERLAP, "busy")


def fold(
    event: DomainEvent | None, stream_id: bytes = RUN
) -> tuple[list[AttemptRow], list[RunRow]]:
    """Return the rows of one event at position 77."""
    return rows([Recorded(0, 77, stream_id, 3, event)])


def run_of(event: DomainEvent) -> RunRow:
    """Return the one run row of an event."""
    _, (row,) = fold(event)
    return row


def attempt_of(event: DomainEvent) -> AttemptRow:
    """Return the one attempt row of an event."""
    (row,), _ = fold(event)
    return row


def test_an_attempt_has_what_the_event_says() -> None:
    event = msgspec.structs.replace(
        fired(5, "retry", attempt=2),
        error="busy",
        elapsed_us=9,
        headers=(("a", "b"),),
        body=b"no",
    )
    assert attempt_of(event) == AttemptRow(
        TENANT,
        JOB,
        NOON + 5,
        RUN,
        2,
        0,
        NOON + 8,
        NOON + 15,
        NOON,
        7,
        9,
        "failed",
        "retry",
        503,
        "busy",
        False,
        4,
        (("a", "b"),),
        b"no",
        77,
    )


def test_lateness_goes_to_the_beginning_of_the_call() -> None:
    sent = msgspec.structs.replace(fired(5), sent_at=NOON + 20)
    assert attempt_of(sent).lateness_ms == 12


def test_lateness_of_a_call_that_never_began_goes_to_the_lease() -> None:
    assert attempt_of(fired(5)).lateness_ms == 7


def test_lateness_is_never_below_zero() -> None:
    early = msgspec.structs.replace(fired(5), leased_at=NOON - 1)
    assert attempt_of(early).lateness_ms == 0


@pytest.mark.parametrize(
    ("then", "status", "verdict"),
    [
        ("succeeded", "succeeded", "succeeded"),
        ("dead", "dead", "dead"),
        ("cancelled", "cancelled", "cancelled"),
        ("retry", "waiting", ""),
        ("withdrawn", "withdrawn", ""),
    ],
)
def test_what_follows_an_attempt_is_the_status_of_its_run(
    then: str, status: str, verdict: str
) -> None:
    row = run_of(fired(5, then))
    assert (row.status, row.verdict, row.ended_at > 0) == (status, verdict, bool(verdict))


def test_a_dead_run_says_why() -> None:
    assert run_of(fired(5, "dead", cause="attempts")).cause == "attempts"


def test_a_run_that_fired_counts_its_attempts_and_says_when() -> None:
    row = run_of(fired(5, attempt=4))
    assert (row.attempts, row.fired_at, row.due_at) == (4, NOON + 15, NOON + 8)


def test_a_skipped_run_has_its_verdict_and_cause() -> None:
    event = re.Skipped(NOON, JOB, TENANT, NOON + 5, re.MISFIRE, "outage", MANUAL, NOON + 6)
    row = run_of(event)
    assert (row.status, row.verdict, row.cause) == ("skipped", "misfire", "outage")
    assert (row.run_id, row.nominal, row.due_at, row.kind) == (RUN, NOON + 5, NOON + 6, MANUAL)
    assert (row.attempts, row.fired_at, row.ended_at) == (0, 0, NOON)


def test_a_cancelled_run_keeps_the_number_of_its_attempts() -> None:
    event = re.Cancelled(NOON, JOB, TENANT, NOON + 5, "job cancelled", 2, MANUAL, NOON + 6)
    row = run_of(event)
    assert (row.status, row.verdict, row.attempts, row.kind) == ("cancelled", "cancelled", 2, 1)


def test_a_run_that_expired_while_it_waited_is_dead() -> None:
    of = re.Occurrence(JOB, TENANT, 0, NOON + 5, NOON + 6, 3)
    row = run_of(re.Completed(NOON, re.DEAD, re.EXPIRED, of))
    assert (row.status, row.verdict, row.cause, row.attempts) == ("dead", "dead", "expired", 3)
    assert (row.tenant_id, row.job_id, row.nominal, row.ended_at) == (TENANT, JOB, NOON + 5, NOON)


def test_a_run_that_an_edit_superseded_is_withdrawn_with_that_verdict() -> None:
    of = re.Occurrence(JOB, TENANT, 0, NOON + 5, NOON + 6, 0)
    row = run_of(re.Withdrawn(NOON, re.SUPERSEDED, of))
    assert (row.status, row.verdict, row.attempts) == ("withdrawn", "superseded", 0)
    assert (row.tenant_id, row.job_id, row.nominal, row.due_at) == (TENANT, JOB, NOON + 5, NOON + 6)
    assert (row.run_id, row.fired_at, row.ended_at) == (RUN, 0, NOON)


@pytest.mark.parametrize(
    "event",
    [
        None,
        re.Completed(NOON, re.SUCCEEDED),
        re.Leased(b"s" * 16, b"n" * 8, NOON, NOON + 1, 1),
        re.Withdrawn(NOON, re.PAUSED),
        re.Accepted(NOON, NOON + 1),
        re.Extended(NOON, NOON + 1),
        re.Progressed(NOON, 50),
        re.Scheduled(NOON, JOB, TENANT, 1, 0, 0, NOON, NOON, 1, 1, 1, 0),
        je.Paused(NOON, NOON),
        je.RunRequested(NOON, RUN, NOON, b"c" * 16),
    ],
    ids=lambda event: type(event).__name__,
)
def test_an_event_that_says_nothing_of_what_became_of_a_slot_has_no_row(
    event: DomainEvent | None,
) -> None:
    assert fold(event) == ([], [])


@pytest.mark.parametrize(
    "event",
    [
        je.Paused(NOON, NOON, passed=(GONE,), tenant_id=TENANT),
        je.Resumed(NOON, NOON, passed=(GONE,), tenant_id=TENANT),
        je.Cancelled(NOON, NOON, passed=(GONE,), tenant_id=TENANT),
        je.Finished(NOON, NOON, (GONE,), TENANT),
        je.Replanned(NOON, NOON, "2026a", "zone data", (GONE,), TENANT),
        je.CatchUpClosed(NOON, NOON, (GONE,), TENANT),
    ],
    ids=lambda event: type(event).__name__,
)
def test_slots_that_a_command_settled_are_one_row(event: DomainEvent) -> None:
    _, (row,) = fold(event, JOB)
    assert (row.tenant_id, row.job_id, row.run_id) == (TENANT, JOB, NO_RUN)
    assert (row.nominal, row.last, row.count) == (GONE.first, GONE.last, 3)
    assert (row.status, row.verdict, row.cause) == ("skipped", "overlap", "busy")


def test_slots_that_passed_before_a_link_are_rows_of_its_job() -> None:
    later = msgspec.structs.replace(GONE, first=GONE.last + 1, last=GONE.last + 9, count=None)
    event = re.Scheduled(NOON, JOB, TENANT, 1, 0, 0, NOON, NOON, 1, 1, 1, 0, passed=(GONE, later))
    _, found = fold(event)
    assert [(row.job_id, row.nominal, row.count) for row in found] == [
        (JOB, GONE.first, 3),
        (JOB, later.first, 0),
    ]
