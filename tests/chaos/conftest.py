"""What every test of a fault stands on."""

from collections.abc import Iterator

import pytest

from tests.chaos.wire import Wire, wired
from tests.engines.name_server import NameServer
from tests.engines.sink import TargetServer


@pytest.fixture
def names() -> Iterator[NameServer]:
    with NameServer() as found:
        yield found


@pytest.fixture
def sink() -> Iterator[TargetServer]:
    with TargetServer() as found:
        yield found


@pytest.fixture
def wire(sink: TargetServer, names: NameServer) -> Iterator[Wire]:
    with wired(sink, names) as found:
        yield found
