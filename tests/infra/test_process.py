"""The loop of a role while the clocks are in doubt."""

import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest

from commandside.ports import Tick
from infra import lifecycle
from infra.roles.process import Process, loop


class Resting:
    """A role that would be woken by a socket that it never reads."""

    def start(self, tick: Tick) -> None:
        pass

    def run_one_batch(self, tick: Tick) -> int:
        raise AssertionError("the clocks are in doubt")

    def drain(self, tick: Tick) -> bool:
        return True


def test_a_role_that_rests_is_not_woken_by_what_it_does_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[list[int]] = []
    stops: list[lifecycle.Stop] = []

    def wait(readable: list[int], *_: object) -> None:
        waits.append(readable)
        stops[0].request()

    def tick() -> Tick:
        return Tick(0, 0)

    class Stop(lifecycle.Stop):
        def __init__(self) -> None:
            super().__init__()
            stops.append(self)

    monkeypatch.setattr(lifecycle, "Stop", Stop)
    monkeypatch.setattr(lifecycle, "wait", wait)
    near, far = socket.socketpair()
    with near, far:
        far.send(b"x")
        keeper = SimpleNamespace(tick=tick)
        process = cast(
            "Process",
            SimpleNamespace(keeper=keeper, doubt="jumped", unavailable=lambda _: None),
        )
        sockets: Any = lambda: ([near.fileno()], [])  # noqa: E731 - a socket, always readable
        assert loop(process, Resting(), sockets) == 0
        assert near.fileno() not in waits[0]
