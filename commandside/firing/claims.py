"""The direct claim: with a silent broker, a dispatcher looks for due runs in the log itself.

Kafka carries hints, so its absence may cost throughput and never a fire. While no canary comes
through, the due rows of the shards last held are read every 200 ms; what another dispatcher reads
too is leased once, as always.
"""

from typing import Final

from commandside.firing.flights import Flights
from commandside.firing.stripes import Sent, Stripe
from commandside.firing.timing import Parcel
from commandside.ports import DueReply, ReadDue, ReadyQueue, Tick
from domain.sharding import partition_of, stripe_of

SILENT_MS: Final = 5_000
"""Without a canary for so long, the log is read directly (protocol §6)."""
CLAIM_US: Final = 200_000
AHEAD_MS: Final = 1_000
"""Held before they are due, so that they are on time all the same."""
ROWS: Final = 1_000
"""Of one look and stripe, the earliest: about what is leased until the next."""


class Claims:
    """Asks each stripe's connection for due runs, while the broker is silent."""

    def __init__(self, flights: Flights, queue: ReadyQueue, held_max: int) -> None:
        self._flights, self._queue = flights, queue
        self._held_max = held_max
        self._next_us = 0

    def look(self, tick: Tick) -> None:
        """Note what is to be read, where the broker has been silent for too long."""
        if tick.mono_us < self._next_us:
            return
        self._next_us = tick.mono_us + CLAIM_US
        flights = self._flights
        if (
            flights.closed
            or self._queue.silent_ms(tick.mono_us) < SILENT_MS
            or len(flights.heap) > self._held_max
        ):
            return
        held, log = self._queue.held(), flights.log
        for stripe in flights.stripes:
            stripe.claims = []
        for shard in range(log.shards):
            if partition_of(shard, self._queue.partitions) in held:
                flights.stripes[stripe_of(shard, log.stripes)].claims.append(shard)

    def claim(self, stripe: Stripe, _tick: Tick) -> bool:
        """Read the due rows of what was noted."""
        shards, stripe.claims = stripe.claims, []
        if not shards or self._flights.closed:
            return False
        self._flights.submit(stripe, ReadDue(shards, AHEAD_MS, ROWS), Sent("claim", 0))
        return True

    def on_due(self, stripe: Stripe, reply: DueReply) -> None:
        """Hold what was found, unless it is held already."""
        kept = self._flights.heap.add_all(reply.entries, Parcel(stripe.index))
        self._flights.ports.telemetry.count("entries_claimed", kept)
