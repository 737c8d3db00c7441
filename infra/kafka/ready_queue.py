"""The ready queue on the Kafka protocol, for the embedded broker and for Apache Kafka alike.

A wiped broker leaves clients stuck for tens of seconds without an error. Two things find out: the
topics' ids are looked at every two seconds, and canaries go through every partition. Either way
the clients are thrown away and made again, nobody touching anything.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from commandside.ports import Chunk, Delivery, Published, Ref, Telemetry, Unavailable
from infra.kafka.consumer import ChunkConsumer
from infra.kafka.options import KafkaOptions
from infra.kafka.producer import ChunkProducer
from infra.kafka.topics import TopicWatch

REBUILD_SPACING_US: Final = 10_000_000
"""A rebuilt consumer needs up to this to join and hear; asking again earlier is ignored."""
RETIRED_MAX: Final = 4
"""Clients that are still ending; with more, a rebuild waits for them."""
FLUSH_TIMEOUT_S: Final = 2.0


class KafkaReadyQueue:
    """`commandside.ports.ReadyQueue`; only `establish` and `close` ever wait."""

    def __init__(
        self, options: KafkaOptions, mono_us: Callable[[], int], telemetry: Telemetry
    ) -> None:
        """Begin to connect. `mono_us` is the monotonic clock, µs."""
        self.partitions = options.partitions
        self._options = options
        self._mono_us = mono_us
        self._telemetry = telemetry
        self._watch = TopicWatch(options, mono_us)
        self._producer: ChunkProducer | None = None
        self._consumer: ChunkConsumer | None = None
        self._made_for = b""
        self._forced = False
        self._confirmed: list[Published] = []
        self._lost: set[int] = set()
        self._last: set[int] = set()
        """The partitions held last."""
        self._paused = False
        self._silent_from_us = mono_us()
        self._rebuilt_us = self._silent_from_us - REBUILD_SPACING_US
        self._retired: list[threading.Thread] = []

    def establish(self, timeout_s: float) -> None:
        """Make or check the topics, waiting for the broker.

        Raises PartitionsDiffer (do not start), Unavailable (start without it if you like).
        """
        self._watch.establish(time.sleep, timeout_s)
        self._turn()

    def publish(self, chunks: Sequence[Chunk], *, near: bool) -> None:
        """Hand chunks to the broker; raises Unavailable when full, away or of another shape."""
        self._sender().publish(chunks, near=near)

    def confirmed(self) -> list[Published]:
        """Return chunks that the broker has confirmed since the last call."""
        self._turn()
        found, self._confirmed = self._confirmed, []
        return found + self._producer.confirmed() if self._producer else found

    def beat(self) -> None:
        """Send the canary to every partition of its topic; raises Unavailable."""
        self._sender().beat()

    def take(self, limit: int) -> list[Delivery]:
        """Return arrived chunks of the assigned partitions, never waiting."""
        self._turn()
        if not self._consumer:
            return []
        found = self._consumer.take(limit)
        self._last = self._consumer.partitions or self._last
        return found

    def done(self, refs: Sequence[Ref]) -> None:
        """Commit offsets up to these, in the background and grouped."""
        if self._consumer:
            # A place of a lost client may lie beyond all places of its successor.
            self._consumer.done([ref for ref in refs if ref.partition not in self._lost])

    def revoked(self) -> list[int]:
        """Return partitions lost since the last call."""
        lost, self._lost = self._lost, set()
        if self._consumer:
            lost.update(self._consumer.revoked())
        return sorted(lost)

    def held(self) -> set[int]:
        """Return the partitions held last; all, where there never were any."""
        return self._last or set(range(self.partitions))

    def committed(self, ref: Ref) -> bool:
        """Tell whether the group has passed this place; True where that is not known."""
        return self._watch.committed(ref)

    def pause(self, *, paused: bool) -> None:
        """Stop or resume fetching what is due later."""
        self._paused = paused
        if self._consumer:
            self._consumer.pause(paused=paused)

    def silent_ms(self, mono_us: int) -> int:
        """Return how long no canary has come through (a sender: none was confirmed), ms.

        A consumer without a partition that carries canaries goes by the broker's answers.
        """
        heard = self._silent_from_us
        if self._consumer:
            heard = max(heard, self._consumer.heard_us)
            if not self._consumer.hears:
                heard = max(heard, self._watch.seen.at_us)
        elif self._producer:
            heard = max(heard, self._producer.heard_us)
        self._silent_from_us = heard
        return max(0, (mono_us - heard) // 1_000)

    def incarnation(self) -> bytes:
        """Return the broker's incarnation, empty before it is known."""
        return self._watch.seen.incarnation

    def rebuild(self) -> None:
        """Throw the clients away and make new ones, at most every 10 s."""
        if self._mono_us() - self._rebuilt_us >= REBUILD_SPACING_US:
            self._telemetry.count("queue_rebuilds")
            self._forced = True
            self._turn()

    def close(self) -> None:
        """Send what is on its way, commit, leave the group and close."""
        if self._producer:
            self._producer.flush(FLUSH_TIMEOUT_S)
        if self._consumer and not self._consumer.close():
            self._retire(self._consumer.discard)
        self._producer = self._consumer = None
        self._watch.close()

    def _sender(self) -> ChunkProducer:
        self._turn()
        if self._watch.seen.wrong:
            raise Unavailable(self._watch.seen.wrong)
        if self._producer is None:
            raise Unavailable(f"the broker at {self._options.bootstrap} has not answered yet")
        return self._producer

    def _turn(self) -> None:
        """Make clients when there are none for this incarnation, or they broke."""
        self._watch.turn()
        if self._watch.seen.wrong:
            self._telemetry.alarm("queue_partitions_differ", self._watch.seen.wrong)
        known = self._watch.seen.incarnation
        if not known or (known == self._made_for and not self._forced and not self._broke()):
            return
        self._retired = [thread for thread in self._retired if thread.is_alive()]
        if len(self._retired) >= RETIRED_MAX:
            return
        self._make(known)

    def _broke(self) -> bool:
        halves = (self._producer, self._consumer)
        return self._mono_us() - self._rebuilt_us >= REBUILD_SPACING_US and any(
            half is not None and half.broken for half in halves
        )

    def _make(self, incarnation: bytes) -> None:
        self._rebuilt_us, self._forced = self._mono_us(), False
        # What a broker confirmed that is gone since must not be marked: it would be late.
        same = incarnation == self._made_for
        self._confirmed = self._confirmed if same else []
        self._made_for = incarnation
        if self._options.produces:
            old = self._producer
            self._producer = ChunkProducer(
                self._options, incarnation, self._mono_us, self._telemetry
            )
            if old is not None:
                if same:
                    self._confirmed += old.confirmed()
                self._retire(old.discard)
        if self._options.consumes:
            before = self._consumer
            self._consumer = ChunkConsumer(self._options, self._mono_us, self._telemetry)
            self._consumer.pause(paused=self._paused)
            if before is not None:
                self._lost |= before.everything()
                self._retire(before.discard)

    def _retire(self, discard: Callable[[], None]) -> None:
        """End a client beside everything else: one that is stuck may take its time."""
        thread = threading.Thread(target=discard, name="retired kafka client", daemon=True)
        thread.start()
        self._retired.append(thread)
