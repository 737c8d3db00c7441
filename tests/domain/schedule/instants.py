"""Instants as tests write them, and what a plan answers in those words."""

from datetime import UTC, datetime, timedelta

from domain.schedule.schedule import Plan

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def ms(text: str) -> int:
    """Return an RFC 3339 instant in ms."""
    return (datetime.fromisoformat(text) - EPOCH) // timedelta(milliseconds=1)


def text(at: int) -> str:
    """Return an instant in whole seconds as RFC 3339."""
    return (EPOCH + timedelta(milliseconds=at)).isoformat().replace("+00:00", "Z")


def texts(slots: Plan, after: int, count: int) -> list[str]:
    """Return up to `count` slots after an instant."""
    found: list[str] = []
    at = slots.next_after(after)
    while at is not None and len(found) < count:
        found.append(text(at))
        at = slots.next_after(at)
    return found
