"""Attempts that this process has leased and not reported yet: their calls, number and end."""

from collections import deque
from typing import Final

import msgspec

from commandside.deliverer_port import AnyCall, Deliverer
from commandside.fault_points import CALLED
from commandside.firing.bodies import Bodies
from commandside.firing.bulkhead import Bulkhead, Gate, Origin, Waiting, origin
from commandside.firing.calls import Calls
from commandside.firing.redaction import redacted
from commandside.firing.reports import KEY_GONE, SECRET_MISSING, WITHOUT_BODY, Flight
from commandside.firing.session import Session
from commandside.firing.stripes import Sent, Stripe
from commandside.firing.timing import Entry, Parcel, TimingHeap
from commandside.payload_port import PayloadReads
from commandside.ports import (
    BATCH_MAX,
    FaultPoint,
    FireLog,
    KeyGone,
    LogRequest,
    NewId,
    ReadSpecs,
    SpecsReply,
    Telemetry,
    Tick,
    Unavailable,
    Vault,
)
from commandside.secret_port import SecretMissing, Secrets
from domain.envelope import Decision
from domain.instant import MINUTE, SECOND
from domain.job.events import JobSpec
from domain.opaque import Seal
from domain.run import state as rs
from domain.run.decide import SEND_DEADLINE_MS

HINT_MS: Final = 2 * SECOND
"""What is planned to be due within this goes straight into the own heap; the scan is the floor."""
AHEAD_US: Final = 250_000
"""Calls that will be started within this are leased already: a quarter of the send deadline."""
DEFER_MS_MIN: Final = SECOND
DEFER_MS_MAX: Final = 5 * MINUTE
HELD_MS_MAX: Final = 30 * SECOND
"""A run whose body could not be read is looked at again at least this often."""
UNLIMITED: Final = 1 << 30


class DispatcherPorts(msgspec.Struct, frozen=True):
    """Everything around a dispatcher."""

    log: FireLog
    deliverer: Deliverer[AnyCall]
    vault: Vault
    secrets: Secrets
    payloads: PayloadReads
    faults: FaultPoint
    telemetry: Telemetry
    new_id: NewId
    completion: Seal
    """Makes the tokens that let handlers end their attempts."""


class Flights:
    """The attempts in the air, and what leasing and reporting share."""

    def __init__(self, ports: DispatcherPorts, host_share: int = UNLIMITED) -> None:
        self.ports = ports
        self.bulkhead = Bulkhead(host_share)
        self.bodies = Bodies(ports.payloads, ports.telemetry)
        self.log, self.deliverer = ports.log, ports.deliverer
        self.heap = TimingHeap()
        self.session = Session(ports.log, ports.new_id, ports.telemetry)
        self.unreported = 0
        """Leased and not reported, wherever they are."""
        self.reserved = 0
        """Calls that outstanding requests may lead to."""
        self.closed = False
        """Nothing is leased or called any more."""
        # What hangs must not keep others from their leases while there is room to call them.
        self.bound = max(2 * BATCH_MAX * ports.log.stripes, ports.deliverer.room)
        self.stripes = [Stripe(index) for index in range(ports.log.stripes)]
        self._calls = Calls(ports.vault, ports.secrets, ports.completion)
        self._waiting: deque[Waiting] = deque()
        self._called: dict[int, tuple[Flight, Gate, tuple[bytes, ...]]] = {}
        self._token = 0
        self._landed = self._landed_before = 0
        self._window_us = 0

    def room(self) -> int:
        """Return how many more attempts may be leased now: their calls must start in a second.

        Beside those that the deliverer takes at once, as many as it has lately ended in AHEAD_US:
        so batches are full where targets are quick, and no lease waits where they are not.
        """
        waiting = len(self._waiting) + self.bodies.waiting
        if self.bulkhead.crowded:
            waiting += self.bulkhead.waiting_in_turn()
        callable_now = self.deliverer.room + self._landed_before - waiting
        return min(self.bound - self.unreported, callable_now) - self.reserved

    def submit(self, stripe: Stripe, request: LogRequest, sent: Sent) -> None:
        """Send a stripe's request and note what it was made of."""
        self.reserved += sent.reserved
        stripe.sent = sent
        stripe.ticket = self.log.submit(stripe.index, request)

    def settle(self, entry: Entry) -> None:
        """Be done with an entry: leased, dropped or deferred."""
        entry[4].left -= 1
        if self.bulkhead.passing:
            self.bulkhead.passed(entry)

    def drop(self, entry: Entry) -> None:
        """Be done with an entry, and listen to what comes for its run again."""
        self.settle(entry)
        self.heap.unwatch(entry[1], entry[3])

    def again(self, entry: Entry, when: int) -> None:
        """Hold an entry once more that came back as early."""
        self.bulkhead.passed(entry)
        self.heap.again(entry, when)

    def sweep(self) -> None:
        """Drop the entries of revoked messages, so that they are welcome if they come again."""
        self.heap.sweep()
        dead = self.bulkhead.sweep()
        for stripe in self.stripes:
            dead += [entry for entry in stripe.ready if entry[4].dead]
            stripe.ready = deque(entry for entry in stripe.ready if not entry[4].dead)
        for entry in dead:
            self.drop(entry)

    def is_held(self, stripe: Stripe, entry: Entry, wanted: Origin, at: int) -> bool:
        """Keep an entry from its lease where its host has no place for it now."""
        if self.bulkhead.refuses(entry, wanted):
            self.ports.telemetry.count("retries_put_off")
            self.defer(stripe, entry, at)
            return True
        if not self.bulkhead.bars(entry, wanted):
            return False
        self.ports.telemetry.count("entries_set_aside")
        if not self.bulkhead.hold(entry, wanted):
            self.defer(stripe, entry, at)
        return True

    def defer(self, stripe: Stripe, entry: Entry, at: int) -> None:
        """Send an entry back to the due index for as long again as it is late."""
        wait = min(max(at - entry[0], DEFER_MS_MIN), DEFER_MS_MAX)
        stripe.defers.append((entry, at + wait))

    def depart(self, stripe: Stripe, leased: list[Flight], sent: Sent, tick: Tick) -> None:
        """Call the targets of fresh leases, which are committed."""
        self.unreported += len(leased)
        for flight in leased:
            self.heap.watch(flight.run.facts.run_id, flight.fence)
        not_after_us = sent.mono_us + SEND_DEADLINE_MS * 1_000
        if self.closed or sent.session != self.session.id or tick.mono_us >= not_after_us:
            self._abandon(stripe, leased, tick)
            return
        for flight in leased:
            job = flight.job.facts
            if flight.run.facts.payload_version == job.payload_version:
                if job.spec.payload_ref is None:
                    self._waiting.append((flight, job.spec, not_after_us))
                else:
                    self._send(flight, job.spec, not_after_us)
            else:
                stripe.unspecified.append((flight, not_after_us))
        self._call(tick)

    def ask_specs(self, stripe: Stripe, tick: Tick) -> bool:
        """Ask for the specs whose body and key begun runs carry."""
        if not stripe.unspecified:
            return False
        waiting, stripe.unspecified = stripe.unspecified, []
        late = [flight for flight, not_after_us in waiting if tick.mono_us >= not_after_us]
        self._abandon(stripe, late, tick)
        flights = [flight for flight, not_after_us in waiting if tick.mono_us < not_after_us]
        if not flights:
            return False
        wants = {(f.run.facts.job_id, f.run.facts.payload_version) for f in flights}
        not_after_us = min(when for _, when in waiting if tick.mono_us < when)
        sent = Sent("specs", not_after_us, flights=flights, session=self.session.id)
        self.submit(stripe, ReadSpecs(sorted(wants)), sent)
        return True

    def on_specs(self, stripe: Stripe, sent: Sent, reply: SpecsReply, tick: Tick) -> None:
        """Call with the pinned specs; `sent.mono_us` is the instant not to send after."""
        if self.closed or sent.session != self.session.id or tick.mono_us >= sent.mono_us:
            self._abandon(stripe, sent.flights, tick)
            return
        found = [
            (f, reply.specs.get((f.run.facts.job_id, f.run.facts.payload_version)))
            for f in sent.flights
        ]
        self._abandon(stripe, [f for f, spec in found if spec is None], tick)
        for flight, spec in found:
            if spec is not None:
                self._send(flight, spec, sent.mono_us)
        self._call(tick)

    def _send(self, flight: Flight, pinned: JobSpec, not_after_us: int) -> None:
        """Queue a call; one whose body is in the store waits for that first."""
        if pinned.payload_ref is None:
            self._waiting.append((flight, pinned, not_after_us))
            return
        whole = self.bodies.whole(flight, pinned, not_after_us)
        if whole is not None:
            self._waiting.append(whole)

    def _take_bodies(self, tick: Tick) -> None:
        """Queue the calls whose body has come; report those that will have none."""
        whole, without = self.bodies.poll(tick.mono_us)
        self._waiting.extend(whole)
        for flight, reason in without:
            flight.answer = WITHOUT_BODY[reason]
            self.stripes[flight.stripe].add_reports([flight], tick.mono_us)
        if without:
            self.ports.telemetry.count("attempts_without_body", len(without))

    def readable(self, stripe: Stripe, entries: list[Entry], at: int) -> list[Entry]:
        """Put off the entries of jobs whose body could not be read, and return the others."""
        found: list[Entry] = []
        for entry in entries:
            if entry[2] in self.bodies.held:
                wait = min(max(at - entry[0], DEFER_MS_MIN), HELD_MS_MAX)
                stripe.defers.append((entry, at + wait))
            else:
                found.append(entry)
        return found

    def last_call_us(self) -> int | None:
        """Return until when the longest waiting call may be started, if any waits."""
        aside = self.bulkhead.last_call_us() if self.bulkhead.crowded else None
        if self._waiting:
            return self._waiting[0][2] if aside is None else min(aside, self._waiting[0][2])
        return aside

    def _call(self, tick: Tick) -> None:
        """Call what waits, as far as there is room; give up what has waited too long."""
        bulkhead, room = self.bulkhead, self.deliverer.room
        if bulkhead.crowded:
            self._release(tick)
        calls: list[AnyCall] = []
        late: list[int] = []
        aside: list[Waiting] = []
        waiting = self._waiting
        while waiting and (len(calls) < room or tick.mono_us >= waiting[0][2]):
            flight, pinned, not_after_us = waiting.popleft()
            stripe = self.stripes[flight.stripe]
            if tick.mono_us >= not_after_us:
                self._abandon(stripe, [flight], tick)
                continue
            spec = flight.job.facts.spec
            called = origin(spec)
            gate = bulkhead.gate(called)
            if gate.busy >= gate.breaker.limit:
                bulkhead.crowd(called, (flight, pinned, not_after_us))
                continue
            self._token += 1
            facts = flight.run.facts
            flight.sent_at = tick.at
            try:
                call = self._calls.build(
                    facts,
                    spec,
                    pinned,
                    token=self._token,
                    at=tick.at,
                    not_after_us=not_after_us,
                )
            except (KeyGone, SecretMissing) as error:
                flight.answer = KEY_GONE if isinstance(error, KeyGone) else SECRET_MISSING
                stripe.add_reports([flight], tick.mono_us)
                continue
            except Unavailable:
                # The keys cannot be read now: it waits on, for as long as it may still be sent, and
                # stands in nobody's way.
                self.ports.telemetry.count("engine_unavailable")
                aside.append((flight, pinned, not_after_us))
                continue
            except Exception as error:  # noqa: BLE001 - about this call alone; the others go on
                self.ports.telemetry.alarm("calls_not_built", f"{facts.run_id.hex()}: {error!r}")
                self._abandon(stripe, [flight], tick)
                continue
            self._called[self._token] = flight, gate, call.secrets
            gate.busy += 1
            bulkhead.began(gate, retry=facts.attempt > 1)
            calls.append(call)
            if facts.attempt == 1:
                late.append(tick.at - facts.due_at)
        waiting.extendleft(reversed(aside))
        if calls:
            self.deliverer.submit(calls)
            self.ports.faults.hit(CALLED)
            self.ports.telemetry.count("calls", len(calls))
            self.ports.telemetry.observe("lateness_ms", late)

    def _release(self, tick: Tick) -> None:
        """Let go on what has waited for a place of its own host, and what has waited too long."""
        calls, ready, stale = self.bulkhead.release()
        self._waiting.extendleft(reversed(calls))
        for entry in ready:
            self.stripes[entry[4].stripe].add_ready([entry], tick.mono_us)
        for entry in stale:
            self.defer(self.stripes[entry[4].stripe], entry, tick.at)

    def land(self, tick: Tick) -> None:
        """Take the answers that have come, and call what waits for the room they leave."""
        answers = self.deliverer.poll()
        new = tick.mono_us >= self._window_us + AHEAD_US
        self.bulkhead.turn(tick.mono_us, window=new)
        if new:
            idle = tick.mono_us >= self._window_us + 2 * AHEAD_US
            self._landed_before = 0 if idle else self._landed
            self._landed, self._window_us = 0, tick.mono_us
        self._landed += len(answers)
        landed: list[list[Flight]] = [[] for _ in self.stripes]
        for answer in answers:
            flight, gate, secrets = self._called.pop(answer.token)
            flight.answer = redacted(answer, secrets) if secrets else answer
            gate.busy -= 1
            gate.landed += 1
            if gate.breaker.landed(answer.status, answer.error, answer.elapsed_us, tick.mono_us):
                self.bulkhead.opened(gate)
                self.ports.telemetry.count("breakers_opened")
            landed[flight.stripe].append(flight)
        for stripe, flights in zip(self.stripes, landed, strict=True):
            if flights:
                stripe.add_reports(flights, tick.mono_us)
        if self.bodies.asked or self.bodies.held:
            self._take_bodies(tick)
        if answers:
            took = [answer.elapsed_us // 1_000 for answer in answers]
            self.ports.telemetry.observe("response_ms", took)
        self._call(tick)

    def _abandon(self, stripe: Stripe, flights: list[Flight], tick: Tick) -> None:
        """Report leases that will not be called any more: `answer` stays None."""
        if flights:
            self.ports.telemetry.count("leases_abandoned", len(flights))
            stripe.add_reports(flights, tick.mono_us)

    def abandon(self, stripe: Stripe, flights: list[Flight], tick: Tick) -> None:
        """Report leases that were read back and are past their send deadline."""
        self.unreported += len(flights)
        for flight in flights:
            self.heap.watch(flight.run.facts.run_id, flight.fence)
        self._abandon(stripe, flights, tick)

    def abandon_unsent(self, tick: Tick) -> None:
        """Give back what is leased and not yet called (drain)."""
        for stripe in self.stripes:
            waiting, stripe.unspecified = stripe.unspecified, []
            self._abandon(stripe, [flight for flight, _ in waiting], tick)
        for flight in self.bodies.clear():
            self._abandon(self.stripes[flight.stripe], [flight], tick)
        self._waiting.extend(self.bulkhead.clear())
        while self._waiting:
            flight = self._waiting.popleft()[0]
            self._abandon(self.stripes[flight.stripe], [flight], tick)

    def finish(self, flight: Flight) -> None:
        """Be done with an attempt: its report is in the log, or has nothing to say any more."""
        self.unreported -= 1
        self.heap.unwatch(flight.run.facts.run_id, flight.fence)

    def hint(self, stripe: Stripe, decision: Decision, at: int) -> None:
        """Hold what a decision has just planned, if it is due in a moment."""
        for part in decision.slices:
            after = part.after
            if isinstance(after, rs.Ready) and after.facts.due_at <= at + HINT_MS:
                facts = after.facts
                parcel = Parcel(stripe.index)
                self.heap.add((facts.due_at, facts.run_id, facts.job_id, facts.version, parcel))
