"""A node of the simulated world: its process, its clocks, and the many ways in which it dies.

A process is one part after another of a life: built, started, run batch by batch, and killed at a
named crash point or in the middle of any call of a port. What it had not told anybody is gone then.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from commandside.ports import Tick, Unavailable
from infra.clock import DatabaseClock

AWAY_US: Final = 200_000
"""Rest of a process that could not reach an engine."""
DOWN_US: Final = 2_000_000
"""How long a process that died stays away."""
ASK_US: Final = 1_000_000
"""How often a node asks the database for its time."""
DISTRUST_US: Final = 100_000
"""Rest of a process that trusts no clock, as `infra.roles.process` has it."""


class Crashed(BaseException):
    """A process died; no handler of the program may catch it."""


class Faults:
    """The deaths of one process: once at each armed name, or at a call of a port, counted down."""

    def __init__(self, hits: Counter[str], crashes: Counter[str]) -> None:
        self.armed: set[str] = set()
        self.calls_left = 0
        """It dies with this call of a port from now; 0: with none."""
        self._hits, self._crashes = hits, crashes

    def hit(self, name: str) -> None:
        self._hits[name] += 1
        if name in self.armed:
            self.armed.remove(name)
            self._crashes[name] += 1
            raise Crashed(name)

    def step(self) -> None:
        """Pass one side of a port's call, or die there."""
        if self.calls_left:
            self.calls_left -= 1
            if not self.calls_left:
                self._crashes["at a port"] += 1
                raise Crashed("at a port")


class Figures:
    """Telemetry that is added up over all processes."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.alarms: list[tuple[str, str]] = []
        self.lateness_ms: list[int] = []

    def count(self, name: str, by: int = 1) -> None:
        self.counts[name] += by

    def observe(self, name: str, values: Sequence[int]) -> None:
        if name == "lateness_ms":
            self.lateness_ms += values

    def gauge(self, name: str, value: int) -> None:
        """Nobody looks at a gauge that has passed."""

    def alarm(self, name: str, detail: str) -> None:
        self.alarms.append((name, detail))

    def lag(self, view: str, ms: int) -> None:
        """Nobody looks at a lag that has passed."""

    def parked(self, view: str, streams: int) -> None:
        """Parking is seen where it is kept."""


class Clocks:
    """A node's monotonic clock, which runs at its own rate, and its estimate of the database's.

    The estimate is the product's own: what the database said last, carried on by the node's clock.
    """

    def __init__(
        self, host_us: Callable[[], int], database_ms: Callable[[], int], skew_ms: int
    ) -> None:
        """`host_us`: true time; `database_ms`: the database's clock; `skew_ms`: of the estimate."""
        self._host_us, self._database_ms = host_us, database_ms
        self.rate = 1.0
        """Microseconds of the node in one of the host."""
        self._since_us = self._base_us = host_us()
        self.skew_ms = skew_ms
        self.database = DatabaseClock(self.mono_us)
        self._asked_us = 0

    def mono_us(self) -> int:
        """Return the node's monotonic clock."""
        return self._base_us + int((self._host_us() - self._since_us) * self.rate)

    def drift(self, rate: float) -> None:
        """Run at another rate from now on."""
        self._base_us, self._since_us = self.mono_us(), self._host_us()
        self.rate = rate

    def tick(self, *, reached: bool) -> Tick:
        """Return what a role is run with; the database is asked for its time where it is due."""
        now_us = self.mono_us()
        if reached and now_us - self._asked_us >= ASK_US:
            self._asked_us = now_us
            self.database.heard(self._database_ms() + self.skew_ms, now_us, now_us)
        return Tick(self.database.now(), now_us)


class Body(Protocol):
    """The living part of a process."""

    def start(self, tick: Tick) -> None: ...

    def run(self, tick: Tick) -> int: ...

    def die(self) -> None: ...


class Site(Protocol):
    """What a process knows of the world that it is in."""

    hits: Counter[str]
    crashes: Counter[str]
    skew_ms: int

    def host_us(self) -> int: ...

    def database_ms(self) -> int: ...

    def reaches_database(self) -> bool: ...

    def dice(self, what: str) -> random.Random: ...

    def died(self, process: "Process", where: str) -> None: ...


class Process:
    """One process: its body, its clocks, and when it runs next."""

    def __init__(self, site: Site, name: str, build: Callable[["Process"], Body]) -> None:
        self.name = name
        self.faults = Faults(site.hits, site.crashes)
        self.steps = 0
        self._site, self._build = site, build
        self._dice = site.dice(name)
        self.clocks = self._new_clocks()
        self._body: Body | None = None
        self._started = False

    def _new_clocks(self) -> Clocks:
        site = self._site
        skew_ms = self._dice.randint(-site.skew_ms, site.skew_ms)
        return Clocks(site.host_us, site.database_ms, skew_ms)

    def new_id(self, size: int) -> bytes:
        """Return random bytes of this process's own."""
        return self._dice.randbytes(size)

    def run(self) -> int:
        """Run one batch, or start, or die; return after how many µs to be run again."""
        self.steps += 1
        clocks = self.clocks
        try:
            if self._body is None:
                rate = clocks.rate
                self.clocks = clocks = self._new_clocks()
                clocks.drift(rate)
                self._started = False
                self._body = self._build(self)
            tick = clocks.tick(reached=self._site.reaches_database())
            if not clocks.database.trusted:
                return DISTRUST_US
            if not self._started:
                self._body.start(tick)
                self._started = True
            return int(self._body.run(tick) / clocks.rate)
        except Unavailable:
            return AWAY_US
        except Crashed as death:
            self.kill()
            self._site.died(self, str(death))
            return DOWN_US

    def kill(self) -> None:
        """End it as SIGKILL does."""
        self.faults.calls_left = 0
        if self._body is not None:
            self._body.die()
            self._body = None


Trouble = Callable[[str], bool | None]
"""What becomes of a call of a port: None, or whether it fails after it took effect."""


class Wire:
    """A port as a process reaches it: a call may fail before or after it took effect, or kill."""

    def __init__(self, port: object, faults: Faults, trouble: Trouble) -> None:
        self._port, self._faults, self._trouble = port, faults, trouble

    def __getattr__(self, name: str) -> Any:
        """Return a method of the port, made brittle."""
        method = getattr(self._port, name)

        def brittle(*args: Any, **named: Any) -> Any:
            self._faults.step()
            after = self._trouble(name)
            if after is False:
                raise Unavailable(f"{name} did not arrive")
            answer = method(*args, **named)
            if after:
                raise Unavailable(f"the answer to {name} was lost")
            self._faults.step()
            return answer

        self.__dict__[name] = brittle
        return brittle
