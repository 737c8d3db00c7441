"""A scenario: one file `{fault, seed, load, expect}`, read with every wrong word named."""

import tomllib
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from tests.checker.report import PATHS

FOLDER: Final = Path(__file__).with_name("scenarios")


class Load(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What clients ask for. Jobs come due evenly over `seconds`, after a lead."""

    jobs: Annotated[int, Meta(ge=1, le=100_000)] = 400
    seconds: Annotated[float, Meta(gt=0, le=3_600)] = 10.0
    flaky: Annotated[float, Meta(ge=0, le=1)] = 0.1
    """Share of jobs whose target refuses their first attempt."""
    slow: Annotated[float, Meta(ge=0, le=1)] = 0.1
    """Share of jobs whose target takes its time."""
    recurring: Annotated[int, Meta(ge=0, le=1_000)] = 5
    """Jobs that fire every second."""
    changes: Annotated[int, Meta(ge=0, le=10_000)] = 20
    """Jobs that are cancelled, edited, paused or triggered when they come due."""


class Inject(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is done, to whom, and for how long; `tests.chaos.faults` has the words for `what`."""

    what: str
    at: Annotated[float, Meta(ge=0, le=1)] = 0.3
    """When, as a share of the load's time; the seed moves it by a tenth."""
    seconds: Annotated[float, Meta(ge=0, le=3_600)] = 0.0
    """For how long; 0: until it has happened."""
    role: str = ""
    point: str = ""
    times: Annotated[int, Meta(ge=1, le=10_000)] = 1
    every: Annotated[float, Meta(ge=0, le=60)] = 1.0
    """Seconds between two of `times`."""


class Expect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What must have been seen, beside what the checker demands of every run."""

    paths: tuple[str, ...] = ()
    """Paths of the checker that must have been taken: else the fault was not reached."""
    late_s: Annotated[float, Meta(ge=0, le=600)] = 2.0
    """Lateness allowed beyond the fault's own time (reliability.md 2.3: B and R)."""
    recover_s: Annotated[float, Meta(gt=0, le=600)] = 30.0
    """From the last heal until everything that was due is done."""


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file. `about` says what the fault is, and what must hold."""

    fault: Annotated[str, Meta(pattern=r"^F[0-9]{1,3}$")]
    about: str
    inject: Inject
    seed: int = 1
    load: Load = Load()
    expect: Expect = Expect()
    broker: Literal["embedded", "apache"] = "embedded"
    smoke: bool = False
    """It is part of the short run that comes with every change."""
    name: str = ""


def load_all() -> dict[str, Scenario]:
    """Return all by name; raises ValueError with file and field of the first wrong one."""
    found = {}
    for path in sorted(FOLDER.glob("*.toml")):
        found[path.stem] = _read(path)
    return found


def _read(path: Path) -> Scenario:
    try:
        told: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        scenario = msgspec.convert({**told, "name": path.stem}, Scenario)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ValueError(f"{path.name}: {error}") from error
    for name in scenario.expect.paths:
        if name not in PATHS:
            raise ValueError(f"{path.name}: expect.paths: {name!r} is none of {sorted(PATHS)}")
    return scenario
