"""No target host has all the calls of a dispatcher: at most a share, and the rest waits by itself.

A host (with its port) that hangs keeps each call for the whole of its timeout. Without a share its
calls would be all there are, and nobody else's could begin.

    call ─► gate of its host ─has a place─► called
                 │ full: leased already, waits for a place or for its send deadline
    entry ─known to be of a shut gate─► held, not leased ─place─► ready
                                          │ held too long, or too many
                                          └─► deferred: waits in the due index

An entry names a job and no host. So nothing is asked of entries while no gate is shut, which is
nearly always; while one is, the jobs of entries are read before they are leased, and remembered. A
gate is shut while its host ends calls too slowly for what is leased for it already, and while its
breaker is not closed: then each call has a place before it has a lease.
"""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final

from commandside.firing.breaker import Breaker
from commandside.firing.reports import Flight
from commandside.firing.timing import Entry
from domain.job.events import JobSpec
from domain.target import HttpTarget, origin_of

Waiting = tuple[Flight, JobSpec, int]
"""A leased attempt that waits for room, the spec of its body, and the instant not to send after."""

Origin = tuple[str, int]
"""Host and port, or the connection to a broker: a service is one, and its neighbours are not."""

GRACE_US: Final = 100_000
"""A gate is not shut before it has been full for so long: a burst at a quick host is over then."""
WINDOWS: Final = 3
"""What waits leased at a gate is called in time if it lands within so many windows of 250 ms."""
HELD_US: Final = 60_000_000
"""What is held for so long is deferred: messages are not kept open for longer."""
HELD_MAX: Final = 10_000
"""Entries held for all gates together; more are deferred at once."""
RETRY_VERSION: Final = 4
"""Of a run's stream that has an attempt behind it: Scheduled, Leased, Fired, Scheduled.

A first attempt that was edited so often looks like a retry, and can be put off like one.
"""
GATES_LOOKED_AT: Final = 500
"""Gates that nothing waits at, in a window: a turn of the loop is not for all hosts at once."""
ROUND: Final = 40
"""Windows in which all of them have been looked at, however many they are: 10 s."""
KNOWN_MAX: Final = 50_000
"""Jobs whose host is remembered while a gate is shut; with more, all are read anew."""


def origin(spec: JobSpec) -> Origin:
    """Return what a job calls."""
    target = spec.target
    # Asked for every fire: the usual kind is told here.
    return (target.host, target.port) if type(target) is HttpTarget else origin_of(target)


class Gate:
    """The calls of one target host."""

    __slots__ = (
        *("breaker", "busy", "full_us", "held", "landed", "landed_before", "origin", "passing"),
        "waiting",
    )

    def __init__(self, origin: Origin, share: int) -> None:
        self.origin = origin
        self.breaker = Breaker(share)
        self.busy = 0
        """Calls in flight."""
        self.landed = self.landed_before = 0
        """Calls that have ended in this window, and in the last one."""
        self.waiting: deque[Waiting] = deque()
        self.held: deque[tuple[Entry, int]] = deque()
        """Entries that are not leased, and since when (µs) they are held."""
        self.passing = 0
        """Entries that have a place here and are on their way to their lease."""
        self.full_us = 0

    def is_shut(self, now_us: int) -> bool:
        """Tell whether nothing more is leased for this host."""
        if self.held or not self.breaker.is_closed:
            return True
        in_time = WINDOWS * max(self.landed, self.landed_before)
        return now_us - self.full_us >= GRACE_US and len(self.waiting) > in_time


class Bulkhead:
    """The gates of the hosts that are called; `share` is how many calls one may have in flight."""

    def __init__(self, share: int) -> None:
        self.share = share
        self.crowded: dict[Origin, Gate] = {}
        """Gates with something that waits."""
        self.passing: dict[tuple[bytes, int], Gate] = {}
        """Runs and versions that have left `held` and are not leased yet."""
        self.held = 0
        self.spent: set[Origin] = set()
        """Hosts that get no retry now."""
        self._now_us = 0
        self._gates: dict[Origin, Gate] = {}
        self._round: Iterator[Gate] = iter(())
        self._known: dict[bytes, Origin] = {}
        """Job → host; empty while no gate is crowded."""

    def gate(self, origin: Origin) -> Gate:
        """Return the gate of a host."""
        gate = self._gates.get(origin)
        if gate is None:
            gate = self._gates[origin] = Gate(origin, self.share)
        return gate

    def crowd(self, origin: Origin, item: Waiting) -> None:
        """Let a leased attempt wait for a place of its host."""
        gate = self.crowded.get(origin)
        if gate is None:
            gate = self.crowded[origin] = self.gate(origin)
            gate.full_us = self._now_us
        gate.waiting.append(item)
        self._learn(item[0].run.facts.job_id, origin)

    def opened(self, gate: Gate) -> None:
        """Hold what comes for a host whose breaker has opened."""
        if gate.origin not in self.crowded:
            gate.full_us = self._now_us
            self.crowded[gate.origin] = gate

    def began(self, gate: Gate, *, retry: bool) -> None:
        """Count a call that begins."""
        gate.breaker.began(retry=retry)
        if retry and gate.breaker.is_spent:
            self.spent.add(gate.origin)

    # ---------------------------------------------------------------- entries

    def looked_at(self) -> int | None:
        """Return from which version on entries are looked at before their lease; None: not at all.

        It holds for a batch: nothing that is done with an entry shuts another gate.
        """
        if any(gate.is_shut(self._now_us) for gate in self.crowded.values()):
            return 0
        return RETRY_VERSION if self.spent else None

    def refuses(self, entry: Entry, origin: Origin) -> bool:
        """Tell whether an entry is a retry at a host that gets none now."""
        return origin in self.spent and entry[3] >= RETRY_VERSION

    def origin_of(self, job_id: bytes) -> Origin | None:
        """Return the host that a job calls, as it was last known; None: read the job."""
        return self._known.get(job_id)

    def bars(self, entry: Entry, origin: Origin) -> bool:
        """Tell whether an entry, whose job calls this host, may not be leased now."""
        self._learn(entry[2], origin)
        gate = self.crowded.get(origin)
        if gate is None or (entry[1], entry[3]) in self.passing:
            return False
        return gate.is_shut(self._now_us)

    def hold(self, entry: Entry, origin: Origin) -> bool:
        """Hold a barred entry until its host has a place; False if too many are held."""
        if self.held >= HELD_MAX:
            return False
        self.crowded[origin].held.append((entry, self._now_us))
        self.held += 1
        return True

    def sweep(self) -> list[Entry]:
        """Let go of the held entries whose messages were revoked, and return them."""
        dead: list[Entry] = []
        for gate in self.crowded.values():
            dead += [entry for entry, _ in gate.held if entry[4].dead]
            gate.held = deque(item for item in gate.held if not item[0][4].dead)
        self.held -= len(dead)
        return dead

    def passed(self, entry: Entry) -> None:
        """Take back the place of an entry: it is leased now, or goes another way.

        An older version of a run, edited while it was held, has a place of its own.
        """
        gate = self.passing.pop((entry[1], entry[3]), None)
        if gate is not None:
            gate.passing -= 1

    # ---------------------------------------------------------------- what goes on

    def turn(self, now_us: int, *, window: bool) -> None:
        """Take the time; `window`: a new window begins. Gates that are idle are forgotten."""
        self._now_us = now_us
        if not window:
            return
        for gate in list(self.crowded.values()):
            self._turn(gate)
        looked_at = max(GATES_LOOKED_AT, len(self._gates) // ROUND)
        some = list(islice(self._round, looked_at))
        if len(some) < looked_at:
            self._round = iter(list(self._gates.values()))
        for gate in some:
            # It may be forgotten by now, and another be in its place.
            if gate.origin not in self.crowded and self._gates.get(gate.origin) is gate:
                self._turn(gate)

    def _turn(self, gate: Gate) -> None:
        gate.landed_before, gate.landed = gate.landed, 0
        gate.breaker.turn(self._now_us)
        if gate.origin in self.spent and not gate.breaker.is_spent:
            self.spent.discard(gate.origin)
        waits = gate.waiting or gate.held
        if not (gate.busy or gate.passing or waits) and gate.breaker.is_calm(self._now_us):
            del self._gates[gate.origin]
            self.crowded.pop(gate.origin, None)

    def release(self) -> tuple[list[Waiting], list[Entry], list[Entry]]:
        """Return what may go on: attempts to call or give up, entries to lease, and to defer."""
        now_us = self._now_us
        calls: list[Waiting] = []
        ready: list[Entry] = []
        stale: list[Entry] = []
        for origin, gate in list(self.crowded.items()):
            places = gate.breaker.limit - gate.busy - gate.passing
            while gate.waiting and (places > 0 or now_us >= gate.waiting[0][2]):
                calls.append(gate.waiting.popleft())
                places -= 1
            while gate.held and (places > 0 or now_us >= gate.held[0][1] + HELD_US):
                entry, since_us = gate.held.popleft()
                self.held -= 1
                if now_us >= since_us + HELD_US:
                    stale.append(entry)
                    continue
                ready.append(entry)
                self.passing[entry[1], entry[3]] = gate
                gate.passing += 1
                places -= 1
            if not gate.waiting and not gate.held and gate.breaker.is_closed:
                del self.crowded[origin]
        if not self.crowded:
            self._known.clear()
        return calls, ready, stale

    def waiting_in_turn(self) -> int:
        """Return how many leased attempts wait at gates that are open: they will be called soon."""
        gates = self.crowded.values()
        return sum(len(gate.waiting) for gate in gates if not gate.is_shut(self._now_us))

    def last_call_us(self) -> int | None:
        """Return until when the longest waiting attempt may be called, if any waits."""
        return min((g.waiting[0][2] for g in self.crowded.values() if g.waiting), default=None)

    def clear(self) -> list[Waiting]:
        """Forget every entry, and return the leased attempts that wait."""
        waiting = [item for gate in self.crowded.values() for item in gate.waiting]
        for gate in self.crowded.values():
            gate.waiting.clear()
            gate.held.clear()
        self.held = 0
        self.crowded.clear()
        self._known.clear()
        return waiting

    def _learn(self, job_id: bytes, origin: Origin) -> None:
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[job_id] = origin
