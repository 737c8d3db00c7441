"""What a preview reads of a tenant, it finds by the tenant, whatever the others have."""

from collections.abc import Iterator

import msgspec
import psycopg
import pytest

from commandside.demand import Limits
from infra.postgres import demand
from projections.job_board import VIEW
from tests.engines.databases import Databases

TENANT = "00000000-0000-0000-0000-000000000001"
ROWS = 60_000
STATEMENTS = {
    "jobs": demand.JOBS,
    "groups": demand.GROUPS,
    "count": demand.COUNT,
    "once": demand.ONCE,
    "older": demand.OLDER,
}
_FILL = (
    f"""
    insert into job_board select
        case when n % 100 = 0 then '{TENANT}'::uuid else gen_random_uuid() end,
        gen_random_uuid(), '{VIEW}', 1, 'active', n % 2 = 0, 'job', (n % 60) || ' * * * *', 'UTC',
        'https://a.example.com/', 'a.example.com', '{{}}', n, n
    from generate_series(1, {ROWS}) n
    """,  # noqa: S608 - constants of this module
    """
    insert into job_heads
    select job_id, 1, tenant_id, 1, 1, 1, false, 0, 0, 30000, 1, '\\x00' from job_board
    """,
    """
    insert into due_index (run_id, job_id, tenant_id, shard, life, version, attempt, fence, fails,
        lost, abandoned, spec_version, payload_version, nominal, due_at, wake_at, first_leased_at,
        leased_at, until, kind, lane, phase)
    select gen_random_uuid(), job_id, tenant_id, shard, 1, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0,
        0, 0, 0 from job_heads
    """,
    "vacuum analyze",
)


@pytest.fixture(scope="module")
def connection(databases: Databases) -> Iterator[psycopg.Connection]:
    conninfo = databases.fresh()
    with psycopg.connect(conninfo, autocommit=True) as connection:
        for statement in _FILL:
            connection.execute(statement.encode())
        yield connection
    databases.drop(conninfo)


def _nodes(plan: dict[str, object]) -> Iterator[dict[str, object]]:
    yield plan
    children = plan.get("Plans", [])
    assert isinstance(children, list)
    for child in children:
        yield from _nodes(child)


@pytest.mark.parametrize("name", STATEMENTS)
def test_only_rows_of_the_tenant_are_touched(name: str, connection: psycopg.Connection) -> None:
    values = msgspec.structs.asdict(Limits()) | {
        "tenant": TENANT,
        "view": VIEW,
        "since": 0,
        "until": 1,
    }
    explain = f"explain (format json) {STATEMENTS[name]}"
    row = connection.execute(explain.encode(), values).fetchone()
    assert row is not None
    touched = [node for node in _nodes(row[0][0]["Plan"]) if "Relation Name" in node]
    assert touched
    for node in touched:
        by_index = "Index Cond" in node or "Recheck Cond" in node
        assert by_index, node
        if node["Relation Name"] == "job_board":
            assert "tenant_id" in str(node.get("Index Cond", node.get("Recheck Cond"))), node
