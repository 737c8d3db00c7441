"""A Postgres that acknowledges what it may lose is refused at start-up."""

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import psycopg.conninfo
import pytest

from infra.embedded.postgres import EmbeddedPostgres, PostgresOptions
from infra.postgres.migrate import DurabilityError, check_durability


@pytest.fixture
def with_commits(postgres: EmbeddedPostgres) -> Iterator[Callable[[str], str]]:
    """Make a user whose connections have this `synchronous_commit`."""

    def set_to(value: str) -> str:
        admin.execute(f"alter role careless set synchronous_commit = {value}".encode())
        return psycopg.conninfo.make_conninfo(postgres.conninfo, user="careless")

    with psycopg.connect(postgres.conninfo, autocommit=True) as admin:
        admin.execute("create role careless login")
        yield set_to
        admin.execute("drop role careless")


def test_a_postgres_as_we_run_it_is_accepted(postgres: EmbeddedPostgres) -> None:
    check_durability(postgres.conninfo)


def test_commits_that_do_not_wait_for_the_disk_are_refused(
    with_commits: Callable[[str], str],
) -> None:
    with pytest.raises(DurabilityError, match="Set synchronous_commit=on"):
        check_durability(with_commits("off"))


@pytest.mark.parametrize("value", ["local", "remote_write", "remote_apply", "on"])
def test_commits_that_wait_for_more_or_less_than_a_standby_are_accepted(
    with_commits: Callable[[str], str], value: str
) -> None:
    check_durability(with_commits(value))


def test_a_server_without_fsync_and_page_images_is_refused_with_both_named(tmp_path: Path) -> None:
    settings = {"fsync": "off", "full_page_writes": "off"}
    options = PostgresOptions(
        data_dir=tmp_path / "postgres", shared_buffers_mb=16, settings=settings
    )
    with (
        EmbeddedPostgres(options) as server,
        pytest.raises(DurabilityError, match="Set fsync=on, full_page_writes=on"),
    ):
        check_durability(server.conninfo)
