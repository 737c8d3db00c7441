"""Handlers of tenants in virtual time: they take work, beat, and end it through the API's rules."""

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from heapq import heappop, heappush
from typing import Final, TypeVar

from commandside.commands.completions import Completions, RunReply
from commandside.deliverer_port import Call
from commandside.ports import Tick, Unavailable
from domain.problem import Problem
from domain.run.accepted import Progress
from infra.memory.command_log import MemoryCommandLog
from infra.memory.targets import Reply
from tests.commandside.scene import header
from tests.simulation.world import COMPLETIONS, Faults, Process, World

IDLE_US: Final = 1_000_000
ASYNC: Final = (("Tocsin-Completion", "async"),)
Value = TypeVar("Value")


def now(question: Awaitable[Value]) -> Value:
    """Carry out a question to the log in memory, which waits for nothing."""
    steps = question.__await__()
    try:
        next(steps)
    except StopIteration as done:
        found: Value = done.value
        return found
    raise AssertionError("the log in memory waits for nothing")


class Handler:
    """What a handler keeps of one call: the run, its token, and the words for it."""

    def __init__(self, completions: Completions, call: Call) -> None:
        self._completions = completions
        self.call = call
        self.run = header(call, "Tocsin-Run-Id")
        self.token = header(call, "Tocsin-Completion-Token")
        self.attempt = int(header(call, "Tocsin-Attempt"))

    def beat(self, progress: Progress | None = None) -> RunReply | str:
        """Say that it goes on; return the answer, or the code of its refusal."""
        return self._said(lambda c: c.heartbeat(c.attempt(self.run, self.token), progress))

    def complete(self, result: bytes = b"") -> RunReply | str:
        """Say that it is done."""
        return self._said(lambda c: c.complete(c.attempt(self.run, self.token), result))

    def fail(self, reason: str = "", *, retry: bool = True) -> RunReply | str:
        """Give it up."""
        return self._said(lambda c: c.fail(c.attempt(self.run, self.token), reason, retry=retry))

    def _said(self, word: Callable[[Completions], Awaitable[RunReply]]) -> RunReply | str:
        try:
            return now(word(self._completions))
        except Problem as problem:
            return problem.code
        except Unavailable:
            return "unavailable"


class Handlers:
    """A target that takes everything; what it does with it is the test's, or `busy`'s."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.completions = Completions(MemoryCommandLog(world.log), COMPLETIONS)
        self.taken: list[Handler] = []
        world.answer = self.take  # type: ignore[method-assign]  # the world asks its target

    def take(self, call: Call, _at_us: int) -> Reply:
        """Answer that the work is taken."""
        self.taken.append(Handler(self.completions, call))
        return Reply(status=202, headers=ASYNC, latency_us=50_000)

    def of_run(self, attempt: int) -> Handler:
        """Return the one handler of an attempt."""
        (found,) = [one for one in self.taken if one.attempt == attempt]
        return found


class Busy(Handlers):
    """Handlers that work by themselves: most beat and end well, some die, stall or come late."""

    def __init__(self, world: World, seed: int) -> None:
        super().__init__(world)
        self.random = random.Random(seed)
        self.answers: Counter[str] = Counter()
        self._plans: list[tuple[int, int, Handler, str]] = []
        self._count = 0
        self._sync = world.answer
        world.add(Process(world, "handlers", lambda _: self))

    def take(self, call: Call, at_us: int) -> Reply:
        """Take two calls of three; the world answers the others."""
        if self.random.random() < 0.3:
            return World.answer(self.world, call, at_us)
        reply = super().take(call, at_us)
        self._plan(self.taken[-1], at_us, self._work())
        if self.random.random() < 0.1:
            # The answer is lost on the way: a dispatcher never hears that the work was taken.
            return Reply(status=0, error="reset", latency_us=60_000)
        return reply

    def _work(self) -> list[tuple[int, str]]:
        """Return what one handler says, and how many ms after its call."""
        whole = self.random.choice((20, 200, 20_000, 90_000, 600_000))
        step = self.random.choice((5_000, 12_000, 25_000, 29_000))
        beats = [(at, "beat") for at in range(step, whole, step)]
        end = self.random.choice(("complete", "complete", "complete", "fail", "dead", "silent"))
        if end == "silent":
            return beats[: self.random.randrange(3)]
        if self.random.random() < 0.2:
            # It stalls, and wakes long after somebody else has its work.
            beats, whole = beats[:1], whole + self.random.choice((50_000, 400_000))
        ends = [(whole, end)] * self.random.choice((1, 1, 2))
        return [*beats, *ends]

    def _plan(self, handler: Handler, at_us: int, words: list[tuple[int, str]]) -> None:
        for after_ms, word in words:
            self._count += 1
            heappush(self._plans, (at_us + after_ms * 1_000, self._count, handler, word))

    def start(self, tick: Tick) -> None:
        """Nothing is held."""

    def run(self, tick: Tick) -> int:
        """Say what is to be said now; return when there is more."""
        while self._plans and self._plans[0][0] <= tick.mono_us:
            _, _, handler, word = heappop(self._plans)
            said = self._say(handler, word)
            self.answers[f"{word}: {said if isinstance(said, str) else said.status}"] += 1
            if said == "unavailable" and word != "beat":
                self._plan(handler, tick.mono_us, [(2_000, word)])
        return min(IDLE_US, self._plans[0][0] - tick.mono_us) if self._plans else IDLE_US

    def _say(self, handler: Handler, word: str) -> RunReply | str:
        if word == "beat":
            percent = self.random.randrange(101)
            return handler.beat(Progress(percent) if percent > 30 else None)
        if word == "complete":
            return handler.complete(b'{"rows": 3}')
        return handler.fail("cannot", retry=word == "fail")

    def die(self) -> None:
        """What handlers planned stays planned: they are not ours."""


__all__ = ["Busy", "Faults", "Handler", "Handlers", "now"]
