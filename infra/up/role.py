"""Looks after the process of one role: started, asked whether it is ready, started again."""

import os
import signal
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final

import msgspec

from infra import clock
from infra.embedded.errors import EngineError
from infra.embedded.processes import Child, ChildOptions, reap
from infra.up.backoff import Backoff

PROBE_TIMEOUT_S: Final = 1.0
METRICS_BYTES_MAX: Final = 4 * 1024 * 1024
REAP_TIMEOUT_S: Final = 5.0
"""What a killed `up` left of a role is asked to end, and killed after this."""
KILLED_S: Final = 0.1


class RoleOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to run. `environment` is whole; `once` holds only at the first start (armed faults)."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path
    ops_host: str
    ops_port: int
    once: Mapping[str, str] = {}


class RoleProcess:
    """One role's process. Use it from one thread, the one that lives as long as the process."""

    def __init__(self, options: RoleOptions, say: Callable[[str], None]) -> None:
        """End what an earlier `up` may have left; nothing is started before `start`."""
        self.options = options
        self.name = options.name
        self.log_path = options.folder / f"{options.name}.log"
        self.readiness: dict[str, Any] = {"ready": False, "because": "not started"}
        self._record_path = options.folder / f"{options.name}.pid"
        self._say = say
        self._backoff = Backoff()
        self._child: Child | None = None
        self._starts = 0
        self._since_us = 0
        self._again_us: int | None = None
        reap(self._record_path, REAP_TIMEOUT_S)

    @property
    def pid(self) -> int:
        """The process id, 0 while it does not run."""
        return self._child.pid if self._child is not None and self._again_us is None else 0

    @property
    def ready(self) -> bool:
        """Whether it was ready when it was asked last."""
        return self.readiness.get("ready") is True

    def start(self) -> None:
        """Start the process; raises EngineError when it cannot be executed."""
        once = self.options.once if self._starts == 0 else {}
        self._starts += 1
        self._since_us = clock.mono_us()
        self._again_us = None
        self.readiness = {"ready": False, "because": "starting"}
        self._child = Child(
            ChildOptions(
                argv=self.options.argv,
                log_path=self.log_path,
                environment={**self.options.environment, **once},
                # Roles survive being killed; asked to drain, they would wait for engines that the
                # same death has ended.
                death_signal=signal.SIGKILL,
                record_path=self._record_path,
            )
        )

    def watch(self) -> None:
        """Notice an end, and start again once the pause is over."""
        now_us = clock.mono_us()
        if self._again_us is not None:
            if now_us >= self._again_us:
                self._restart()
            return
        status = None if self._child is None else self._child.exit_status()
        if status is None:
            return
        pause_us = self._backoff.pause_us(now_us - self._since_us)
        self._again_us = now_us + pause_us
        self.readiness = {"ready": False, "because": _ended(status)}
        self._say(
            f"{self.name} {_ended(status)}{self._last_words()}:"
            f" starting again in {pause_us / 1e6:.1f} s (log: {self.log_path})"
        )

    def probe(self) -> bool:
        """Ask whether it is ready."""
        if self.pid:
            status, body = self._get("/readyz")
            if status:
                self.readiness = _decoded(body) | {"ready": status == HTTPStatus.OK}
            else:
                self.readiness = {"ready": False, "because": "does not answer yet"}
        return self.ready

    def metrics(self) -> bytes:
        """Return its figures in Prometheus' text format; empty while it does not answer."""
        status, body = self._get("/metrics") if self.pid else (0, b"")
        return body if status == HTTPStatus.OK else b""

    def ask_to_end(self) -> None:
        """Send SIGTERM: drain, then end."""
        if self._child is not None and self._child.exit_status() is None:
            os.kill(self._child.pid, signal.SIGTERM)

    def ended(self) -> bool:
        """Whether it has ended."""
        return self._child is None or self._child.exit_status() is not None

    def end(self) -> bool:
        """Wait no longer; returns whether it had to be killed."""
        child, self._child = self._child, None
        return child is not None and not child.stop(signal.SIGTERM, KILLED_S)

    def _restart(self) -> None:
        try:
            self.start()
        except EngineError as error:
            pause_us = self._backoff.pause_us(0)
            self._again_us = clock.mono_us() + pause_us
            self._say(f"{self.name}: {error}; trying again in {pause_us / 1e6:.1f} s")

    def _last_words(self) -> str:
        lines = self._child.log_tail().strip().splitlines() if self._child else []
        return f" after saying {lines[-1].strip()[:200]!r}" if lines else ""

    def _get(self, path: str) -> tuple[int, bytes]:
        """Return status and body, (0, empty) where there is no answer in time."""
        options = self.options
        connection = HTTPConnection(options.ops_host, options.ops_port, timeout=PROBE_TIMEOUT_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read(METRICS_BYTES_MAX)
        except (OSError, HTTPException):
            return 0, b""
        finally:
            connection.close()


def _ended(status: int) -> str:
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended (exit {status})"


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.DecodeError:
        return {"because": "its readiness cannot be read"}
