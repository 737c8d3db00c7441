"""Explicit-state search: breadth first, so the shortest story; then liveness."""

from array import array
from typing import NamedTuple

from tests.model.laws import canon, check, goal
from tests.model.state import Broken, Cfg, State, init
from tests.model.steps import steps

LIMIT = 600_000
"""States of one configuration; more is no answer."""


class Found(NamedTuple):
    """`ok` is None where the limit was reached; `why` names the law and `story` the way to it."""

    ok: bool | None
    states: int
    edges: int
    why: str = ""
    story: tuple[str, ...] = ()


def explore(c: Cfg, limit: int = LIMIT, *, raw: bool = False) -> Found:
    """Visit every state that can be reached, without the reduction if `raw`."""
    return _Search(c, limit, raw=raw).run()


class _Search:
    def __init__(self, c: Cfg, limit: int, *, raw: bool) -> None:
        first = init(c)
        self.c, self.limit, self.raw = c, limit, raw
        self.index = {first: 0}
        self.states: list[State] = [first]
        self.parent: list[tuple[int, str]] = [(-1, "start")]
        self.back: list[tuple[int, int]] = []
        """Fault-free edges, from and to."""
        self.edges = 0

    def run(self) -> Found:
        check(self.c, self.states[0])
        place = 0
        while place < len(self.states):
            try:
                if not self._expand(place):
                    return Found(None, len(self.states), self.edges, "limit")
            except Broken as broken:
                return self._broken(place, str(broken))
            place += 1
        return self._liveness()

    def _expand(self, place: int) -> bool:
        for label, fault, found in steps(self.c, self.states[place]):
            self.edges += 1
            state = found if self.raw else canon(self.c, found)
            at = self.index.get(state)
            if at is None:
                at = self.index[state] = len(self.states)
                self.states.append(state)
                self.parent.append((place, label))
                check(self.c, state)
                if at >= self.limit:
                    return False
            if not fault and at != place:
                self.back.append((place, at))
        return True

    def _broken(self, place: int, why: str) -> Found:
        last = len(self.states) - 1
        try:
            check(self.c, self.states[last])
        except Broken:
            place = last
        return Found(False, len(self.states), self.edges, why, self._story(place, why))

    def _story(self, place: int, end: str) -> tuple[str, ...]:
        lines = ["=> " + end]
        while place > 0:
            place, label = self.parent[place]
            lines.append(label)
        return tuple(reversed(lines))

    def _liveness(self) -> Found:
        """From every state a fault-free way leads to an end: no trap."""
        count = len(self.states)
        head, follow, source = array("i", [-1]) * count, array("i"), array("i")
        for edge, (start, end) in enumerate(self.back):
            follow.append(head[end])
            source.append(start)
            head[end] = edge
        good = bytearray(count)
        todo = [k for k in range(count) if goal(self.c, self.states[k])]
        for k in todo:
            good[k] = 1
        while todo:
            edge = head[todo.pop()]
            while edge >= 0:
                start = source[edge]
                if not good[start]:
                    good[start] = 1
                    todo.append(start)
                edge = follow[edge]
        stuck = good.find(0)
        if stuck < 0:
            return Found(True, count, self.edges)
        why = "liveness: no fault-free way to an end"
        story = self._story(stuck, f"stuck: {self.states[stuck]}")
        return Found(False, count, self.edges, why, story)
