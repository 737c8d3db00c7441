"""`CommandLog` over the log in memory: decides and appends in one step, nothing moves between."""

from collections import Counter
from collections.abc import Sequence

from commandside.command_port import Accepted, Answer, BodyDiffers, Decide, Kind
from commandside.ports import Standing, Unavailable
from domain.catalogue import DomainEvent
from domain.envelope import Decision, Rejected
from domain.instant import SECOND
from domain.run import events as re
from infra.memory.log import Effect, MemoryLog


class MemoryCommandLog:
    """The port `CommandLog`."""

    def __init__(self, log: MemoryLog) -> None:
        """Use a log that others may share."""
        self.shards = log.shards
        self._log = log

    async def define(self, decision: Decision) -> Answer:
        """Append a definition."""
        self._log.reach()
        command = decision.command
        if command is not None:
            found = self._repeat(decision.job_id, command.command_id, command.body_hash)
            if found is not None:
                return found
        self._check_in_time(decision)
        done = self._log.append([decision], self._log.now())
        if done.refused:
            return Rejected("exists", "a job with this key exists already")
        return self._accepted(decision, done.positions[0])

    async def define_all(self, decisions: Sequence[Decision]) -> list[Answer | Exception]:
        """Append definitions, each for itself."""
        return [await self._tried(decision) for decision in decisions]

    async def _tried(self, decision: Decision) -> Answer | Exception:
        try:
            return await self.define(decision)
        except Exception as error:  # noqa: BLE001 - returned to whoever asked
            return error

    async def command(
        self, job_id: bytes, command_id: bytes, body_hash: bytes, decide: Decide
    ) -> Answer:
        """Decide on the state as it is and append."""
        self._log.reach()
        if command_id:
            repeat = self._repeat(job_id, command_id, body_hash)
            if repeat is not None:
                return repeat
        at, standing = self._log.now(), self._standing(job_id)
        job, runs = (standing.job, standing.runs) if standing else (None, ())
        decided = decide(job, runs, at)
        if isinstance(decided, Rejected):
            return decided
        if decided is not None:
            self._check_in_time(decided)
            done = self._log.append([decided], at)
            assert not done.refused, "nothing moves between a decision and its append"
            return self._accepted(decided, done.positions[0])
        assert job is not None, "nothing to do for a job that does not exist"
        version = job.facts.version
        if command_id:
            self._log.commands[job_id, command_id] = Effect(body_hash, version, 0, at)
        return Accepted(job, runs, version, 0, at)

    def _check_in_time(self, decision: Decision) -> None:
        if 0 < decision.not_after < self._log.now():
            raise Unavailable("the decision is too old to be committed")

    async def standing(self, job_id: bytes) -> Standing | None:
        """Return the job as it stands, withheld runs included."""
        self._log.reach()
        return self._standing(job_id)

    async def due_per_second(self, windows: Sequence[tuple[int, int]]) -> dict[int, int]:
        """Return second → open runs that wake in it."""
        self._log.reach()
        wakes = [due.wake_at for due in self._log.due.values()]
        return Counter(
            wake_at // SECOND for low, high in windows for wake_at in wakes if low <= wake_at < high
        )

    async def events(
        self, job_id: bytes, stream_id: bytes, after: int, limit: int
    ) -> list[DomainEvent]:
        """Return events of a stream of this job; none for another's."""
        self._log.reach()
        first = self._log.events_of(stream_id)[:1]
        mine = stream_id == job_id or any(
            isinstance(event, re.Scheduled) and event.job_id == job_id for event in first
        )
        return self._log.events_of(stream_id, after)[:limit] if mine else []

    async def told(
        self, stream_id: bytes, kinds: Sequence[type[DomainEvent]], limit: int
    ) -> list[tuple[int, DomainEvent]]:
        """Return the newest events of these kinds in a stream, in order."""
        self._log.reach()
        events = enumerate(self._log.events_of(stream_id), 1)
        return [(n, event) for n, event in events if isinstance(event, tuple(kinds))][-limit:]

    async def last_events(self, stream_ids: Sequence[bytes]) -> dict[bytes, DomainEvent]:
        """Return the last event of each stream that exists."""
        self._log.reach()
        found = ((stream_id, self._log.events_of(stream_id)[-1:]) for stream_id in stream_ids)
        return {stream_id: last for stream_id, events in found for last in events}

    async def latest(self, run_ids: Sequence[bytes], kind: type[Kind]) -> dict[bytes, Kind]:
        """Return the newest event of one kind in each of these runs' streams."""
        self._log.reach()
        found: dict[bytes, Kind] = {}
        for run_id in run_ids:
            for event in self._log.events_of(run_id):
                if isinstance(event, kind):
                    found[run_id] = event
        return found

    def _repeat(
        self, job_id: bytes, command_id: bytes, body_hash: bytes
    ) -> Accepted | BodyDiffers | None:
        effect = self._log.commands.get((job_id, command_id))
        if effect is None:
            return None
        if effect.body_hash != body_hash:
            return BodyDiffers()
        standing = self._standing(job_id)
        assert standing is not None
        return Accepted(
            standing.job, standing.runs, effect.version, effect.position, effect.at, replayed=True
        )

    def _standing(self, job_id: bytes) -> Standing | None:
        return self._log.whole(job_id) if job_id in self._log.heads else None

    def _accepted(self, decision: Decision, position: int) -> Accepted:
        standing = self._standing(decision.job_id)
        assert standing is not None
        of_job = (piece for piece in decision.slices if piece.stream_id == decision.job_id)
        at = next(of_job, decision.slices[0]).events[-1].at
        return Accepted(standing.job, standing.runs, standing.job.facts.version, position, at)
