"""The protocol holds in small worlds, and each rule that is broken on purpose is found out.

Worlds that take long are left to `python -m tests.model.suite`, which searches all of them.
"""

import pytest

from tests.model.broken_worlds import BREAK
from tests.model.search import explore
from tests.model.state import Cfg
from tests.model.suite import expected
from tests.model.worlds import HOLD

SMALL = (
    "one-time",
    "one-time-pause-edit",
    "edit-allow",
    "edit-cancel-race",
    "misfire-latest-window",
    "misfire-skip",
    "archive",
    "async",
)
"""About 120,000 states: some twenty seconds of one core."""
LONG_CONTROLS = ("lease_any_version", "term_not_checked")

WORLDS = [c for c in HOLD if c.name in SMALL]
MUTATIONS = [(c, law) for c, law in BREAK if law or c.mut not in LONG_CONTROLS]


@pytest.mark.parametrize("world", WORLDS, ids=lambda c: c.name)
def test_the_laws_hold_in_every_reachable_state(world: Cfg) -> None:
    found = explore(world)
    assert found.ok, "\n".join((found.why, *found.story))


@pytest.mark.parametrize(
    ("world", "law"), MUTATIONS, ids=[f"{c.mut or 'control'}-{c.name}" for c, _ in MUTATIONS]
)
def test_a_rule_that_is_broken_is_found_out(world: Cfg, law: str) -> None:
    found = explore(world)
    assert expected(found, law), "\n".join((found.why, *found.story))


def test_every_small_world_exists() -> None:
    assert {world.name for world in WORLDS} == set(SMALL)


UNREDUCED = [
    Cfg("one-slot", sched=((1,),), T=3, faults=0, lost_max=1),
    Cfg("cancel", direct=True, cmds=("cancel",), sched=((1,),), T=4, faults=0),
]


@pytest.mark.parametrize("world", UNREDUCED, ids=lambda c: c.name)
def test_what_is_left_out_of_a_state_changes_no_verdict(world: Cfg) -> None:
    whole, reduced = explore(world, raw=True), explore(world)
    assert whole.ok
    assert reduced.ok
    assert whole.states > reduced.states
