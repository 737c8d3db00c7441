"""Cells for the tests of the whole path: fresh database, topics and history on shared engines."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.embedded.broker import EmbeddedBroker
from infra.embedded.history import EmbeddedHistory
from infra.kafka.options import EMBEDDED_SESSION_TIMEOUT_MS, SESSION_TIMEOUT_MS
from tests.end_to_end.cell import Cell, Engines, opened
from tests.end_to_end.receiver import Receiver
from tests.engines.apache_kafka import ApacheKafka
from tests.engines.databases import Databases

_numbers = itertools.count(1)

Opener = Callable[[str, int], Iterator[Cell]]


def _engines(postgres: str, kafka: str, clickhouse: str, session_timeout_ms: int) -> Engines:
    name = f"e2e_{next(_numbers)}"
    return Engines(postgres, kafka, f"http://{clickhouse}", name, session_timeout_ms)


@pytest.fixture(params=["embedded", "apache"])
def either_cell(
    request: pytest.FixtureRequest, log_database: str, history: EmbeddedHistory, tmp_path: Path
) -> Iterator[Cell]:
    """A cell on the embedded broker, and another on Apache Kafka."""
    if request.param == "apache":
        node: ApacheKafka = request.getfixturevalue("apache_kafka")
        where, session_ms = node.bootstrap, SESSION_TIMEOUT_MS
    else:
        broker: EmbeddedBroker = request.getfixturevalue("embedded_broker")
        where, session_ms = broker.address, EMBEDDED_SESSION_TIMEOUT_MS
    with opened(_engines(log_database, where, history.address, session_ms), tmp_path) as cell:
        yield cell


@pytest.fixture(scope="module")
def module_cell(
    databases: Databases,
    embedded_broker: EmbeddedBroker,
    history: EmbeddedHistory,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cell]:
    """One cell for all tests of a module, on the embedded broker."""
    conninfo = databases.fresh()
    engines = _engines(
        conninfo, embedded_broker.address, history.address, EMBEDDED_SESSION_TIMEOUT_MS
    )
    with opened(engines, tmp_path_factory.mktemp("cell")) as cell:
        yield cell
    databases.drop(conninfo)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A target that keeps what it is sent."""
    found = Receiver()
    yield found
    found.close()
