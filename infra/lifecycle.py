"""Runs a role: `start`, then `run_one_batch` until told to stop, then `drain` within a bound.

This loop is the only place that waits. A role says how long it can be left alone; the loop sleeps
in `poll` on the role's sockets and on the signal pipe, so that a reply, a call's answer or
SIGTERM wakes it at once.
"""

import os
import resource
import signal
from collections.abc import Callable, Iterable
from types import FrameType, TracebackType
from typing import Any, Final, Protocol, Self

from commandside.ports import Tick, Unavailable
from infra.waiting import wait

IDLE_MAX_US: Final = 1_000_000
"""A role is run at least this often, whatever it says."""
UNAVAILABLE_US: Final = 200_000
"""Pause after an engine could not be reached."""
DRAIN_US: Final = 30_000_000

Sockets = tuple[Iterable[int], Iterable[int]]
"""File descriptors to read from, and to write to."""


class Role(Protocol):
    """What every role looks like from here."""

    def start(self, tick: Tick) -> None:
        """Begin; nothing is held before this."""

    def run_one_batch(self, tick: Tick) -> int:
        """Do what can be done now; return after how many µs to be run again at the latest."""

    def drain(self, tick: Tick) -> bool:
        """Finish what is held, take nothing new; return whether nothing is left."""


class Stop:
    """SIGTERM and SIGINT as a flag and a readable descriptor."""

    def __init__(self) -> None:
        """Create the pipe; handlers are installed on entry."""
        self.requested = False
        self.times = 0
        """How often it was requested; who asks twice does not want to wait."""
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._before: dict[
            int, signal.Handlers | Callable[[int, FrameType | None], Any] | int | None
        ] = {}

    def __enter__(self) -> Self:
        """Install the handlers."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Restore the handlers and close the pipe."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when a stop is requested."""
        return self._read

    def request(self) -> None:
        """Ask for the stop, from anywhere."""
        self.requested = True
        self.times += 1
        os.write(self._write, b"x")

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.request()


def run(
    role: Role,
    stop: Stop,
    clock: Callable[[], Tick],
    sockets: Callable[[], Sockets] | None = None,
    on_unavailable: Callable[[str], None] | None = None,
) -> bool:
    """Run `role` until `stop`, then drain it; return whether it drained within DRAIN_US.

    Unavailable is not an error of the role: it is said, and tried again after a pause.
    """
    _patiently(role.start, stop, clock, on_unavailable)
    while not stop.requested:
        try:
            rest = role.run_one_batch(clock())
        except Unavailable as away:
            _say(on_unavailable, away)
            rest = UNAVAILABLE_US
        if rest > 0:
            _wait(stop, min(rest, IDLE_MAX_US), sockets)
    return _drain(role, clock, sockets, on_unavailable)


def allow_files(need: int) -> None:
    """Raise the number of files that may be open, as far as this process may and must."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < need:
        limit = need if hard == resource.RLIM_INFINITY else min(need, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))


def _patiently(
    start: Callable[[Tick], None],
    stop: Stop,
    clock: Callable[[], Tick],
    on_unavailable: Callable[[str], None] | None,
) -> None:
    while not stop.requested:
        try:
            start(clock())
        except Unavailable as away:
            _say(on_unavailable, away)
            _wait(stop, UNAVAILABLE_US, None)
        else:
            return


def _drain(
    role: Role,
    clock: Callable[[], Tick],
    sockets: Callable[[], Sockets] | None,
    on_unavailable: Callable[[str], None] | None,
) -> bool:
    began = clock().mono_us
    while clock().mono_us - began < DRAIN_US:
        try:
            if role.drain(clock()):
                return True
        except Unavailable as away:
            _say(on_unavailable, away)
        _wait(None, 10_000, sockets)
    return False


def _wait(stop: Stop | None, rest_us: int, sockets: Callable[[], Sockets] | None) -> None:
    readable: list[int] = [] if stop is None else [stop.fileno()]
    writable: list[int] = []
    if sockets is not None:
        more_read, more_write = sockets()
        readable.extend(more_read)
        writable.extend(more_write)
    wait(readable, writable, rest_us)


def _say(on_unavailable: Callable[[str], None] | None, away: Unavailable) -> None:
    if on_unavailable is not None:
        on_unavailable(str(away))
