"""What a process counts, and how it is shown: one registry, every name in one table.

Roles count into plain dictionaries and lists, which costs a fire next to nothing; the figures
become Prometheus families when somebody asks. Labels are bounded: the only ones beside `role` are
`view`, of which a process has a few, and `name` of an alarm, which is in the table. A name that is
not in the table is never an error of the role that used it: it is said once and counted as
`names_unlisted`.
"""

import os
import sys
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final, TextIO

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from infra import clock
from infra.embedded.processes import rss_bytes
from infra.versions import program_versions

PREFIX: Final = "tocsin_"
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
VIEWS_MAX: Final = 16
"""Label values of a view; more than that is a mistake, and is shown as `other`."""
ALARM_EVERY_US: Final = 1_000_000
"""Lines about the same alarm: one a second, the counter has them all."""
DETAIL_MAX: Final = 200

_MS: Final = (1, 2, 5, 10, 20, 40, 80, 150, 250, 500, 1_000, 2_500, 5_000, 15_000, 60_000, 600_000)
_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 250, 500, 1_000, 5_000)


class Name(msgspec.Struct, frozen=True):
    """One line of the table.

    `kind`: counter, gauge, histogram, alarm (all in one counter), or view (a gauge for each view).
    """

    name: str
    kind: str
    says: str
    bounds: tuple[int, ...] = ()

    @property
    def metric(self) -> str:
        """The name that is exported."""
        if self.kind == "alarm":
            return f"{PREFIX}alarms_total"
        return f"{PREFIX}{self.name}{'_total' if self.kind == 'counter' else ''}"


def _of(kind: str, **says: str) -> tuple[Name, ...]:
    return tuple(Name(name, kind, text) for name, text in says.items())


def _histograms(bounds: tuple[int, ...], **says: str) -> tuple[Name, ...]:
    return tuple(Name(name, "histogram", text, bounds) for name, text in says.items())


TABLE: Final[tuple[Name, ...]] = (
    # The dispatcher.
    *_of(
        "counter",
        calls="calls of targets begun",
        breakers_opened="breakers of target hosts that have opened: nothing is called for a while",
        retries_put_off="retries put off because their host fails too often for so many",
        entries_set_aside="entries kept from their lease because their host has no place for them",
        payloads_read="large payloads read from the store",
        payloads_not_read="reads of large payloads that failed, or found another one or none",
        attempts_without_body="attempts not sent because their payload could not be had",
        entries_claimed="due runs read from the log because the broker was silent",
        entries_dropped="entries taken from the queue that were not worth holding",
        leases_granted="runs leased",
        leases_gone="entries whose run was leased, moved or ended before us",
        leases_early="entries whose run is due later than they said",
        leases_to_decide="first leases that took a decision",
        leases_decided="decisions of first leases that held",
        leases_deferred="runs put off: another run of their job, or their host, is in the way",
        leases_read_back="leases found to be ours after an unknown commit",
        leases_abandoned="leases given back uncalled: their calls could not begin in time",
        attempts_accepted="attempts that their targets took to end by themselves",
        reports="ends of attempts appended",
        reports_refused="ends of attempts decided again because something had changed",
        reports_dropped="ends of attempts that were of no use any more",
        reports_parked="times the end of an attempt was put off, to be decided once more",
        appends_expired="batches that came to the database too late and were not committed",
        commits_unknown="requests whose outcome had to be read back",
        requests_failed="requests to the log that failed, nothing committed",
        sessions_ended="sessions of this process that ended before it did",
        partitions_revoked="partitions that moved to another dispatcher",
    ),
    *_histograms(
        _MS,
        lateness_ms="from the due instant to the call, ms",
        response_ms="from the call to the target's answer, ms",
    ),
    # The scheduler and the auditor.
    *_of(
        "counter",
        chunks_published="chunks handed to the broker",
        rows_handed_off="due rows marked as handed off",
        rows_handed_off_again="due rows handed off again because nobody leased them",
        lapses="leases ended by the auditor",
        lapses_parked="times the end of a lease or pause was put off, to be decided once more",
        pauses_ended="pauses with an end that the auditor ended",
        sessions_reaped="sessions of other processes that the auditor ended",
        shards_lost="shards that went to another owner",
    ),
    *_of(
        "gauge",
        shards_owned="shards owned by this process",
        broken_chains="active jobs without a next occurrence; above zero is a bug",
        overdue_runs="runs well past their due instant",
        oldest_overdue_ms="lateness of the oldest of them, ms",
        entries_held="entries held in memory until they are due",
        calls_open="calls of targets in flight",
        clock_offset_ms="database clock minus this node's, ms",
    ),
    *_histograms(_SIZES, batch_slices="slices of one append", batch_leases="runs of one lease"),
    # The ready queue.
    *_of(
        "counter",
        queue_rebuilds="times the broker's clients were made anew",
        queue_consumer_errors="errors of the consumer",
        queue_producer_errors="errors of the producer",
        queue_publishes_failed="chunks that the broker did not confirm; they are handed off again",
        queue_messages_foreign="messages that are not ours",
    ),
    *_of(
        "alarm",
        queue_partitions_differ="a topic has another number of partitions than the installation",
        queue_message_foreign="a message in our topics is not ours",
        hand_off_refused="the broker takes nothing; what is due waits in the database",
        chains_broken="active jobs have no next occurrence, or two; this is a bug",
        reports_stuck="the end of an attempt cannot be decided or appended; it is tried again",
        reports_given_up="the end of an attempt could not be appended; its lease will lapse",
        leases_given_up="a run could not be leased; it will be handed off again",
        calls_not_built="the call of an attempt could not be made; it is tried again later",
        lapses_stuck="the end of a lease or pause cannot be decided or appended; it is tried again",
    ),
    # Projections.
    *_of(
        "counter",
        dead_letters="runs that ended dead; counted again where the run history is read anew",
    ),
    *_of(
        "view",
        projection_lag_ms="age of the newest event that the view has not seen, ms; 0 at the head",
        projection_parked_streams="streams that the view cannot read on; above zero needs a person",
    ),
    *_of(
        "counter",
        callbacks_defined="jobs defined that tell how an occurrence ended",
        callbacks_erased="ends told to nobody because their tenant's key is destroyed",
    ),
    *_of(
        "alarm",
        callbacks_differ="a job has the id of a callback and is another; it was left as it is",
    ),
    # The process itself.
    *_of(
        "counter",
        process_cpu_ms="processor time of this process, ms",
        engine_unavailable="times an engine could not be reached",
        names_unlisted="figures counted under a name that this table does not have",
    ),
    *_of(
        "gauge",
        process_resident_bytes="memory of this process",
        process_started_at="when this process began to count, ms since the epoch",
    ),
)
"""Every figure and alarm of every role; `docs/telemetry.md` is written from it."""


class _Histogram:
    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[int, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0

    def buckets(self) -> list[tuple[str, float]]:
        """Return (upper bound, count of all values up to it), the last one for infinity."""
        found, below = [], 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            below += count
            found.append((bound, float(below)))
        return found


class Telemetry(Collector):
    """The figures of one process: `commandside.ports.Telemetry` and `projections.ports.Lag`.

    Each name is written by one thread; any thread may read.
    """

    def __init__(self, role: str, lines: TextIO | None = None) -> None:
        """Start from zero; alarms are written to `lines`, by default standard error."""
        self.role = role
        self._lines = lines or sys.stderr
        self._counters = {n.name: 0 for n in TABLE if n.kind == "counter"}
        self._gauges: dict[str, int] = {n.name: 0 for n in TABLE if n.kind == "gauge"}
        self._histograms = {n.name: _Histogram(n.bounds) for n in TABLE if n.kind == "histogram"}
        self._alarms = {n.name: 0 for n in TABLE if n.kind == "alarm"}
        self._views: dict[str, dict[str, int]] = {n.name: {} for n in TABLE if n.kind == "view"}
        self._said_us: dict[str, int] = {}
        self._unlisted: set[str] = set()
        self.gauge("process_started_at", clock.wall_ms())
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter."""
        if name in self._counters:
            self._counters[name] += by
        else:
            self._unknown(name)

    def observe(self, name: str, values: Sequence[int]) -> None:
        """Add values to a histogram."""
        histogram = self._histograms.get(name)
        if histogram is None:
            self._unknown(name)
            return
        counts, bounds = histogram.counts, histogram.bounds
        for value in values:
            counts[bisect_left(bounds, value)] += 1
        histogram.total += sum(values)

    def gauge(self, name: str, value: int) -> None:
        """Set a figure that goes up and down."""
        if name in self._gauges:
            self._gauges[name] = value
        else:
            self._unknown(name)

    def alarm(self, name: str, detail: str) -> None:
        """Count it, and write a line that a person can act on."""
        if name in self._alarms:
            self._alarms[name] += 1
        else:
            self._unknown(name)
        # All that are not listed share one place, so that this stays bounded.
        key = name if name in self._alarms else ""
        now_us, before_us = clock.mono_us(), self._said_us.get(key)
        if before_us is None or now_us - before_us >= ALARM_EVERY_US:
            self._said_us[key] = now_us
            self._line(f"alarm {name}: {detail[:DETAIL_MAX]!r}")

    def lag(self, view: str, ms: int) -> None:
        """Report how far a view is behind."""
        self._set_view("projection_lag_ms", view, ms)

    def parked(self, view: str, streams: int) -> None:
        """Report how many streams a view has parked."""
        self._set_view("projection_parked_streams", view, streams)

    def figures(self, name: str) -> dict[str, int]:
        """Return a view's figures by view, or any other figure under the empty word."""
        if name in self._views:
            return dict(self._views[name])
        return {"": (self._counters | self._gauges | self._alarms)[name]}

    def exposition(self) -> bytes:
        """Return everything in Prometheus' text format (CONTENT_TYPE)."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """Yield every family of the table, and which program this is."""
        self._counters["process_cpu_ms"] = time.process_time_ns() // 1_000_000
        self._gauges["process_resident_bytes"] = rss_bytes(os.getpid())
        labels, here = ["role"], [self.role]
        info = InfoMetricFamily(f"{PREFIX}build", "versions of the program", labels=labels)
        info.add_metric(here, program_versions())
        yield info
        alarms = CounterMetricFamily(
            f"{PREFIX}alarms", "things that should not happen", labels=["role", "name"]
        )
        for name, times in self._alarms.items():
            alarms.add_metric([self.role, name], times)
        yield alarms
        for line in TABLE:
            name = f"{PREFIX}{line.name}"
            if line.kind == "counter":
                counter = CounterMetricFamily(name, line.says, labels=labels)
                counter.add_metric(here, self._counters[line.name])
                yield counter
            elif line.kind == "gauge":
                gauge = GaugeMetricFamily(name, line.says, labels=labels)
                gauge.add_metric(here, self._gauges[line.name])
                yield gauge
            elif line.kind == "view":
                views = GaugeMetricFamily(name, line.says, labels=["role", "view"])
                for view, value in tuple(self._views[line.name].items()):
                    views.add_metric([self.role, view], value)
                yield views
            elif line.kind == "histogram":
                kept = self._histograms[line.name]
                family = HistogramMetricFamily(name, line.says, labels=labels)
                family.add_metric(here, buckets=kept.buckets(), sum_value=kept.total)
                yield family

    def _set_view(self, name: str, view: str, value: int) -> None:
        kept = self._views[name]
        kept[view if view in kept or len(kept) < VIEWS_MAX else "other"] = value

    def _unknown(self, name: str) -> None:
        self._counters["names_unlisted"] += 1
        if name not in self._unlisted and len(self._unlisted) < len(TABLE):
            self._unlisted.add(name)
            self._line(f"the telemetry table has no {name!r}")

    def _line(self, text: str) -> None:
        print(f"{self.role}: {text}", file=self._lines, flush=True)
