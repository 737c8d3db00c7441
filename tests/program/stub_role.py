"""A role that does nothing but say that it is ready: what the supervisor's tests supervise."""

import select
import sys

from infra.lifecycle import Stop
from infra.ops import OpsServer
from infra.settings import load
from infra.telemetry import Telemetry

DEAF_S = 120.0
"""Longer than any test waits: only being killed ends it."""


def main(role: str) -> None:
    settings = load()
    shown: dict[str, object] = {"ready": True, "role": role, "fault": settings.fault.point}
    with Stop() as stop:
        ops = OpsServer("127.0.0.1", settings.api.ops_port, Telemetry(role), lambda: shown)
        ops.start()
        select.select([stop.fileno()], [], [])
        if (settings.data_dir.parent / "deaf").exists():
            select.select([], [], [], DEAF_S)
        ops.close()


if __name__ == "__main__":
    main(sys.argv[1])
