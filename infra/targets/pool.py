"""Connections by tenant: a connection is never shared with another tenant."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, Protocol

import pycurl

IDLE_S_MAX: Final = 60
SWEEP_US: Final = 1_000_000


class Pool:
    """The connections of one tenant; `opened` is how many there can be at most."""

    def __init__(self) -> None:
        self.share = pycurl.CurlShare()
        self.share.setopt(pycurl.SH_SHARE, pycurl.LOCK_DATA_CONNECT)
        self.share.setopt(pycurl.SH_SHARE, pycurl.LOCK_DATA_SSL_SESSION)
        self.active = 0
        self.opened = 0
        self.used_us = 0
        self.retired = False


class Pooled(Protocol):
    """A handle that is in a pool, or in none yet."""

    curl: pycurl.Curl
    pool: Pool | None


class Pools:
    """One pool a tenant, made at its first call and retired when it is idle for long."""

    def __init__(self, concurrency: int, kept: int) -> None:
        """`concurrency`: calls at once; `kept`: sockets of all tenants, idle ones among them."""
        self._concurrency = concurrency
        self._kept = kept
        self._pools: OrderedDict[bytes, Pool] = OrderedDict()
        self._swept_us = 0

    def join(self, pooled: Pooled, tenant_id: bytes, now_us: int) -> None:
        """Put a handle that is about to be used into the tenant's pool."""
        pool = self._pools.get(tenant_id)
        if pool is None:
            pool = self._pools[tenant_id] = Pool()
        else:
            self._pools.move_to_end(tenant_id)
        if pooled.pool is not pool:
            _detach(pooled)
            pooled.curl.setopt(pycurl.SHARE, pool.share)
            pooled.pool = pool
        pool.active += 1
        pool.used_us = now_us

    def leave(self, pooled: Pooled) -> None:
        """Note that a handle's call has ended; it stays in its pool unless that is retired."""
        pool = pooled.pool
        assert pool is not None
        pool.active -= 1
        if pool.retired:
            _detach(pooled)
            if not pool.active:
                pool.share.close()

    def sweep(self, now_us: int, resting: Iterable[Pooled]) -> None:
        """Once a second, retire pools that are idle for long, and the oldest beyond the bound."""
        if now_us - self._swept_us < SWEEP_US:
            return
        self._swept_us = now_us
        kept = sum(self._sockets(pool) for pool in self._pools.values())
        for tenant_id, pool in list(self._pools.items()):
            idle = not pool.active and now_us - pool.used_us > IDLE_S_MAX * 1_000_000
            if idle or kept > self._kept:
                kept -= self._sockets(pool)
                del self._pools[tenant_id]
                _retire(pool, resting)

    def close(self) -> None:
        """Close every connection; no handle may be in a pool any more."""
        for pool in self._pools.values():
            pool.share.close()
        self._pools.clear()

    def _sockets(self, pool: Pool) -> int:
        return min(pool.opened, self._concurrency)


def _detach(pooled: Pooled) -> None:
    if pooled.pool is not None:
        pooled.curl.unsetopt(pycurl.SHARE)
        pooled.pool = None


def _retire(pool: Pool, resting: Iterable[Pooled]) -> None:
    pool.retired = True
    for pooled in resting:
        if pooled.pool is pool:
            _detach(pooled)
    if not pool.active:
        pool.share.close()
