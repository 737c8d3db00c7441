"""Plays a scenario from its first definition to a quiet end, and judges what is left."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from heapq import heappop, heappush
from time import process_time
from typing import Final

import msgspec

from domain.instant import HOUR, SECOND, rfc3339
from infra.clock import TRIP_MAX_MS
from infra.memory.due_index import MemoryDueIndex
from infra.memory.log import Due
from tests.checker.check import check
from tests.checker.inputs import Fault
from tests.simulation.clients import AGAIN_MS, TRIES, Clients
from tests.simulation.evidence import history_of
from tests.simulation.ledger import wrongs
from tests.simulation.nodes import DOWN_US, Process
from tests.simulation.rules import views
from tests.simulation.scenario import Deed, Scenario, Woe
from tests.simulation.targets import Targets
from tests.simulation.world import START, Weather, World

SETTLE_MS: Final = 15 * SECOND
"""After the last fault, for what goes on before all is stopped."""
QUIET_MS: Final = 10 * SECOND
QUIET_MAX: Final = 90
"""Looks, QUIET_MS apart, until nothing is open any more."""
PAUSED_MS: Final = 20 * SECOND
"""For what a resume catches up."""
WRONGS_MAX: Final = 25
DAILY: Final = {"every": "PT24H", "anchor": rfc3339(START)}


class Played(msgspec.Struct):
    """What came of a scenario."""

    seed: int
    trace: str
    wrongs: list[str]
    fires: int
    steps: int
    seconds: float
    counts: dict[str, int]
    features: tuple[str, ...] = ()


class Play:
    """One scenario in its world."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.world = World(scenario.seed, projects=True, skew_ms=TRIP_MAX_MS // 2)
        self.world.hurries = True
        self.targets = Targets(self.world, scenario)
        self.clients = Clients(self.world, scenario.jobs)
        self.end = START + scenario.ms
        self.reached: Counter[str] = Counter()
        self.faults: list[Fault] = []
        self.world.on_death = self._died
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._away: Counter[str] = Counter()
        self._broken: list[str] = []
        self._plan()

    def play(self) -> Played:
        """Play it, settle, and judge."""
        began = process_time()
        world = self.world
        world.set_weather(self.scenario.weather)
        self._run_until(self.end)
        self._heal()
        self._run_until(self.end + SETTLE_MS)
        self._stop()
        found = self._settle()
        found += self._judged()
        self.clients.close()
        hits = sum(len(deliverer.hits) for deliverer in world.deliverers)
        took = process_time() - began
        return Played(
            self.scenario.seed,
            self._trace(),
            found[:WRONGS_MAX],
            hits,
            world.steps,
            took,
            dict(sorted(self._counted().items())),
            self.scenario.features,
        )

    # ---------------------------------------------------------------- what happens

    def at(self, when: int, deed: Callable[[], None]) -> None:
        """Let something happen at an instant, ms."""
        self._count += 1
        heappush(self._queue, (when, self._count, deed))

    def _plan(self) -> None:
        batches: dict[tuple[int, int], list[int]] = {}
        for number, new in enumerate(self.scenario.jobs):
            lot = (new.at, new.batch) if new.batch else (new.at, -number - 1)
            batches.setdefault(lot, []).append(number)
        for (at, _), numbers in batches.items():
            self._define(START + at, numbers, TRIES)
        for number, deed in enumerate(self.scenario.deeds):
            for repeat in range(deed.repeats + 1):
                later = repeat * (200 if repeat < 3 else 40_000)
                self._do(START + deed.at + later, deed, f"deed-{number}", TRIES)
        for woe in self.scenario.woes:
            self.at(START + woe.at, partial(self._befall, woe))

    def _define(self, when: int, numbers: list[int], tries: int) -> None:
        def define() -> None:
            cut = self.clients.define(numbers)
            if cut and tries:
                self._define(self.world.clock.now() + AGAIN_MS, cut, tries - 1)

        self.at(when, define)

    def _do(self, when: int, deed: Deed, key: str, tries: int) -> None:
        def do() -> None:
            if not self.clients.do(deed, key) and tries:
                self._do(self.world.clock.now() + AGAIN_MS, deed, key, tries - 1)

        self.at(when, do)

    def _run_until(self, until: int) -> None:
        while self._queue and self._queue[0][0] <= until:
            when, _, deed = heappop(self._queue)
            self.world.run_until(max(when, self.world.clock.now()))
            self._look_at_chains()
            deed()
            self.world.wake()
        self.world.run_until(until)

    # ---------------------------------------------------------------- what goes wrong

    def _befall(self, woe: Woe) -> None:
        world, now = self.world, self.world.clock.now()
        if now >= self.end:
            return
        self.reached[woe.kind] += 1
        process = world.processes[woe.process]
        match woe.kind:
            case "postgres" | "broker" | "stall" | "history":
                self._take_away(woe)
            case "wipe":
                world.broker.wipe(noticeable=bool(woe.ms))
                self.faults.append(Fault("broker", "wipe", now, now))
            case "sleep":
                until = min(now + woe.ms, self.end)
                world.hold(woe.process, until)
                self.faults.append(Fault(_role(process), "stopped", now, until))
            case "session":
                for session in list(world.log.sessions)[:1]:
                    world.log.end(session)
                self.faults.append(Fault("dispatcher", "session ended", now, now))
            case "point":
                process.faults.armed.add(woe.detail)
            case "port":
                process.faults.calls_left = woe.number
            case "drift":
                process.clocks.drift(1 + woe.number / 1_000_000)
                self.faults.append(Fault("clock", "drift", now, self.end))
            case _:
                raise AssertionError(woe.kind)

    def _take_away(self, woe: Woe) -> None:
        until = min(self.world.clock.now() + woe.ms, self.end)
        kind = {"stall": "broker", "history": "clickhouse"}.get(woe.kind, woe.kind)
        self.faults.append(Fault(kind, woe.kind, self.world.clock.now(), until))
        self._set_away(woe.kind, 1)
        self.at(until, lambda: self._set_away(woe.kind, -1))

    def _set_away(self, kind: str, by: int) -> None:
        """Count who keeps it away: two outages may overlap."""
        self._away[kind] += by
        away, world = self._away[kind] > 0, self.world
        match kind:
            case "postgres":
                world.log.away = away
            case "broker":
                world.broker.away = away
            case "stall":
                world.broker.holds = away
            case _:
                world.histories.away = away

    def _died(self, process: Process, where: str) -> None:
        now = self.world.clock.now()
        down = Fault(_role(process), "died", now, now + DOWN_US // 1_000, detail=where)
        self.faults.append(down)

    def _heal(self) -> None:
        self.world.set_weather(Weather())
        self.targets.fair = True
        for process in self.world.processes:
            process.faults.armed.clear()
            process.faults.calls_left = 0
            process.clocks.drift(1.0)

    # ---------------------------------------------------------------- the end

    def _stop(self) -> None:
        """Resume all jobs, then let them fire once a day: what is open comes to its own end."""
        at = self.end + SETTLE_MS
        for number in sorted(self.clients.ids):
            self._do(at, Deed(0, "resume", number), f"resumed-at-the-end-{number}", TRIES)
            body = self.scenario.jobs[number].body
            if body["type"] == "recurring":
                daily = {"every": "PT24H"} if "from" in body else DAILY
                self._do(at + PAUSED_MS, Deed(0, "revise", number, daily), "", TRIES)
        self._run_until(at + PAUSED_MS + SECOND)

    def _settle(self) -> list[str]:
        log = self.world.log
        for _ in range(QUIET_MAX):
            self._run_until(self.world.clock.now() + QUIET_MS)
            soon = self.world.clock.now() + HOUR
            rows = [row for row in log.due.values() if row.wake_at < soon]
            if not rows:
                # The projectors read the last of it.
                self._run_until(self.world.clock.now() + QUIET_MS)
                return []
        return [f"{len(rows)} runs are open long after the last fault: {_told(rows[0])}"]

    def _look_at_chains(self) -> None:
        """Judge them before something happens: an edit begins a chain anew, however broken."""
        log = self.world.log
        broken = MemoryDueIndex(log).health(range(log.shards)).broken_chains
        if broken and not self._broken:
            at = self.world.clock.now() - START
            self._broken = [f"at {at} ms {broken} active jobs had no next occurrence"]

    def _judged(self) -> list[str]:
        world = self.world
        return [
            *world.watch.wrongs,
            *self._broken,
            *wrongs(world.log, world.deliverers, self.end),
            *views(world),
            *(violation.text() for violation in check(history_of(self)).violations),
            *(f"another tenant was let in: {which}" for which in self.clients.let_in),
        ]

    # ---------------------------------------------------------------- what is seen

    def _trace(self) -> str:
        digest = blake2b(self.world.trace().encode(), digest_size=16)
        for operation in self.clients.operations:
            digest.update(
                f"{operation.action} {operation.invoked_us} {operation.outcome}"
                f" {operation.status} {operation.version}".encode()
            )
        return digest.hexdigest()

    def _counted(self) -> Counter[str]:
        counts = Counter(self.reached)
        counts.update({f"died: {name}": n for name, n in self.world.crashes.items()})
        for name in (
            *(
                "lapses",
                "sessions_reaped",
                "commits_unknown",
                "leases_read_back",
                "reports_refused",
            ),
            *("reports_dropped", "leases_abandoned", "leases_gone", "entries_claimed"),
            *("rows_handed_off_again", "appends_expired", "sessions_ended", "breakers_opened"),
        ):
            counts[name] += self.world.figures.counts[name]
        for operation in self.clients.operations:
            counts[f"{operation.action}: {operation.outcome}"] += 1
        for name, _ in self.world.figures.alarms:
            counts[f"alarm: {name}"] += 1
        return counts


def _role(process: Process) -> str:
    return process.name.split()[0]


def _told(row: Due) -> str:
    facts = row.run.facts
    return f"{facts.run_id.hex()} is {type(row.run).__name__}, due {facts.due_at - START} ms"


def play(scenario: Scenario) -> Played:
    """Play a scenario."""
    return Play(scenario).play()
