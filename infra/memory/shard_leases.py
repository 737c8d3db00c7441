"""`ShardLeases` over the log in memory."""

from typing import Final

import msgspec

from infra.memory.log import MemoryLog

HANDOVER_MAX: Final = 8
"""Shards given up in one heartbeat."""


class _Owned(msgspec.Struct):
    owner: bytes = b""
    until: int = 0


class MemoryShardLeases:
    """The port `ShardLeases`; the schedulers of one log share one of these."""

    def __init__(self, log: MemoryLog) -> None:
        """Use a log that others may share; its terms are those that marks are checked against."""
        self._log = log
        self._shards = {shard: _Owned() for shard in range(log.shards)}
        self._alive: dict[bytes, int] = {}

    def heartbeat(self, owner: bytes, lease_ms: int) -> dict[int, int]:
        """Renew, take or hand over shards towards equal counts; return owned shard → term."""
        self._log.reach()
        now = self._log.now()
        self._alive[owner] = now + lease_ms
        self._alive = {who: until for who, until in self._alive.items() if until > now}
        share = -(-len(self._shards) // len(self._alive))
        mine = [shard for shard, row in self._shards.items() if row.owner == owner]
        for shard in mine[share:][-HANDOVER_MAX:]:
            self._shards[shard] = _Owned()
            mine.remove(shard)
        for shard, row in self._shards.items():
            if len(mine) >= share:
                break
            if row.owner != owner and (not row.owner or row.until < now):
                row.owner = owner
                self._log.terms[shard] += 1
                mine.append(shard)
        for shard in mine:
            self._shards[shard].until = now + lease_ms
        return {shard: self._log.terms[shard] for shard in sorted(mine)}

    def release(self, owner: bytes) -> None:
        """Give all shards back at once."""
        self._log.reach()
        for shard, row in self._shards.items():
            if row.owner == owner:
                self._shards[shard] = _Owned()
        self._alive.pop(owner, None)

    def close(self) -> None:
        """Nothing is open."""
