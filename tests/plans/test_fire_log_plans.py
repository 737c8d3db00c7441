"""Every statement of the fire path finds its rows in an index, whatever the tables hold."""

from collections.abc import Iterator
from typing import Final
from uuid import UUID

import psycopg
import pytest

from infra.postgres import append, command_reads, due_index, fire_log
from tests.engines.databases import Databases

TABLES: Final = ("due_index", "job_heads", "events", "sessions", "commands", "shards")
ROWS: Final = 20_000
STATEMENTS: Final = {
    **fire_log.STATEMENTS,
    **fire_log.SESSION_STATEMENTS,
    **due_index.STATEMENTS,
    "seconds": command_reads.SECONDS,
    "latest": command_reads.LATEST,
}

_FILL: Final = (
    f"""
    insert into job_heads
    select gen_random_uuid(), n % 64, gen_random_uuid(), 1, 1, 1, false, 0, 0, 30000, 1, '\\x00'
    from generate_series(1, {ROWS}) n
    """,  # noqa: S608 - a constant of this module
    """
    insert into due_index (run_id, job_id, tenant_id, shard, life, version, attempt, fence, fails,
        lost, abandoned, spec_version, payload_version, nominal, due_at, wake_at, first_leased_at,
        leased_at, until, kind, lane, phase)
    select gen_random_uuid(), job_id, tenant_id, shard, 1, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0,
        0, 0, 0 from job_heads
    """,
    """
    insert into events select job_id, 1, shard, nextval('event_position'), 'job.defined.v1', '\\x00'
    from job_heads
    """,
    "insert into sessions select gen_random_uuid(), 0 from generate_series(1, 100)",
    "insert into commands select shard, job_id, job_id, '\\x00', 1, 1, 0 from job_heads",
)


@pytest.fixture(scope="module", params=["empty", "filled", "never analyzed"])
def connection(
    request: pytest.FixtureRequest, databases: Databases
) -> Iterator[psycopg.Connection]:
    """A connection as a wire has it, over tables in three states."""
    conninfo = databases.fresh()
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(append.SETTINGS.encode())
        if request.param == "filled":
            for statement in _FILL:
                connection.execute(statement.encode())
        if request.param != "never analyzed":
            connection.execute("analyze")
        yield connection
    databases.drop(conninfo)


def _nodes(plan: dict[str, object]) -> Iterator[dict[str, object]]:
    yield plan
    children = plan.get("Plans", [])
    assert isinstance(children, list)
    for child in children:
        yield from _nodes(child)


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_looks_rows_up(name: str, connection: psycopg.Connection) -> None:
    explain = f"explain (generic_plan, format json) {STATEMENTS[name]}"
    row = connection.execute(explain.encode()).fetchone()
    assert row is not None
    touched = 0
    for node in _nodes(row[0][0]["Plan"]):
        kind, table = str(node["Node Type"]), node.get("Relation Name")
        if table not in TABLES or kind == "ModifyTable":
            continue
        touched += 1
        if kind in ("Index Scan", "Index Only Scan"):
            assert "Index Cond" in node, node
        else:
            assert kind == "Tid Scan", node
    assert touched > 0 or name in ("lock", "start")


@pytest.mark.parametrize("name", STATEMENTS)
def test_rows_of_a_batch_are_never_compared_with_each_other(
    name: str, connection: psycopg.Connection
) -> None:
    """A join of two inputs of a batch takes the square of its size."""
    explain = f"explain (generic_plan, format json) {STATEMENTS[name]}"
    row = connection.execute(explain.encode()).fetchone()
    assert row is not None
    for node in _nodes(row[0][0]["Plan"]):
        assert "Join Filter" not in node, node
        assert node["Node Type"] not in ("Hash Join", "Merge Join"), node


_SHARDS: Final = list(range(64))
AUDITS: Final[dict[str, tuple[str, dict[str, object]]]] = {
    "stale": (
        due_index._STALE,
        {"shards": _SHARDS, "all": False, "limit": 9, "after": 5, "spacing": 9, "queued": 9},
    ),
    "lapsed": (due_index._LAPSED, {"shards": _SHARDS, "limit": 9, "accepted": True}),
    "health": (
        due_index._HEALTH,
        {"shards": _SHARDS, "low": UUID(int=0), "high": UUID(int=1 << 120)},
    ),
}


@pytest.mark.parametrize("name", AUDITS)
def test_a_statement_of_the_audit_reads_a_range_of_an_index(
    name: str, connection: psycopg.Connection
) -> None:
    statement, values = AUDITS[name]
    row = connection.execute(f"explain (format json) {statement}".encode(), values).fetchone()
    assert row is not None
    for node in _nodes(row[0][0]["Plan"]):
        if node.get("Relation Name") in ("due_index", "job_heads"):
            assert "Index Cond" in node or node["Node Type"] == "Bitmap Heap Scan", node


def test_the_load_of_a_window_is_counted_from_the_index_alone(
    connection: psycopg.Connection,
) -> None:
    explain = f"explain (generic_plan, format json) {command_reads.SECONDS}"
    row = connection.execute(explain.encode()).fetchone()
    assert row is not None
    read = [node for node in _nodes(row[0][0]["Plan"]) if node.get("Relation Name") == "due_index"]
    assert [node["Node Type"] for node in read] == ["Index Only Scan"]
    assert "wake_at" in str(read[0]["Index Cond"])
    assert "shard" in str(read[0]["Index Cond"])
