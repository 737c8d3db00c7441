"""What happens in a simulation: the jobs, what clients do with them, and what goes wrong when."""

import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import msgspec

from commandside import fault_points
from commandside.command_port import Accepted, BodyDiffers
from commandside.ports import Unavailable
from domain.envelope import Rejected
from domain.job import decide as job
from domain.job import state as js
from domain.job.events import (
    ALL,
    ALLOW,
    BUFFER_ALL,
    BUFFER_ONE,
    CANCEL_OTHER,
    LATEST,
    NONE,
    SKIP,
    JobSpec,
)
from domain.retry import RetryPolicy
from domain.run.state import OpenRun
from domain.schedule.schedule import Cron, parse_cron
from tests.contracts import jobs
from tests.simulation.world import SHARDS, START, Weather, World

SECOND: Final = 1_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
FOUL: Final = Weather(log=0.01, message=0.03, target=0.12)
RETRIES: Final = RetryPolicy(5, "exponential", 2_000, 60_000, max_age_ms=2 * HOUR)
CRASHES: Final = 3
"""How often each crash point is armed."""

Deed = Callable[[], None]


class Story:
    """A world with jobs in it, and a list of what is done to it and when."""

    def __init__(self, seed: int, *, jobs: int, hours: int) -> None:
        self.world = World(seed)
        self.random = random.Random(seed + 1)
        self.hours = hours
        self.end = START + hours * HOUR
        self.job_ids: list[bytes] = []
        self.deeds: list[tuple[int, int, Deed]] = []
        self.answers: list[Accepted | BodyDiffers | Rejected] = []
        self.unanswered = 0
        for number in range(jobs):
            self._define(number, jobs)
        self._clients(jobs)
        self._troubles()

    def play(self) -> None:
        """Do all of it, then let fair weather finish what is due."""
        world = self.world
        world.set_weather(FOUL)
        for at, _, deed in sorted(self.deeds, key=lambda d: d[:2]):
            world.run_until(at)
            deed()
        world.run_until(self.end)
        world.set_weather(Weather())
        for process in world.processes:
            process.faults.armed.clear()
        for job_id in self.job_ids:
            self._command(job_id, job.resume)
        world.run_until(self.end + 3 * HOUR)

    def at(self, when: int, deed: Deed) -> None:
        """Plan a deed."""
        self.deeds.append((when, len(self.deeds), deed))

    def sometime(self, least_ms: int = 0) -> int:
        """Return an instant of the story."""
        return self.random.randint(START + least_ms, self.end - 10 * MINUTE)

    # ---------------------------------------------------------------- jobs

    def _define(self, number: int, count: int) -> None:
        job_id = (number % SHARDS).to_bytes(4, "big") + self.random.randbytes(12)
        spec = self._one_time() if number < count * 7 // 10 else self._recurring()
        decision = jobs.define(job_id, spec, self.world.clock.now())
        assert self.world.log.append([decision], self.world.clock.now()).refused == ()
        self.job_ids.append(job_id)

    def _one_time(self) -> JobSpec:
        # Many on the same instants, so that there are batches, and hours without any.
        when = START + self.random.randrange(1, self.hours * 2) * HOUR // 2
        spec = jobs.spec(jobs.once(when + self.random.choice((0, 0, 0, 1, 250))), payload=b"")
        return msgspec.structs.replace(spec, retry=RETRIES)

    def _recurring(self) -> JobSpec:
        spec = jobs.spec(self.schedule(), payload=b"")
        return msgspec.structs.replace(
            spec,
            retry=RETRIES,
            jitter_ms=self.random.choice((0, 0, 4_000)),
            overlap=self.random.choice((SKIP, SKIP, ALLOW, BUFFER_ONE, BUFFER_ALL, CANCEL_OTHER)),
            overlap_limit=3,
            misfire=self.random.choice((LATEST, LATEST, ALL, NONE)),
            max_lateness_ms=self.random.choice((0, 0, 0, 90 * SECOND)),
        )

    def schedule(self) -> Cron:
        """Return a schedule whose slots fall together with those of many others."""
        minute = self.random.choice((0, 0, 30))
        text = self.random.choice(
            (
                f"{minute} * * * *",
                f"{minute} */4 * * *",
                f"{minute} */2 * * *",
                f"{minute} {self.random.randrange(24)} * * *",
                "*/30 * * * *",
                "*/2 3 * * *",
            )
        )
        found = parse_cron(text, self.random.choice(("UTC", "Europe/Berlin", "Asia/Kolkata")))
        assert isinstance(found, Cron)
        return found

    # ---------------------------------------------------------------- clients

    def _clients(self, count: int) -> None:
        for _ in range(count // 4):
            job_id = self.random.choice(self.job_ids)
            at = self.sometime()
            kind = self.random.randrange(5)
            if kind == 0:
                self.at(at, partial(self._command, job_id, job.pause))
                later = at + self.random.randint(SECOND, 3 * HOUR)
                self.at(min(later, self.end), partial(self._command, job_id, job.resume))
            elif kind == 1:
                self.at(at, partial(self._trigger, job_id))
            elif kind == 2:
                self.at(at, partial(self._revise, job_id, moved=True))
            elif kind == 3:
                self.at(at, partial(self._revise, job_id, moved=False))
            else:
                self.at(at, partial(self._command, job_id, job.cancel))

    def _command(
        self,
        job_id: bytes,
        decide: Callable[[js.JobState | None, tuple[OpenRun, ...], job.By], job.Outcome],
    ) -> None:
        self._ask(
            self.world.commands.command(
                job_id, b"", b"", lambda state, runs, at: decide(state, runs, job.By(at))
            )
        )

    def _trigger(self, job_id: bytes) -> None:
        command = self.random.randbytes(16)
        self._command(job_id, lambda state, runs, by: job.trigger(state, runs, command, by))

    def _revise(self, job_id: bytes, *, moved: bool) -> None:
        schedule, timeout = self.schedule(), self.random.randint(5_000, 40_000)

        def decide(state: js.JobState | None, runs: tuple[OpenRun, ...], by: job.By) -> job.Outcome:
            assert state is not None
            spec = msgspec.structs.replace(state.facts.spec, timeout_ms=timeout)
            if moved and not spec.is_one_time:
                spec = msgspec.structs.replace(spec, schedule=schedule)
            return job.revise(state, runs, spec, "", by)

        self._command(job_id, decide)

    def _ask(self, question: Awaitable[Accepted | BodyDiffers | Rejected]) -> None:
        """Carry out a command now; the log in memory never waits."""
        steps = question.__await__()
        try:
            next(steps)
        except Unavailable:
            self.unanswered += 1
        except StopIteration as done:
            self.answers.append(done.value)
        else:
            raise AssertionError("the log in memory waits for nothing")

    # ---------------------------------------------------------------- troubles

    def _troubles(self) -> None:
        points = fault_points.ROLES
        for _ in range(CRASHES):
            for name in points["scheduler"]:
                self._crash(name, "scheduler")
            for name in points["dispatcher"]:
                self._crash(name, "dispatcher")
        days = max(1, self.hours // 24)
        for _ in range(4 * days):
            self._outage(self.random.choice((2, 8, 25, 90)))
            self._broker_away(self.random.choice((5, 40)))
            self._wipe()
            self._sleep()
            self._session_lost()

    def _crash(self, name: str, role: str) -> None:
        number = self.random.randrange(2) + (2 if role == "dispatcher" else 0)
        faults = self.world.processes[number].faults

        def arm() -> None:
            faults.armed.add(name)

        self.at(self.busy(), arm)

    def busy(self) -> int:
        """Return an instant shortly before one on which much is due."""
        half_hours = self.random.randrange(1, self.hours * 2 - 1)
        return START + half_hours * HOUR // 2 - self.random.randint(0, 90) * SECOND

    def _outage(self, seconds: int) -> None:
        at = self.busy()

        def set_away(*, away: bool) -> Deed:
            def deed() -> None:
                self.world.log.away = away

            return deed

        self.at(at, set_away(away=True))
        self.at(at + seconds * SECOND, set_away(away=False))

    def _broker_away(self, seconds: int) -> None:
        at = self.busy()

        def set_away(*, away: bool) -> Deed:
            def deed() -> None:
                self.world.broker.away = away

            return deed

        self.at(at, set_away(away=True))
        self.at(at + seconds * SECOND, set_away(away=False))

    def _wipe(self) -> None:
        noticeable = self.random.random() < 0.5
        self.at(self.busy(), lambda: self.world.broker.wipe(noticeable=noticeable))

    def _sleep(self) -> None:
        at, number = self.busy(), self.random.randrange(4)
        until = at + self.random.randint(1, 40) * SECOND
        self.at(at, lambda: self.world.hold(number, until))

    def _session_lost(self) -> None:
        def deed() -> None:
            for session in list(self.world.log.sessions)[:1]:
                self.world.log.end(session)

        self.at(self.busy(), deed)
