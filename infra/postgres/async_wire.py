"""A `Wire` driven by an asyncio loop: requests queue, go out one at a time, and are awaited.

A request waits at most WAIT_US for a connection that is down; then, and when the queue is full, it
is refused as Unavailable, and nothing of it has been sent.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from commandside.ports import Unavailable
from infra.postgres.wire import Broken, Replied, Statement, Wire

QUEUE_MAX: Final = 20_000
WAIT_US: Final = 2_000_000
TICK_S: Final = 0.1
"""How often deadlines and reconnects are looked at; replies wake the loop by their socket."""


class Work(msgspec.Struct):
    """What a wire sends next: its statements, and who is told the outcome."""

    statements: Sequence[Statement]
    done: Callable[[Replied | Broken], None]
    failed: Callable[[Unavailable], None]


class AsyncWire:
    """One connection, used by coroutines of one loop; it must be started inside that loop.

    `more` is asked for work whenever the connection is free and its own queue is empty, so that a
    writer makes its batch as late as it can; `give_up` hears when nothing can be sent.
    """

    def __init__(  # noqa: PLR0913 - what it prepares, and the three ways in which it is a writer's
        self,
        conninfo: str,
        settings: str,
        statements: Mapping[str, str],
        more: Callable[[], Work | None] | None = None,
        give_up: Callable[[Unavailable], None] | None = None,
        linger_s: float = 0.0,
    ) -> None:
        """Remember where to connect; nothing happens before `start`."""
        self._linger_s = linger_s
        self._wire = Wire(conninfo, settings, statements)
        self._more = more
        self._give_up = give_up
        self._queue: deque[tuple[int, Work]] = deque()
        self._busy: Work | None = None
        self._watched = (-1, False)
        self._down_since = 0
        self._timer: asyncio.TimerHandle | None = None
        self._kick: asyncio.Handle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Begin to connect, on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._down_since = _now_us()
        self._tick()

    def close(self) -> None:
        """Close the connection; whatever waits is refused."""
        for handle in (self._timer, self._kick):
            if handle is not None:
                handle.cancel()
        self._watch(-1, write=False)
        self._wire.close()
        self._refuse("the connection was closed")
        if self._busy is not None:
            busy, self._busy = self._busy, None
            busy.done(Broken(unknown=True, sqlstate="", detail="the connection was closed"))

    def kick(self, *, now: bool = False) -> None:
        """Look for work after the linger, in which more may come; with `now` as soon as can be."""
        if self._loop is None or (self._kick is not None and not now):
            return
        if self._kick is not None:
            self._kick.cancel()
        if now or not self._linger_s:
            self._kick = self._loop.call_soon(self._kicked)
        else:
            self._kick = self._loop.call_later(self._linger_s, self._kicked)

    async def ask(self, *statements: Statement) -> Replied | Broken:
        """Send statements as one transaction and return its outcome; raises Unavailable."""
        if len(self._queue) >= QUEUE_MAX:
            raise Unavailable("too many requests wait for Postgres")
        assert self._loop is not None, "start comes first"
        future: asyncio.Future[Replied | Broken] = self._loop.create_future()

        def done(outcome: Replied | Broken) -> None:
            if not future.done():
                future.set_result(outcome)

        def failed(error: Unavailable) -> None:
            if not future.done():
                future.set_exception(error)

        self._queue.append((_now_us(), Work(statements, done, failed)))
        self.kick()
        return await future

    def _kicked(self) -> None:
        self._kick = None
        self._send()

    def _send(self) -> None:
        if self._wire.idle and self._busy is None:
            work = self._queue.popleft()[1] if self._queue else self._more and self._more()
            if work:
                self._busy = work
                self._wire.send(work.statements, _now_us())
        self._rewatch()

    def _ready(self) -> None:
        """The socket can be read or written: move on, hand out what came, send what is next."""
        outcome = self._wire.poll(_now_us())
        if outcome is not None and self._busy is not None:
            busy, self._busy = self._busy, None
            busy.done(outcome)
            # Whoever was answered now may have more to say at once.
            self.kick()
            self._rewatch()
        elif self._kick is None:
            self._send()
        else:
            self._rewatch()

    def _tick(self) -> None:
        assert self._loop is not None
        self._timer = self._loop.call_later(TICK_S, self._tick)
        self._ready()
        now_us = _now_us()
        if self._wire.idle or self._busy is not None:
            self._down_since = now_us
        elif now_us - self._down_since >= WAIT_US:
            self._refuse(self._wire.detail)

    def _refuse(self, detail: str) -> None:
        error = Unavailable(f"Postgres: {detail}")
        while self._queue:
            self._queue.popleft()[1].failed(error)
        if self._give_up is not None:
            self._give_up(error)

    def _rewatch(self) -> None:
        self._watch(self._wire.fileno(), write=self._wire.wants_write)

    def _watch(self, descriptor: int, *, write: bool) -> None:
        """Keep the loop's watch on the socket as it is now; a new connection is a new socket."""
        before, before_write = self._watched
        assert self._loop is not None
        if before != descriptor:
            if before >= 0:
                self._loop.remove_reader(before)
                if before_write:
                    self._loop.remove_writer(before)
            before_write = False
            if descriptor >= 0:
                self._loop.add_reader(descriptor, self._ready)
        if descriptor >= 0 and write != before_write:
            if write:
                self._loop.add_writer(descriptor, self._ready)
            else:
                self._loop.remove_writer(descriptor)
        self._watched = (descriptor, write and descriptor >= 0)


def _now_us() -> int:
    return time.monotonic_ns() // 1_000
