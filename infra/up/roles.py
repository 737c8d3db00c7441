"""The processes of the roles: what each is told, and all of them together."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import infra
from infra.listening import free_port, shown_host
from infra.settings import Settings, exported, replaced
from infra.up.role import RoleOptions, RoleProcess

ROLES: Final = ("api", "scheduler", "dispatcher", "projector")
"""The api answers queries too, on one address; the scheduler audits its shards."""

Argv = Callable[[str], tuple[str, ...]]


def program(role: str) -> tuple[str, ...]:
    """Return the command line of a role."""
    return (sys.executable, "-m", "infra.cli", role)


class Roles:
    """All processes of roles. Use it from one thread, which must outlive them."""

    def __init__(
        self, settings: Settings, say: Callable[[str], None], argv: Argv = program
    ) -> None:
        """Choose the ports and reap what was left; `settings` have the engines' addresses."""
        api = settings.api
        self.port = free_port(api.host, api.port, "api.port")
        self.address = f"http://{shown_host(api.host)}:{self.port}"
        ports = {role: free_port(api.ops_host, 0, "api.ops_port") for role in ROLES}
        closed = (*settings.targets.closed_ports, *ports.values())
        settings = replaced(settings, "targets", closed_ports=closed)
        self._settings = replaced(settings, "api", port=self.port, with_queries=True)
        self._argv = argv
        self.processes = [self._process(role, ports[role], say) for role in ROLES]

    def start(self) -> None:
        """Start all of them."""
        for process in self.processes:
            process.start()

    def watch(self) -> None:
        """Start again what has ended."""
        for process in self.processes:
            process.watch()

    def probe(self) -> bool:
        """Ask each whether it is ready; returns whether all are."""
        # No short cut: what each says is shown, also where another is not ready.
        answers = [process.probe() for process in self.processes]
        return all(answers)

    def readiness(self) -> dict[str, dict[str, Any]]:
        """Return what each said last."""
        return {process.name: process.readiness for process in self.processes}

    def pids(self) -> dict[str, int]:
        """Return process ids by role; 0 for one that is down just now."""
        return {process.name: process.pid for process in self.processes}

    def ask_to_end(self) -> None:
        """Let all of them drain."""
        for process in self.processes:
            process.ask_to_end()

    def ended(self) -> bool:
        """Whether all have ended."""
        return all(process.ended() for process in self.processes)

    def end(self) -> list[str]:
        """Kill those that are left; returns their names."""
        return [process.name for process in self.processes if process.end()]

    def _process(self, role: str, ops_port: int, say: Callable[[str], None]) -> RoleProcess:
        settings, fault = self._settings, self._settings.fault
        told = replaced(settings, "api", ops_port=ops_port)
        # An armed crash point is for the first process: its successor must get past it.
        armed = fault.point and fault.role in {"", role}
        folder = settings.data_dir / "logs"
        folder.mkdir(exist_ok=True)
        return RoleProcess(
            RoleOptions(
                name=role,
                argv=self._argv(role),
                environment=_environment(replaced(told, "fault", point="", role="")),
                once=exported(told) if armed else {},
                folder=folder,
                ops_host=settings.api.ops_host,
                ops_port=ops_port,
            ),
            say,
        )


def _environment(settings: Settings) -> dict[str, str]:
    return {
        "PATH": os.defpath,
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": str(Path(infra.__path__[0]).parent),
        **exported(settings),
    }
