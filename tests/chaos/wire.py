"""A deliverer on the real wire: a sink behind it, a name server and a resolver before it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from commandside.deliverer_port import Answer, Call
from domain.target import address_rules
from infra.targets.addresses import AddressBook
from infra.targets.curl import CurlDeliverer
from infra.targets.resolver import ThreadedResolver
from tests.engines.name_server import NameServer
from tests.engines.sink import PATIENCE_S, TargetServer

LOOPBACK: Final = ("127.0.0.0/8", "::1/128")
TENANT: Final = b"t" * 16


class Wire:
    """Calls of a sink, and what came of them."""

    def __init__(
        self, sink: TargetServer, names: NameServer, allow: tuple[str, ...], ca_file: Path | None
    ) -> None:
        self.sink, self.names = sink, names
        self.resolver = ThreadedResolver(("127.0.0.1",), names.port)
        self.deliverer = CurlDeliverer(
            AddressBook(address_rules(allow)),
            self.resolver,
            concurrency=64,
            ca_file=str(ca_file) if ca_file else None,
        )
        self._tokens = 0

    def call(self, path: str = "/", *, host: str = "127.0.0.1", timeout_ms: int = 10_000) -> Call:
        """Return a call that nothing but its timeout ends."""
        self._tokens += 1
        until_us = time.monotonic_ns() // 1000 + 60_000_000
        place = ("http", host, self.sink.port, path, "POST")
        headers = [b"Idempotency-Key: k-%d" % self._tokens]
        return Call(self._tokens, TENANT, *place, headers, b"{}", timeout_ms, until_us)

    def answers(self, *calls: Call) -> dict[int, Answer]:
        """Make calls at once, and return what came of each, by its token."""
        self.deliverer.submit(calls)
        got: dict[int, Answer] = {}
        until = time.monotonic() + PATIENCE_S
        while len(got) < len(calls):
            assert time.monotonic() < until, f"{len(got)} of {len(calls)} answers"
            self.deliverer.wait(100)
            for answer in self.deliverer.poll():
                assert answer.token not in got, "answered twice"
                got[answer.token] = answer
        assert self.deliverer.in_flight == 0
        return got

    def one(self, call: Call) -> Answer:
        """Make one call."""
        return self.answers(call)[call.token]

    def hit(self, path: str = "/", *, host: str = "127.0.0.1", timeout_ms: int = 10_000) -> Answer:
        """Make one call of a path."""
        return self.one(self.call(path, host=host, timeout_ms=timeout_ms))

    def secure(self, host: str, **changes: object) -> Answer:
        """Make one call over TLS."""
        call = self.call(host=host)
        return self.one(msgspec.structs.replace(call, scheme="https", **changes))

    def until(self, true: Callable[[], object], what: str) -> None:
        """Wait until the sink has come to a point."""
        ends = time.monotonic() + PATIENCE_S
        while not true():
            assert time.monotonic() < ends, what
            self.deliverer.wait(10)
            self.deliverer.poll()


@contextmanager
def wired(
    sink: TargetServer,
    names: NameServer,
    *,
    allow: tuple[str, ...] = LOOPBACK,
    ca_file: Path | None = None,
) -> Iterator[Wire]:
    """A deliverer that is closed whatever happens."""
    found = Wire(sink, names, allow, ca_file)
    try:
        yield found
    finally:
        found.deliverer.close()
