"""Calls every form of the corpus where every address of the world is this machine's.

Run in a network namespace of its own, whose loopback takes all addresses: whatever is called at the
usual ports is seen by a sink, with the address that was meant, and the kernel counts every
connection that was begun to any port. Prints what came of it as JSON.
"""

import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from commandside.deliverer_port import Answer, Call
from domain.target import OPEN_PORTS, HttpTarget, address_rules, parse_http_target
from infra.targets.addresses import AddressBook, is_literal
from infra.targets.curl import CurlDeliverer
from infra.targets.resolver import ThreadedResolver
from tests.engines.name_server import NameServer
from tests.engines.sink import TargetServer
from tests.engines.sink_faults import says
from tests.security.ssrf.forms import TURNS, Form, forms, readings, tell

RULES: Final = address_rules()
ANY: Final = ("0.0.0.0", "::")  # noqa: S104 - in a namespace of its own
HELLO: Final = {443: b"who is there?\r\n", 8443: b"who is there?\r\n"}
"""No sink speaks TLS; these say so at once."""
PATIENCE_S: Final = 20.0
BATCH: Final = 64


class Report(msgspec.Struct):
    """What one part of the corpus came to."""

    calls: int = 0
    outcomes: dict[str, int] = {}
    reached: list[str] = []
    """Addresses at which a sink was called."""
    begun: int = 0
    """Connections that the kernel has begun."""


class Trusting(AddressBook):
    """Lets everything pass until it is told not to: what is left is the veto of the socket."""

    trusts = False

    def allowed(self, address: str, port: int, host: str = "") -> bool:
        return self.trusts or super().allowed(address, port, host)


class Desk:
    """A deliverer with sinks at all addresses, and a clock that outlives every answer of DNS."""

    def __init__(self, names: NameServer, sinks: list[TargetServer]) -> None:
        self.names, self.sinks = names, sinks
        self.book = Trusting(RULES)
        self.age_s = 0.0
        resolver = ThreadedResolver(
            ("127.0.0.1",), names.port, lambda: time.monotonic() + self.age_s
        )
        self.deliverer = CurlDeliverer(self.book, resolver, concurrency=BATCH)
        self.tokens = 0

    def call(self, scheme: str, host: str, port: int, path: str = "/") -> Call:
        self.tokens += 1
        until_us = time.monotonic_ns() // 1000 + 600_000_000
        place = (scheme, host, port, path, "POST")
        # A tenant of its own has a connection of its own.
        tenant = self.tokens.to_bytes(16, "big")
        return Call(self.tokens, tenant, *place, [b"A: b"], b"{}", 3_000, until_us)

    def answers(self, calls: list[Call], *, trusting: bool = False) -> list[Answer]:
        got: list[Answer] = []
        for first in range(0, len(calls), BATCH):
            part = calls[first : first + BATCH]
            self.book.trusts = trusting
            self.deliverer.submit(part)
            self.book.trusts = False
            until, mine = time.monotonic() + PATIENCE_S, 0
            while mine < len(part):
                assert time.monotonic() < until, f"{mine} of {len(part)} answers"
                self.deliverer.wait(100)
                found = self.deliverer.poll()
                got += found
                mine += len(found)
        return got

    def report(self, calls: list[Call], *, trusting: bool = False) -> Report:
        seen = [len(sink.called) for sink in self.sinks]
        before = begun()
        outcomes = Counter(a.error or str(a.status) for a in self.answers(calls, trusting=trusting))
        sinks = zip(self.sinks, seen, strict=True)
        reached = [address for sink, first in sinks for address in sink.called[first:]]
        return Report(len(calls), dict(outcomes), reached, begun() - before)


def begun() -> int:
    """Return how many connections the kernel has begun in this namespace."""
    rows = [
        line.split() for line in Path("/proc/net/snmp").read_text().splitlines() if "Tcp:" in line
    ]
    return int(dict(zip(*rows, strict=True))["ActiveOpens"])


def misread(desk: Desk) -> list[Call]:
    """Return calls of whatever any parser might read from the forms that are refused."""
    places = {place for form in forms("closed") for place in readings(form.url)}
    return [desk.call("http", host, port) for host, port in sorted(places)]


def closed(desk: Desk) -> dict[str, Report]:
    """Call what is closed."""
    calls = misread(desk)
    # Past the first check, so that libcurl reads the host as it likes and the veto is all there is.
    bare = [call for call in misread(desk) if call.port in OPEN_PORTS]
    return {"closed": desk.report(calls), "veto": desk.report(bare, trusting=True)}


def parsed(form: Form) -> HttpTarget:
    found = parse_http_target(form.url, "POST", {}, RULES)
    assert isinstance(found, HttpTarget), form
    return found


def inside(desk: Desk) -> Report:
    """Call the names that lead inside, again and again as their addresses change."""
    calls: list[Call] = []
    whole = Report()
    for form in forms("inside"):
        tell(desk.names, form)
        target = parsed(form)
        path = target.path
        if form.redirect:
            path = f"/{desk.tokens}"
            for sink in desk.sinks:
                sink.behave(path, says(form.status, f"Location: {form.redirect}"))
        calls.append(desk.call(target.scheme, target.host, target.port, path))
    for _ in range(TURNS):
        desk.age_s += 60
        part = desk.report(calls)
        whole.calls += part.calls
        whole.outcomes = dict(Counter(whole.outcomes) + Counter(part.outcomes))
        whole.reached = whole.reached + part.reached
        whole.begun += part.begun
    return whole


def opened(desk: Desk) -> Report:
    """Call what must work; each call has a connection."""
    calls: list[Call] = []
    desk.age_s += 60
    for form in forms("open"):
        target = parsed(form)
        if not is_literal(target.host):
            desk.names.address(target.host, "93.184.216.34")
        calls.append(desk.call(target.scheme, target.host, target.port, target.path))
    return desk.report(calls)


def main() -> None:
    """Run all parts."""
    with ExitStack() as stack:
        sinks = [
            stack.enter_context(TargetServer(None, HELLO.get(port, b""), host=host, port=port))
            for host in ANY
            for port in sorted(OPEN_PORTS)
        ]
        names = stack.enter_context(NameServer())
        desk = Desk(names, sinks)
        reports = closed(desk) | {"inside": inside(desk), "open": opened(desk)}
        desk.deliverer.close()
    sys.stdout.buffer.write(msgspec.json.encode(reports))


if __name__ == "__main__":
    main()
