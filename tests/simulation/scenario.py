"""A scenario as data: whole, it can be written down, cut smaller, and played again.

Instants are milliseconds from the start of the world.
"""

from typing import Any

import msgspec

from tests.simulation.world import Weather


class NewJob(msgspec.Struct, frozen=True):
    """A definition: `body` as a client sends it, `tenant` by number. `batch`: with its likes."""

    at: int
    tenant: int
    body: dict[str, Any]
    key: str
    batch: int = 0


class Deed(msgspec.Struct, frozen=True):
    """What a client does to a job, by its number among the definitions.

    `repeats`: how often it is sent again with the same key though it was answered.
    """

    at: int
    action: str
    job: int
    body: dict[str, Any] = {}
    repeats: int = 0


class Woe(msgspec.Struct, frozen=True):
    """What goes wrong once: its kind, the process it concerns, and for how long.

    `detail` is the name of a crash point, `number` the call of a port, or parts per million.
    """

    at: int
    kind: str
    process: int = 0
    ms: int = 0
    number: int = 0
    detail: str = ""


class Scenario(msgspec.Struct, frozen=True):
    """All that happens in a world, but for what its dice say, which come from the seed."""

    seed: int
    ms: int
    """Until when things go wrong."""
    jobs: tuple[NewJob, ...]
    deeds: tuple[Deed, ...] = ()
    woes: tuple[Woe, ...] = ()
    weather: Weather = Weather()
    targets: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Chances that a call fails, that its answer is late or never comes, and that it comes late
    from a target which has done its work."""
    features: tuple[str, ...] = ()
    """What the seed has drawn, for people."""
