"""What every log feed, position tracker, parking and board store does."""

from typing import Protocol

import msgspec
import pytest

from domain.envelope import Decision
from domain.job import decide as job
from domain.job import events as je
from domain.job.state import JobState
from domain.run import events as re
from domain.run.decide import Grant, first_lease
from projections.ports import BoardStore, Feed, Parking, Positions, Recorded
from projections.rows import BoardChange, BoardRow, BoardStatus
from tests.contracts.jobs import define, job_id, minutely, ready_run, spec

VIEW, COPY = "view", "view_rebuild"


class Bench(Protocol):
    """The ports over one log."""

    shards: int

    @property
    def feed(self) -> Feed:
        """The log."""

    @property
    def positions(self) -> Positions:
        """Where views stand."""

    @property
    def parking(self) -> Parking:
        """What was set aside."""

    @property
    def board(self) -> BoardStore:
        """The board."""

    def now(self) -> int:
        """Return the log's clock."""

    def append(self, decision: Decision) -> None:
        """Append a decision that holds."""

    def rows(self, view: str) -> dict[bytes, BoardRow]:
        """Return the board's rows of a view, by job."""


def defined(bench: Bench, shard: int) -> Decision:
    """Append a new job in this shard and return its definition."""
    decision = define(job_id(shard, bench.shards), spec(minutely()), bench.now())
    bench.append(decision)
    return decision


def paused(bench: Bench, decision: Decision) -> None:
    """Append the pause of a job that was just defined."""
    state = next(s.after for s in decision.slices if s.stream_id == decision.job_id)
    assert isinstance(state, JobState)
    pause = job.pause(state, (ready_run(decision),), job.By(bench.now()))
    assert isinstance(pause, Decision)
    bench.append(pause)


def leased(bench: Bench, decision: Decision) -> None:
    """Append the first lease of a job that was just defined."""
    state = next(s.after for s in decision.slices if s.stream_id == decision.job_id)
    assert isinstance(state, JobState)
    run = ready_run(decision)
    lease = first_lease(state, run, (), run.facts.due_at, Grant(b"s" * 16, b"n" * 8))
    assert isinstance(lease, Decision)
    bench.append(msgspec.structs.replace(lease, not_before=0))


def row(number: int, version: int = 1, **fields: object) -> BoardRow:
    """Return the board's row of job `number`."""
    made = BoardRow(
        number.to_bytes(16, "big"),
        b"t" * 16,
        version,
        "active",
        False,
        f"job {number}",
        "* * * * *",
        "UTC",
        "https://a.example/",
        "a.example",
        (("team", "a'b"), ("unit", "\u00e9")),
        1_000,
        2_000,
        "náme" if number % 2 else "",
    )
    return msgspec.structs.replace(made, **fields)


def shapes(events: list[Recorded]) -> list[tuple[int, type]]:
    """Return version and kind of each event."""
    return [(e.version, type(e.event)) for e in events]


class ViewsContract:
    """Needs the fixture `bench`."""

    def test_a_shard_is_read_in_the_order_of_its_streams(self, bench: Bench) -> None:
        decision = defined(bench, 3)
        paused(bench, decision)
        events = bench.feed.read({3: 0}, 100)
        assert shapes(events) == [
            (1, je.Defined),
            (1, re.Scheduled),
            (2, je.Paused),
            (2, re.Withdrawn),
        ]
        assert {e.stream_id for e in events} == {s.stream_id for s in decision.slices}
        assert [e.shard for e in events] == [3] * 4
        assert sorted({e.position for e in events}) == [e.position for e in events]

    def test_an_event_comes_back_as_it_was_written(self, bench: Bench) -> None:
        decision = defined(bench, 3)
        written = [event for s in decision.slices for event in s.events]
        assert [e.event for e in bench.feed.read({3: 0}, 100)] == written

    def test_a_page_goes_on_after_the_position_of_its_shard(self, bench: Bench) -> None:
        paused(bench, defined(bench, 3))
        seen: list[Recorded] = []
        while page := bench.feed.read({3: seen[-1].position if seen else 0}, 1):
            assert len(page) == 1
            seen += page
        assert len(seen) == 4

    def test_every_shard_has_its_own_limit_and_place(self, bench: Bench) -> None:
        for shard in (1, 2, 2):
            defined(bench, shard)
        events = bench.feed.read({0: 0, 1: 0, 2: 0}, 3)
        assert [e.shard for e in events] == [1, 1, 2, 2, 2]
        assert bench.feed.read({1: events[1].position}, 100) == []

    def test_only_the_shards_that_are_asked_for_are_read(self, bench: Bench) -> None:
        defined(bench, 1)
        assert bench.feed.read({2: 0}, 100) == []

    def test_a_lease_is_left_out_but_where_it_is_the_last_of_its_shard(self, bench: Bench) -> None:
        leased(bench, defined(bench, 3))
        assert shapes(bench.feed.read({3: 0}, 100)) == [
            (1, je.Defined),
            (1, re.Scheduled),
            (2, re.Leased),
        ]
        defined(bench, 3)
        assert [kind for _, kind in shapes(bench.feed.read({3: 0}, 100))] == [
            je.Defined,
            re.Scheduled,
            je.Defined,
            re.Scheduled,
        ]

    def test_the_head_is_the_last_position_of_every_shard(self, bench: Bench) -> None:
        defined(bench, 1)
        last = bench.feed.read({1: 0}, 100)[-1].position
        assert bench.feed.head() == {s: last if s == 1 else 0 for s in range(bench.shards)}

    def test_a_view_that_never_ran_stands_nowhere(self, bench: Bench) -> None:
        assert bench.positions.load(VIEW) == {}

    def test_positions_are_kept_by_view_and_shard(self, bench: Bench) -> None:
        bench.positions.save(VIEW, {1: 10, 2: 20})
        bench.positions.save(COPY, {1: 5})
        bench.positions.save(VIEW, {2: 21})
        assert bench.positions.load(VIEW) == {1: 10, 2: 21}
        assert bench.positions.load(COPY) == {1: 5}

    def test_a_position_never_goes_back(self, bench: Bench) -> None:
        bench.positions.save(VIEW, {1: 10})
        bench.positions.save(VIEW, {1: 9, 2: 1})
        assert bench.positions.load(VIEW) == {1: 10, 2: 1}

    def test_a_view_that_is_forgotten_begins_again(self, bench: Bench) -> None:
        bench.positions.save(VIEW, {1: 10})
        bench.positions.save(COPY, {1: 10})
        bench.positions.forget(VIEW)
        assert (bench.positions.load(VIEW), bench.positions.load(COPY)) == ({}, {1: 10})

    def test_parked_streams_are_kept_by_view(self, bench: Bench) -> None:
        events = [Recorded(0, n, b"s" * 15 + bytes((n,)), 1, None, "x.v9") for n in (1, 2)]
        bench.parking.park(VIEW, events)
        assert bench.parking.load(VIEW) == {e.stream_id for e in events}
        assert bench.parking.load(COPY) == set()

    def test_parking_an_event_again_changes_nothing(self, bench: Bench) -> None:
        event = Recorded(0, 1, b"s" * 16, 1, None, "x.v9")
        for _ in range(2):
            bench.parking.park(VIEW, [event])
        assert bench.parking.load(VIEW) == {event.stream_id}

    def test_a_copy_hands_over_what_it_parked(self, bench: Bench) -> None:
        bench.parking.park(VIEW, [Recorded(0, 1, b"o" * 16, 1, None, "x.v9")])
        bench.parking.park(COPY, [Recorded(0, 2, b"n" * 16, 1, None, "x.v9")])
        bench.parking.adopt(COPY, VIEW)
        assert (bench.parking.load(VIEW), bench.parking.load(COPY)) == ({b"n" * 16}, set())

    def test_what_is_parked_can_be_forgotten(self, bench: Bench) -> None:
        bench.parking.park(VIEW, [Recorded(0, 1, b"o" * 16, 1, None, "x.v9")])
        bench.parking.forget(VIEW)
        assert bench.parking.load(VIEW) == set()

    def test_a_row_of_the_board_comes_back_as_it_was_written(self, bench: Bench) -> None:
        bench.board.write(VIEW, [row(1)], {})
        assert bench.rows(VIEW) == {row(1).job_id: row(1)}

    def test_rows_and_positions_are_saved_together(self, bench: Bench) -> None:
        bench.board.write(VIEW, [row(1)], {4: 44})
        assert bench.positions.load(VIEW) == {4: 44}

    def test_a_change_of_status_keeps_the_rest(self, bench: Bench) -> None:
        bench.board.write(VIEW, [row(1), BoardStatus(row(1).job_id, 2, "paused", 3_000)], {})
        expected = row(1, 2, status="paused", changed_at=3_000)
        assert bench.rows(VIEW) == {expected.job_id: expected}

    def test_a_change_of_nothing_but_the_version_keeps_the_rest(self, bench: Bench) -> None:
        job_id = row(1).job_id
        changes: list[BoardChange] = [
            row(1),
            BoardStatus(job_id, 2, "paused", 3_000),
            BoardStatus(job_id, 3, "", 0),
        ]
        bench.board.write(VIEW, changes, {})
        assert bench.rows(VIEW) == {job_id: row(1, 3, status="paused", changed_at=3_000)}

    def test_a_revision_keeps_status_and_age(self, bench: Bench) -> None:
        job_id = row(1).job_id
        bench.board.write(VIEW, [row(1), BoardStatus(job_id, 2, "paused", 3_000)], {})
        revised = row(1, 3, status="", defined_at=0, changed_at=4_000, name="renamed")
        bench.board.write(VIEW, [revised], {})
        expected = row(1, 3, status="paused", changed_at=4_000, name="renamed")
        assert bench.rows(VIEW) == {job_id: expected}

    def test_an_older_change_never_replaces_a_newer_one(self, bench: Bench) -> None:
        job_id = row(1).job_id
        newest = row(1, 5, name="newest")
        bench.board.write(VIEW, [newest], {})
        bench.board.write(VIEW, [row(1, 4), BoardStatus(job_id, 5, "paused", 9)], {})
        assert bench.rows(VIEW) == {job_id: newest}

    def test_a_status_of_a_job_that_is_not_on_the_board_is_nothing(self, bench: Bench) -> None:
        bench.board.write(VIEW, [BoardStatus(b"x" * 16, 5, "paused", 9)], {})
        assert bench.rows(VIEW) == {}

    def test_a_second_copy_takes_the_place_of_the_live_one(self, bench: Bench) -> None:
        bench.board.write(VIEW, [row(1), row(2)], {})
        bench.board.write(COPY, [row(2, 7)], {})
        bench.board.swap(COPY, VIEW)
        assert (bench.rows(VIEW), bench.rows(COPY)) == ({row(2).job_id: row(2, 7)}, {})

    def test_a_copy_that_is_begun_again_is_empty(self, bench: Bench) -> None:
        bench.board.write(VIEW, [row(1)], {})
        bench.board.write(COPY, [row(1)], {})
        bench.board.begin(COPY)
        assert (len(bench.rows(VIEW)), bench.rows(COPY)) == (1, {})

    @pytest.mark.parametrize("count", [0, 1_000])
    def test_a_batch_of_any_size_is_written(self, bench: Bench, count: int) -> None:
        bench.board.write(VIEW, [row(n) for n in range(count)], {1: 1})
        assert len(bench.rows(VIEW)) == count
