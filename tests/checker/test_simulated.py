"""Hours of a whole Tocsin in virtual time, with the faults of the simulation, judged."""

import os

import pytest

from commandside.firing import calls
from domain.run.state import Facts
from tests.checker import memory
from tests.checker.check import check
from tests.checker.inputs import Fault, History, Scenario
from tests.checker.report import Report
from tests.simulation.story import Story
from tests.simulation.world import START

SEED = int(os.environ.get("TOCSIN_SIMULATION_SEED", "20270115"))


def judged(seed: int) -> Report:
    """Play six hours of sixty jobs, and judge them."""
    print(f"seed {seed}")
    story = Story(seed, jobs=60, hours=6)
    world = story.world
    watched = memory.Watched(world.answer)
    world.answer = watched  # type: ignore[assignment]  # the world asks its target
    story.play()
    report = check(
        History(
            events=memory.events(world.log),
            hits=watched.hits,
            projections=memory.projections(world.log),
            # It keeps no list of its faults: something may be broken at any time.
            faults=[Fault("dispatcher", "any", START, world.clock.now())],
            scenario=Scenario(
                settled_at=story.end,
                ended_at=world.clock.now(),
                expected=("retries", "reclaims", "manual"),
            ),
        )
    )
    print(report.text())
    return report


@pytest.mark.slow
def test_nothing_is_wrong() -> None:
    assert judged(SEED).violations == []


@pytest.mark.slow
def test_a_product_with_a_key_for_each_attempt_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = calls.occurrence_key

    def of_attempt(template: str, run: Facts) -> str:
        return f"{right(template, run)}-{run.attempt}"

    monkeypatch.setattr(calls, "occurrence_key", of_attempt)
    assert set(judged(SEED).broken) == {"I4"}
