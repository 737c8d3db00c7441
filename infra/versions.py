"""Which program this is: its own version, and those of what decides when and how a job fires."""

import platform
from functools import cache
from importlib.metadata import version

from domain.schedule import zone


@cache
def program_versions() -> dict[str, str]:
    """Return versions by name: tocsin, python, zones (IANA), croniter, eventsourcing."""
    return {
        "tocsin": version("tocsin"),
        "python": platform.python_version(),
        "zones": zone.VERSION,
        "croniter": version("croniter"),
        "eventsourcing": version("eventsourcing"),
    }
