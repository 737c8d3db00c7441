"""The world that the tests of the public API share."""

import pytest

from tests.api.world import World


@pytest.fixture
def world() -> World:
    return World()
