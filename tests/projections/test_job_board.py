"""What events of jobs change on the board."""

from typing import Final

import msgspec
import pytest

from domain.job import events as je
from domain.job.events import JobSpec
from domain.schedule.schedule import Cron, OneTime
from projections.job_board import changes
from projections.ports import Recorded
from projections.rows import BoardRow, BoardStatus
from tests.contracts.jobs import minutely, once, spec
from tests.projections.scripted import JOB, NOON, TENANT, Stage, Tick, fired, run_id

SPEC: Final = msgspec.structs.replace(
    spec(minutely()), name="nightly", labels=(("team", "billing"),)
)


def defined(life: int = 1, of: JobSpec = SPEC) -> je.Defined:
    """Return a definition."""
    return je.Defined(NOON, TENANT, life, of, NOON)


def revised(schedule: Cron | OneTime) -> je.Revised:
    """Return a revision a minute later."""
    return je.Revised(NOON + 60_000, spec(schedule), 2, NOON, tenant_id=TENANT)


def board_of(*events: je.JobEvent) -> BoardRow:
    """Return the job's row after these events of it."""
    stage = Stage()
    stage.log.write(JOB, *events)
    stage.projector().run_one_batch(Tick())
    return stage.jobs()[JOB]


def test_a_definition_is_a_row() -> None:
    row = board_of(defined())
    assert (row.tenant_id, row.status, row.version, row.one_time) == (TENANT, "active", 1, False)
    assert (row.name, row.labels) == ("nightly", (("team", "billing"),))
    assert (row.schedule, row.timezone) == ("* * * * *", "UTC")
    assert (row.target, row.host) == ("https://hooks.example.com/v1", "hooks.example.com")
    assert (row.defined_at, row.changed_at) == (NOON, NOON)


def test_a_revision_keeps_status_and_age() -> None:
    row = board_of(defined(), je.Paused(NOON, NOON), revised(once(NOON)))
    assert (row.status, row.defined_at) == ("paused", NOON)
    assert (row.one_time, row.schedule, row.name) == (True, "", "")
    assert (row.version, row.changed_at) == (3, NOON + 60_000)


def test_each_command_has_its_status() -> None:
    assert board_of(defined(), je.Paused(NOON, NOON)).status == "paused"
    assert board_of(defined(), je.Paused(NOON, NOON), je.Resumed(NOON, NOON)).status == "active"
    assert board_of(defined(), je.Cancelled(NOON, NOON)).status == "cancelled"
    assert board_of(defined(), je.Finished(NOON, NOON)).status == "finished"


def test_a_second_life_is_active_again() -> None:
    row = board_of(defined(), je.Cancelled(NOON, NOON), defined(life=2))
    assert (row.status, row.version) == ("active", 3)


@pytest.mark.parametrize(
    "event",
    [
        je.RunRequested(NOON + 1, run_id(1), NOON, b"c" * 16),
        je.Replanned(NOON + 1, NOON, "2026a", "zone data"),
        je.CatchUpClosed(NOON + 1, NOON),
    ],
    ids=lambda event: type(event).__name__,
)
def test_an_event_that_leaves_the_job_as_it_is_moves_its_version(event: je.JobEvent) -> None:
    before = board_of(defined(), je.Paused(NOON, NOON))
    row = board_of(defined(), je.Paused(NOON, NOON), event)
    assert row == msgspec.structs.replace(before, version=3)


def test_an_older_version_never_replaces_a_newer_one() -> None:
    stage = Stage()
    first = changes([Recorded(0, 1, JOB, 1, defined())])
    second = changes([Recorded(0, 2, JOB, 2, je.Paused(NOON, NOON))])
    for change in (first, second, first):
        stage.board_store.write("job_board", change, {})
    assert stage.jobs()[JOB].status == "paused"


def test_changes_come_in_the_order_of_the_log() -> None:
    batch = [
        Recorded(0, 1, JOB, 1, defined()),
        Recorded(0, 2, JOB, 2, je.Paused(NOON, NOON)),
        Recorded(0, 3, JOB, 3, revised(minutely())),
    ]
    assert [type(change) for change in changes(batch)] == [BoardRow, BoardStatus, BoardRow]


def test_a_run_changes_nothing() -> None:
    assert changes([Recorded(0, 1, run_id(1), 3, fired(1))]) == []
