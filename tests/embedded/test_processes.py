"""Only what is proven ours is ended."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from infra.embedded import processes
from infra.embedded.errors import EngineError

ARGV = (sys.executable, "-c", "input()")
TIMEOUT_S = 10.0


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A program that waits for input."""
    with subprocess.Popen(ARGV, stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def record_of(pid: int, **changes: object) -> processes.Record:
    ticks = processes.start_ticks(pid)
    assert ticks is not None
    truth = processes.Record(pid, processes.boot_id(), ticks, ARGV)
    return msgspec.structs.replace(truth, **changes)


def write(path: Path, record: processes.Record) -> Path:
    path.write_bytes(msgspec.json.encode(record))
    return path


def test_what_the_record_proves_is_ended(tmp_path: Path, stranger: subprocess.Popen[bytes]) -> None:
    path = write(tmp_path / "pid", record_of(stranger.pid))
    assert processes.reap(path, TIMEOUT_S) == stranger.pid
    assert not path.exists()


@pytest.mark.parametrize(
    "changes",
    [{"boot_id": "another"}, {"start_ticks": 1}, {"argv": ("/bin/other",)}, {"argv": ()}],
    ids=["boot", "start time", "command", "no command"],
)
def test_a_reused_pid_is_left_alone(
    tmp_path: Path, stranger: subprocess.Popen[bytes], changes: dict[str, object]
) -> None:
    path = write(tmp_path / "pid", record_of(stranger.pid, **changes))
    assert processes.reap(path, TIMEOUT_S) is None
    assert stranger.poll() is None


def test_a_torn_record_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    path.write_bytes(b'[12, "')
    assert (processes.reap(path, TIMEOUT_S), path.exists()) == (None, False)


def test_a_child_has_the_environment_it_was_given_and_no_other(tmp_path: Path) -> None:
    options = processes.ChildOptions(
        argv=(sys.executable, "-c", "import os; print(sorted(os.environ))"),
        log_path=tmp_path / "log",
        environment={"ONLY": "this"},
    )
    child = processes.Child(options)
    assert processes.wait_until(lambda: child.exit_status() == 0, TIMEOUT_S)
    assert "ONLY" in child.log_tail()
    assert "PATH" not in child.log_tail()


def test_a_program_that_ignores_the_signal_is_killed(tmp_path: Path) -> None:
    script = "import signal; signal.signal(15, signal.SIG_IGN); print('up', flush=True); input()"
    read_end = tmp_path / "log"
    options = processes.ChildOptions(
        argv=(sys.executable, "-c", script.replace("input()", "signal.pause()")),
        log_path=read_end,
    )
    child = processes.Child(options)
    assert processes.wait_until(lambda: "up" in child.log_tail(), TIMEOUT_S)
    assert child.stop(15, 0.1) is False


def test_a_missing_program_is_named_in_the_log(tmp_path: Path) -> None:
    options = processes.ChildOptions(argv=("/nowhere/engine",), log_path=tmp_path / "log")
    child = processes.Child(options)
    assert processes.wait_until(lambda: child.exit_status() is not None, TIMEOUT_S)
    assert "/nowhere/engine" in child.log_tail() or "No such file" in child.log_tail()


def test_a_large_log_is_put_aside_at_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_LOG_BYTES_MAX", 10)
    log = tmp_path / "log"
    log.write_text("much more than ten bytes")
    options = processes.ChildOptions(argv=(sys.executable, "-c", ""), log_path=log)
    processes.Child(options).stop(15, TIMEOUT_S)
    assert (tmp_path / "log.old").read_text() == "much more than ten bytes"


def test_a_folder_has_one_holder(tmp_path: Path) -> None:
    with (
        processes.FolderLock(tmp_path / "lock", "engine"),
        pytest.raises(EngineError, match=r"engine: the folder .* is in use by process"),
    ):
        processes.FolderLock(tmp_path / "lock", "engine")


def test_a_released_folder_can_be_held_again(tmp_path: Path) -> None:
    processes.FolderLock(tmp_path / "lock", "engine").release()
    processes.FolderLock(tmp_path / "lock", "engine").release()
