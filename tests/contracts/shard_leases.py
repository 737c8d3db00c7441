"""What shard leases do, in memory or on Postgres."""

from typing import Final, Protocol

from commandside.ports import ShardLeases

A, B, C = (name.ljust(16, b".") for name in (b"a", b"b", b"c"))
LEASE_MS: Final = 10_000
ROUNDS: Final = 40


class Bench(Protocol):
    """Shard leases of `shards` shards, and time that passes for what is stored."""

    leases: ShardLeases
    shards: int

    def pass_ms(self, ms: int) -> None: ...


def beat(bench: Bench, owner: bytes) -> dict[int, int]:
    return bench.leases.heartbeat(owner, LEASE_MS)


def settle(bench: Bench, *owners: bytes) -> dict[bytes, dict[int, int]]:
    """Let these beat in turn for a while."""
    held: dict[bytes, dict[int, int]] = {owner: {} for owner in owners}
    for _ in range(ROUNDS):
        for owner in owners:
            held[owner] = beat(bench, owner)
    return held


class ShardLeasesContract:
    """Subclasses give a fixture `bench`."""

    def test_the_only_owner_has_all_shards(self, bench: Bench) -> None:
        held = beat(bench, A)
        assert sorted(held) == list(range(bench.shards))
        assert min(held.values()) >= 1

    def test_a_renewal_keeps_the_terms(self, bench: Bench) -> None:
        assert beat(bench, A) == beat(bench, A)

    def test_shards_are_shared_equally_and_belong_to_one_owner_each(self, bench: Bench) -> None:
        held = settle(bench, A, B, C)
        owned = [shard for shards in held.values() for shard in shards]
        assert sorted(owned) == list(range(bench.shards))
        share = -(-bench.shards // 3)
        assert max(len(shards) for shards in held.values()) <= share

    def test_a_shard_that_changes_hands_gets_a_higher_term(self, bench: Bench) -> None:
        before = beat(bench, A)
        held = settle(bench, A, B)
        assert held[B]
        assert all(term > before[shard] for shard, term in held[B].items())
        assert all(term == before[shard] for shard, term in held[A].items())

    def test_an_owner_that_joins_gets_a_thin_slice_at_a_time(self, bench: Bench) -> None:
        before = beat(bench, A)
        assert beat(bench, B) == {}
        after = beat(bench, A)
        assert 0 < len(before) - len(after) <= 8

    def test_what_is_released_is_taken_at_once(self, bench: Bench) -> None:
        settle(bench, A, B)
        bench.leases.release(A)
        assert sorted(beat(bench, B)) == list(range(bench.shards))

    def test_the_shards_of_an_owner_that_is_silent_are_taken(self, bench: Bench) -> None:
        held = settle(bench, A, B)
        bench.pass_ms(LEASE_MS + 1_000)
        taken = beat(bench, B)
        assert sorted(taken) == list(range(bench.shards))
        assert all(taken[shard] > term for shard, term in held[A].items())

    def test_an_owner_that_comes_back_before_another_took_over_keeps_its_terms(
        self, bench: Bench
    ) -> None:
        before = beat(bench, A)
        bench.pass_ms(LEASE_MS + 1_000)
        assert beat(bench, A) == before

    def test_an_owner_that_was_deposed_finds_out(self, bench: Bench) -> None:
        beat(bench, A)
        bench.pass_ms(LEASE_MS + 1_000)
        taken = beat(bench, B)
        assert not set(beat(bench, A)) & set(taken)
