"""Runs the role of one process until it is told to stop.

Rings meet only in `infra.roles`: a role gets adapters for its ports, and knows none of them. Each
is imported when it is asked for: a dispatcher has no use for a web server.
"""

from importlib import import_module
from typing import Final

from infra.roles.process import Process
from infra.settings import Settings

ROLES: Final[dict[str, tuple[str, str]]] = {
    "api": ("infra.roles.web", "run"),
    "query": ("infra.roles.web", "run_queries"),
    "scheduler": ("infra.roles.scheduler", "run"),
    "auditor": ("infra.roles.scheduler", "audit"),
    "dispatcher": ("infra.roles.dispatcher", "run"),
    "projector": ("infra.roles.projector", "run"),
}
"""Where the function is that runs a role in a Process, and returns the exit status."""


def run(role: str, settings: Settings) -> int:
    """Run one role until SIGTERM or SIGINT; returns the exit status."""
    module, name = ROLES[role]
    function = getattr(import_module(module), name)
    process = Process(role, settings)
    with process.serving():
        status: int = function(process)
    return status
