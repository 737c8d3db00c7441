"""Seeded bugs are caught; `make mutants` plays all of them."""

from pathlib import Path

import pytest

from commandside.firing import calls
from infra.memory.log import MemoryLog
from tests.simulation.mutants.__main__ import broken, hunt
from tests.simulation.mutants.broken import ELSEWHERE, MUTANTS, Mutant
from tests.simulation.play import play
from tests.simulation.scenario import Deed, NewJob, Scenario

ROOT = Path(__file__).parents[2]
BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


@pytest.mark.parametrize("name", ["no version check on append", "the key from the time of sending"])
def test_it_is_caught(name: str) -> None:
    assert hunt(BY_NAME[name]).said


def test_a_chain_that_broke_is_seen_before_an_edit_begins_it_anew() -> None:
    body = {
        "type": "recurring",
        "schedule": "* * * * *",
        "timezone": "UTC",
        "target": {"kind": "http", "url": "https://t1.example.com/run/0"},
    }
    deeds = (Deed(70_000, "pause", 0), Deed(150_000, "resume", 0))
    scenario = Scenario(5, 200_000, (NewJob(0, 1, body, "define-0"),), deeds)
    assert play(scenario).wrongs == []
    with broken(BY_NAME["resume forgets the open occurrence"]):
        (wrong, *_) = play(scenario).wrongs
    assert wrong.endswith("1 active jobs had no next occurrence")


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
