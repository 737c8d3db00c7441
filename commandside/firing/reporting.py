"""Reports attempts: each result is decided on, appended, and kept until the log has taken it."""

from typing import Final

from commandside.fault_points import ANSWERED_NOT_REPORTED, REPORT_SENT, REPORTED
from commandside.firing.flights import Flights
from commandside.firing.leasing import APPEND_EXPIRY_MS, TRIES_MAX
from commandside.firing.reports import Flight
from commandside.firing.stripes import BACKOFF_US, REPORT_LINGER_US, Sent, Stripe
from commandside.ports import BATCH_MAX, Append, AppendReply, Read, ReadReply, Tick
from domain.envelope import Decision
from domain.run.report import JobConcerned
from domain.schedule.schedule import ScheduleBreach

FULL: Final = BATCH_MAX // 2
"""Reports that make a full batch: most are of one or two slices."""
PARKED_MAX: Final = BATCH_MAX
"""Results of a stripe that wait for a better moment: half of what it may hold unreported."""


class Reporting:
    """The requests that end an attempt."""

    def __init__(self, flights: Flights) -> None:
        self._flights = flights
        self._count = flights.ports.telemetry.count
        self.hurry = False
        """Do not linger: this process is about to end."""

    def report(self, stripe: Stripe, tick: Tick) -> bool:
        """Append the ends of attempts if a batch is full enough or has waited long enough."""
        waited = tick.mono_us >= stripe.reports_since_us + REPORT_LINGER_US or self.hurry
        if not stripe.reports or (len(stripe.reports) < FULL and not waited):
            return False
        items, decisions = self._decide(stripe, tick)
        if not items:
            return False
        self._flights.ports.faults.hit(ANSWERED_NOT_REPORTED)
        expires_at = tick.at + APPEND_EXPIRY_MS
        sent = Sent("report", tick.mono_us, expires_at, flights=items, decisions=decisions)
        self._flights.submit(stripe, Append(decisions, expires_at), sent)
        slices = sum(len(decision.slices) for decision in decisions)
        self._flights.ports.telemetry.observe("batch_slices", (slices,))
        self._flights.ports.faults.hit(REPORT_SENT)
        return True

    def _decide(self, stripe: Stripe, tick: Tick) -> tuple[list[Flight], list[Decision]]:
        """Take a batch of reports: at most one of each job, at most BATCH_MAX slices."""
        items: list[Flight] = []
        decisions: list[Decision] = []
        later: list[Flight] = []
        jobs: set[bytes] = set()
        slices, reports = 0, stripe.reports
        while reports and len(later) < BATCH_MAX:
            flight = reports.popleft()
            job_id = flight.job.facts.job_id
            if job_id in jobs:
                later.append(flight)
                continue
            try:
                result = flight.result(tick.at)
                if flight.needs_reading(result):
                    stripe.rereads.append(flight)
                    continue
                decision = flight.decide(result, tick.at)
            except (ScheduleBreach, JobConcerned):
                # The job is paused, or counts; for which its other runs must be known.
                stripe.rereads.append(flight)
                continue
            except Exception as error:  # noqa: BLE001 - about this run alone; the others go on
                flight.tries = max(flight.tries, TRIES_MAX)
                self._park(stripe, flight, tick, repr(error))
                continue
            if decision is None:
                self._count("reports_dropped")
                self._flights.finish(flight)
                continue
            if slices + len(decision.slices) > BATCH_MAX and items:
                reports.appendleft(flight)
                break
            jobs.add(job_id)
            items.append(flight)
            decisions.append(decision)
            slices += len(decision.slices)
        reports.extendleft(reversed(later))
        return items, decisions

    def on_append(self, stripe: Stripe, sent: Sent, reply: AppendReply, tick: Tick) -> None:
        """Be done with what is committed; decide the rest again, on fresh state."""
        flights = self._flights
        if reply.expired:
            self._count("appends_expired")
            stripe.add_reports(sent.flights, tick.mono_us)
            return
        flights.ports.faults.hit(REPORTED)
        refused = set(reply.refused)
        accepted = 0
        for index, flight in enumerate(sent.flights):
            if index in refused:
                self._refused(stripe, flight, tick)
                continue
            flights.hint(stripe, sent.decisions[index], reply.at)
            flights.finish(flight)
            accepted += flight.is_accepted
        if accepted:
            self._count("attempts_accepted", accepted)
        self._count("reports", len(sent.flights) - len(refused))
        self._count("reports_refused", len(refused))

    def _refused(self, stripe: Stripe, flight: Flight, tick: Tick) -> None:
        flight.tries += 1
        if flight.tries < TRIES_MAX:
            stripe.rereads.append(flight)
        else:
            self._park(stripe, flight, tick, "refused again and again")

    def _park(self, stripe: Stripe, flight: Flight, tick: Tick, why: str) -> None:
        """Keep a result whose report has no luck, and try it again after pauses that double.

        It is legal for as long as its lease is the run's last (protocol, "A run"), so there is no
        number of tries after which to let it go: what a fresh read says of the run ends it. Only
        beyond the bound, and at the end of this process, it is left to the lapse of its lease.
        """
        detail = f"{flight.run.facts.run_id.hex()}: {why}"
        if flight.tries == TRIES_MAX:
            self._flights.ports.telemetry.alarm("reports_stuck", detail)
        self._count("reports_parked")
        pause = BACKOFF_US[min(flight.tries - TRIES_MAX, len(BACKOFF_US) - 1)]
        flight.tries += 1
        stripe.parked.append((tick.mono_us + pause, flight))
        if len(stripe.parked) > PARKED_MAX or self.hurry:
            _, oldest = stripe.parked.pop(0)
            self._flights.finish(oldest)
            run_id = oldest.run.facts.run_id.hex()
            self._flights.ports.telemetry.alarm("reports_given_up", run_id)

    def _unpark(self, stripe: Stripe, tick: Tick) -> None:
        """Let what has paused long enough be read again, and at the end of this process, all."""
        parked, stripe.parked = stripe.parked, []
        for again_us, flight in parked:
            if tick.mono_us >= again_us or self.hurry:
                stripe.rereads.append(flight)
            else:
                stripe.parked.append((again_us, flight))

    def reread(self, stripe: Stripe, tick: Tick) -> bool:
        """Read the jobs of attempts whose report must be decided on fresh state."""
        if stripe.parked:
            self._unpark(stripe, tick)
        if not stripe.rereads:
            return False
        batch, stripe.rereads = stripe.rereads[:BATCH_MAX], stripe.rereads[BATCH_MAX:]
        jobs = list(dict.fromkeys(flight.job.facts.job_id for flight in batch))
        self._flights.submit(stripe, Read(jobs), Sent("reread", 0, flights=batch))
        return True

    def on_read(self, stripe: Stripe, sent: Sent, reply: ReadReply) -> None:
        """Queue the attempts again, first of all, under the state as it is; drop what is over."""
        for flight in reversed(sent.flights):
            standing = reply.jobs.get(flight.job.facts.job_id)
            if standing is not None and flight.refresh(standing.job, standing.runs):
                stripe.reports.appendleft(flight)
                stripe.reports_since_us = 0
            else:
                self._count("reports_dropped")
                self._flights.finish(flight)

    def unknown(self, stripe: Stripe, sent: Sent) -> None:
        """A report whose commit is unknown is decided again: if it is in the log, it is refused."""
        stripe.rereads.extend(sent.flights)
