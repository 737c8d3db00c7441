"""The named crash points: one at every await between two durable steps, by the role that hits it.

Armed by name and number of the hit (`leased_not_called:3`), the process dies there.
"""

from typing import Final

LEASE_SENT: Final = "lease_sent"
LEASED_NOT_CALLED: Final = "leased_not_called"
CALLED: Final = "called"
ANSWERED_NOT_REPORTED: Final = "answered_not_reported"
REPORT_SENT: Final = "report_sent"
REPORTED: Final = "reported"
SETTLED_NOT_COMMITTED: Final = "settled_not_committed"
OFFSET_COMMITTED: Final = "offset_committed"

DISPATCHER: Final[dict[str, str]] = {
    LEASE_SENT: "a lease is on its way to the log; its reply has not come",
    LEASED_NOT_CALLED: "leases are committed; no byte has left for a target",
    CALLED: "calls are on their way; no result is known",
    ANSWERED_NOT_REPORTED: "results are known here only",
    REPORT_SENT: "a report is on its way to the log; its reply has not come",
    REPORTED: "a report is committed; what it planned has not been noted here",
    SETTLED_NOT_COMMITTED: "all of a message is settled; its offset is not committed",
    OFFSET_COMMITTED: "the offset of a settled message has been handed to the broker",
}
"""Points of the dispatcher, and what is true there."""

ROLES: Final[dict[str, dict[str, str]]] = {"dispatcher": DISPATCHER}
"""Points by role."""
