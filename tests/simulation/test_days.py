"""Virtual days of a whole Tocsin, in which everything that can fail does.

One day in the usual suite; TOCSIN_SIMULATION_HOURS=72 plays three.
"""

import os

import pytest

from commandside import fault_points
from tests.simulation.ledger import wrongs
from tests.simulation.story import HOUR, Story
from tests.simulation.world import START

SEED = int(os.environ.get("TOCSIN_SIMULATION_SEED", "20270115"))
HOURS = int(os.environ.get("TOCSIN_SIMULATION_HOURS", "24"))


@pytest.fixture(scope="module")
def story() -> Story:
    """A thousand jobs over the days, played once."""
    print(f"seed {SEED}, {HOURS} hours")
    told = Story(SEED, jobs=1_000, hours=HOURS)
    told.play()
    print(f"trace {told.world.trace()}")
    return told


@pytest.mark.slow
class TestDays:
    def test_every_occurrence_ends_exactly_once_and_every_request_has_its_lease(
        self, story: Story
    ) -> None:
        assert wrongs(story.world.log, story.world.deliverers, story.end)[:20] == []

    def test_every_crash_point_was_died_at(self, story: Story) -> None:
        names = {name for points in fault_points.ROLES.values() for name in points}
        assert names - set(story.world.crashes) == set()

    def test_nothing_was_given_up(self, story: Story) -> None:
        names = {name for name, _ in story.world.figures.alarms}
        assert names <= {"hand_off_refused"}


def test_the_same_seed_gives_the_same_trace() -> None:
    traces = []
    for _ in range(2):
        told = Story(SEED, jobs=60, hours=6)
        told.play()
        traces.append(told.world.trace())
    assert traces[0] == traces[1]


def test_another_seed_gives_another_trace() -> None:
    stories = [Story(seed, jobs=20, hours=2) for seed in (1, 2)]
    for told in stories:
        told.play()
    assert stories[0].world.trace() != stories[1].world.trace()
    assert stories[0].end == START + 2 * HOUR
