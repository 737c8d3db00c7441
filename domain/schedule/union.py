"""Several schedules in one: its slots are those of all parts; what they share is one slot."""

from domain.schedule.plan import Plan


class UnionPlan:
    """The slots of one or more plans, merged."""

    __slots__ = ("_parts",)

    def __init__(self, parts: tuple[Plan, ...]) -> None:
        self._parts = parts

    def next_after(self, t: int) -> int | None:
        """The first slot of any part after `t`, or None."""
        slots = [part.next_after(t) for part in self._parts]
        return min((slot for slot in slots if slot is not None), default=None)

    def last_until(self, t: int) -> int | None:
        """The newest slot of any part at or before `t`, or None."""
        slots = [part.last_until(t) for part in self._parts]
        return max((slot for slot in slots if slot is not None), default=None)
