"""Seeded bugs are caught; `make mutants` plays all of them."""

from pathlib import Path

import pytest

from commandside.firing import calls
from infra.memory.log import MemoryLog
from tests.simulation.mutants.__main__ import broken, hunt
from tests.simulation.mutants.broken import ELSEWHERE, MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


@pytest.mark.parametrize("name", ["no version check on append", "the key from the time of sending"])
def test_it_is_caught(name: str) -> None:
    assert hunt(BY_NAME[name]).said


def test_without_a_bug_nothing_is_caught() -> None:
    assert not hunt(Mutant("none", list), steps_max=1).said


def test_a_bug_is_gone_when_its_play_is_over() -> None:
    before = MemoryLog._is_so, calls.occurrence_key
    for mutant in MUTANTS:
        with broken(mutant):
            pass
    assert before == (MemoryLog._is_so, calls.occurrence_key)


def test_the_tests_that_are_for_the_others_exist() -> None:
    assert [path for _, path in ELSEWHERE if not (ROOT / path).exists()] == []
