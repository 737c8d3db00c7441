"""A dispatcher whose calls go over real sockets, while all that it waits for is in virtual time.

While a call is under way, time passes as it does; else the clock jumps to what is next, so that
hours of backoff take no time.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from commandside.deliverer_port import Call, Deliverer
from domain.job.events import JobSpec
from domain.retry import RetryPolicy
from domain.run import events as re
from domain.run.state import Ready
from domain.schedule.schedule import ScheduleSpec
from domain.target import HttpTarget, address_rules
from infra.targets.addresses import AddressBook
from infra.targets.curl import CurlDeliverer
from tests.commandside.scene import Scene
from tests.contracts import jobs
from tests.contracts.test_deliverer_curl import Names
from tests.engines.sink import Request, TargetServer

STEP_MS: Final = 20
TIMEOUT_MS: Final = 500
POLICY: Final = RetryPolicy(5, "fixed", 2_000, 3_600_000, jitter="none")


class WiredScene(Scene):
    """A scene whose targets are paths of a sink."""

    def __init__(self, sink: TargetServer) -> None:
        self.sink = sink
        self.wires: list[CurlDeliverer] = []
        super().__init__()

    def targets(self) -> Deliverer[Call]:
        """Return a deliverer of its own for each process that is started."""
        book = AddressBook(address_rules(("127.0.0.0/8",)))
        wire = CurlDeliverer(book, Names(), concurrency=64, monotonic_us=self.clock.mono_us)
        self.wires.append(wire)
        return wire

    def close(self) -> None:
        for wire in self.wires:
            wire.close()

    def spec(self, schedule: ScheduleSpec, path: str = "/", retry: RetryPolicy = POLICY) -> JobSpec:
        """Return a job that calls a path of the sink."""
        url = f"http://127.0.0.1:{self.sink.port}{path}"
        target = HttpTarget("http", "127.0.0.1", self.sink.port, path, "POST", (), url)
        found = jobs.spec(schedule, payload=b"")
        return msgspec.structs.replace(found, target=target, retry=retry, timeout_ms=TIMEOUT_MS)

    def soon(self, path: str = "/", retry: RetryPolicy = POLICY) -> Ready:
        """Define a one-time job that is due in a second, and hand it off."""
        run = self.define(self.spec(jobs.once(self.clock.now() + 1_000), path, retry))
        self.hand_off()
        return run

    def step(self) -> None:
        """Run one batch; real time passes while a call is under way."""
        if not self.broker.away:
            self.sender.beat()
        rest_us = self.dispatcher.run_one_batch(self.tick())
        wire = self.wires[-1]
        if not wire.in_flight:
            self.clock.advance_us(max(rest_us, 100))
            return
        before = time.monotonic_ns()
        wire.wait(min(STEP_MS, rest_us // 1_000 + 1))
        self.clock.advance_us((time.monotonic_ns() - before) // 1_000 + 1)

    def finish(self, run: Ready) -> list[Request]:
        """Run until it has ended, handing its retries off, and return what the sink was sent."""

        def ended() -> bool:
            if not self.ended(run):
                self.hand_off()
            return self.ended(run)

        self.until(ended, "its end")
        return list(self.sink.requests)

    def fired(self, run: Ready) -> list[re.Fired]:
        return [e for e in self.events(run.facts.run_id) if isinstance(e, re.Fired)]

    def planned(self, run: Ready) -> list[re.Scheduled]:
        return [e for e in self.events(run.facts.run_id) if isinstance(e, re.Scheduled)]

    def ends(self, run: Ready) -> list[re.Completed]:
        return [e for e in self.events(run.facts.run_id) if isinstance(e, re.Completed)]


@contextmanager
def wired_scene(sink: TargetServer) -> Iterator[WiredScene]:
    """A scene whose connections are closed whatever happens."""
    found = WiredScene(sink)
    try:
        yield found
    finally:
        found.close()
