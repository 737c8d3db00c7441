"""The projector: positions, repetition, views that lag, streams that cannot be read."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import pytest

from domain.job import events as je
from domain.ports import Unavailable
from infra.memory.history import MemoryHistory
from projections import runner
from projections.ports import Recorded
from projections.runner import PERIOD_US, RETRY_MAX_US, RETRY_US, HistoryView
from tests.contracts.jobs import minutely, spec
from tests.projections.scripted import NOON, TENANT, Stage, Tick, fired, run_id

BOARD, HISTORY = "job_board", "run_history"


def defined() -> je.Defined:
    """Return a definition."""
    return je.Defined(NOON, TENANT, 1, spec(minutely()), NOON)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def fire(stage: Stage, *numbers: int) -> None:
    """Write runs that succeeded, over two shards."""
    for number in numbers:
        stage.log.write(run_id(number), fired(number), shard=number % 2)


def numbers(stage: Stage) -> list[int]:
    """Return the runs in the history, oldest first."""
    return sorted(nominal - NOON for nominal, _ in stage.runs())


def test_events_of_every_shard_are_applied(stage: Stage) -> None:
    fire(stage, 1, 2, 3)
    stage.projector().run_one_batch(Tick())
    assert numbers(stage) == [1, 2, 3]


def test_each_view_stores_how_far_it_has_read(stage: Stage) -> None:
    fire(stage, 1, 2, 3)
    stage.projector().run_one_batch(Tick())
    assert stage.positions.load(HISTORY) == stage.positions.load(BOARD) == {0: 2, 1: 3}


def test_a_projector_goes_on_where_the_last_one_stood(stage: Stage) -> None:
    fire(stage, 1)
    stage.projector().run_one_batch(Tick())
    fire(stage, 2)
    stage.projector(stage.history).run_one_batch(Tick())
    assert stage.log.reads[-1] == {0: 0, 1: 1, 2: 0, 3: 0}
    assert numbers(stage) == [1, 2]


def test_a_batch_that_is_repeated_changes_nothing(stage: Stage) -> None:
    fire(stage, 1, 2)
    stage.projector().run_one_batch(Tick())
    before = stage.runs()
    stage.positions.forget(HISTORY)
    fire(stage, 3)
    stage.projector().run_one_batch(Tick())
    assert stage.runs()[1:] == before
    assert numbers(stage) == [1, 2, 3]


def test_a_page_that_ends_between_two_events_of_a_run_loses_neither(stage: Stage) -> None:
    stage.log.limit = 1
    stage.log.write(run_id(1), fired(1, "retry"), fired(1, attempt=2))
    projector = stage.projector()
    for _ in range(3):
        projector.run_one_batch(Tick())
    assert stage.runs() == [(NOON + 1, "succeeded")]
    key = next(iter(stage.engine.copies[""].attempts))
    assert {k[4] for k in stage.engine.copies[""].attempts} == {1, 2}
    assert key[3] == run_id(1)


def test_views_that_stand_apart_each_get_what_they_lack(stage: Stage) -> None:
    fire(stage, 1)
    stage.log.write(b"j" * 16, defined())
    stage.projector(stage.history).run_one_batch(Tick())
    fire(stage, 2)
    stage.projector().run_one_batch(Tick())
    assert numbers(stage) == [1, 2]
    assert list(stage.jobs()) == [b"j" * 16]


def test_views_that_have_caught_up_share_one_read(stage: Stage) -> None:
    projector = stage.projector()
    projector.run_one_batch(Tick())
    assert len(stage.log.reads) == 2
    projector.run_one_batch(Tick())
    assert len(stage.log.reads) == 3


def test_a_view_whose_engine_is_away_holds_up_no_other(stage: Stage) -> None:
    projector = stage.projector()
    projector.run_one_batch(Tick())
    stage.engine.away = True
    fire(stage, 1)
    stage.log.write(b"j" * 16, defined())
    with pytest.raises(Unavailable):
        projector.run_one_batch(Tick())
    assert list(stage.jobs()) == [b"j" * 16]
    assert stage.positions.load(HISTORY) == {}


def test_a_view_whose_engine_is_away_at_the_start_holds_up_no_other(stage: Stage) -> None:
    stage.engine.away = True
    stage.log.write(b"j" * 16, defined())
    with pytest.raises(Unavailable):
        stage.projector().run_one_batch(Tick())
    assert list(stage.jobs()) == [b"j" * 16]


def test_a_view_whose_engine_is_back_gets_all_that_it_missed(stage: Stage) -> None:
    stage.engine.away = True
    fire(stage, 1, 2)
    projector = stage.projector()
    with pytest.raises(Unavailable):
        projector.run_one_batch(Tick())
    stage.engine.away = False
    projector.run_one_batch(Tick(RETRY_US))
    assert numbers(stage) == [1, 2]


def test_an_engine_that_is_away_is_asked_ever_more_rarely(stage: Stage) -> None:
    projector = stage.projector()
    projector.run_one_batch(Tick())
    stage.engine.away = True
    fire(stage, 1)
    asked = []
    for mono_us in range(0, 60_000_000, RETRY_US):
        try:
            projector.run_one_batch(Tick(mono_us))
        except Unavailable:
            asked.append(mono_us)
    gaps = [b - a for a, b in pairwise(asked)]
    assert gaps[0] == RETRY_US
    assert gaps == sorted(gaps)
    assert gaps[-1] == RETRY_MAX_US


def test_an_engine_that_was_back_is_soon_asked_again(stage: Stage) -> None:
    projector = stage.projector()
    mono_us = 0
    for _ in range(4):
        stage.engine.away = True
        fire(stage, mono_us)
        with pytest.raises(Unavailable):
            projector.run_one_batch(Tick(mono_us))
        stage.engine.away = False
        mono_us += RETRY_US
        projector.run_one_batch(Tick(mono_us))
    assert len(stage.runs()) == 4


def test_a_view_that_is_ahead_gets_nothing_twice(stage: Stage) -> None:
    fire(stage, 1)
    read = stage.log.read

    def read_and_write(after: Mapping[int, int], limit: int) -> list[Recorded]:
        found = read(after, limit)
        if len(stage.log.reads) == 1:
            fire(stage, 2)
        return found

    stage.log.read = read_and_write  # type: ignore[method-assign]  # somebody else writes
    projector = stage.projector()
    projector.run_one_batch(Tick())
    given: list[int] = []
    apply = stage.board.apply

    def noted(batch: Sequence[Recorded], positions: Mapping[int, int]) -> None:
        given.extend(r.position for r in batch)
        apply(batch, positions)

    stage.board.apply = noted  # type: ignore[method-assign]  # looks on
    projector.run_one_batch(Tick())
    assert (numbers(stage), given) == ([1, 2], [])


def test_a_history_that_was_lost_is_read_again_from_the_beginning(stage: Stage) -> None:
    fire(stage, 1, 2)
    projector = stage.projector()
    projector.run_one_batch(Tick())
    stage.engine.copies.clear()
    fire(stage, 3)
    with pytest.raises(Unavailable):
        projector.run_one_batch(Tick())
    projector.run_one_batch(Tick(RETRY_US))
    assert numbers(stage) == [1, 2, 3]


def test_rows_that_were_written_without_their_positions_are_written_again(stage: Stage) -> None:
    fire(stage, 1)
    save = stage.positions.save

    def away(view: str, positions: object) -> None:
        raise Unavailable("Postgres is away")

    stage.positions.save = away  # type: ignore[method-assign]  # a crash between the two
    projector = stage.projector(stage.history)
    with pytest.raises(Unavailable):
        projector.run_one_batch(Tick())
    stage.positions.save = save  # type: ignore[method-assign]  # as it was
    projector.run_one_batch(Tick(RETRY_US))
    assert numbers(stage) == [1]
    assert stage.positions.load(HISTORY)[1] == 1


def test_a_stream_with_an_unknown_event_is_set_aside_from_there_on(stage: Stage) -> None:
    stage.log.write(run_id(1), fired(1, "retry"), None, fired(1, attempt=2))
    fire(stage, 3)
    stage.projector().run_one_batch(Tick())
    assert stage.runs() == [(NOON + 3, "succeeded"), (NOON + 1, "waiting")]
    assert stage.parking.load(HISTORY) == {run_id(1)}
    assert sorted(v for _, v in stage.parking.events[HISTORY]) == [2, 3]


def test_a_stream_that_is_set_aside_stays_so_in_the_next_batch(stage: Stage) -> None:
    projector = stage.projector()
    stage.log.write(run_id(1), None)
    projector.run_one_batch(Tick())
    stage.log.write(run_id(1), fired(1))
    projector.run_one_batch(Tick())
    assert stage.runs() == []


def test_a_stream_that_is_set_aside_stays_so_for_the_next_projector(stage: Stage) -> None:
    stage.log.write(run_id(1), None)
    stage.projector().run_one_batch(Tick())
    stage.log.write(run_id(1), fired(1))
    stage.projector().run_one_batch(Tick())
    assert stage.runs() == []


def test_how_many_streams_are_set_aside_is_said_again_at_every_start(stage: Stage) -> None:
    stage.log.write(run_id(1), None)
    stage.projector().run_one_batch(Tick())
    stage.figures.parks.clear()
    stage.projector().run_one_batch(Tick())
    assert stage.figures.parks == {BOARD: 1, HISTORY: 1}


def test_events_are_set_aside_before_the_position_passes_them(stage: Stage) -> None:
    stage.log.write(run_id(1), None)

    def away(view: str, events: object) -> None:
        raise Unavailable("Postgres is away")

    stage.parking.park = away  # type: ignore[method-assign]  # a crash between the two
    with pytest.raises(Unavailable):
        stage.projector(stage.history).run_one_batch(Tick())
    assert stage.positions.load(HISTORY) == {}


def test_a_projector_at_the_head_rests_and_lags_nothing(stage: Stage) -> None:
    fire(stage, 1)
    assert stage.projector().run_one_batch(Tick(at=NOON + 60_000)) == PERIOD_US
    assert stage.figures.lags == {BOARD: 0, HISTORY: 0}


def test_a_projector_that_is_behind_goes_on_at_once_and_says_how_far(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "FULL", 2)
    stage.log.limit = 1
    fire(stage, 1, 2, 3, 4)
    assert stage.projector().run_one_batch(Tick(at=NOON + 60_000)) == 0
    assert stage.figures.lags == {BOARD: 60_000, HISTORY: 60_000}


def test_a_view_that_cannot_be_written_says_how_old_its_next_event_is(stage: Stage) -> None:
    projector = stage.projector()
    projector.run_one_batch(Tick())
    stage.engine.away = True
    fire(stage, 1)
    with pytest.raises(Unavailable):
        projector.run_one_batch(Tick(at=NOON + 5_000))
    assert stage.figures.lags == {BOARD: 0, HISTORY: 5_000}


def test_a_log_that_is_away_is_unavailable(stage: Stage) -> None:
    stage.log.away = True
    with pytest.raises(Unavailable):
        stage.projector().run_one_batch(Tick())


def test_one_read_is_bounded_whatever_the_number_of_shards() -> None:
    for shards in (1, 64, 4_096):
        stage = Stage(shards)
        stage.projector(stage.board).run_one_batch(Tick())
        assert 0 < stage.log.asked * shards <= runner.EVENTS_MAX


def test_the_same_events_have_the_same_token_and_others_another(stage: Stage) -> None:
    tokens: list[str] = []

    def write(attempts: object, runs: object, token: str) -> None:
        tokens.append(token)

    stage.history._store.write = write  # type: ignore[method-assign]  # tokens are looked at
    fire(stage, 1, 2)
    for _ in range(2):
        stage.positions.forget(HISTORY)
        stage.projector(stage.history).run_one_batch(Tick())
    fire(stage, 3)
    stage.positions.forget(HISTORY)
    stage.projector(stage.history).run_one_batch(Tick())
    assert tokens[0] == tokens[1] != tokens[2]


def test_runs_that_ended_dead_are_told_when_they_are_kept_and_not_before(stage: Stage) -> None:
    told: list[int] = []
    view = HistoryView(MemoryHistory(stage.engine), stage.positions, dead=told.append)
    stage.log.write(run_id(1), fired(1, "dead"))
    stage.log.write(run_id(2), fired(2))
    stage.log.write(run_id(3), fired(3, "dead"), shard=1)
    projector = stage.projector(view)
    stage.engine.away = True
    with pytest.raises(Unavailable):
        projector.run_one_batch(Tick())
    assert sum(told) == 0
    stage.engine.away = False
    projector.run_one_batch(Tick(RETRY_US))
    projector.run_one_batch(Tick(RETRY_US + PERIOD_US))
    assert sum(told) == 2
