"""The armed side of `FaultPoint`: kill this very process at a named point, on its n-th hit."""

import os
import signal

import msgspec


class Armed(msgspec.Struct, frozen=True):
    """Which point, and on which hit (1 is the first)."""

    name: str
    hit: int


class NoFaults:
    """The fault point of every ordinary process."""

    __slots__ = ()

    def hit(self, name: str) -> None:
        """Do nothing."""


class SuicideAt:
    """Kills the process with SIGKILL, so that nothing is flushed, closed or released."""

    def __init__(self, armed: Armed) -> None:
        """Arm one point."""
        self._armed = armed
        self._hits = 0

    def hit(self, name: str) -> None:
        """Count hits of the armed name and kill at the chosen one."""
        if name != self._armed.name:
            return
        self._hits += 1
        if self._hits >= self._armed.hit:
            os.kill(os.getpid(), signal.SIGKILL)


def fault_point(text: str) -> NoFaults | SuicideAt:
    """Return the point for a setting such as `after_lease:3`, empty for none.

    Raises ValueError with what would be right.
    """
    if not text:
        return NoFaults()
    name, _, count = text.partition(":")
    if not name or (count and not count.isdecimal()):
        raise ValueError(f"{text!r} is not NAME or NAME:HIT, for example after_lease:3")
    return SuicideAt(Armed(name, int(count or "1")))
