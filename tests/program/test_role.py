"""One role's process, with programs that end in different ways."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.embedded.processes import wait_until
from infra.up import backoff
from infra.up.role import RoleOptions, RoleProcess
from tests.program.started import gone

WAITS = "import threading; threading.Event().wait(600)"
SPEAKS = "import sys; print('cannot go on', file=sys.stderr); sys.exit(3)"
SHOWS = "import os; print('armed:', os.environ.get('FAULT', 'nothing'))"
DEADLINE_S = 20.0


class Scene:
    """A role made of a line of Python, and what was said of it."""

    def __init__(self, folder: Path, line: str) -> None:
        self.said: list[str] = []
        self.options = RoleOptions(
            name="dispatcher",
            argv=(sys.executable, "-S", "-c", line),
            environment={},
            once={"FAULT": "after_lease"},
            folder=folder,
            ops_host="127.0.0.1",
            ops_port=1,
        )
        self.role = RoleProcess(self.options, self.said.append)

    def watched_until(self, lines: int) -> bool:
        """Watch as the supervisor does, until so many lines were said."""

        def enough() -> bool:
            self.role.watch()
            return len(self.said) >= lines

        return wait_until(enough, DEADLINE_S)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "FIRST_US", 1_000)
    monkeypatch.setattr(backoff, "MAX_US", 4_000)


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path, WAITS)
    scene.role.start()
    yield scene
    scene.role.end()


def test_a_role_that_ends_is_started_again_and_its_last_words_are_passed_on(tmp_path: Path) -> None:
    scene = Scene(tmp_path, SPEAKS)
    scene.role.start()
    assert scene.watched_until(3)
    scene.role.end()
    assert all("dispatcher ended (exit 3) after saying 'cannot go on'" in s for s in scene.said)
    assert "starting again in 0.0 s" in scene.said[0]


def test_what_is_armed_holds_for_the_first_process_only(tmp_path: Path) -> None:
    scene = Scene(tmp_path, SHOWS)
    scene.role.start()
    assert scene.watched_until(3)
    scene.role.end()
    words = scene.role.log_path.read_text(encoding="utf-8").split("\n")
    assert words[:3] == ["armed: after_lease", "armed: nothing", "armed: nothing"]


def test_a_role_that_does_not_answer_is_not_ready(waiting: Scene) -> None:
    assert waiting.role.probe() is False
    assert waiting.role.readiness["because"] == "does not answer yet"


def test_a_role_that_ended_has_no_pid_and_says_how(waiting: Scene) -> None:
    subprocess.run(["kill", "-KILL", str(waiting.role.pid)], check=True)
    assert waiting.watched_until(1)
    assert "was ended by SIGKILL" in waiting.said[0]


def test_what_an_earlier_up_left_of_a_role_is_ended_before_it_is_started(
    waiting: Scene, tmp_path: Path
) -> None:
    left = waiting.role.pid
    RoleProcess(waiting.options, waiting.said.append)
    # Its parent is this test, which has not waited for it yet.
    assert wait_until(lambda: gone(left), DEADLINE_S)


def test_a_record_of_another_process_ends_nobody(waiting: Scene, tmp_path: Path) -> None:
    record = waiting.options.folder / "dispatcher.pid"
    record.write_bytes(record.read_bytes().replace(b'"start_ticks":', b'"start_ticks":1'))
    RoleProcess(waiting.options, waiting.said.append)
    assert not gone(waiting.role.pid)


def test_a_role_that_is_asked_ends_without_being_killed(waiting: Scene) -> None:
    waiting.role.ask_to_end()
    assert wait_until(waiting.role.ended, DEADLINE_S)
    assert waiting.role.end() is False
