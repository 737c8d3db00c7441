"""Data folders for real engines; each test starts and ends its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.embedded.postgres import EmbeddedPostgres, PostgresOptions


@pytest.fixture(scope="module")
def postgres_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a cluster in it, so that only one test pays for making one."""
    return tmp_path_factory.mktemp("postgres")


@pytest.fixture
def postgres(postgres_folder: Path) -> Iterator[EmbeddedPostgres]:
    """A Postgres that is up."""
    with EmbeddedPostgres(
        PostgresOptions(data_dir=postgres_folder, shared_buffers_mb=32)
    ) as engine:
        yield engine
