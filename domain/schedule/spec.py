"""The schedule kinds of a job as stored values. Storage format: append fields at the end only.

All instants are whole milliseconds since the epoch, UTC.
"""

import msgspec


class OneTime(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """One slot at `run_at`."""

    run_at: int


class Cron(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """A cron text in a zone.

    `text` is the canonical form, `typed` what the tenant sent. An empty `gap` or `fold` is the
    default rule of the schedule (see `domain.schedule.walk`).
    """

    text: str
    typed: str
    zone: str
    dialect: str = "vixie"
    gap: str = ""
    fold: str = ""


class Every(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3):
    """A fixed rate: slots at `anchor` and each step after it.

    One of `step_ms` (exact, on absolute time), `days` and `months` (on the calendar of the zone) is
    not 0. `typed` is the duration as the tenant sent it.
    """

    typed: str
    anchor: int
    zone: str = "UTC"
    step_ms: int = 0
    days: int = 0
    months: int = 0
    gap: str = ""
    fold: str = ""


class RRule(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=4):
    """A recurrence rule of RFC 5545 in a zone, from `anchor` on.

    `text` is the canonical form, `typed` what the tenant sent.
    """

    text: str
    typed: str
    anchor: int
    zone: str
    gap: str = ""
    fold: str = ""


Part = Cron | Every | RRule
"""A recurring schedule that can be part of a union."""


class Union(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=5):
    """Several schedules in one job; a slot that several parts have is one slot."""

    parts: tuple[Part, ...]


class FixedDelay(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=6):
    """Each run `step_ms` after the one before it has ended; the first not before `anchor`.

    `typed` is the duration as the tenant sent it; `zone` is only what its instants are shown in.
    """

    typed: str
    step_ms: int
    anchor: int = 0
    zone: str = "UTC"


ScheduleSpec = OneTime | Part | Union | FixedDelay
