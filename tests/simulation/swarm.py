"""Draws a scenario from a seed: each seed has its own few features and faults, many of each.

A world in which everything can happen is a world in which every rare thing is drowned by the
others; so a seed leaves most things out, and what it has comes often.
"""

import random
from collections.abc import Callable
from typing import Any, Final

from commandside import fault_points
from domain.instant import SECOND, rfc3339
from tests.simulation.clients import TENANTS
from tests.simulation.scenario import Deed, NewJob, Scenario, Woe
from tests.simulation.world import START, Weather

MINUTE: Final = 60 * SECOND
KINDS: Final = ("one_time", "cron", "quartz", "every", "rrule", "delay", "burst")
POLICIES: Final = (
    *("overlap", "misfire", "max_lateness", "max_runs", "ends", "jitter", "exact", "failures"),
    *("timeout", "async"),
)
DEEDS: Final = (
    *("pause", "cancel", "edit", "move", "trigger", "backfill", "redrive", "again", "repeat"),
    *("late", "foreign"),
)
WOES: Final = (
    *("log", "message", "delay", "index", "command", "view", "fail", "slow"),
    *("postgres", "broker", "wipe", "stall", "sleep", "session", "point", "port", "drift"),
    *("history", "outage"),
)
_PLAIN: Final = {
    "redrive": "redrive",
    "again": "define",
    "foreign": "foreign",
    "cancel": "cancel",
}
"""Deeds that need no words."""
SCHEDULERS: Final = (0, 1)
DISPATCHERS: Final = (2, 3)
PROJECTOR: Final = 4
FIRES: Final = 1_500
"""About how many fires a scenario is given."""


class Swarm:
    """The dice of one seed, and what they have drawn so far."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.dice = random.Random(f"swarm {seed}")
        self.kinds = self._some(KINDS, 0.4) or ["every"]
        self.policies = self._some(POLICIES, 0.35)
        self.deeds = self._some(DEEDS, 0.35)
        self.woes = self._some(WOES, 0.3)
        self.ms = self.dice.choice((3, 4, 6)) * MINUTE
        self.jobs: list[NewJob] = []

    def _some(self, names: tuple[str, ...], chance: float) -> list[str]:
        return [name for name in names if self.dice.random() < chance]

    def scenario(self) -> Scenario:
        """Return what was drawn."""
        self._define()
        deeds = self._clients() if self.deeds else []
        targets = tuple(
            self.dice.choice((0.02, 0.1, 0.4)) if name in self.woes else 0.0
            for name in ("fail", "slow", "slow")
        )
        fail, slow, done = targets
        return Scenario(
            self.seed,
            self.ms,
            tuple(sorted(self.jobs, key=lambda job: job.at)),
            tuple(sorted(deeds, key=lambda deed: deed.at)),
            tuple(sorted(self._woes(), key=lambda woe: woe.at)),
            self._weather(),
            (fail, slow, done),
            (*self.kinds, *self.policies, *self.deeds, *self.woes),
        )

    # ---------------------------------------------------------------- jobs

    def _define(self) -> None:
        fires = 0
        bound = self.dice.choice((FIRES // 4, FIRES, FIRES))
        while fires < bound:
            fires += self._jobs_of(self.dice.choice(self.kinds))

    def _jobs_of(self, kind: str) -> int:
        """Define some jobs of a kind; return how often they will fire, about."""
        count = self.dice.choice((1, 3, 10, 30))
        if kind == "burst":
            count, at = self.dice.choice((50, 200)), self.dice.randrange(MINUTE, self.ms)
            batch = len(self.jobs) + 1
            for _ in range(count):
                self._job({"type": "one_time", "run_at": _text(at)}, batch=batch)
            return count
        if kind == "one_time":
            for _ in range(count):
                at = self.dice.randrange(2 * SECOND, self.ms)
                at -= self.dice.choice((0, at % SECOND, at % (10 * SECOND)))
                self._job({"type": "one_time", "run_at": _text(max(at, 2 * SECOND))})
            return count
        seconds, schedule = self._schedule(kind)
        for _ in range(count):
            self._job({"type": "recurring", **schedule})
        return max(1, count * self.ms // SECOND // seconds)

    def _schedule(self, kind: str) -> tuple[int, dict[str, Any]]:
        """Return about how many seconds lie between two fires, and the schedule."""
        seconds = self.dice.choice((2, 5, 10, 20, 60))
        zone = self.dice.choice(("UTC", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe"))
        if kind == "cron":
            return 60, {"schedule": "* * * * *", "timezone": zone}
        if kind == "quartz":
            text = f"0/{seconds} * * * * ?" if seconds < 60 else "7 * * * * ?"
            return seconds, {"schedule": text, "dialect": "quartz", "timezone": zone}
        if kind == "rrule":
            seconds = max(seconds, 10)
            rule = f"FREQ=SECONDLY;INTERVAL={seconds}"
            if seconds == 60:
                rule = "FREQ=MINUTELY;BYSECOND=5"
            return seconds, {"rrule": rule, "timezone": zone, "anchor": _text(0)}
        if kind == "delay":
            return seconds, {"every": f"PT{seconds}S", "from": "completion"}
        anchor = self.dice.choice((0, 0, self.dice.randrange(10 * SECOND)))
        return seconds, {"every": f"PT{seconds}S", "anchor": _text(anchor)}

    def _job(self, body: dict[str, Any], *, batch: int = 0) -> None:
        number = len(self.jobs)
        tenant = self.dice.randrange(TENANTS)
        path = "async" if "async" in self.policies and self.dice.random() < 0.3 else "run"
        target = {"kind": "http", "url": f"https://t{tenant}.example.com/{path}/{number}"}
        retry = {
            "max_attempts": self.dice.choice((1, 2, 4)),
            "backoff": self.dice.choice(("fixed", "exponential")),
            "base_s": 1,
            "max_s": 8,
        }
        whole = {**body, "target": target, "retry": retry, **self._policy(body)}
        if self.dice.random() < 0.7:
            whole["payload"] = {"job": number, "tenant": tenant}
        at = 0 if batch or self.dice.random() < 0.7 else self.dice.randrange(self.ms // 2)
        if "run_at" in body or "ends_at" in whole:
            at = 0
        if "again" in self.deeds and self.dice.random() < 0.5:
            whole["key"] = f"job-{number}"
        self.jobs.append(NewJob(at, tenant, whole, f"define-{number}", batch))

    def _policy(self, body: dict[str, Any]) -> dict[str, Any]:
        pick, found = self.dice.choice, dict[str, Any]()
        found["timeout_s"] = pick((2, 5)) if "timeout" in self.policies else 10
        recurring, delay = "run_at" not in body, body.get("from") == "completion"
        if "max_lateness" in self.policies and self.dice.random() < 0.4:
            found["max_lateness_s"] = pick((5, 30, 90))
        if not recurring:
            return found
        if not delay:
            if "overlap" in self.policies:
                found["overlap"] = pick(("skip", "allow", "buffer_one", "buffer_all"))
                found["overlap"] = pick((found["overlap"], "cancel_other"))
                if found["overlap"] in ("allow", "buffer_all"):
                    found["overlap_limit"] = pick((2, 5, 50))
            if "misfire" in self.policies:
                found["misfire"] = pick(("latest", "all", "skip"))
            exact = "exact" in self.policies and self.dice.random() < 0.3
            jitter = "jitter" in self.policies and not exact
            found |= {"exact": True} if exact else {"jitter_s": pick((0, 1, 4)) if jitter else 0}
        if "max_runs" in self.policies and self.dice.random() < 0.5:
            found["max_runs"] = pick((1, 3, 10))
        if "ends" in self.policies and self.dice.random() < 0.5:
            found["ends_at"] = _text(self.dice.randrange(self.ms // 2, self.ms))
        if "failures" in self.policies and self.dice.random() < 0.5:
            found["pause_after_failures"] = pick((1, 3))
        return found

    # ---------------------------------------------------------------- clients

    def _clients(self) -> list[Deed]:
        deeds: list[Deed] = []
        for _ in range(min(4 * len(self.jobs), self.dice.choice((20, 80, 200)))):
            number = self.dice.randrange(len(self.jobs))
            at = self.dice.randrange(SECOND, self.ms)
            # Near an instant on which much is due, as often as not.
            at += self.dice.choice((0, -(at % (10 * SECOND)) + self.dice.randint(-60, 60)))
            deeds += self._deeds_of(self.dice.choice(self.deeds), number, max(at, SECOND))
        return deeds

    def _deeds_of(self, name: str, number: int, at: int) -> list[Deed]:
        dice, job = self.dice, self.jobs[number]
        later = at + dice.choice((300, 5 * SECOND, 40 * SECOND, 100 * SECOND))
        repeats = dice.choice((0, 1, 2)) if "repeat" in self.deeds else 0
        match name:
            case "pause":
                catch_up = dice.choice(("latest", "all", "none"))
                resume = {} if dice.random() < 0.4 else {"catch_up": catch_up}
                until = {"until": _text(later)} if dice.random() < 0.3 else {}
                return [
                    Deed(at, "pause", number, until, repeats),
                    Deed(later + 1, "resume", number, resume, repeats),
                ]
            case "edit":
                patch: dict[str, Any] = {"timeout_s": dice.randint(3, 20), "payload": {"edit": at}}
                if dice.random() < 0.5:
                    url = f"https://t{job.tenant}.example.com/run/{number}/{at}"
                    patch = {"target": {"kind": "http", "url": url}}
                return [Deed(at, "revise", number, patch, repeats)]
            case "move" if "run_at" in job.body:
                return [Deed(at, "revise", number, {"run_at": _text(later)}, repeats)]
            case "move" if "from" not in job.body and "max_runs" not in job.body:
                moved = {"every": f"PT{dice.choice((3, 7, 30))}S", "anchor": _text(0)}
                return [Deed(at, "revise", number, moved, repeats)]
            case "trigger":
                beside = {"overlap": "allow"} if dice.random() < 0.5 else {}
                return [Deed(at, "trigger", number, beside, repeats)]
            case "backfill":
                body: dict[str, Any] = {
                    "from": _text(max(0, at - 60 * SECOND)),
                    "to": _text(at - SECOND),
                    "rerun": dice.random() < 0.5,
                }
                return [Deed(at, "backfill", number, body, repeats)]
            case "late":
                # The same command once more, long after others.
                return [Deed(at, dice.choice(("pause", "resume", "trigger")), number, {}, 3)]
            case _:
                return [Deed(at, _PLAIN.get(name, "trigger"), number, {}, repeats)]

    # ---------------------------------------------------------------- troubles

    def _weather(self) -> Weather:
        def chance(name: str, *values: float) -> float:
            return self.dice.choice(values) if name in self.woes else 0.0

        return Weather(
            log=chance("log", 0.01, 0.05),
            message=chance("message", 0.05, 0.3),
            delay=chance("delay", 0.1, 0.5),
            index=chance("index", 0.01, 0.1),
            command=chance("command", 0.05, 0.2),
            view=chance("view", 0.05, 0.3),
        )

    def _woes(self) -> list[Woe]:
        found: list[Woe] = []
        for name in self.woes:
            make = _MAKERS.get(name)
            if make is not None:
                found += make(self)
        return found

    def when(self) -> int:
        """Return an instant, often shortly before one on which much is due."""
        at = self.dice.randrange(5 * SECOND, self.ms)
        return at - self.dice.choice((0, at % (10 * SECOND) + self.dice.randrange(2 * SECOND)))


def _text(at: int) -> str:
    return rfc3339(START + at)


def _times(swarm: Swarm, most: int) -> range:
    return range(swarm.dice.randint(1, most))


def _away(kind: str, *lengths: int) -> Callable[[Swarm], list[Woe]]:
    def make(swarm: Swarm) -> list[Woe]:
        return [
            Woe(max(0, swarm.when()), kind, ms=swarm.dice.choice(lengths)) for _ in _times(swarm, 3)
        ]

    return make


def _sleeps(swarm: Swarm) -> list[Woe]:
    lengths = (500, 1_500, 4_000, 9_000, 14_000, 45_000)
    return [
        Woe(max(0, swarm.when()), "sleep", swarm.dice.randrange(4), swarm.dice.choice(lengths))
        for _ in _times(swarm, 12)
    ]


def _points(swarm: Swarm) -> list[Woe]:
    names = [(n, "scheduler") for n in fault_points.ROLES["scheduler"]]
    names += [(n, "dispatcher") for n in fault_points.ROLES["dispatcher"]]
    some = swarm.dice.sample(names, swarm.dice.randint(1, len(names)))
    found = []
    for name, role in some:
        who = SCHEDULERS if role == "scheduler" else DISPATCHERS
        for _ in _times(swarm, 3):
            at, process = max(0, swarm.when()), swarm.dice.choice(who)
            found.append(Woe(at, "point", process, detail=name))
    return found


def _ports(swarm: Swarm) -> list[Woe]:
    return [
        Woe(
            max(0, swarm.when()),
            "port",
            swarm.dice.randrange(PROJECTOR + 1),
            number=swarm.dice.choice((1, 2, 3, 5, 8, 13, 30, 100)),
        )
        for _ in _times(swarm, 20)
    ]


def _drifts(swarm: Swarm) -> list[Woe]:
    return [
        Woe(
            max(0, swarm.when()), "drift", process, number=swarm.dice.choice((-20_000, 300, 20_000))
        )
        for process in range(PROJECTOR + 1)
    ]


def _outages(swarm: Swarm) -> list[Woe]:
    """Everybody stops for longer than a misfire takes."""
    at, length = max(0, swarm.when()), swarm.dice.choice((70, 100)) * SECOND
    return [Woe(at, "sleep", process, length) for process in range(PROJECTOR)]


_MAKERS: Final[dict[str, Callable[[Swarm], list[Woe]]]] = {
    "postgres": _away("postgres", 500, 2_000, 8_000, 25_000, 65_000),
    "broker": _away("broker", 1_000, 5_000, 40_000),
    "stall": _away("stall", 3_000, 9_000, 30_000),
    "wipe": _away("wipe", 0, 1),
    "history": _away("history", 5_000, 60_000),
    "session": _away("session", 0),
    "sleep": _sleeps,
    "point": _points,
    "port": _ports,
    "drift": _drifts,
    "outage": _outages,
}


def draw(seed: int) -> Scenario:
    """Return the scenario of a seed."""
    return Swarm(seed).scenario()
