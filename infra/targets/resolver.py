"""Names to addresses by our own stub resolver, never by the operating system's.

Lookups block, so they run in a few threads; the owner, one thread, asks, waits on `fileno` with
its other sockets, and collects. Tenants take turns and none fills all threads, so one tenant's
dead names do not hold up the others; a name that two of them want is looked up in whichever turn
comes first. What a lookup may cost is bounded: 2 s, 16 addresses, 8 aliases.
"""

import queue
import socket
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

import dns.exception
import dns.resolver
import msgspec

LOOKUP_S: Final = 2.0
ADDRESSES_MAX: Final = 16
ALIASES_MAX: Final = 8
THREADS: Final = 16
THREADS_OF_A_TENANT: Final = 4
CACHE_MAX: Final = 4096
TTL_S_MIN: Final = 1
TTL_S_MAX: Final = 30
FAILURE_TTL_S: Final = 2


class Found(msgspec.Struct, frozen=True):
    """The addresses of a name, for `ttl_s` seconds; none if it has none or cannot be asked."""

    addresses: tuple[str, ...]
    ttl_s: int


class Resolver(Protocol):
    """What the deliverer asks names of; used by one thread."""

    def ask(self, name: str, tenant_id: bytes) -> Found | None:
        """Return what is known, or begin a lookup whose end `collect` reports."""
        ...

    def forget(self, name: str) -> None:
        """Nobody waits for this name any more: its lookup need not begin."""
        ...

    def collect(self) -> list[tuple[str, Found]]:
        """Return the lookups that ended; never blocks."""
        ...

    def fileno(self) -> int:
        """Return a descriptor that is readable when `collect` has something."""
        ...

    def close(self) -> None:
        """Drop all lookups."""
        ...


def look_up(name: str, resolver: dns.resolver.Resolver) -> Found:
    """Ask for both families within one deadline."""
    ends = time.monotonic() + LOOKUP_S
    addresses: list[str] = []
    ttls: list[int] = []
    for family in ("A", "AAAA"):
        left = ends - time.monotonic()
        if left <= 0:
            break
        try:
            answer = resolver.resolve(name + ".", family, lifetime=left, search=False)
        except dns.resolver.NXDOMAIN:
            break
        except dns.exception.DNSException:
            continue
        if len(answer.chaining_result.cnames) > ALIASES_MAX:
            return Found((), FAILURE_TTL_S)
        addresses += [record.to_text() for record in answer]
        ttls.append(answer.chaining_result.minimum_ttl)
    if not addresses or len(addresses) > ADDRESSES_MAX:
        return Found((), FAILURE_TTL_S)
    return Found(tuple(addresses), min(max(min(ttls), TTL_S_MIN), TTL_S_MAX))


class ThreadedResolver:
    """The resolver over the name servers of the machine (or those given)."""

    def __init__(
        self,
        nameservers: tuple[str, ...] = (),
        port: int = 53,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stub = dns.resolver.Resolver(configure=not nameservers)
        if nameservers:
            self._stub.nameservers = list(nameservers)
            self._stub.port = port
        self._monotonic_s = monotonic_s
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="dns")
        self._ended: queue.SimpleQueue[tuple[str, bytes, Found]] = queue.SimpleQueue()
        self._wake, self._waker = socket.socketpair()
        self._wake.setblocking(False)
        self._waker.setblocking(False)
        self._cache: OrderedDict[str, tuple[float, Found]] = OrderedDict()
        self._running: set[str] = set()
        self._waiting: OrderedDict[bytes, dict[str, None]] = OrderedDict()
        self._wanted: dict[str, set[bytes]] = {}
        """In whose rows a waiting name stands."""
        self._busy: Counter[bytes] = Counter()

    def fileno(self) -> int:
        """Return a descriptor that is readable when a lookup has ended."""
        return self._wake.fileno()

    def ask(self, name: str, tenant_id: bytes) -> Found | None:
        """Return what is known, or begin a lookup whose end `collect` reports."""
        known = self._cache.get(name)
        if known is not None and known[0] > self._monotonic_s():
            return known[1]
        if name not in self._running:
            self._waiting.setdefault(tenant_id, {})[name] = None
            self._wanted.setdefault(name, set()).add(tenant_id)
            self._begin()
        return None

    def forget(self, name: str) -> None:
        """Nobody waits for this name any more: its lookup need not begin."""
        for tenant_id in self._wanted.pop(name, ()):
            row = self._waiting[tenant_id]
            del row[name]
            if not row:
                del self._waiting[tenant_id]

    def collect(self) -> list[tuple[str, Found]]:
        """Return the lookups that ended, and begin those that waited for a thread."""
        try:
            self._wake.recv(4096)
        except BlockingIOError:
            return []
        found: list[tuple[str, Found]] = []
        while not self._ended.empty():
            name, tenant_id, result = self._ended.get_nowait()
            self._running.discard(name)
            self._busy[tenant_id] -= 1
            self._cache[name] = (self._monotonic_s() + result.ttl_s, result)
            self._cache.move_to_end(name)
            if len(self._cache) > CACHE_MAX:
                self._cache.popitem(last=False)
            found.append((name, result))
        self._busy += Counter()
        self._begin()
        return found

    def close(self) -> None:
        """Drop all lookups; a thread that is asking ends within its deadline."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._wake.close()
        self._waker.close()

    def _begin(self) -> None:
        for tenant_id in list(self._waiting):
            free = min(THREADS - self._busy.total(), THREADS_OF_A_TENANT - self._busy[tenant_id])
            for _ in range(free):
                row = self._waiting.get(tenant_id)
                if row is None:
                    break
                name = next(iter(row))
                self.forget(name)
                self._running.add(name)
                self._busy[tenant_id] += 1
                self._threads.submit(self._run, name, tenant_id)
            if tenant_id in self._waiting:
                # Whoever was served goes to the end of the row.
                self._waiting.move_to_end(tenant_id)

    def _run(self, name: str, tenant_id: bytes) -> None:
        result = Found((), FAILURE_TTL_S)
        try:
            result = look_up(name, self._stub)
        finally:
            self._ended.put((name, tenant_id, result))
            try:
                self._waker.send(b"\0")
            except BlockingIOError:
                # The socket is full of wake-ups that were not read yet: one is enough.
                pass
            except OSError:
                # Closed meanwhile: nobody waits for this name.
                pass
