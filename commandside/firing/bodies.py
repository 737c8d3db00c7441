"""Bodies that are objects of the store, on their way to the calls of leased runs.

An object is read once for all that wait for it, and kept for the next fire. What cannot be read
within the send deadline is given back uncalled, which costs an attempt of no kind, and its job is
held from its next lease until the object has been read, which is tried again and again: a store
that is away delays, and ends nothing. An object that is gone or altered ends the run, as nothing
could mend that.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from itertools import islice
from typing import Final

import msgspec

from commandside.firing.bulkhead import Waiting
from commandside.firing.reports import Flight
from commandside.payload_port import PayloadObject, PayloadReads
from commandside.ports import Telemetry
from domain.job.events import JobSpec
from domain.payload import UNAVAILABLE

KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of objects that are kept for the next fire."""
HELD_MAX: Final = 100_000
"""Jobs held because of their objects; beyond it the first ones are tried again."""
PROBES: Final = 4
"""Objects of held jobs that are asked for at once."""
PROBE_US: Final = 2_000_000
"""From a read that failed to the next on behalf of held jobs; one that did not is followed at once.
"""


class Bodies:
    """Reads objects, and keeps flights until they have theirs."""

    def __init__(self, reads: PayloadReads, telemetry: Telemetry) -> None:
        self._reads = reads
        self._count = telemetry.count
        self.asked: dict[PayloadObject, list[Waiting]] = {}
        """Objects that are read or are to be, and who waits for each; nobody may wait any more."""
        self.held: OrderedDict[bytes, PayloadObject] = OrderedDict()
        """Jobs whose entries are not leased before their object has been read."""
        self.waiting = 0
        """Flights that wait."""
        self._queue: deque[PayloadObject] = deque()
        self._kept: OrderedDict[PayloadObject, bytes] = OrderedDict()
        self._kept_bytes = 0
        self._probe_us = 0

    def whole(self, flight: Flight, pinned: JobSpec, not_after_us: int) -> Waiting | None:
        """Return an attempt with its body in the spec, None where it has to wait for that."""
        assert pinned.payload_ref is not None
        facts = flight.run.facts
        wanted = PayloadObject(facts.tenant_id, facts.job_id, pinned.payload_ref)
        data = self._kept.get(wanted)
        if data is not None:
            self._kept.move_to_end(wanted)
            return flight, _with(pinned, data), not_after_us
        self._ask(wanted)
        self.asked[wanted].append((flight, pinned, not_after_us))
        self.waiting += 1
        return None

    def poll(self, mono_us: int) -> tuple[list[Waiting], list[tuple[Flight, str]]]:
        """Return the attempts that have their body, and those that have none, with the reason."""
        whole: list[Waiting] = []
        without: list[tuple[Flight, str]] = []
        for read in self._reads.poll():
            waiting = self.asked.pop(read.object)
            self.waiting -= len(waiting)
            found = read.found
            if isinstance(found, bytes):
                self._count("payloads_read")
                self._keep(read.object, found)
                whole += [(flight, _with(pinned, found), us) for flight, pinned, us in waiting]
            else:
                self._count("payloads_not_read")
                without += [(flight, found) for flight, _, _ in waiting]
            if found == UNAVAILABLE:
                self._hold(read.object, waiting)
            elif self.held.get(read.object.job_id) == read.object:
                del self.held[read.object.job_id]
                self._probe_us = 0
        if self.waiting:
            without += [(flight, UNAVAILABLE) for flight in self._late(mono_us)]
        if self.held and mono_us >= self._probe_us:
            self._probe(mono_us)
        self._begin()
        return whole, without

    def clear(self) -> list[Flight]:
        """Let go of every flight (drain)."""
        flights = [flight for waiting in self.asked.values() for flight, _, _ in waiting]
        for waiting in self.asked.values():
            waiting.clear()
        self.waiting = 0
        return flights

    def _ask(self, wanted: PayloadObject) -> None:
        if wanted not in self.asked:
            self.asked[wanted] = []
            self._queue.append(wanted)
            self._begin()

    def _probe(self, mono_us: int) -> None:
        """Ask for the objects of some held jobs again; they take turns."""
        self._probe_us = mono_us + PROBE_US
        for job_id in list(islice(self.held, PROBES)):
            self.held.move_to_end(job_id)
            self._ask(self.held[job_id])

    def _begin(self) -> None:
        begun = [self._queue.popleft() for _ in range(min(self._reads.room, len(self._queue)))]
        if begun:
            self._reads.submit(begun)

    def _late(self, mono_us: int) -> list[Flight]:
        """Let go of the flights that may not be sent any more; their objects are read even so."""
        late: list[Flight] = []
        for wanted, waiting in self.asked.items():
            gone = [one for one in waiting if mono_us >= one[2]]
            if gone:
                waiting[:] = [one for one in waiting if mono_us < one[2]]
                self.waiting -= len(gone)
                self._hold(wanted, gone)
                late += [flight for flight, _, _ in gone]
        return late

    def _hold(self, wanted: PayloadObject, waiting: Sequence[Waiting]) -> None:
        if waiting:
            self.held[wanted.job_id] = wanted
            if len(self.held) > HELD_MAX:
                self.held.popitem(last=False)

    def _keep(self, wanted: PayloadObject, data: bytes) -> None:
        self._kept_bytes += len(data) - len(self._kept.pop(wanted, b""))
        self._kept[wanted] = data
        while self._kept_bytes > KEPT_BYTES_MAX:
            _, old = self._kept.popitem(last=False)
            self._kept_bytes -= len(old)


def _with(pinned: JobSpec, data: bytes) -> JobSpec:
    """Return a spec whose body is in it, as of a job whose body is small."""
    return msgspec.structs.replace(pinned, payload=data, payload_ref=None)
