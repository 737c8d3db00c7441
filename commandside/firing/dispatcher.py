"""The dispatcher: from bucket to result.

    chunk ─► timing heap ─due + 2 ms─► ready ─lease─► call ─► answer ─report─► done
                                         ▲  │ early: back to the heap
                                         │  ├ decide: read, decide, append (or defer)
                                         │  └ gone: dropped
                                         └─ not ours after an unknown commit

Nothing here sleeps, reads a clock or waits: `run_one_batch` moves on what can move and says when it
wants to run again. Invariants: no call without its committed lease, nor later than a second after
the lease statement was sent; a result is kept until the log has taken or refused it; an offset is
committed only when everything before it is settled; every queue is bounded by what may be leased
and unreported, or by the heap's limit.
"""

from collections.abc import Callable
from typing import Final

from commandside.fault_points import OFFSET_COMMITTED, SETTLED_NOT_COMMITTED
from commandside.firing.claims import Claims
from commandside.firing.flights import UNLIMITED, DispatcherPorts, Flights
from commandside.firing.hand_off import Canary
from commandside.firing.leasing import Leasing
from commandside.firing.reporting import Reporting
from commandside.firing.stripes import LINGER_US, REPORT_LINGER_US, Sent, Stripe
from commandside.firing.timing import Entry, Offsets, Parcel
from commandside.ports import (
    AppendReply,
    DoneReply,
    DueReply,
    Failed,
    LeaseReply,
    LogReply,
    ReadBackReply,
    ReadReply,
    ReadyQueue,
    SpecsReply,
    Tick,
    Unavailable,
)
from domain.sharding import stripe_of

HEAP_MAX: Final = 200_000
"""Entries held; above it nothing that is due later is fetched, at twice of it nothing at all."""
TAKE_MAX: Final = 64
"""Messages taken in one batch, so that a backlog does not keep due work waiting."""
AIM_MS: Final = 2
"""Leases are tried this long after the due instant, so that few come back as early."""
GATHER_US: Final = 8_000
"""Due entries are gathered this rarely at most, within their linger: a turn of the loop for each
costs more than its lease."""
POLL_US: Final = 10_000
"""Longest rest: the ready queue cannot wake anybody."""


class Dispatcher:
    """One dispatcher: `start`, then `run_one_batch` for ever, then `drain` until it says True."""

    def __init__(
        self,
        ports: DispatcherPorts,
        queue: ReadyQueue,
        *,
        heap_max: int = HEAP_MAX,
        poll_us: int = POLL_US,
        host_share: int = UNLIMITED,
    ) -> None:
        """`host_share`: calls that one target host may have in flight."""
        self._ports, self._queue = ports, queue
        self._log = ports.log
        self._heap_max, self._poll_us = heap_max, poll_us
        self._flights = Flights(ports, host_share)
        self._leasing = Leasing(self._flights)
        self._reporting = Reporting(self._flights)
        self._offsets = Offsets()
        self._claims = Claims(self._flights, queue, heap_max)
        self._canary = Canary(queue)
        self._paused = False
        self._draining = False
        self._first = 0
        leasing, reporting = self._leasing, self._reporting
        self._at_once: tuple[Callable[[Stripe, Tick], bool], ...] = (
            self._flights.ask_specs,
            leasing.append,
        )
        self._in_turn: tuple[Callable[[Stripe, Tick], bool], ...] = (
            leasing.lease,
            reporting.report,
            reporting.reread,
            leasing.read,
            leasing.defer,
            leasing.read_back,
            self._claims.claim,
        )

    @property
    def session_id(self) -> bytes:
        """The id of the session that leases are taken under now."""
        return self._flights.session.id

    @property
    def unreported(self) -> int:
        """How many attempts are leased and not reported yet."""
        return self._flights.unreported

    @property
    def held(self) -> int:
        """How many entries wait: for their instant, their lease, or a place of their host."""
        flights = self._flights
        ready = sum(len(stripe.ready) for stripe in flights.stripes)
        return len(flights.heap) + ready + flights.bulkhead.held

    def start(self, tick: Tick) -> None:
        """Start the session; nothing is leased before the log has it."""
        self._flights.session.keep(tick)

    def run_one_batch(self, tick: Tick) -> int:
        """Move on what can move; return after how many µs to be run again at the latest."""
        self._listen(tick)
        self._flights.session.keep(tick)
        try:
            self._canary.look(tick)
            self._take()
        except Unavailable:
            # Without a broker, what is held is fired all the same.
            self._ports.telemetry.count("engine_unavailable")
        self._claims.look(tick)
        self._wake(tick)
        self._speak(tick)
        self._commit()
        self._ports.telemetry.gauge("entries_held", self.held)
        self._ports.telemetry.gauge("calls_open", self._ports.deliverer.in_flight)
        return self._rest_us(tick)

    def drain(self, tick: Tick) -> bool:
        """Take nothing new, let calls end, report everything, end the session; True when done."""
        self._draining = True
        self._flights.closed = True
        self._reporting.hurry = True
        self._listen(tick)
        # Their offsets are not committed: they are delivered again, to someone else.
        for stripe in self._flights.stripes:
            stripe.ready.clear()
            stripe.undecided.clear()
            stripe.decided.clear()
            stripe.defers.clear()
            stripe.claims.clear()
        self._flights.abandon_unsent(tick)
        self._speak(tick)
        self._commit()
        if self._flights.unreported or any(
            not stripe.holds_nothing() for stripe in self._flights.stripes
        ):
            self._flights.session.keep(tick)
            return False
        self._flights.session.end(tick)
        return self._flights.session.ended

    # ---------------------------------------------------------------- what comes in

    def _listen(self, tick: Tick) -> None:
        session = self._flights.session
        for reply in self._log.poll():
            if session.owns(reply.ticket):
                session.on_reply(reply, tick)
                continue
            stripe = next(s for s in self._flights.stripes if s.sent and s.ticket == reply.ticket)
            sent = stripe.sent
            assert sent is not None
            stripe.sent = None
            self._flights.reserved -= sent.reserved
            if isinstance(reply, Failed):
                self._on_failed(stripe, sent, reply, tick)
            else:
                stripe.worked()
                self._on_reply(stripe, sent, reply, tick)
        self._flights.land(tick)

    def _on_reply(self, stripe: Stripe, sent: Sent, reply: LogReply, tick: Tick) -> None:
        match reply:
            case LeaseReply():
                self._leasing.on_lease(stripe, sent, reply, tick)
            case AppendReply() if sent.kind == "report":
                self._reporting.on_append(stripe, sent, reply, tick)
            case AppendReply():
                self._leasing.on_append(stripe, sent, reply, tick)
            case ReadReply() if sent.kind == "reread":
                self._reporting.on_read(stripe, sent, reply)
            case ReadReply():
                self._leasing.on_read(stripe, sent, reply, tick)
            case SpecsReply():
                self._flights.on_specs(stripe, sent, reply, tick)
            case DueReply():
                self._claims.on_due(stripe, reply)
            case ReadBackReply():
                self._leasing.on_read_back(stripe, sent, reply, tick)
            case DoneReply():
                self._leasing.on_deferred(sent)
            case Failed():
                raise AssertionError("failures are handled before")

    def _on_failed(self, stripe: Stripe, sent: Sent, reply: Failed, tick: Tick) -> None:
        """Keep what the request was about: read back what is unknown, try the rest again."""
        stripe.failed(tick.mono_us)
        self._ports.telemetry.count("commits_unknown" if reply.unknown else "requests_failed")
        if sent.kind in ("lease", "decided") and reply.unknown:
            self._leasing.doubt(stripe, sent)
        elif sent.kind == "report" and reply.unknown:
            self._reporting.unknown(stripe, sent)
        elif sent.kind == "report":
            stripe.add_reports(sent.flights, tick.mono_us)
        elif sent.kind == "defer" and reply.unknown:
            self._leasing.on_deferred(sent)
        elif sent.kind == "specs":
            stripe.unspecified += [(flight, sent.mono_us) for flight in sent.flights]
        elif sent.doubt is not None:
            stripe.doubts.append(sent.doubt)
        elif sent.kind == "reread":
            stripe.rereads += sent.flights
        elif not self._draining:
            stripe.undecided += sent.undecided
            stripe.add_ready(sent.entries, tick.mono_us)

    def _take(self) -> None:
        queue, heap = self._queue, self._flights.heap
        revoked = queue.revoked()
        if revoked:
            self._forget(revoked)
        held = self.held
        full = held > self._heap_max
        if full != self._paused and (full or held < self._heap_max * 3 // 4):
            queue.pause(paused=full)
            self._paused = full
        if held > 2 * self._heap_max:
            return
        for delivery in queue.take(TAKE_MAX):
            stripe = stripe_of(delivery.chunk.shard, self._log.stripes)
            parcel = Parcel(stripe, delivery.ref)
            heap.add_all(delivery.chunk.entries, parcel)
            self._offsets.arrived(parcel)

    def _forget(self, partitions: list[int]) -> None:
        """Drop what came from partitions that are someone else's now and is not leased yet."""
        for partition in partitions:
            for parcel in self._offsets.revoke(partition):
                parcel.dead = True
        self._flights.sweep()
        self._ports.telemetry.count("partitions_revoked", len(partitions))

    def _wake(self, tick: Tick) -> None:
        due = self._flights.heap.due(tick.at - AIM_MS)
        if not due:
            return
        stripes: list[list[Entry]] = [[] for _ in self._flights.stripes]
        for entry in due:
            stripes[entry[4].stripe].append(entry)
        for stripe, entries in zip(self._flights.stripes, stripes, strict=True):
            if entries:
                # They linger from their own instant, however late they were gathered.
                waited_us = (tick.at - AIM_MS - entries[0][0]) * 1_000
                stripe.add_ready(entries, tick.mono_us - min(waited_us, LINGER_US))

    # ---------------------------------------------------------------- what goes out

    def _speak(self, tick: Tick) -> None:
        """Give each idle stripe its next request; stripes and kinds take turns, so none starves."""
        stripes = self._flights.stripes
        self._first = (self._first + 1) % len(stripes)
        for stripe in (*stripes[self._first :], *stripes[: self._first]):
            if (
                stripe.sent is not None
                or tick.mono_us < stripe.resting_until_us
                or not self._log.idle(stripe.index)
            ):
                continue
            if any(request(stripe, tick) for request in self._at_once):
                continue
            kinds = len(self._in_turn)
            for step in range(kinds):
                turn = (stripe.turn + step) % kinds
                if self._in_turn[turn](stripe, tick):
                    stripe.turn = turn + 1
                    break

    def _commit(self) -> None:
        finished = self._offsets.finished()
        if finished:
            self._ports.faults.hit(SETTLED_NOT_COMMITTED)
            try:
                self._queue.done(finished)
            except Unavailable:
                # What follows them is committed later, and these with it.
                self._ports.telemetry.count("engine_unavailable")
            self._ports.faults.hit(OFFSET_COMMITTED)

    def _rest_us(self, tick: Tick) -> int:
        """Return the time to the next thing that only the clock brings; replies wake the loop."""
        rest = min(self._poll_us, self._flights.session.rest_us(tick))
        due = self._flights.heap.next_due()
        if due is not None:
            rest = min(rest, max((due + AIM_MS - tick.at) * 1_000, GATHER_US))
        if self._flights.bodies.waiting:
            rest = min(rest, POLL_US)
        last_call = self._flights.last_call_us()
        if last_call is not None:
            rest = min(rest, last_call - tick.mono_us)
        for stripe in self._flights.stripes:
            if stripe.sent is None:
                rest = min(rest, self._stripe_rest_us(stripe, tick))
        return max(0, rest)

    def _stripe_rest_us(self, stripe: Stripe, tick: Tick) -> int:
        """Return when an idle stripe has something to send, if nothing comes in."""
        now, soonest = tick.mono_us, self._poll_us
        if stripe.ready:
            # At least a linger from now where it waits for room, which an answer brings.
            since = stripe.ready_since_us + LINGER_US - now
            soonest = min(soonest, since if since > 0 else LINGER_US)
        if stripe.reports:
            soonest = min(soonest, stripe.reports_since_us + REPORT_LINGER_US - now)
        if (
            stripe.rereads
            or stripe.undecided
            or stripe.defers
            or stripe.unspecified
            or stripe.claims
        ):
            soonest = 0
        for doubt in stripe.doubts:
            soonest = min(soonest, (doubt.after + 1 - tick.at) * 1_000)
        return max(soonest, stripe.resting_until_us - now, 0)
