"""What a fire costs the run history: fold, packing and insert, CPU of client and engine apart.

`python -m bench.history_insert [FIRES ...]` starts an engine of its own and prints one line for
each number of fires in an insert. See docs/adr/0007-run-history-in-two-tables.md.
"""

import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from domain.run import events as e
from infra.clickhouse import packing
from infra.clickhouse.store import ClickHouseHistory
from infra.embedded.history import EmbeddedHistory, HistoryOptions
from projections.ports import Recorded
from projections.run_history import rows

FIRES: Final = (100, 2_500, 16_000)
INSERTS: Final = 8
NOON: Final = 1_790_000_000_000
_TICK_US: Final = 10_000


def main(sizes: tuple[int, ...]) -> None:
    """Measure each size once, the smallest first."""
    print(
        "fires  fold  pack  client  engine  wall   us a fire (two rows); client holds fold + pack"
    )
    with (
        tempfile.TemporaryDirectory(prefix="tocsin-bench-") as folder,
        EmbeddedHistory(HistoryOptions(data_dir=Path(folder))) as engine,
    ):
        for number, size in enumerate(sizes):
            store = ClickHouseHistory(f"http://{engine.address}", f"bench{number}")
            store.prepare()
            _measure(engine, store, _fires(size))
            store.close()


def _measure(engine: EmbeddedHistory, store: ClickHouseHistory, batch: list[Recorded]) -> None:
    began = time.process_time_ns()
    attempts, runs = rows(batch)
    folded = time.process_time_ns()
    packing.attempts(attempts)
    packing.runs(runs)
    packed = time.process_time_ns()
    engine_us, wall = _cpu_us(engine.pid), time.perf_counter()
    client = time.process_time_ns()
    for number in range(INSERTS):
        store.write(*rows(batch), f"insert {number}")
    fires = INSERTS * len(batch)
    print(
        f"{len(batch):5}  {(folded - began) / 1e3 / len(batch):4.1f}"
        f"  {(packed - folded) / 1e3 / len(batch):4.1f}"
        f"  {(time.process_time_ns() - client) / 1e3 / fires:6.1f}"
        f"  {(_cpu_us(engine.pid) - engine_us) / fires:6.1f}"
        f"  {(time.perf_counter() - wall) * 1e6 / fires:4.1f}"
    )


def _fires(count: int) -> list[Recorded]:
    rng = random.Random(1)
    tenant = rng.randbytes(16)
    batch = []
    for position in range(1, count + 1):
        nominal = NOON + rng.randrange(60_000)
        fired = e.Fired(
            nominal + 9,
            rng.randbytes(16),
            tenant,
            0,
            nominal,
            nominal,
            nominal + 5,
            1,
            2,
            "ok",
            "succeeded",
            200,
            "",
            1_500,
            False,
            (("content-type", "text/plain"),),
            b"ok",
            nominal + 6,
        )
        run_id = nominal.to_bytes(6, "big") + rng.randbytes(10)
        batch.append(Recorded(0, position, run_id, 3, fired))
    return batch


def _cpu_us(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_US


if __name__ == "__main__":
    main(tuple(int(word) for word in sys.argv[1:]) or FIRES)
