"""What a hand-off pass costs beside many rows that are not due: the real schema, filled by SQL.

Every pass scans the second that has just come into the horizon, with some due rows of its own, and
marks them; an idle pass finds none. Rows far ahead must make neither dearer.
"""

import random
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import psycopg

from bench import cpu, figures
from commandside.ports import ENTRY_BYTES, Published, Ref
from infra.embedded.postgres import EmbeddedPostgres, PostgresOptions
from infra.postgres.due_index import PostgresDueIndex
from infra.postgres.migrate import install, migrate
from infra.postgres.shard_leases import PostgresShardLeases

SHARDS: Final = 64
PARTITIONS: Final = 16
PASSES: Final = 30
IDLE_PASSES: Final = 300
ROWS_A_PASS: Final = 1_000
FAR_MS: Final = 3_600_000
SPREAD_MS: Final = 86_400_000
LEASE_MS: Final = 600_000
SECOND_MS: Final = 1_000
TENANT: Final = "00000000000000000000000000000001"

# A shard is the head of the job's id modulo their number, as everywhere.
_INSERT: Final = """
insert into due_index (run_id, job_id, tenant_id, shard, life, version, attempt, fence, fails, lost,
    abandoned, spec_version, payload_version, nominal, due_at, wake_at, first_leased_at, leased_at,
    until, kind, lane, phase)
select gen_random_uuid(), job_id, %(tenant)s,
    (('x' || left(job_id::text, 8))::bit(32)::bigint %% %(shards)s)::int, 1, 1, 0, 0, 0, 0, 0, 1, 1,
    due_at, due_at, due_at, 0, 0, 0, 0, 0, 0
from (
    select gen_random_uuid() as job_id, %(first)s + floor(random() * %(spread)s)::bigint as due_at
    from generate_series(1, %(count)s)
) rows
"""


def insert(
    connection: "psycopg.Connection[Any]", count: int, first_ms: int, spread_ms: int
) -> None:
    """Insert pending rows that are due from `first_ms` on, spread evenly."""
    values = {
        "tenant": TENANT,
        "shards": SHARDS,
        "first": first_ms,
        "spread": spread_ms,
        "count": count,
    }
    connection.execute(_INSERT, values)


def measure(sizes: list[int]) -> dict[str, Any]:
    """Measure a pass with each number of pending rows, from an empty table up."""
    found: dict[str, Any] = {"workload": "pending", "rows_a_pass": ROWS_A_PASS, "sizes": {}}
    with tempfile.TemporaryDirectory(prefix="tocsin-bench-") as folder:
        options = PostgresOptions(data_dir=Path(folder) / "postgres")
        with EmbeddedPostgres(options) as engine:
            migrate(engine.conninfo)
            install(engine.conninfo, random.randbytes(16), SHARDS, PARTITIONS)
            with psycopg.connect(engine.conninfo, autocommit=True) as connection:
                there = 0
                for size in sorted(sizes):
                    now_ms = time.time_ns() // 1_000_000
                    insert(connection, size - there, now_ms + FAR_MS, SPREAD_MS)
                    there = size
                    connection.execute("vacuum (analyze) due_index")
                    found["sizes"][str(size)] = _passes(engine, connection)
    passes = [figures_of["pass_ms"]["p50"] for figures_of in found["sizes"].values()]
    costs = [figures_of["cpu_us_per_row"] for figures_of in found["sizes"].values()]
    found["ratio_of_time"] = round(passes[-1] / passes[0], 2)
    found["ratio_of_cpu"] = round(costs[-1] / costs[0], 2)
    return found


def _passes(engine: EmbeddedPostgres, connection: "psycopg.Connection[Any]") -> dict[str, Any]:
    owner = random.randbytes(16)
    pids = {"postgres": engine.pid}
    edge = time.time_ns() // 1_000_000
    took_ms: list[float] = []
    spent_s = 0.0
    with (
        closing(PostgresDueIndex(engine.conninfo, SHARDS)) as index,
        closing(PostgresShardLeases(engine.conninfo, SHARDS)) as leases,
    ):
        terms = leases.heartbeat(owner, LEASE_MS)
        for _ in range(PASSES):
            insert(connection, ROWS_A_PASS, edge + 1, SECOND_MS - 1)
            before, began = cpu.by_name(cpu.table(), pids), time.perf_counter()
            marked = _pass(index, terms, edge)
            took_ms.append((time.perf_counter() - began) * 1_000)
            after = cpu.by_name(cpu.table(), pids)
            spent_s += cpu.spent(before, after)["postgres"]
            assert marked == ROWS_A_PASS, marked
            edge += SECOND_MS
        idle_ms = []
        for _ in range(IDLE_PASSES):
            began = time.perf_counter()
            _pass(index, terms, edge)
            idle_ms.append((time.perf_counter() - began) * 1_000)
        leases.release(owner)
    # The next size begins without the rows of this one.
    connection.execute("delete from due_index where handed_off_at is not null")
    return {
        "pass_ms": figures.quantiles(took_ms[1:]),
        "idle_pass_ms": figures.quantiles(idle_ms),
        "cpu_us_per_row": round(spent_s / (PASSES * ROWS_A_PASS) * 1e6, 2),
    }


def _pass(index: PostgresDueIndex, terms: dict[int, int], edge: int) -> int:
    """Scan the second after `edge` and mark what was found; return how many rows were marked."""
    chunks = index.window(terms, edge, edge + SECOND_MS, 20_000)
    done = [Published(chunk, Ref("tocsin.due.0", chunk.shard % PARTITIONS, 0)) for chunk in chunks]
    assert all(len(chunk.entries) % ENTRY_BYTES == 0 for chunk in chunks)
    return index.mark(done)
