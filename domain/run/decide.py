"""Every decision about one run, whatever file it is in."""

from typing import Final

from domain.run.lease import (
    LEASE_MARGIN_MS,
    MISFIRE_AFTER_MS,
    SEND_DEADLINE_MS,
    Grant,
    first_lease,
    lease_until,
)
from domain.run.report import ABANDONED, LOST, Result, report

MAX_OPEN_RUNS: Final = 100
"""Open runs of one job: a command decides over all of them at once."""

__all__ = [
    "ABANDONED",
    "LEASE_MARGIN_MS",
    "LOST",
    "MAX_OPEN_RUNS",
    "MISFIRE_AFTER_MS",
    "SEND_DEADLINE_MS",
    "Grant",
    "Result",
    "first_lease",
    "lease_until",
    "report",
]
