"""The log as it was dumped: its order, its streams, and whose they are (I13)."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from domain import catalogue
from domain.catalogue import DomainEvent
from domain.run.events import Scheduled
from tests.checker.inputs import History, Stored
from tests.checker.report import Report
from tests.checker.track import Case

DEFINED: Final = "job.defined.v1"
SCHEDULED: Final = "run.scheduled.v1"


def decoded(stored: Stored) -> DomainEvent | str:
    """Return the event of a row, or what is wrong with its bytes."""
    try:
        event = catalogue.decode(stored.name, stored.data)
    except msgspec.DecodeError as error:
        return f"the bytes of {stored.name} cannot be read: {error}"
    return f"{stored.name} is no event that is known" if event is None else event


def cases(history: History, report: Report) -> dict[bytes, Case]:
    """Return what there is of each job, in commit order."""
    events = history.events
    ordered = all(
        a.position < b.position if a.shard == b.shard else a.shard < b.shard
        for a, b in pairwise(events)
    )
    if not ordered:
        events = sorted(events, key=lambda e: (e.shard, e.position))
    _prefix(history.before, events, report)
    found = _Streams(report, starts_with_log=history.scenario.starts_with_log)
    for stored in events:
        found.add(stored)
    return found.cases


class _Streams:
    """Reads the log row by row."""

    def __init__(self, report: Report, *, starts_with_log: bool) -> None:
        self.report = report
        self.starts_with_log = starts_with_log
        self.cases: dict[bytes, Case] = {}
        self._streams: dict[bytes, list[int]] = {}
        """Version, shard and case (by number) of each stream."""
        self._list: list[Case] = []
        self._position = self._shard = -1

    def add(self, stored: Stored) -> None:
        stream = stored.stream
        if stored.position == self._position and stored.shard == self._shard:
            self._wrong(stored, f"two events are at position {stored.position} of its shard")
        self._position, self._shard = stored.position, stored.shard
        known = self._streams.get(stream)
        if known is None:
            known = self._begin(stored)
            if known is None:
                return
        elif stored.version != known[0] + 1:
            self._wrong(stored, f"version {stored.version} comes after {known[0]} in commit order")
        elif stored.shard != known[1]:
            self._wrong(stored, f"version {stored.version} is in another shard")
        known[0] = stored.version
        self._list[known[2]].events.append(stored)

    def _begin(self, stored: Stored) -> list[int] | None:
        job_id = stored.stream
        event: DomainEvent | str = ""
        if stored.version == 1 and stored.name == SCHEDULED:
            event = decoded(stored)
            if isinstance(event, Scheduled):
                job_id = event.job_id
        if stored.version != 1 or (stored.name != DEFINED and not isinstance(event, Scheduled)):
            if not self.starts_with_log:
                return None
            what = f"its first event is {stored.name}, version {stored.version}"
            self._wrong(stored, event if isinstance(event, str) and event else what)
            if stored.version != 1:
                return None
        case = self.cases.get(job_id)
        if case is None:
            case = self.cases[job_id] = Case(job_id)
            self._list.append(case)
            number = len(self._list) - 1
            self._streams[job_id] = [0, stored.shard, number]
        known = self._streams[job_id]
        if stored.stream != job_id:
            known = self._streams[stored.stream] = [0, stored.shard, known[2]]
        if stored.shard != self._streams[job_id][1]:
            self._wrong(stored, "it is not in the shard of its job")
        return known

    def _wrong(self, stored: Stored, what: str) -> None:
        of_job = stored.name.startswith("job.")
        job, run = (stored.stream, b"") if of_job else (b"", stored.stream)
        self.report.wrong("I13", what, job=job, run=run)


def _prefix(before: Sequence[Stored], after: Iterable[Stored], report: Report) -> None:
    """Nothing that was dumped earlier may be changed, or missing, now."""
    if not before:
        return
    now = {(e.stream, e.version): e for e in after}
    for old in before:
        new = now.get((old.stream, old.version))
        said = None
        if new is None:
            said = f"version {old.version} was there at an earlier dump, and is missing"
        elif (new.position, new.name, new.data) != (old.position, old.name, old.data):
            said = f"version {old.version} is not what it was at an earlier dump"
        if said is not None:
            of_job = old.name.startswith("job.")
            job, run = (old.stream, b"") if of_job else (b"", old.stream)
            report.wrong("I13", said, job=job, run=run)
