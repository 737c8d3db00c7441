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

PUBLISHED_NOT_CONFIRMED: Final = "published_not_confirmed"
CONFIRMED_NOT_MARKED: Final = "confirmed_not_marked"
MARKED: Final = "marked"
SHARDS_OWNED: Final = "shards_owned"
DUE_READ: Final = "due_read"

SCHEDULER: Final[dict[str, str]] = {
    SHARDS_OWNED: "shards are owned under a term; nothing of them was read yet",
    DUE_READ: "due rows are read; nothing of them is published",
    PUBLISHED_NOT_CONFIRMED: "chunks are handed to the broker's client; none is confirmed",
    CONFIRMED_NOT_MARKED: "the broker has the chunks; their rows are not marked",
    MARKED: "rows are marked as handed off",
}
"""Points of the scheduler, and what is true there; the publishing ones are the auditor's too."""

SESSIONS_REAPED: Final = "sessions_reaped"
LAPSES_DECIDED: Final = "lapses_decided"
LAPSES_APPENDED: Final = "lapses_appended"
MARKS_FORGOTTEN: Final = "marks_forgotten"

AUDITOR: Final[dict[str, str]] = {
    SESSIONS_REAPED: "dead sessions are ended; their runs are still leased",
    LAPSES_DECIDED: "lapses are decided; none is appended",
    LAPSES_APPENDED: "lapses are appended; their retries are not published",
    MARKS_FORGOTTEN: "marks of a lost broker are taken back; nothing is published again",
}
"""Points of the audit loop, and what is true there."""

PAYLOAD_NOTED: Final = "payload_noted"
PAYLOAD_WRITTEN: Final = "payload_written"
PAYLOAD_DELETED: Final = "payload_deleted"

API: Final[dict[str, str]] = {
    PAYLOAD_NOTED: "a large payload is in the list; its object is not written",
    PAYLOAD_WRITTEN: "the object of a large payload is written; no event names it",
    PAYLOAD_DELETED: "an object that nothing needs is deleted; it is still in the list",
}
"""Points of the write API, and what is true there."""

CALLBACKS_DEFINED: Final = "callbacks_defined"

PROJECTOR: Final[dict[str, str]] = {
    CALLBACKS_DEFINED: "jobs that tell of ends are defined; the position before them is stored",
}
"""Points of the projector, and what is true there."""

ROLES: Final[dict[str, dict[str, str]]] = {
    "dispatcher": DISPATCHER,
    "scheduler": SCHEDULER | AUDITOR,
    "auditor": SCHEDULER | AUDITOR,
}
"""Points by role, of those that run in virtual time too."""
