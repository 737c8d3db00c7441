"""The auditor: re-derives from Postgres alone what should have happened, and makes it happen.

Runs beside the scheduler for the shards it owns, or alone for all of them, any number of times.
Five things: sessions of dead processes are ended and their leases lapse; pauses whose end has come
are ended; due rows that nobody leased are handed off again; after a broker lost its messages their
marks are taken back; and the figures that must be zero are counted.

It reclaims nothing before it has itself been connected for 11 s. After an outage of the database
all sessions are over and all reports are waiting; reclaiming first would double every attempt.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from commandside import fault_points
from commandside.firing.hand_off import HandOff, SelfHandOff
from commandside.ports import (
    BATCH_MAX,
    ENTRY_BYTES,
    SESSION_MS,
    FaultPoint,
    Standing,
    Telemetry,
    Tick,
    Unavailable,
)
from domain.envelope import Decision
from domain.instant import SECOND
from domain.job.command import By
from domain.job.ending import report_among
from domain.job.events import FAILURES
from domain.job.resume import LATEST, USUAL, resume
from domain.job.state import Paused
from domain.run.accepted import lapsed
from domain.run.state import OpenRun

GRACE_US: Final = (SESSION_MS + 1 * SECOND) * 1_000
"""Connected for so long before anything is reclaimed: every living process has renewed by then."""
ACCEPTED_GRACE_US: Final = 60_000_000
"""As much for accepted attempts, whose handlers could not be heard either and beat less often."""
GAP_US: Final = 3_000_000
"""Not having reached the database for so long starts the grace anew."""
REAP_US: Final = 250_000
LAPSE_US: Final = 1_000_000
STALE_US: Final = 1_000_000
STALE_MAX: Final = 1_000
"""Rows handed off again in one pass: a tenth of what one process fires in a second or so."""
UNMARK_MAX: Final = 5_000
PARKED_MAX: Final = 1_000
"""Lapses and resumes remembered as having no luck; of more, the oldest is tried again at once."""
PARK_US: Final = (5_000_000, 10_000_000, 30_000_000, 60_000_000)
"""How long one rests after failures one after the other."""
RESUME_US: Final = 1_000_000
RESUMES_MAX: Final = 50
"""Pauses ended in one pass."""
HEALTH_US: Final = 5_000_000
HEADS_MAX: Final = 4_000
"""Heads looked at in one check, about; more jobs are checked in more parts."""
PARTS_MAX: Final = 1 << 16
APPEND_EXPIRY_MS: Final = 5 * SECOND


class AuditorPorts(msgspec.Struct, frozen=True):
    """What an auditor works with; `shards` says which are its own at a tick."""

    shards: Callable[[Tick], Sequence[int]]
    faults: FaultPoint
    telemetry: Telemetry


class Auditor:
    """One audit loop: `start`, then `run_one_batch` for ever, then `drain`."""

    def __init__(self, ports: AuditorPorts, hand_off: HandOff, retries: SelfHandOff) -> None:
        self._ports, self._hand_off, self._retries = ports, hand_off, retries
        self._due = hand_off.due
        self._connected_us = self._heard_us = -GAP_US
        self._resume_us = 0
        self._reap_us = self._lapse_us = self._stale_us = self._health_us = 0
        self._renewals = hand_off.renewals
        self._lost_before = 0
        self._covered: set[int] = set()
        """Shards whose marks from before then have been taken back."""
        self._part, self._parts = 0, 1
        self._broken: dict[int, int] = {}
        self._parked: dict[bytes, tuple[int, int]] = {}
        """Runs and jobs that failed: when (µs) to try again, and how often it has failed."""

    def start(self, tick: Tick) -> None:
        """Nothing is held."""

    def run_one_batch(self, tick: Tick) -> int:
        """Do what is due; return after how many µs to be run again at the latest."""
        self._hand_off.turn(tick)
        shards = self._ports.shards(tick)
        if shards:
            if tick.mono_us - self._heard_us > GAP_US:
                self._connected_us = tick.mono_us
            self._audit(shards, tick)
        soonest = min(self._reap_us, self._stale_us, self._health_us)
        return max(0, soonest - tick.mono_us) if shards else REAP_US

    def drain(self, tick: Tick) -> bool:
        """Mark what has just been confirmed; what is not is found by the next owner."""
        self._hand_off.turn(tick)
        return True

    def _audit(self, shards: Sequence[int], tick: Tick) -> None:
        now = tick.mono_us
        if self._hand_off.renewals != self._renewals:
            # Once, by the clock that marks are made with; what is marked later is the new broker's.
            self._renewals, self._lost_before = self._hand_off.renewals, tick.at
            self._covered.clear()
            self._hand_off.overdue = True
        if self._lost_before:
            # Also what is taken over later: its last owner may have died without noticing.
            self._forget_marks([shard for shard in shards if shard not in self._covered])
        if now >= self._stale_us:
            self._stale_us = now + STALE_US
            self._hand_off_again(shards, tick)
        if now >= self._reap_us:
            self._reap_us = now + REAP_US
            if now - self._connected_us >= GRACE_US:
                self._reclaim(shards, tick)
        if now >= self._resume_us:
            self._resume_us = now + RESUME_US
            self._end_pauses(shards, tick)
        if now >= self._health_us:
            self._health_us = now + HEALTH_US
            self._look_after(shards)
        self._heard_us = now

    # ---------------------------------------------------------------- what dead processes held

    def _reclaim(self, shards: Sequence[int], tick: Tick) -> None:
        reaped = self._due.reap()
        if reaped:
            self._ports.telemetry.count("sessions_reaped", reaped)
            self._ports.faults.hit(fault_points.SESSIONS_REAPED)
        if not reaped and tick.mono_us < self._lapse_us:
            return
        self._lapse_us = tick.mono_us + LAPSE_US
        # Room beside those that rest, or as many of them would hide all the others.
        waited = tick.mono_us - self._connected_us >= ACCEPTED_GRACE_US
        room = BATCH_MAX + len(self._parked)
        over = self._due.lapsed(shards, room, accepted=waited)
        parked, now = self._parked, tick.mono_us
        ready = [(s, run) for s, run in over if parked.get(run.facts.run_id, (0, 0))[0] <= now]
        decisions = lapses(ready[:BATCH_MAX], tick.at, lambda run, why: self._park(run, tick, why))
        if not decisions:
            return
        self._ports.faults.hit(fault_points.LAPSES_DECIDED)
        done = self._append(decisions, tick)
        self._ports.telemetry.count("lapses", len(done))
        self._ports.faults.hit(fault_points.LAPSES_APPENDED)
        self._retries.offer((own.after for decision in done for own in decision.slices), tick.at)
        if done:
            # There may be more than one statement showed.
            self._lapse_us = 0

    def _append(self, decisions: dict[bytes, Decision], tick: Tick) -> list[Decision]:
        """Append lapses and return which hold: all at once, or one by one if one is a bug."""
        expires_at = tick.at + APPEND_EXPIRY_MS
        lots = [list(decisions)]
        done: list[Decision] = []
        while lots:
            lot = lots.pop()
            tried = [decisions[run_id] for run_id in lot]
            try:
                held = self._due.append(tried, expires_at)
            except Unavailable:
                raise
            except Exception as error:  # noqa: BLE001 - about one of them; the others go on
                if len(lot) == 1:
                    self._park(lot[0], tick, repr(error))
                lots += [[run_id] for run_id in lot] if len(lot) > 1 else []
                continue
            done += [decision for decision, holds in zip(tried, held, strict=True) if holds]
            for run_id in lot:
                self._parked.pop(run_id, None)
        return done

    def _park(self, key: bytes, tick: Tick, why: str) -> None:
        """Let what failed rest, for longer each time; its row stays where it is found."""
        failed = self._parked.pop(key, (0, 0))[1]
        pause = PARK_US[min(failed, len(PARK_US) - 1)]
        self._parked[key] = (tick.mono_us + pause, failed + 1)
        if len(self._parked) > PARKED_MAX:
            del self._parked[next(iter(self._parked))]
        self._ports.telemetry.count("lapses_parked")
        self._ports.telemetry.alarm("lapses_stuck", f"{key.hex()}: {why}")

    # ---------------------------------------------------------------- pauses that are over

    def _end_pauses(self, shards: Sequence[int], tick: Tick) -> None:
        """Resume the jobs whose pause had an end, as a client would at that instant."""
        parked, now = self._parked, tick.mono_us
        decisions: dict[bytes, Decision] = {}
        for standing in self._due.to_resume(shards, RESUMES_MAX + len(parked)):
            job = standing.job
            if not isinstance(job, Paused) or parked.get(job.facts.job_id, (0, 0))[0] > now:
                continue
            by = By(max(tick.at, job.until), reason="the pause is over")
            try:
                probes = job.cause == FAILURES
                decision = resume(job, standing.runs, by, catch_up=LATEST if probes else USUAL)
            except Exception as error:  # noqa: BLE001 - about this job alone; the others go on
                self._park(job.facts.job_id, tick, repr(error))
                continue
            if isinstance(decision, Decision):
                decisions[job.facts.job_id] = decision
        done = self._append(decisions, tick) if decisions else []
        self._ports.telemetry.count("pauses_ended", len(done))
        self._retries.offer((own.after for decision in done for own in decision.slices), tick.at)

    # ---------------------------------------------------------------- what nobody leased

    def _hand_off_again(self, shards: Sequence[int], tick: Tick) -> None:
        if not self._hand_off.has_room(tick):
            return
        chunks = self._due.stale(shards, self._hand_off.committed, STALE_MAX)
        if chunks and self._hand_off.publish(chunks, tick):
            rows = sum(len(chunk.entries) // ENTRY_BYTES for chunk in chunks)
            self._ports.telemetry.count("rows_handed_off_again", rows)

    def _forget_marks(self, shards: Sequence[int]) -> None:
        """Take back the marks of what a lost broker held; the scheduler's windows show it again."""
        if not shards:
            return
        taken = self._due.unmark(shards, self._lost_before, UNMARK_MAX)
        if taken:
            self._ports.faults.hit(fault_points.MARKS_FORGOTTEN)
            self._ports.telemetry.count("rows_handed_off_again", taken)
            self._hand_off.overdue = True
        if taken < UNMARK_MAX:
            self._covered.update(shards)

    # ---------------------------------------------------------------- what must be zero

    def _look_after(self, shards: Sequence[int]) -> None:
        figures = self._due.health(shards, self._part, self._parts)
        telemetry = self._ports.telemetry
        self._broken[self._part] = figures.broken_chains
        telemetry.gauge("broken_chains", sum(self._broken.values()))
        telemetry.gauge("overdue_runs", figures.overdue_runs)
        telemetry.gauge("oldest_overdue_ms", figures.oldest_overdue_ms)
        if figures.broken_chains:
            telemetry.alarm("chains_broken", f"{figures.broken_chains} active jobs")
        if figures.looked_at > HEADS_MAX and self._parts < PARTS_MAX:
            self._part, self._parts, self._broken = 0, 2 * self._parts, {}
        else:
            self._part = (self._part + 1) % self._parts


def lapses(
    over: Sequence[tuple[Standing, OpenRun]], at: int, park: Callable[[bytes, str], None]
) -> dict[bytes, Decision]:
    """Return, by run, the decisions that end the attempts of these leases, at most one for a job.

    A run that cannot be decided on is parked with the reason, and is nobody else's trouble.
    """
    decisions: dict[bytes, Decision] = {}
    jobs: set[bytes] = set()
    for standing, run in over:
        facts = run.facts
        if facts.job_id in jobs:
            continue
        try:
            result = lapsed(standing.job.facts.spec, run, at)
            decision = report_among(standing.job, run, standing.runs, facts.fence, result, at)
        except Exception as error:  # noqa: BLE001 - about this run alone; the others go on
            park(facts.run_id, repr(error))
            continue
        if decision is not None:
            jobs.add(facts.job_id)
            decisions[facts.run_id] = decision
    return decisions
