"""Due index and shard leases on real Postgres; time passes by moving stored instants back."""

import select
from collections.abc import Iterator, Sequence
from typing import Final

import psycopg
import pytest

from infra.postgres.append import lock_parameters
from infra.postgres.blocking import BlockingWire
from infra.postgres.due_index import PostgresDueIndex
from infra.postgres.fire_log import PostgresFireLog
from infra.postgres.hand_off import count as count_of
from infra.postgres.shard_leases import PostgresShardLeases
from infra.postgres.wire import Statement
from tests.contracts.due_index import DueIndexContract, Hand
from tests.contracts.shard_leases import ShardLeasesContract
from tests.engines.databases import SHARDS

WAIT_S: Final = 0.05
PASSES: Final = (
    "update due_index set wake_at = wake_at - %(ms)s, until = until - %(ms)s",
    "update due_index set handed_off_at = handed_off_at - %(ms)s",
    "update sessions set until = until - %(ms)s",
    "update shards set until = until - %(ms)s",
    "update schedulers set until = until - %(ms)s",
)


class OnPostgres:
    """All of it on one database."""

    def __init__(self, conninfo: str) -> None:
        self.conninfo = conninfo
        self.shards = SHARDS
        self.log = PostgresFireLog(conninfo, shards=SHARDS)
        self.index = PostgresDueIndex(conninfo, SHARDS)
        self.leases = PostgresShardLeases(conninfo, SHARDS)

    def rest(self) -> None:
        sockets = self.log.sockets()
        reads = [descriptor for descriptor, _ in sockets]
        writes = [descriptor for descriptor, writing in sockets if writing]
        select.select(reads, writes, (), WAIT_S)

    def pass_ms(self, ms: int) -> None:
        with psycopg.connect(self.conninfo) as connection:
            for statement in PASSES:
                connection.execute(statement, {"ms": ms})

    def close(self) -> None:
        for port in (self.log, self.index, self.leases):
            port.close()


@pytest.fixture
def bench(log_database: str) -> Iterator[OnPostgres]:
    bench = OnPostgres(log_database)
    yield bench
    bench.close()


class TestPostgresDueIndex(DueIndexContract):
    def test_marks_are_taken_back_in_lots_that_lock_few_shards(
        self, hand: Hand, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("infra.postgres.hand_off.LOT_ROWS", 2)
        for shard in (*hand.shards, *hand.shards):
            hand.once(hand.now() + 1_000, shard=shard)
        count, before = hand.hand_off(), hand.now() + 60_000
        locked: list[bytes] = []
        call = BlockingWire.call

        def watched(wire: BlockingWire, request: Sequence[Statement]) -> tuple[bytes | None, ...]:
            assert [name for name, _ in request] == ["lock", "unmark"]
            locked.append(request[0][1][0])
            row = call(wire, request)
            assert count_of(row) <= 2
            return row

        monkeypatch.setattr(BlockingWire, "call", watched)
        assert hand.index.unmark(hand.shards, before, 1_000) == count
        shares = [lock_parameters(share)[0] for share in (range(n, SHARDS, 4) for n in range(4))]
        assert set(locked) == set(shares)


class TestPostgresShardLeases(ShardLeasesContract):
    pass
