"""The targets of a scenario: what each does with a call follows from the seed, run and attempt."""

import random
from hashlib import blake2b
from typing import Final

from commandside.deliverer_port import Call
from infra.memory.targets import NEVER_US, Reply
from tests.commandside.scene import header
from tests.simulation.handlers import ASYNC, Busy, Handler
from tests.simulation.scenario import Scenario
from tests.simulation.world import World

LATENCIES_US: Final = (5_000, 20_000, 20_000, 100_000, 400_000)
"""Few different ones, so that answers come together and are reported together."""
WORKS_MS: Final = (40, 2_000, 8_000, 25_000, 45_000)


class Targets(Busy):
    """All targets. Those below `/async/` take work and end it by themselves."""

    def __init__(self, world: World, scenario: Scenario) -> None:
        super().__init__(world, scenario.seed)
        self._chances = scenario.targets
        self._seed = scenario.seed
        self.lost: dict[str, int] = {}
        """Statuses that were answered and did not arrive, by run and attempt."""
        self.fair = False
        """All targets are well from now on."""

    def take(self, call: Call, at_us: int) -> Reply:
        """Answer a call, or take its work."""
        digest = blake2b(f"{self._seed} {named(call)}".encode(), digest_size=8).digest()
        latency = LATENCIES_US[digest[0] % len(LATENCIES_US)]
        if call.path.startswith("/async/"):
            return self._taken(call, at_us, random.Random(digest), latency)
        if self.fair or not any(self._chances):
            return Reply(latency_us=latency)
        return self._poor(call, random.Random(digest), latency)

    def _poor(self, call: Call, dice: random.Random, latency: int) -> Reply:
        fail, slow, late = self._chances
        roll = dice.random()
        if roll < fail:
            return dice.choice(
                (
                    Reply(status=500, latency_us=latency),
                    Reply(status=500, latency_us=latency),
                    Reply(status=503, latency_us=latency, headers=(("Retry-After", "2"),)),
                    Reply(status=429, latency_us=latency),
                    Reply(status=404, latency_us=latency),
                    Reply(status=410, latency_us=latency),
                    Reply(status=0, error="reset", latency_us=latency),
                    Reply(status=0, error="connect", latency_us=latency),
                )
            )
        if dice.random() < slow:
            limit = call.timeout_ms * 1_000
            return Reply(latency_us=dice.choice((limit - 5_000, limit + 5_000, NEVER_US)))
        if dice.random() < late:
            # It has done its work, and the answer is lost on the way.
            self.lost[named(call)] = 200
            return Reply(status=0, error="reset", latency_us=latency)
        return Reply(latency_us=latency)

    def _taken(self, call: Call, at_us: int, dice: random.Random, latency: int) -> Reply:
        self.taken.append(Handler(self.completions, call))
        whole = dice.choice(WORKS_MS)
        words = [(at, "beat") for at in range(9_000, whole, 9_000)]
        end = dice.choice(("complete", "complete", "complete", "fail", "dead", "silent"))
        if end != "silent" or self.fair:
            words += [(whole, end if end != "silent" else "complete")] * dice.choice((1, 1, 2))
        self._plan(self.taken[-1], at_us, words)
        if dice.random() < 0.1 and not self.fair:
            # The answer is lost on the way: a dispatcher never hears that the work was taken.
            self.lost[named(call)] = 202
            return Reply(status=0, error="reset", latency_us=latency)
        return Reply(status=202, headers=ASYNC, latency_us=latency)


def named(call: Call) -> str:
    """Return the run and the attempt that a call is."""
    return f"{header(call, 'Tocsin-Run-Id')} {header(call, 'Tocsin-Attempt')}"
