"""Engines that tests ask for by name; each starts once, when the first test needs it.

An engine that cannot be had here fails the tests in CI and skips them, with the reason, elsewhere.
"""

import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import psycopg
import pytest
from hypothesis import settings
from psycopg.conninfo import make_conninfo

from infra import listening
from infra.embedded.broker import BrokerOptions, EmbeddedBroker
from infra.embedded.history import EmbeddedHistory, HistoryOptions
from infra.embedded.postgres import EmbeddedPostgres, PostgresOptions
from tests.engines import apache_kafka as kafka
from tests.engines import rabbitmq as rabbit
from tests.engines.databases import Databases

IN_CI = bool(os.environ.get("CI"))

# How long an example takes is the machine's mood, not a property of ours.
settings.register_profile("tocsin", deadline=None, print_blob=True)
settings.load_profile("tocsin")


WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
SLICE = 2_000
# Ports are chosen some time before they are listened on: each worker has some of its own.
listening.FIRST += WORKER % 7 * SLICE
listening.LAST = listening.FIRST + SLICE


def engine_missing(reason: str) -> NoReturn:
    """End the test that needs an engine: by failing in CI, by skipping on a laptop."""
    if IN_CI:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka.ApacheKafka]:
    """A real Apache Kafka; a test that stops or kills it starts it again."""
    try:
        kafka.jars()
        kafka.tool("java")
    except kafka.KafkaMissing as missing:
        engine_missing(str(missing))
    with kafka.start(tmp_path_factory.mktemp("apache-kafka")) as node:
        yield node


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rabbit.RabbitMQ]:
    """A real RabbitMQ; a test that stops or kills it starts it again."""
    try:
        rabbit.program()
    except rabbit.RabbitMissing as missing:
        engine_missing(str(missing))
    with rabbit.start(tmp_path_factory.mktemp("rabbitmq")) as node:
        yield node


@pytest.fixture(scope="session")
def moto_port() -> Iterator[int]:
    """The port of a server that speaks SQS as AWS does."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    yield port
    server.stop()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A real Postgres; a test that stops or kills it starts it again."""
    options = PostgresOptions(data_dir=tmp_path_factory.mktemp("postgres"), shared_buffers_mb=64)
    with EmbeddedPostgres(options) as engine:
        yield engine


@pytest.fixture
def database(postgres: EmbeddedPostgres) -> Iterator[str]:
    """The connection string of an empty database that no other test sees."""
    name = f"t_{uuid.uuid4().hex}"
    with psycopg.connect(postgres.conninfo, autocommit=True) as admin:
        admin.execute(f"create database {name}")
    yield make_conninfo(postgres.conninfo, dbname=name)
    with psycopg.connect(postgres.conninfo, autocommit=True) as admin:
        # A test that failed may have left connections open.
        admin.execute(f"drop database {name} with (force)")


@pytest.fixture(scope="session")
def embedded_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """The broker that comes with the installation: what it held is gone when it ends."""
    options = BrokerOptions(data_dir=tmp_path_factory.mktemp("embedded-broker"))
    with EmbeddedBroker(options) as engine:
        yield engine


@pytest.fixture(scope="session")
def history() -> Iterator[EmbeddedHistory]:
    """ClickHouse's engine in a process of its own; each test takes a database of its own."""
    # Not below pytest's folder: run by root, it gives up root, and another pytest that starts
    # meanwhile closes that folder to all others.
    with (
        tempfile.TemporaryDirectory(prefix="tocsin-history-") as folder,
        EmbeddedHistory(HistoryOptions(data_dir=Path(folder))) as engine,
    ):
        yield engine


@pytest.fixture(scope="session")
def databases(postgres: EmbeddedPostgres) -> Databases:
    """Migrated databases, each made from a template."""
    return Databases(postgres)


@pytest.fixture
def log_database(databases: Databases) -> Iterator[str]:
    """The connection string of a fresh, migrated database (64 shards, 16 partitions)."""
    conninfo = databases.fresh()
    yield conninfo
    databases.drop(conninfo)
