"""Engines that tests ask for by name; each starts once, when the first test needs it.

An engine that cannot be had here fails the tests in CI and skips them, with the reason, elsewhere.
"""

import os
from collections.abc import Iterator
from typing import NoReturn

import pytest

from tests.engines import apache_kafka as kafka

IN_CI = bool(os.environ.get("CI"))


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
