"""Looks after one embedded engine, from a thread that lives as long as the engine is wanted.

The kernel ends an engine when the thread that started it ends; so this thread starts it, starts it
again at the same port when it has ended by itself, and stops it.
"""

import threading
from collections.abc import Callable
from typing import Final, Protocol

from infra import clock
from infra.embedded.errors import EngineError
from infra.up.backoff import Backoff

WATCH_S: Final = 0.25
MEMORY_EVERY: Final = 8
"""Memory is looked at once in so many looks."""
MB: Final = 1024 * 1024

Say = Callable[[str], None]


class Engine(Protocol):
    """What the engines of infra/embedded have in common."""

    @property
    def pid(self) -> int:
        """The process id; raises EngineError while it does not run."""

    @property
    def address(self) -> str:
        """`host:port`."""

    def start(self) -> object:
        """Start and return when it answers; raises EngineError."""

    def stop(self) -> None:
        """End in good order."""

    def kill(self) -> None:
        """End at once, and let go of its folder."""

    def exit_status(self) -> int | None:
        """The exit status, or None while it runs."""

    def rss_bytes(self) -> int:
        """Resident memory."""


class Keeper(threading.Thread):
    """One engine. `started` is set after the first start, `failure` tells whether that failed."""

    def __init__(
        self,
        name: str,
        engine: Engine,
        say: Say,
        memory_max_mb: int = 0,
        hurried_stop: Callable[[], None] | None = None,
    ) -> None:
        """Above `memory_max_mb` the engine is replaced by an empty one; 0: whatever it takes."""
        super().__init__(name=name, daemon=True)
        self.engine = engine
        self.started = threading.Event()
        self.failure: Exception | None = None
        self._say = say
        self._memory_max_mb = memory_max_mb
        self._hurried_stop = hurried_stop or engine.kill
        self._over = threading.Event()
        self._hurry = False
        self._backoff = Backoff()
        self._since_us = 0

    @property
    def pid(self) -> int:
        """The engine's process id, 0 while it does not run."""
        try:
            return self.engine.pid
        except EngineError:
            return 0

    @property
    def up(self) -> bool:
        """Whether the engine runs."""
        return self.started.is_set() and self.failure is None and self.pid != 0

    def run(self) -> None:
        """Start, watch, stop."""
        try:
            self.engine.start()
        except Exception as error:  # noqa: BLE001 - whatever it is, the one who waits must hear it
            self.failure = error
            return
        finally:
            self._since_us = clock.mono_us()
            self.started.set()
        looks = 0
        while not self._over.wait(WATCH_S):
            looks += 1
            if self.pid and self.engine.exit_status() is not None:
                self._say(f"{self.name} ended (exit {self.engine.exit_status()}): starting again")
                self._again()
            elif self._memory_max_mb and looks % MEMORY_EVERY == 0:
                self._watch_memory()
        self._end()

    def finish(self, *, hurry: bool = False) -> None:
        """Ask for the end; `join` waits for it."""
        self._hurry = self._hurry or hurry
        self._over.set()

    def _watch_memory(self) -> None:
        used_mb = self.engine.rss_bytes() // MB
        if used_mb > self._memory_max_mb:
            self._say(
                f"{self.name} takes {used_mb} MB, above {self._memory_max_mb}: replaced by an empty"
                " one; what it held is handed off again"
            )
            self._again()

    def _again(self) -> None:
        """End what is left of the engine and start it, until it runs or is not wanted any more."""
        pause_us = self._backoff.pause_us(clock.mono_us() - self._since_us)
        while True:
            try:
                if self.pid:
                    self.engine.kill()
                self.engine.start()
            except Exception as error:  # noqa: BLE001 - an engine that does not start is tried again
                self._say(f"{self.name}: {error}; trying again in {pause_us / 1e6:.1f} s")
                if self._over.wait(pause_us / 1e6):
                    return
                pause_us = self._backoff.pause_us(0)
            else:
                self._since_us = clock.mono_us()
                self._say(f"{self.name} runs again at {self.engine.address} (pid {self.pid})")
                return

    def _end(self) -> None:
        if not self.pid:
            return
        try:
            if self._hurry:
                self._hurried_stop()
            else:
                self.engine.stop()
        except Exception as error:  # noqa: BLE001 - the others are to be stopped all the same
            self._say(f"{self.name}: {error}")
