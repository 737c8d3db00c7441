"""The scheduler: owns shards, looks 60 s ahead, and hands off what it finds.

    edge    (last edge … now + 60 s]   every second: what comes into sight
    near    (last near … now + 5 s]    every second: what was defined late; from a second before
    whole   (-∞ … now + 60 s]          every 10 s, at a new term, and when a confirmation is missing

The passes are statements over all owned shards. A row that two passes see is published once, as
long as it is on its way. Shards are trusted by this process' own monotonic clock, for less than
their lease; terms bound double work and are not what keeps a fire from doubling.
"""

from typing import Final

import msgspec

from commandside import fault_points
from commandside.firing.chunks import HORIZON_MS
from commandside.firing.hand_off import HandOff
from commandside.ports import ENTRY_BYTES, FaultPoint, NewId, ShardLeases, Telemetry, Tick
from domain.ids import SIZE
from domain.instant import SECOND

LEASE_MS: Final = 6_000
TRUST_US: Final = 5_000_000
"""A shard is believed to be ours for so long after a heartbeat was sent: less than its lease."""
HEARTBEAT_US: Final = 1_000_000
NEAR_BEHIND_MS: Final = 1 * SECOND
"""Between the instant of a decision and its commit, which the look before may have just missed."""
NEAR_AHEAD_MS: Final = 5 * SECOND
PASS_US: Final = 1_000_000
WHOLE_US: Final = 10_000_000
WINDOW_MAX: Final = 20_000
"""Rows of one statement; what is left is read as soon as these are marked."""
CONFIRM_US: Final = 10_000
"""Pause while something is on its way: a broker confirms in a few milliseconds, in lots."""
DRAIN_US: Final = 3_000_000
"""Longest wait for confirmations when this process ends."""
EVER: Final = -(1 << 62)


class SchedulerPorts(msgspec.Struct, frozen=True):
    """What a scheduler works with."""

    leases: ShardLeases
    faults: FaultPoint
    telemetry: Telemetry
    new_id: NewId


class _Pass:
    """One kind of look: when it is due, and whether there was more than one statement shows."""

    __slots__ = ("at_us", "every_us", "more")

    def __init__(self, every_us: int) -> None:
        self.every_us = every_us
        self.at_us = 0
        self.more = False

    def is_due(self, tick: Tick, hand_off: HandOff) -> bool:
        """Tell whether to look now; with more to see, as soon as what was seen is marked."""
        return tick.mono_us >= self.at_us or (self.more and not hand_off.pending)


class Scheduler:
    """One scheduler: `start`, then `run_one_batch` for ever, then `drain` until it says True."""

    def __init__(self, ports: SchedulerPorts, hand_off: HandOff) -> None:
        self._ports, self._hand_off = ports, hand_off
        self._owner = ports.new_id(SIZE)
        self._terms: dict[int, int] = {}
        self._fresh: dict[int, int] = {}
        """Shards under a term whose whole window has not been read yet."""
        self._trusted_until_us = 0
        self._heartbeat_us = 0
        self._edge, self._near, self._whole = _Pass(PASS_US), _Pass(PASS_US), _Pass(WHOLE_US)
        self._taken = _Pass(PASS_US)
        self._seen_to = EVER
        self._near_at = EVER
        """When the last near look was, which saw all that was there: the next goes on from it."""
        self._drain_until_us = 0

    def owned(self, tick: Tick) -> list[int]:
        """Return the shards that this process may believe to be its own."""
        return list(self._terms) if tick.mono_us < self._trusted_until_us else []

    def start(self, tick: Tick) -> None:
        """Take the first shards; raises Unavailable."""
        self._heartbeat(tick)

    def run_one_batch(self, tick: Tick) -> int:
        """Do what is due; return after how many µs to be run again at the latest."""
        self._hand_off.turn(tick)
        if tick.mono_us >= self._heartbeat_us:
            self._heartbeat(tick)
        if tick.mono_us >= self._trusted_until_us:
            self._forget()
        self._look(tick)
        return self._rest_us(tick)

    def drain(self, tick: Tick) -> bool:
        """Publish nothing new, mark what is confirmed within a bound, give the shards back."""
        if not self._drain_until_us:
            self._drain_until_us = tick.mono_us + DRAIN_US
        if tick.mono_us < self._drain_until_us:
            self._hand_off.turn(tick)
            if self._hand_off.pending:
                return False
        self._forget()
        self._ports.leases.release(self._owner)
        return True

    # ---------------------------------------------------------------- shards

    def _heartbeat(self, tick: Tick) -> None:
        terms = self._ports.leases.heartbeat(self._owner, LEASE_MS)
        lost = sum(1 for shard in self._terms if shard not in terms)
        if lost:
            self._ports.telemetry.count("shards_lost", lost)
        taken = {s: term for s, term in terms.items() if self._terms.get(s) != term}
        fresh = self._fresh | taken
        self._fresh = {shard: terms[shard] for shard in fresh if shard in terms}
        self._terms = terms
        # Measured from before the statement was sent: a process that slept learns it by itself.
        self._trusted_until_us = tick.mono_us + TRUST_US
        self._heartbeat_us = tick.mono_us + HEARTBEAT_US
        self._ports.telemetry.gauge("shards_owned", len(terms))
        if taken:
            self._taken.at_us = 0
            self._ports.faults.hit(fault_points.SHARDS_OWNED)

    def _forget(self) -> None:
        """Believe nothing: with the next heartbeat each shard's window is read anew."""
        self._terms, self._fresh = {}, {}

    # ---------------------------------------------------------------- passes

    def _look(self, tick: Tick) -> None:
        hand_off = self._hand_off
        if not self._terms or not hand_off.has_room(tick):
            return
        if hand_off.overdue:
            hand_off.overdue = False
            self._whole.at_us = 0
        horizon = tick.at + HORIZON_MS
        if self._whole.is_due(tick, hand_off):
            # It has seen what the other two would.
            if self._read(self._whole, self._terms, (EVER, horizon), tick):
                self._fresh, self._seen_to, self._near_at = {}, horizon, tick.at
            return
        if (
            self._fresh
            and self._taken.is_due(tick, hand_off)
            and self._read(self._taken, self._fresh, (EVER, horizon), tick)
        ):
            self._fresh = {}
        if self._edge.is_due(tick, hand_off) and self._read(
            self._edge, self._terms, (self._seen_to, horizon), tick
        ):
            self._seen_to = horizon
        if self._near.is_due(tick, hand_off):
            window = (min(self._near_at, tick.at) - NEAR_BEHIND_MS, tick.at + NEAR_AHEAD_MS)
            if self._read(self._near, self._terms, window, tick):
                self._near_at = tick.at

    def _read(
        self, kind: _Pass, terms: dict[int, int], window: tuple[int, int], tick: Tick
    ) -> bool:
        """Hand off what a window shows; return whether that was all of it."""
        kind.at_us = tick.mono_us + kind.every_us
        chunks = self._hand_off.due.window(terms, *window, WINDOW_MAX)
        kind.more = sum(len(chunk.entries) for chunk in chunks) >= WINDOW_MAX * ENTRY_BYTES
        if chunks:
            self._ports.faults.hit(fault_points.DUE_READ)
        return self._hand_off.publish(chunks, tick) and not kind.more

    def _rest_us(self, tick: Tick) -> int:
        due_us = self._heartbeat_us
        if self._terms and self._hand_off.has_room(tick):
            due_us = min(due_us, self._edge.at_us, self._near.at_us, self._whole.at_us)
        rest = max(0, due_us - tick.mono_us)
        return min(rest, CONFIRM_US) if self._hand_off.pending else rest
