"""What every job board answers: a tenant's own jobs, in order, by filter and page."""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
import pytest

from domain.envelope import Decision
from domain.job import decide
from domain.schedule.schedule import OneTime
from projections.rows import BoardRow
from queryside.ports import Freshness, JobBoard, JobFilter, JobLine, JobPlace
from tests.contracts import jobs

TENANT, OTHER = b"t" * 16, b"u" * 16
NOON = 1_790_000_000_000
ANY = JobFilter()


class Boards(Protocol):
    """A board under test with what stands behind it."""

    board: JobBoard
    freshness: Freshness

    def write(self, rows: Sequence[BoardRow], positions: dict[int, int]) -> None:
        """Write rows as the projector does."""

    def append(self, decision: Decision) -> None:
        """Append to the log, so that the job has a due row."""


def job_id(number: int) -> bytes:
    """Return the id of job `number`; they sort as their numbers do."""
    return number.to_bytes(16, "big")


def row(number: int, **fields: Any) -> BoardRow:
    """Return job `number`, defined that many seconds past noon."""
    at = NOON + 1_000 * number
    plain = BoardRow(
        job_id(number),
        TENANT,
        1,
        "active",
        False,
        f"job {number}",
        "0 * * * *",
        "UTC",
        "https://a.example.com/x",
        "a.example.com",
        (("team", "a"), ("n", str(number))),
        at,
        at,
    )
    return msgspec.structs.replace(plain, **fields)


def numbers(lines: list[JobLine]) -> list[int]:
    """Return which jobs these are."""
    return [int.from_bytes(line.row.job_id, "big") for line in lines]


def place(number: int) -> JobPlace:
    """Return the place of job `number`."""
    return JobPlace(NOON + 1_000 * number, job_id(number))


class JobBoardContract:
    """Subclasses give the fixture `boards`."""

    @pytest.fixture
    def boards(self) -> Boards:
        raise NotImplementedError

    def test_the_jobs_that_have_labels_are_told_of_those_that_are_asked_for(
        self, boards: Boards
    ) -> None:
        boards.write([row(1), row(2), row(3, tenant_id=OTHER), row(4, labels=())], {})

        def labelled(*labels: tuple[str, str]) -> list[bytes]:
            asked = [job_id(number) for number in (1, 2, 3, 4, 9)]
            return sorted(boards.board.labelled(TENANT, asked, labels))

        assert labelled(("team", "a")) == [job_id(1), job_id(2)]
        assert labelled(("team", "a"), ("n", "2")) == [job_id(2)]
        assert labelled(("team", "b")) == []
        assert boards.board.labelled(TENANT, [job_id(2)], [("team", "a")]) == [job_id(2)]

    def test_a_job_is_found_by_its_id_and_keeps_its_key_over_a_change(self, boards: Boards) -> None:
        boards.write([row(1, key="mine"), row(2), row(3, tenant_id=OTHER)], {})
        boards.write([row(1, version=2, defined_at=0, status="")], {})

        def keys(number: int) -> list[str]:
            wanted = JobFilter(job_id=job_id(number))
            return [line.row.key for line in boards.board.page(TENANT, wanted, None, 10)]

        assert (keys(1), keys(2), keys(3)) == (["mine"], [""], [])

    def test_a_row_comes_back_as_it_was_written(self, boards: Boards) -> None:
        boards.write([row(1)], {})
        (line,) = boards.board.page(TENANT, ANY, None, 10)
        assert msgspec.structs.replace(line.row, labels=()) == row(1, labels=())
        assert sorted(line.row.labels) == sorted(row(1).labels)

    def test_the_newest_job_comes_first_and_ids_break_ties(self, boards: Boards) -> None:
        boards.write([row(1), row(3), row(2), row(4, defined_at=NOON + 3_000)], {})
        assert numbers(boards.board.page(TENANT, ANY, None, 10)) == [3, 4, 2, 1]

    def test_another_tenants_jobs_are_not_there(self, boards: Boards) -> None:
        boards.write([row(1), row(2, tenant_id=OTHER)], {})
        assert numbers(boards.board.page(TENANT, ANY, None, 10)) == [1]
        assert numbers(boards.board.page(OTHER, ANY, None, 10)) == [2]

    def test_a_page_follows_its_edge_without_it(self, boards: Boards) -> None:
        boards.write([row(n) for n in range(1, 8)], {})
        assert numbers(boards.board.page(TENANT, ANY, place(5), 3)) == [4, 3, 2]

    def test_a_page_before_its_edge_is_the_one_right_before_it(self, boards: Boards) -> None:
        boards.write([row(n) for n in range(1, 8)], {})
        assert numbers(boards.board.page(TENANT, ANY, place(2), 3, newer=True)) == [5, 4, 3]

    def test_jobs_of_one_instant_are_neither_lost_nor_repeated(self, boards: Boards) -> None:
        boards.write([row(n, defined_at=NOON) for n in range(1, 8)], {})
        edge: JobPlace | None = None
        seen: list[int] = []
        while page := boards.board.page(TENANT, ANY, edge, 2):
            seen += numbers(page)
            edge = JobPlace(NOON, page[-1].row.job_id)
        assert seen == [1, 2, 3, 4, 5, 6, 7]
        edge = JobPlace(NOON, job_id(5))
        assert numbers(boards.board.page(TENANT, ANY, edge, 2, newer=True)) == [3, 4]

    @pytest.mark.parametrize(
        ("wanted", "expected"),
        [
            (JobFilter(name_prefix="alpha"), [2, 1]),
            (JobFilter(name_prefix="alpha%"), []),
            (JobFilter(name_prefix="ALPHA"), []),
            (JobFilter(host="b.example.com"), [3]),
            (JobFilter(labels=(("team", "x"),)), [3, 2]),
            (JobFilter(labels=(("n", "1"), ("team", "x"))), [2]),
            (JobFilter(labels=(("team", "nobody"),)), []),
            (JobFilter(status="paused"), [3]),
            (JobFilter(status="cancelled"), []),
            (JobFilter(status="active", name_prefix="alpha"), [2, 1]),
            (JobFilter(name_prefix="' or true --"), []),
        ],
    )
    def test_filters_must_all_match(
        self, boards: Boards, wanted: JobFilter, expected: list[int]
    ) -> None:
        boards.write(
            [
                row(1, name="alpha one"),
                row(2, name="alpha two", labels=(("team", "x"), ("n", "1"))),
                row(3, name="beta", host="b.example.com", status="paused", labels=(("team", "x"),)),
            ],
            {},
        )
        assert numbers(boards.board.page(TENANT, wanted, None, 10)) == expected

    def test_a_line_shows_the_occurrence_that_is_planned(self, boards: Boards) -> None:
        new = decide.NewJob(job_id(1), TENANT, jobs.spec(jobs.minutely()))
        self._defined(boards, new)
        boards.write([row(1)], {})
        (line,) = boards.board.page(TENANT, ANY, None, 10)
        assert line.next_run_at == NOON - NOON % 60_000 + 60_000
        assert line.next_due_at == line.next_run_at
        assert line.in_flight == 0

    def test_a_one_time_job_is_active_until_its_run_has_ended(self, boards: Boards) -> None:
        new = decide.NewJob(job_id(1), TENANT, jobs.spec(OneTime(NOON + 60_000)))
        self._defined(boards, new)
        boards.write([row(1, one_time=True), row(2, one_time=True)], {})
        page = boards.board.page(TENANT, ANY, None, 10)
        assert [line.row.status for line in page] == ["finished", "active"]
        assert numbers(boards.board.page(TENANT, JobFilter(status="active"), None, 10)) == [1]
        assert numbers(boards.board.page(TENANT, JobFilter(status="finished"), None, 10)) == [2]

    def test_a_view_says_how_far_it_has_read(self, boards: Boards) -> None:
        boards.write([row(1)], {3: 17})
        assert boards.freshness.reached("job_board", 3) == 17
        assert boards.freshness.reached("job_board", 4) == 0

    def _defined(self, boards: Boards, new: decide.NewJob) -> None:
        decision = decide.define(new, None, decide.By(NOON))
        assert isinstance(decision, Decision)
        boards.append(decision)
