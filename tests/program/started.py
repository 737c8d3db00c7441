"""A `tocsin up` as a subprocess, with what a script can see of it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import httpx

from infra.embedded.processes import start_ticks, wait_until

ROOT = Path(__file__).parents[2]
STUB = "tests.program.stub_up"
REAL = "infra.cli"
START_S = 90.0
END_S = 60.0


class Up:
    """Runs `python -m MODULE WORDS…`; stub roles are enough where only the supervisor is tested."""

    def __init__(self, folder: Path, *words: str, module: str = STUB) -> None:
        self.folder, self.words, self.module = folder, words, module
        self.ready_file = folder / "ready.json"
        self.out = folder / "out.txt"
        self.environment: dict[str, str] = {}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start, and return once the ready file is there."""
        self.begin()
        assert wait_until(lambda: self.ready_file.exists() or self.status is not None, START_S)
        assert self.status is None, self.text
        return self

    def begin(self) -> Self:
        """Start, and return at once."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        up = ("up",) if self.module == REAL else ()
        self.ready_file.unlink(missing_ok=True)
        with self.out.open("ab") as out:
            self.process = subprocess.Popen(
                (
                    sys.executable, "-m", self.module, *up,
                    "--data", str(self.folder / "data"),
                    "--ready-file", str(self.ready_file),
                    *self.words,
                ),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=ROOT,
                env=kept | {"PYTHONUNBUFFERED": "1"} | self.environment,
            )  # fmt: skip
        return self

    @contextlib.contextmanager
    def environment_of(self, **variables: str) -> Iterator[None]:
        """Start with these variables, inside."""
        self.environment = variables
        yield
        self.environment = {}

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def status(self) -> int | None:
        assert self.process is not None
        return self.process.poll()

    @property
    def ready(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ready_file.read_bytes())
        return found

    @property
    def pids(self) -> dict[str, int]:
        found: dict[str, int] = self.ready["pids"]
        return found

    @property
    def text(self) -> str:
        return self.out.read_text(encoding="utf-8")

    def says(self, text: str) -> bool:
        """Wait until the output holds this."""
        return wait_until(lambda: text in self.text, START_S)

    def readiness(self) -> dict[str, Any]:
        found: dict[str, Any] = httpx.get(f"{self.ready['ops']}/readyz", timeout=5).json()
        return found

    def signal(self, number: int = signal.SIGTERM) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def ended(self, within_s: float = END_S) -> int:
        """Wait for the end, and return the exit status."""
        assert self.process is not None
        return self.process.wait(within_s)

    def close(self) -> None:
        """End everything, whatever state it is in."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(END_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(END_S)


def kill(pid: int) -> None:
    """SIGKILL, if it is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def gone(pid: int) -> bool:
    """Tell whether there is no such process, or only its remains."""
    return start_ticks(pid) is None


def all_gone(pids: dict[str, int]) -> bool:
    """Wait until all of these have ended."""
    return wait_until(lambda: all(gone(pid) for pid in pids.values()), END_S)
