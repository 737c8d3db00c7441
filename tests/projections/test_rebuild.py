"""A view built anew beside the live one."""

from collections.abc import Sequence

import pytest

from domain.job import events as je
from domain.ports import Unavailable
from infra.memory.history import MemoryHistory
from projections.ports import Copy, Recorded, View
from projections.rebuild import Rebuild
from projections.runner import BoardView, HistoryView
from tests.contracts.jobs import minutely, spec
from tests.projections.scripted import JOB, NOON, TENANT, Stage, Tick, fired, run_id

COPY = "run_history_rebuild"


def copy_of(stage: Stage) -> HistoryView:
    """Return a second copy of the history."""
    return HistoryView(MemoryHistory(stage.engine, "rebuild"), stage.positions, COPY)


def rebuild(stage: Stage, copy: Copy | None = None, live: View | None = None) -> dict[int, int]:
    """Rebuild the history, or the view that is given."""
    made = copy or copy_of(stage)
    whole = Rebuild(stage.log, made, live or stage.history, stage.positions, stage.parking)
    return whole.run(Tick, stage.figures)


def fire(stage: Stage, *numbers: int) -> None:
    for number in numbers:
        stage.log.write(run_id(number), fired(number), shard=number % 2)


def numbers(stage: Stage) -> list[int]:
    return sorted(nominal - NOON for nominal, _ in stage.runs())


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    fire(stage, 1, 2, 3)
    stage.projector().run_one_batch(Tick())
    return stage


def test_a_rebuilt_view_equals_the_live_one(stage: Stage) -> None:
    before = stage.engine.copies[""]
    rebuild(stage)
    after = stage.engine.copies[""]
    assert after is not before
    assert (after.runs, after.attempts) == (before.runs, before.attempts)


def test_what_was_wrong_in_the_live_view_is_gone(stage: Stage) -> None:
    stage.engine.copies[""].runs.clear()
    rebuild(stage)
    assert numbers(stage) == [1, 2, 3]


def test_the_live_view_is_served_until_the_swap(stage: Stage) -> None:
    copy = copy_of(stage)
    seen: list[list[int]] = []
    swap = copy.swap
    copy.swap = lambda: (seen.append(numbers(stage)), swap())[1]  # type: ignore[method-assign,func-returns-value]  # looks first
    stage.engine.copies[""].runs.clear()
    rebuild(stage, copy)
    assert seen == [[]]
    assert numbers(stage) == [1, 2, 3]


def test_what_the_live_projector_wrote_into_the_old_copy_meanwhile_is_not_lost(
    stage: Stage,
) -> None:
    live = stage.projector(stage.history)
    copy = copy_of(stage)
    swap = copy.swap

    def meanwhile() -> None:
        fire(stage, 4)
        live.run_one_batch(Tick())
        swap()

    copy.swap = meanwhile  # type: ignore[method-assign]  # the live projector comes first
    rebuild(stage, copy)
    assert numbers(stage) == [1, 2, 3, 4]


def test_the_live_projector_goes_on_after_the_swap(stage: Stage) -> None:
    live = stage.projector(stage.history)
    live.run_one_batch(Tick())
    rebuild(stage)
    fire(stage, 4)
    live.run_one_batch(Tick())
    assert numbers(stage) == [1, 2, 3, 4]


def test_positions_of_the_live_view_never_go_back(stage: Stage) -> None:
    stage.positions.save("run_history", {0: 1_000})
    rebuild(stage)
    assert stage.positions.load("run_history")[0] == 1_000


def test_nothing_of_the_copy_is_left(stage: Stage) -> None:
    rebuild(stage)
    assert list(stage.engine.copies) == [""]
    assert stage.positions.load(COPY) == {}


def test_streams_that_can_be_read_again_are_set_aside_no_longer(stage: Stage) -> None:
    stage.parking.park("run_history", stage.log.read({0: 0}, 1))
    rebuild(stage)
    assert stage.parking.load("run_history") == set()


def test_streams_that_still_cannot_be_read_stay_set_aside(stage: Stage) -> None:
    stage.log.write(run_id(9), None)
    rebuild(stage)
    assert stage.parking.load("run_history") == {run_id(9)}


def test_a_rebuild_that_was_cut_off_is_started_again(stage: Stage) -> None:
    copy = copy_of(stage)
    copy.begin()
    stale = [Recorded(0, 9, run_id(9), 3, fired(9))]
    copy.apply(stale, {0: 9})
    stage.positions.save(COPY, {0: 1_000, 1: 1_000})
    rebuild(stage)
    assert numbers(stage) == [1, 2, 3]


def test_a_rebuild_whose_engine_goes_away_leaves_the_live_view(stage: Stage) -> None:
    copy = copy_of(stage)
    write = copy.apply

    def away(*words: Sequence[object]) -> None:
        raise Unavailable("ClickHouse is away")

    copy.apply = away  # type: ignore[method-assign,assignment]  # the engine goes away
    with pytest.raises(Unavailable):
        rebuild(stage, copy)
    assert numbers(stage) == [1, 2, 3]
    copy.apply = write  # type: ignore[method-assign]  # and is back
    rebuild(stage, copy)
    assert numbers(stage) == [1, 2, 3]


def test_a_log_that_grows_all_the_time_does_not_hold_a_rebuild(stage: Stage) -> None:
    read = stage.log.read

    def growing(after: dict[int, int], limit: int) -> list[object]:
        found = read(after, limit)
        fire(stage, 100 + len(stage.log.reads))
        return found  # type: ignore[return-value]  # as the log gives it

    stage.log.read = growing  # type: ignore[method-assign,assignment]  # somebody writes
    rebuild(stage)
    assert numbers(stage)[:3] == [1, 2, 3]


def test_the_board_is_rebuilt_beside_the_live_one(stage: Stage) -> None:
    stage.log.write(JOB, je.Defined(NOON, TENANT, 1, spec(minutely()), NOON))
    copy = BoardView(stage.board_store, "job_board_rebuild")
    assert stage.jobs() == {}
    rebuild(stage, copy, stage.board)
    assert list(stage.jobs()) == [JOB]
    assert list(stage.board_store.rows) == ["job_board"]
