"""What the embedded engines have in common: one child process, started, watched and ended."""

from abc import ABC, abstractmethod
from typing import Self

from infra.embedded import processes
from infra.embedded.errors import EngineError


class Engine(ABC):
    """One engine under our control; a subclass starts its process and keeps it in `_child`."""

    def __init__(self, name: str) -> None:
        """Nothing is touched before `start`; `name` is how errors call it."""
        self._name = name
        self._child: processes.Child | None = None

    @abstractmethod
    def start(self) -> Self:
        """Start, and return once it answers; raises EngineError."""

    @abstractmethod
    def stop(self) -> None:
        """End it in good order; killed after a bound."""

    @property
    def pid(self) -> int:
        """The process id; raises EngineError while it does not run."""
        return self._running().pid

    def exit_status(self) -> int | None:
        """The exit status, or None while it runs."""
        return self._running().exit_status()

    def rss_bytes(self) -> int:
        """Resident memory in bytes."""
        return self._running().rss_bytes()

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        """Stop, if it is still running."""
        if self._child is not None:
            self.stop()

    def _running(self) -> processes.Child:
        if self._child is None:
            raise EngineError(f"{self._name} is not running")
        return self._child
