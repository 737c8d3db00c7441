"""Takes leases: the batch of a stripe, what it sends back, and commits whose outcome is unknown."""

from typing import Final

from commandside.fault_points import LEASE_SENT, LEASED_NOT_CALLED
from commandside.firing.bulkhead import origin
from commandside.firing.flights import Flights
from commandside.firing.reports import Flight
from commandside.firing.stripes import LINGER_US, Doubt, Sent, Stripe, Undecided
from commandside.firing.timing import Entry
from commandside.ports import (
    BATCH_MAX,
    Append,
    AppendReply,
    Defer,
    Lease,
    LeaseReply,
    Read,
    ReadBack,
    ReadBackReply,
    ReadReply,
    Tick,
    Want,
)
from domain import chain
from domain.envelope import Decision
from domain.instant import SECOND
from domain.job import state as js
from domain.run import state as rs
from domain.run.decide import Grant, first_lease

LEASE_EXPIRY_MS: Final = 2 * SECOND
"""A lease that commits later could not be used: its send deadline is a second."""
APPEND_EXPIRY_MS: Final = 5 * SECOND
TRIES_MAX: Final = 5
"""Decisions refused in a row before an entry is left to the audit loop."""
NONCE_BYTES: Final = 8


class Leasing:
    """The requests that end in a lease, or in a reason not to."""

    def __init__(self, flights: Flights) -> None:
        self._flights = flights
        self._count = flights.ports.telemetry.count
        self._nonce = flights.ports.new_id

    # ---------------------------------------------------------------- the lease statement

    def lease(self, stripe: Stripe, tick: Tick) -> bool:
        """Send a batch of leases if one is full enough or has waited long enough."""
        flights, ready = self._flights, stripe.ready
        if not ready or flights.closed or not flights.session.may_lease(tick):
            return False
        most = min(BATCH_MAX, flights.room())
        full = most == BATCH_MAX and len(ready) >= BATCH_MAX
        if most <= 0 or (not full and tick.mono_us < stripe.ready_since_us + LINGER_US):
            return False
        entries = self._take(stripe, most, tick)
        # What is left lingers anew, so that little room does not make for little batches.
        stripe.ready_since_us = tick.mono_us
        if not entries:
            return False
        nonce, session = self._nonce(NONCE_BYTES), flights.session.id
        expires_at = tick.at + LEASE_EXPIRY_MS
        wants = [Want(run_id, version, job_id) for _, run_id, job_id, version, _ in entries]
        sent = Sent(
            "lease", tick.mono_us, expires_at, session, nonce, entries, reserved=len(entries)
        )
        flights.submit(stripe, Lease(session, nonce, wants, expires_at), sent)
        flights.ports.telemetry.observe("batch_leases", (len(wants),))
        flights.ports.faults.hit(LEASE_SENT)
        return True

    def _take(self, stripe: Stripe, most: int, tick: Tick) -> list[Entry]:
        """Take what may be leased; while a host is shut, jobs are known before they are leased."""
        flights, bulkhead = self._flights, self._flights.bulkhead
        looked_at = bulkhead.looked_at()
        if looked_at is None:
            taken = [e for e in stripe.take_ready(most) if self._is_wanted(e)]
            return flights.readable(stripe, taken, tick.at) if flights.bodies.held else taken
        entries: list[Entry] = []
        taken = [e for e in stripe.take_ready(BATCH_MAX) if self._is_wanted(e)]
        if flights.bodies.held:
            taken = flights.readable(stripe, taken, tick.at)
        for entry in taken:
            if entry[3] < looked_at:
                entries.append(entry)
                continue
            known = bulkhead.origin_of(entry[2])
            if known is None:
                stripe.undecided.append(Undecided(entry))
            elif not flights.is_held(stripe, entry, known, tick.at):
                entries.append(entry)
        stripe.ready.extendleft(reversed(entries[most:]))
        return entries[:most]

    def _is_wanted(self, entry: Entry) -> bool:
        if entry[4].dead or not self._flights.heap.is_newest(entry):
            self._flights.drop(entry)
            self._count("entries_dropped")
            return False
        return True

    def on_lease(self, stripe: Stripe, sent: Sent, reply: LeaseReply, tick: Tick) -> None:
        """Call what was granted; hold, decide or drop the rest."""
        flights = self._flights
        if reply.session_ended:
            stripe.add_ready(sent.entries, tick.mono_us)
            flights.session.doubt(sent.session)
            return
        entries = {entry[1]: entry for entry in sent.entries}
        leased: list[Flight] = []
        for granted in reply.granted:
            flights.settle(entries.pop(granted.run.facts.run_id))
            leased.append(Flight(granted.run, granted.job, stripe.index, alone=granted.alone))
        for run_id, wait_ms in reply.early:
            flights.again(entries.pop(run_id), tick.at + wait_ms)
        for run_id in reply.decide:
            stripe.undecided.append(Undecided(entries.pop(run_id)))
        for run_id in reply.gone:
            flights.drop(entries.pop(run_id))
        if entries:
            # Passed over (a busy shard): they go with the next batch.
            stripe.add_ready(list(entries.values()), tick.mono_us)
        self._count("leases_granted", len(leased))
        self._count("leases_gone", len(reply.gone))
        self._count("leases_early", len(reply.early))
        self._count("leases_to_decide", len(reply.decide))
        if leased:
            flights.ports.faults.hit(LEASED_NOT_CALLED)
            flights.depart(stripe, leased, sent, tick)

    # ---------------------------------------------------------------- leases that take a thought

    def read(self, stripe: Stripe, _tick: Tick) -> bool:
        """Read the jobs of the entries that were sent back."""
        if not stripe.undecided:
            return False
        batch, stripe.undecided = stripe.undecided[:BATCH_MAX], stripe.undecided[BATCH_MAX:]
        jobs = list(dict.fromkeys(item.entry[2] for item in batch))
        self._flights.submit(stripe, Read(jobs), Sent("read", 0, undecided=batch))
        return True

    def on_read(self, stripe: Stripe, sent: Sent, reply: ReadReply, tick: Tick) -> None:
        """Decide each entry on what was read; one that must wait is deferred."""
        flights = self._flights
        nonce, session = self._nonce(NONCE_BYTES), flights.session.id
        for item in sent.undecided:
            _, run_id, job_id, version, _ = item.entry
            standing = reply.jobs.get(job_id)
            runs = () if standing is None else standing.runs
            run = next((r for r in runs if r.facts.run_id == run_id), None)
            if standing is None or not isinstance(run, rs.Ready) or run.facts.version != version:
                flights.drop(item.entry)
                self._count("leases_gone")
                continue
            if run.facts.due_at > reply.at:
                flights.again(item.entry, tick.at + run.facts.due_at - reply.at)
                continue
            called = origin(standing.job.facts.spec)
            looked_at = flights.bulkhead.crowded or flights.bulkhead.spent
            if looked_at and flights.is_held(stripe, item.entry, called, tick.at):
                continue
            item.job, item.nonce, item.session = standing.job, nonce, session
            item.beside = tuple(r for r in runs if r is not run)
            grant = Grant(session, nonce)
            try:
                item.decision = first_lease(standing.job, run, item.beside, reply.at, grant)
            except Exception as error:  # noqa: BLE001 - about this run alone; the others go on
                self._give_up(item, repr(error))
                continue
            if item.decision is None:
                flights.defer(stripe, item.entry, reply.at)
            else:
                stripe.decided.append(item)

    def append(self, stripe: Stripe, tick: Tick) -> bool:
        """Append the decided first leases, at most one of each job."""
        flights = self._flights
        if not stripe.decided or flights.closed or not flights.session.may_lease(tick):
            return False
        room, slices = flights.room(), 0
        jobs: set[bytes] = set()
        batch: list[Undecided] = []
        left: list[Undecided] = []
        for item in stripe.decided:
            assert item.decision is not None
            size = len(item.decision.slices)
            if item.session != flights.session.id:
                stripe.undecided.append(item)
            elif item.entry[2] in jobs or slices + size > BATCH_MAX or len(batch) >= room:
                left.append(item)
            else:
                jobs.add(item.entry[2])
                batch.append(item)
                slices += size
        stripe.decided = left
        if not batch:
            return False
        expires_at = tick.at + LEASE_EXPIRY_MS
        decisions = [item.decision for item in batch if item.decision is not None]
        session = flights.session.id
        sent = Sent(
            "decided", tick.mono_us, expires_at, session, undecided=batch, reserved=len(batch)
        )
        flights.submit(stripe, Append(decisions, expires_at, session), sent)
        flights.ports.faults.hit(LEASE_SENT)
        return True

    def on_append(self, stripe: Stripe, sent: Sent, reply: AppendReply, tick: Tick) -> None:
        """Call what the decisions leased; decide again what was refused."""
        flights = self._flights
        refused = set(reply.refused)
        if len(refused) == len(sent.undecided):
            # Each for a reason of its own, or all because the session has too little left.
            flights.session.doubt(sent.session)
        leased: list[Flight] = []
        for index, item in enumerate(sent.undecided):
            if reply.expired or index in refused:
                self._refused(stripe, item)
                continue
            assert item.decision is not None
            flights.drop(item.entry)
            leased += _leased(item, stripe.index)
            flights.hint(stripe, item.decision, reply.at)
        self._count("leases_decided", len(sent.undecided) - len(refused))
        if leased:
            flights.ports.faults.hit(LEASED_NOT_CALLED)
            flights.depart(stripe, leased, sent, tick)

    def _refused(self, stripe: Stripe, item: Undecided) -> None:
        item.tries += 1
        if item.tries < TRIES_MAX:
            stripe.undecided.append(item)
            return
        self._give_up(item, "refused again and again")

    def _give_up(self, item: Undecided, why: str) -> None:
        """Leave a run to the audit loop, which hands it off again at growing distances."""
        self._flights.drop(item.entry)
        detail = f"{item.entry[1].hex()}: {why}"
        self._flights.ports.telemetry.alarm("leases_given_up", detail)

    def defer(self, stripe: Stripe, _tick: Tick) -> bool:
        """Send runs that must wait back to the due index."""
        if not stripe.defers:
            return False
        batch, stripe.defers = stripe.defers[:BATCH_MAX], stripe.defers[BATCH_MAX:]
        rows = [(entry[1], entry[3], wake_at) for entry, wake_at in batch]
        self._flights.submit(
            stripe, Defer(rows), Sent("defer", 0, entries=[entry for entry, _ in batch])
        )
        return True

    def on_deferred(self, sent: Sent) -> None:
        """The rows wait in the index (an unknown outcome too: then the audit loop finds them)."""
        for entry in sent.entries:
            self._flights.drop(entry)
        self._count("leases_deferred", len(sent.entries))

    # ---------------------------------------------------------------- unknown commits

    def doubt(self, stripe: Stripe, sent: Sent) -> None:
        """Leases whose commit is unknown: nothing else happens to them until they are read back."""
        expires_at = sent.expires_at
        if sent.kind == "lease":
            wants = [
                Want(run_id, version, job_id) for _, run_id, job_id, version, _ in sent.entries
            ]
            stripe.doubts.append(Doubt(sent.nonce, wants, sent.entries, expires_at))
            return
        by_nonce: dict[bytes, list[Undecided]] = {}
        for item in sent.undecided:
            by_nonce.setdefault(item.nonce, []).append(item)
        for nonce, items in by_nonce.items():
            wants = [
                Want(run.facts.run_id, run.facts.fence - 1, run.facts.job_id)
                for item in items
                for run in _grants(item.decision)
            ]
            entries = [item.entry for item in items]
            stripe.doubts.append(Doubt(nonce, wants, entries, expires_at))

    def read_back(self, stripe: Stripe, tick: Tick) -> bool:
        """Read back the leases of an unknown commit, once it can no longer happen."""
        doubt = next((d for d in stripe.doubts if d.after < tick.at), None)
        if doubt is None:
            return False
        stripe.doubts.remove(doubt)
        request = ReadBack(doubt.nonce, doubt.wants, doubt.expires_at)
        self._flights.submit(stripe, request, Sent("read_back", 0, doubt=doubt))
        return True

    def on_read_back(self, stripe: Stripe, sent: Sent, reply: ReadBackReply, tick: Tick) -> None:
        """Give back at once what is ours after all: its send deadline has passed."""
        assert sent.doubt is not None
        flights = self._flights
        ours = [Flight(g.run, g.job, stripe.index, alone=g.alone) for g in reply.ours]
        known = {flight.run.facts.run_id for flight in ours}
        for entry in sent.doubt.entries:
            if entry[1] in known:
                flights.settle(entry)
            else:
                stripe.add_ready([entry], tick.mono_us)
        self._count("leases_read_back", len(ours))
        flights.abandon(stripe, ours, tick)


def _grants(decision: Decision | None) -> list[rs.InFlight]:
    slices = () if decision is None else decision.slices
    return [part.after for part in slices if isinstance(part.after, rs.InFlight)]


def _leased(item: Undecided, stripe: int) -> list[Flight]:
    """Return the attempts that a decision leased, under the job's state that it leads to."""
    assert item.decision is not None
    job = item.job
    for part in item.decision.slices:
        if part.stream_id == item.decision.job_id:
            assert isinstance(part.after, js.Active | js.Paused | js.Finished | js.Cancelled)
            job = part.after
    assert job is not None
    return [
        Flight(run, job, stripe, alone=chain.is_alone(run, item.beside))
        for run in _grants(item.decision)
    ]
