"""CPU time is read from /proc and given to the nearest named process."""

import os

import pytest

from bench import cpu
from bench.cpu import TICKS_PER_S, Process

STAT = "42 (post (gres) x) S 7 42 42 0 -1 4194304 1 2 3 4 {} 20 0 1 0 99 1000 10 5"


def test_own_time_and_that_of_dead_children_are_added() -> None:
    found = cpu.parse_stat(STAT.format("100 20 3 4"))
    assert found == Process(7, 127 / TICKS_PER_S)


def test_this_process_is_in_the_table() -> None:
    assert cpu.table()[os.getpid()].parent == os.getppid()


def test_time_goes_to_the_nearest_named_process() -> None:
    processes = {
        1: Process(0, 100.0),
        10: Process(1, 1.0),
        11: Process(10, 2.0),
        12: Process(11, 4.0),
        13: Process(12, 8.0),
    }
    found = cpu.by_name(processes, {"up": 10, "postgres": 12})
    assert found == {"up": 3.0, "postgres": 12.0}


def test_a_named_process_that_is_gone_has_no_time() -> None:
    assert cpu.by_name({}, {"up": 10}) == {"up": 0.0}


def test_a_circle_in_a_table_that_changed_while_it_was_read_ends() -> None:
    processes = {10: Process(11, 1.0), 11: Process(10, 1.0)}
    assert cpu.by_name(processes, {"up": 12}) == {"up": 0.0}


@pytest.mark.parametrize(("after", "spent"), [(5.0, 3.0), (1.0, 1.0)])
def test_what_is_spent_of_a_replaced_process_is_the_new_ones(after: float, spent: float) -> None:
    assert cpu.spent({"broker": 2.0}, {"broker": after}) == {"broker": spent}


def test_a_process_that_was_not_there_before_has_spent_all_its_time() -> None:
    assert cpu.spent({}, {"broker": 2.0}) == {"broker": 2.0}
