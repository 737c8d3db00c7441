"""One engine's keeper, with an engine that ends when it is told to."""

import threading
from collections.abc import Iterator

import pytest

from infra.embedded.errors import EngineError
from infra.embedded.processes import wait_until
from infra.up import keeper as keepers
from infra.up.keeper import MB, Keeper

DEADLINE_S = 20.0


class FakeEngine:
    """Ends when `ended` is set; starts unless it has failures left."""

    address = "127.0.0.1:1"

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.failures = 0
        self.calls: list[str] = []
        self.status: int | None = None
        self.memory = self.asked = 0
        self.running = False

    @property
    def pid(self) -> int:
        if not self.running:
            raise EngineError("not running")
        return 1_000 + len(self.starts)

    def start(self) -> object:
        self.starts.append(threading.get_ident())
        if self.failures:
            self.failures -= 1
            raise EngineError("port 1 is taken")
        self.running, self.status, self.memory = True, None, 0
        return self

    def stop(self) -> None:
        self.calls.append("stop")
        self.running = False

    def kill(self) -> None:
        self.calls.append("kill")
        self.running = False

    def exit_status(self) -> int | None:
        return self.status

    def rss_bytes(self) -> int:
        self.asked += 1
        return self.memory


class Scene:
    """An engine, its keeper, and what was said."""

    def __init__(self) -> None:
        self.engine = FakeEngine()
        self.said: list[str] = []
        self.keeper = Keeper("broker", self.engine, self.said.append, memory_max_mb=100)

    def start(self) -> None:
        self.keeper.start()
        assert self.keeper.started.wait(DEADLINE_S)

    def end(self, *, hurry: bool = False) -> None:
        self.keeper.finish(hurry=hurry)
        self.keeper.join(DEADLINE_S)
        assert not self.keeper.is_alive()


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(keepers, "WATCH_S", 0.001)
    scene = Scene()
    yield scene
    scene.keeper.finish()
    if scene.keeper.ident is not None:
        scene.keeper.join(DEADLINE_S)


def test_an_engine_that_ended_is_started_again_by_the_thread_that_started_it(scene: Scene) -> None:
    scene.start()
    scene.engine.status = 1
    assert wait_until(lambda: len(scene.engine.starts) == 2, DEADLINE_S)
    assert len(set(scene.engine.starts)) == 1
    assert wait_until(lambda: any("runs again" in line for line in scene.said), DEADLINE_S)


def test_above_its_memory_an_engine_is_replaced_and_it_is_said(scene: Scene) -> None:
    scene.start()
    scene.engine.memory = 101 * MB
    assert wait_until(lambda: len(scene.engine.starts) == 2, DEADLINE_S)
    assert "kill" in scene.engine.calls
    assert "takes 101 MB, above 100" in scene.said[0]


def test_below_its_memory_an_engine_is_left_alone(scene: Scene) -> None:
    scene.start()
    scene.engine.memory = 100 * MB
    asked = scene.engine.asked
    assert wait_until(lambda: scene.engine.asked >= asked + 3, DEADLINE_S)
    scene.end()
    assert len(scene.engine.starts) == 1


def test_a_first_start_that_fails_is_told_to_who_waits_and_not_tried_again(scene: Scene) -> None:
    scene.engine.failures = 1
    scene.start()
    scene.keeper.join(DEADLINE_S)
    assert str(scene.keeper.failure) == "port 1 is taken"
    assert not scene.keeper.up
    assert len(scene.engine.starts) == 1


def test_a_later_start_that_fails_is_tried_again(scene: Scene) -> None:
    scene.start()
    scene.engine.failures = 1
    scene.engine.status = -9
    assert wait_until(lambda: len(scene.engine.starts) == 3, DEADLINE_S)
    assert wait_until(lambda: scene.keeper.up, DEADLINE_S)
    assert any("port 1 is taken; trying again in 0.2 s" in line for line in scene.said)


def test_an_engine_is_stopped_in_good_order(scene: Scene) -> None:
    scene.start()
    scene.end()
    assert scene.engine.calls == ["stop"]


def test_an_engine_is_killed_when_there_is_no_time(scene: Scene) -> None:
    scene.start()
    scene.end(hurry=True)
    assert scene.engine.calls == ["kill"]
