"""The published refusals: one table of codes, with the HTTP status and title that go with each.

Both API rings answer with it and neither may know the other, so it lives here; HTTP's numbers are
part of the contract's words. Nothing in this module knows a web framework.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol


class Kind(NamedTuple):
    """What a code is in HTTP."""

    status: int
    title: str


TABLE: Final[dict[str, Kind]] = {
    "bad_json": Kind(400, "The body is not JSON as we read it"),
    "bad_request": Kind(400, "The request cannot be read"),
    "unauthorized": Kind(401, "A valid API key is required"),
    "forbidden": Kind(403, "The API key lacks a scope"),
    "absent": Kind(404, "There is no such thing"),
    "no_route": Kind(404, "There is no such path"),
    "method": Kind(405, "The path does not take this method"),
    "not_acceptable": Kind(406, "Only JSON is answered"),
    "timeout": Kind(408, "The body did not arrive in time"),
    "exists": Kind(409, "It exists already"),
    "active": Kind(409, "The state does not allow it"),
    "paused": Kind(409, "The state does not allow it"),
    "finished": Kind(409, "The state does not allow it"),
    "cancelled": Kind(409, "The state does not allow it"),
    "in_flight": Kind(409, "The state does not allow it"),
    "too_many": Kind(409, "There are as many as there may be"),
    "backfilling": Kind(409, "The state does not allow it"),
    "open_runs": Kind(409, "The state does not allow it"),
    "not_dead": Kind(409, "The state does not allow it"),
    "redriven": Kind(409, "The state does not allow it"),
    "aged_out": Kind(409, "The state does not allow it"),
    "earlier_life": Kind(409, "The state does not allow it"),
    "too_many_edits": Kind(409, "The state does not allow it"),
    "in_use": Kind(409, "It is in use"),
    "superseded": Kind(409, "The attempt is no longer the run's last"),
    "overtime": Kind(409, "The attempt has taken too long"),
    "ended": Kind(409, "The run has ended"),
    "gone": Kind(410, "The run was cancelled"),
    "schedule_error": Kind(409, "The schedule cannot be worked out"),
    "behind": Kind(409, "Not there yet"),
    "precondition": Kind(412, "The version has changed"),
    "too_large": Kind(413, "The body is too large"),
    "media_type": Kind(415, "The media type is not supported"),
    "invalid": Kind(422, "A value is not accepted"),
    "past": Kind(422, "A value is not accepted"),
    "body_differs": Kind(422, "The Idempotency-Key was used with another body"),
    "internal": Kind(500, "Something went wrong here"),
    "unavailable": Kind(503, "The log cannot be reached"),
}

PARAMETER, HEADER = "?", "@"
"""First character of a pointer that is not into the body: `?limit`, `@If-Match`."""


class Reason(Protocol):
    """One refused field, as any parser of the domain names it."""

    @property
    def pointer(self) -> str:
        """JSON pointer into the body, or a name after `?` or `@`."""

    @property
    def detail(self) -> str:
        """What would be right."""

    @property
    def value(self) -> str:
        """What was given, as JSON, cut; empty where that is not said."""


class Problem(Exception):
    """A refused request: `code` is one of TABLE, `detail` a sentence, `errors` the fields."""

    def __init__(self, code: str, detail: str, errors: Iterable[Reason] = ()) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.errors = tuple(errors)

    @property
    def status(self) -> int:
        """HTTP status."""
        return TABLE[self.code].status

    @property
    def headers(self) -> dict[str, str]:
        """Headers that go with the status."""
        if self.code == "unauthorized":
            return {"www-authenticate": "Bearer"}
        return {"retry-after": "1"} if self.code in ("unavailable", "behind") else {}

    def body(self, request_id: str = "") -> dict[str, object]:
        """Return the problem details (RFC 9457)."""
        kind = TABLE[self.code]
        shown: dict[str, object] = {
            "type": f"/problems/{self.code}",
            "title": kind.title,
            "status": kind.status,
            "detail": self.detail,
            "errors": [_named(reason) for reason in self.errors],
        }
        return shown | {"request_id": request_id} if request_id else shown


def _named(reason: Reason) -> dict[str, str]:
    mark, name = reason.pointer[:1], reason.pointer[1:]
    place = {PARAMETER: "parameter", HEADER: "header"}.get(mark)
    value = {"value": reason.value} if reason.value else {}
    if place is None:
        return {"pointer": reason.pointer, "detail": reason.detail} | value
    return {place: name, "detail": reason.detail} | value


def invalid(errors: Iterable[Reason]) -> Problem:
    """Return the refusal of values, saying the first in its sentence."""
    found = tuple(errors)
    first = found[0]
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return Problem("invalid", f"{first.pointer or 'the body'}: {first.detail}{more}", found)
