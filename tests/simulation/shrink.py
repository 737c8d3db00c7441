"""Cuts a scenario that goes wrong smaller, as long as it goes wrong in the same way."""

import re
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import msgspec

from tests.simulation.play import Played, play
from tests.simulation.scenario import Deed, NewJob, Scenario, Woe
from tests.simulation.world import Weather

TRIES: Final = 150
"""Plays that a shrink may take."""
Part = TypeVar("Part", NewJob, Deed, Woe)
_NAMES: Final = re.compile(r"[0-9a-f]{8,}|\d+")


def kinds(wrongs: list[str]) -> set[str]:
    """Return what is wrong, without ids and instants."""
    return {_NAMES.sub("#", wrong) for wrong in wrongs}


class Shrinker:
    """Tries smaller scenarios, the boldest cuts first."""

    def __init__(self, scenario: Scenario, played: Played, tries: int = TRIES) -> None:
        self.best, self.played = scenario, played
        self._wanted = kinds(played.wrongs)
        self._left = tries

    def shrink(self) -> Scenario:
        """Return the smallest scenario that was found."""
        before: Scenario | None = None
        while before != self.best and self._left > 0:
            before = self.best
            self._fairer()
            self._cut(lambda s: s.woes, _with_woes)
            self._cut(lambda s: s.deeds, _with_deeds)
            self._cut(lambda s: s.jobs, _with_jobs)
        return self.best

    def _try(self, smaller: Scenario) -> bool:
        if self._left <= 0:
            return False
        self._left -= 1
        played = play(smaller)
        if not self._wanted & kinds(played.wrongs):
            return False
        self.best, self.played = smaller, played
        return True

    def _fairer(self) -> None:
        for field in Weather.__struct_fields__:
            if getattr(self.best.weather, field):
                weather = msgspec.structs.replace(self.best.weather, **{field: 0.0})
                self._try(msgspec.structs.replace(self.best, weather=weather))
        if any(self.best.targets):
            self._try(msgspec.structs.replace(self.best, targets=(0.0, 0.0, 0.0)))

    def _cut(
        self,
        parts_of: Callable[[Scenario], tuple[Part, ...]],
        with_parts: Callable[[Scenario, tuple[Part, ...]], Scenario],
    ) -> None:
        size = len(parts_of(self.best))
        while size >= 1 and self._left > 0:
            start = 0
            while start < len(parts_of(self.best)):
                parts = parts_of(self.best)
                fewer = parts[:start] + parts[start + size :]
                if not self._try(with_parts(self.best, fewer)):
                    start += size
            size //= 2


def _with_woes(scenario: Scenario, woes: tuple[Woe, ...]) -> Scenario:
    return msgspec.structs.replace(scenario, woes=woes)


def _with_deeds(scenario: Scenario, deeds: tuple[Deed, ...]) -> Scenario:
    return msgspec.structs.replace(scenario, deeds=deeds)


def _with_jobs(scenario: Scenario, jobs: tuple[NewJob, ...]) -> Scenario:
    """Return the scenario with fewer jobs, and with the deeds of those that are left."""
    places = {id(new): number for number, new in enumerate(jobs)}
    moved = [places.get(id(new)) for new in scenario.jobs]
    deeds = tuple(_moved(scenario.deeds, moved))
    return msgspec.structs.replace(scenario, jobs=jobs, deeds=deeds)


def _moved(deeds: tuple[Deed, ...], places: list[int | None]) -> Iterator[Deed]:
    for deed in deeds:
        place = places[deed.job]
        if place is not None:
            yield msgspec.structs.replace(deed, job=place)
