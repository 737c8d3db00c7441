"""What every run history does: what the projector writes comes back in pages, once."""

from collections.abc import Sequence
from typing import Protocol

import msgspec
import pytest

from domain.ports import Unavailable
from projections.dead_letters import DeadFilter, DeadPlace
from projections.ports import HistoryStore
from projections.rows import AttemptRow, RunRow
from projections.run_history import NO_RUN
from queryside.ports import ATTEMPTS_SHOWN, RunHistory, RunLine, RunPlace

TENANT, OTHER_TENANT = b"t" * 16, b"\xff" * 16
JOB, OTHER_JOB = b"\x00\x01'\\job\n--------", b"j" * 16
NOON = 1_790_000_000_000


class Engine(Protocol):
    """The engine under test; every copy and reader of it see the same rows."""

    def store(self, copy: str = "") -> HistoryStore:
        """Return a writer of one copy; the live one has no name."""

    def runs(self) -> RunHistory:
        """Return a reader of the live copy."""

    def lose(self) -> None:
        """Lose every row and table, as a new disk would."""

    def away(self) -> "Engine":
        """Return the same where nobody answers."""


def run_id(number: int) -> bytes:
    """Return the id of run `number`; they sort as their numbers do."""
    return number.to_bytes(8, "big") + b"\x80\xff\x00\x01\x02\x03\x04\x05"


def run(number: int, *, position: int = 1, attempts: int = 0, **fields: object) -> RunRow:
    """Return run `number`, nominal that many seconds past noon."""
    row = RunRow(
        TENANT,
        JOB,
        NOON + 1_000 * number,
        run_id(number),
        0,
        NOON + 1_000 * number,
        1,
        NOON + 1_000 * number + 7,
        "succeeded",
        "succeeded",
        "",
        attempts,
        NOON,
        NOON + 1,
        position,
    )
    return msgspec.structs.replace(row, **fields)


def attempt(number: int, of: int = 1, *, position: int = 1, **fields: object) -> AttemptRow:
    """Return attempt `number` of run `of`."""
    row = AttemptRow(
        TENANT,
        JOB,
        NOON + 1_000 * of,
        run_id(of),
        number,
        0,
        NOON,
        NOON + 1,
        NOON + 2,
        1,
        1_234,
        "failed",
        "retry",
        503,
        "busy",
        False,
        2 * number,
        (("content-type", "text/plain"), ("retry-after", "5")),
        b"try \x00 again \xff",
        position,
    )
    return msgspec.structs.replace(row, **fields)


def places(lines: Sequence[RunLine]) -> list[int]:
    """Return the numbers of the runs of a page."""
    return [int.from_bytes(line.run.run_id[:8], "big") for line in lines]


class RunHistoryContract:
    """Needs the fixture `engine`."""

    @pytest.fixture
    def store(self, engine: Engine) -> HistoryStore:
        store = engine.store()
        store.prepare()
        return store

    @pytest.fixture
    def runs(self, engine: Engine, store: HistoryStore) -> RunHistory:
        return engine.runs()

    def test_a_run_comes_back_as_it_was_written(
        self, store: HistoryStore, runs: RunHistory
    ) -> None:
        row = run(1, attempts=1, cause="späť — \x00 'quoted'", count=0, kind=2)
        store.write([], [row], "a")
        assert runs.page(TENANT, JOB, None, 10) == [RunLine(row)]

    def test_an_attempt_comes_back_with_its_run_as_it_was_written(
        self, store: HistoryStore, runs: RunHistory
    ) -> None:
        row = attempt(1, error="x" * 5_000, body=b"\xff" * 1_024, late=True, status=0)
        store.write([row], [run(1, attempts=1)], "a")
        assert runs.page(TENANT, JOB, None, 10)[0].attempts == (row,)

    def test_attempts_are_shown_with_their_own_run_oldest_first(
        self, store: HistoryStore, runs: RunHistory
    ) -> None:
        rows = [attempt(n, of) for of in (1, 2) for n in (3, 1, 2)]
        store.write(rows, [run(1, attempts=3), run(2, attempts=3), run(3)], "a")
        page = runs.page(TENANT, JOB, None, 10)
        assert [[a.attempt for a in line.attempts] for line in page] == [[], [1, 2, 3], [1, 2, 3]]
        assert [a.run_id for a in page[1].attempts] == [run_id(2)] * 3

    def test_only_the_newest_attempts_of_a_long_run_are_shown(
        self, store: HistoryStore, runs: RunHistory
    ) -> None:
        made = ATTEMPTS_SHOWN + 5
        rows = [attempt(n) for n in range(1, made + 1)]
        store.write(rows, [run(1, attempts=made)], "a")
        shown = [a.attempt for a in runs.page(TENANT, JOB, None, 10)[0].attempts]
        assert shown == list(range(6, made + 1))

    def test_of_two_rows_with_one_key_the_higher_position_stays(
        self, store: HistoryStore, runs: RunHistory
    ) -> None:
        store.write(
            [attempt(1, position=8, outcome="ok")],
            [run(1, position=8, status="succeeded", attempts=1)],
            "a",
        )
        store.write(
            [attempt(1, position=7, outcome="lost")],
            [run(1, position=7, status="waiting", attempts=1)],
            "b",
        )
        line = runs.page(TENANT, JOB, None, 10)
        assert [(r.run.status, [a.outcome for a in r.attempts]) for r in line] == [
            ("succeeded", ["ok"])
        ]

    def test_of_two_rows_in_one_batch_the_higher_position_stays(
        self, store: HistoryStore, runs: RunHistory
    ) -> None:
        store.write([], [run(1, position=8, status="dead"), run(1, position=7)], "a")
        assert [line.run.status for line in runs.page(TENANT, JOB, None, 10)] == ["dead"]

    def test_a_repeated_batch_changes_nothing(self, store: HistoryStore, runs: RunHistory) -> None:
        batch = ([attempt(1)], [run(1, attempts=1), run(2)], "a")
        store.write(*batch)
        before = runs.page(TENANT, JOB, None, 10)
        store.write(*batch)
        assert runs.page(TENANT, JOB, None, 10) == before

    def test_a_batch_repeated_in_other_portions_changes_nothing(
        self, store: HistoryStore, runs: RunHistory
    ) -> None:
        rows = [run(n) for n in range(6)]
        store.write([], rows[:4], "a")
        store.write([], rows, "b")
        assert places(runs.page(TENANT, JOB, None, 10)) == [5, 4, 3, 2, 1, 0]

    def test_pages_follow_one_another_without_gap_or_overlap(
        self, store: HistoryStore, runs: RunHistory
    ) -> None:
        store.write([], [run(n) for n in range(11)], "a")
        seen: list[int] = []
        edge = None
        while page := runs.page(TENANT, JOB, edge, 3):
            seen += places(page)
            edge = RunPlace(page[-1].run.nominal, page[-1].run.run_id)
        assert seen == list(range(10, -1, -1))

    def test_a_page_before_an_edge_is_the_nearest_newest_first(
        self, store: HistoryStore, runs: RunHistory
    ) -> None:
        store.write([], [run(n) for n in range(11)], "a")
        edge = RunPlace(run(4).nominal, run_id(4))
        assert places(runs.page(TENANT, JOB, edge, 3, newer=True)) == [7, 6, 5]

    def test_runs_of_one_instant_are_told_apart_by_their_id(
        self, store: HistoryStore, runs: RunHistory
    ) -> None:
        store.write([], [run(n, nominal=NOON) for n in range(5)], "a")
        edge = RunPlace(NOON, run_id(2))
        assert places(runs.page(TENANT, JOB, edge, 9)) == [1, 0]
        assert places(runs.page(TENANT, JOB, edge, 9, newer=True)) == [4, 3]

    def test_a_range_of_slots_stands_at_its_first_one(
        self, store: HistoryStore, runs: RunHistory
    ) -> None:
        gone = run(2, run_id=NO_RUN, last=NOON + 5_000, count=4, status="skipped")
        store.write([], [run(1), gone, run(6)], "a")
        lines = runs.page(TENANT, JOB, None, 10)
        assert [line.run for line in lines] == [run(6), gone, run(1)]

    def test_others_see_nothing_of_it(self, store: HistoryStore, runs: RunHistory) -> None:
        store.write([attempt(1)], [run(1, attempts=1)], "a")
        assert runs.page(OTHER_TENANT, JOB, None, 10) == []
        assert runs.page(TENANT, OTHER_JOB, None, 10) == []

    @pytest.mark.parametrize(
        "nominal", [0, 253_402_300_799_000, 4_102_444_800_000], ids=["1970", "9999", "2100"]
    )
    def test_an_instant_of_any_year_is_kept(
        self, store: HistoryStore, runs: RunHistory, nominal: int
    ) -> None:
        store.write([], [run(1, nominal=nominal, position=1, status="waiting")], "a")
        store.write([], [run(1, nominal=nominal, position=2, status="cancelled")], "b")
        found = runs.page(TENANT, JOB, None, 10)
        assert [(line.run.nominal, line.run.status) for line in found] == [(nominal, "cancelled")]

    def test_a_batch_may_span_hundreds_of_months(
        self, store: HistoryStore, runs: RunHistory
    ) -> None:
        month = 31 * 86_400_000
        store.write([], [run(n, nominal=NOON + n * month) for n in range(110)], "a")
        assert len(runs.page(TENANT, JOB, None, 200)) == 110

    def test_an_empty_batch_is_nothing(self, store: HistoryStore, runs: RunHistory) -> None:
        store.write([], [], "a")
        assert runs.page(TENANT, JOB, None, 10) == []

    def test_a_second_copy_does_not_touch_the_live_one(
        self, engine: Engine, store: HistoryStore, runs: RunHistory
    ) -> None:
        store.write([], [run(1)], "a")
        copy = engine.store("rebuild")
        copy.begin()
        copy.write([], [run(1), run(2)], "a")
        assert places(runs.page(TENANT, JOB, None, 10)) == [1]

    def test_a_second_copy_takes_the_place_of_the_live_one(
        self, engine: Engine, store: HistoryStore, runs: RunHistory
    ) -> None:
        store.write([attempt(1)], [run(1, attempts=1)], "a")
        copy = engine.store("rebuild")
        copy.begin()
        copy.write([attempt(1, 2)], [run(2, attempts=1)], "b")
        copy.swap()
        lines = runs.page(TENANT, JOB, None, 10)
        assert (places(lines), len(lines[0].attempts)) == ([2], 1)

    def test_a_writer_of_the_live_copy_goes_on_after_a_swap(
        self, engine: Engine, store: HistoryStore, runs: RunHistory
    ) -> None:
        copy = engine.store("rebuild")
        copy.begin()
        copy.write([], [run(2)], "b")
        copy.swap()
        store.write([], [run(3)], "c")
        assert places(runs.page(TENANT, JOB, None, 10)) == [3, 2]

    def test_dead_runs_come_in_the_order_of_their_ends_over_jobs_with_their_attempts(
        self, store: HistoryStore, runs: RunHistory
    ) -> None:
        rows = [
            run(1, status="dead", ended_at=NOON + 3, attempts=1),
            run(2, status="dead", ended_at=NOON + 9, job_id=OTHER_JOB, attempts=1),
            run(3, status="dead", ended_at=NOON + 3),
            run(4, status="dead", ended_at=NOON + 5, tenant_id=OTHER_TENANT),
            run(5, status="succeeded", ended_at=NOON + 5),
            run(6, status="waiting", ended_at=NOON + 5),
        ]
        store.write([attempt(1, 1), attempt(1, 2, job_id=OTHER_JOB)], rows, "a")
        found = runs.dead(TENANT, DeadFilter(), None, 10)
        assert places(found) == [2, 3, 1]
        assert [len(line.attempts) for line in found] == [1, 0, 1]
        assert found[0].attempts[0].job_id == OTHER_JOB
        assert [line.run for line in found] == runs.dead_rows(TENANT, DeadFilter(), None, 10)

    def test_dead_runs_are_filtered_and_a_row_written_twice_is_one(
        self, store: HistoryStore, runs: RunHistory
    ) -> None:
        row = run(1, status="waiting", position=4)
        dead = run(1, status="dead", cause="age", ended_at=NOON + 3, position=5)
        other = run(2, status="dead", cause="attempts", ended_at=NOON + 4, job_id=OTHER_JOB)
        for token, rows in {"a": [row], "b": [dead], "c": [dead, other]}.items():
            store.write([], rows, token)
        wanted = {
            DeadFilter(): [other, dead],
            DeadFilter(JOB): [dead],
            DeadFilter(cause="attempts"): [other],
            DeadFilter(since=NOON + 4): [other],
            DeadFilter(until=NOON + 3): [dead],
            DeadFilter(JOB, "attempts"): [],
            DeadFilter(jobs=(OTHER_JOB,)): [other],
            DeadFilter(jobs=(OTHER_JOB, JOB)): [other, dead],
            DeadFilter(JOB, jobs=(OTHER_JOB,)): [],
            DeadFilter(jobs=()): [],
        }
        for asked, rows in wanted.items():
            assert runs.dead_rows(TENANT, asked, None, 10) == rows, asked
            jobs = {row.job_id for row in rows}
            assert set(runs.dead_jobs(TENANT, asked, 10)) == jobs, asked
        assert len(runs.dead_jobs(TENANT, DeadFilter(), 1)) == 1
        assert runs.dead_jobs(OTHER_TENANT, DeadFilter(), 10) == []

    def test_pages_of_dead_runs_begin_beside_their_edge(
        self, store: HistoryStore, runs: RunHistory
    ) -> None:
        rows = [run(n, status="dead", ended_at=NOON + n // 2) for n in range(1, 8)]
        store.write([], rows, "a")
        edge = DeadPlace(NOON + 2, run_id(4))
        dead = runs.dead
        assert places(dead(TENANT, DeadFilter(), edge, 2)) == [3, 2]
        assert places(dead(TENANT, DeadFilter(), edge, 2, newer=True)) == [6, 5]
        oldest = DeadPlace(-1, bytes(16))
        assert places(dead(TENANT, DeadFilter(), oldest, 2, newer=True)) == [2, 1]

    def test_a_copy_that_is_begun_again_is_empty(
        self, engine: Engine, store: HistoryStore, runs: RunHistory
    ) -> None:
        copy = engine.store("rebuild")
        for token in "ab":
            copy.begin()
            copy.write([], [run(ord(token))], token)
        copy.swap()
        assert places(runs.page(TENANT, JOB, None, 10)) == [ord("b")]

    def test_a_token_of_a_copy_that_is_gone_is_forgotten(
        self, engine: Engine, store: HistoryStore, runs: RunHistory
    ) -> None:
        store.write([], [run(1)], "same")
        copy = engine.store("rebuild")
        copy.begin()
        copy.write([], [run(1)], "same")
        copy.swap()
        assert places(runs.page(TENANT, JOB, None, 10)) == [1]

    def test_it_is_missing_until_it_is_prepared(self, engine: Engine) -> None:
        store = engine.store()
        assert store.missing()
        store.prepare()
        assert not store.missing()

    def test_preparing_again_keeps_what_is_there(
        self, store: HistoryStore, runs: RunHistory
    ) -> None:
        store.write([], [run(1)], "a")
        store.prepare()
        assert places(runs.page(TENANT, JOB, None, 10)) == [1]

    def test_what_was_lost_is_missing_and_cannot_be_written(
        self, engine: Engine, store: HistoryStore
    ) -> None:
        engine.lose()
        assert store.missing()
        with pytest.raises(Unavailable):
            store.write([], [run(1)], "a")

    def test_what_was_lost_is_unavailable_to_readers(
        self, engine: Engine, store: HistoryStore, runs: RunHistory
    ) -> None:
        engine.lose()
        with pytest.raises(Unavailable):
            runs.page(TENANT, JOB, None, 10)

    def test_an_engine_that_does_not_answer_is_unavailable(self, engine: Engine) -> None:
        away = engine.away()
        with pytest.raises(Unavailable):
            away.store().missing()
        with pytest.raises(Unavailable):
            away.store().write([], [run(1)], "a")
        with pytest.raises(Unavailable):
            away.runs().page(TENANT, JOB, None, 10)
