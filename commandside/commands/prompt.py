"""A command log that hands off at once what is due within two seconds of its commit."""

from collections.abc import Sequence
from typing import TypeVar

from commandside.command_port import Accepted, Answer, CommandLog, Decide, Kind
from commandside.firing.hand_off import SelfHandOff
from commandside.ports import Standing
from domain.catalogue import DomainEvent
from domain.envelope import Decision

_Outcome = TypeVar("_Outcome", Answer, Answer | Exception)


class PromptLog:
    """`commandside.ports.CommandLog` over another one.

    The scheduler looks every second, so without this a job due now would start up to a second late.
    What is offered is a hint: where the broker is away, the scheduler's next look finds the run.
    """

    def __init__(self, log: CommandLog, hand_off: SelfHandOff) -> None:
        self._log, self._hand_off = log, hand_off
        self.shards = log.shards

    async def define(self, decision: Decision) -> Answer:
        """Append a definition."""
        return self._offered(await self._log.define(decision))

    async def define_all(self, decisions: Sequence[Decision]) -> list[Answer | Exception]:
        """Append definitions."""
        return [self._offered(made) for made in await self._log.define_all(decisions)]

    async def command(
        self, job_id: bytes, command_id: bytes, body_hash: bytes, decide: Decide
    ) -> Answer:
        """Decide and append."""
        return self._offered(await self._log.command(job_id, command_id, body_hash, decide))

    async def standing(self, job_id: bytes) -> Standing | None:
        """Return the job as it stands."""
        return await self._log.standing(job_id)

    async def due_per_second(self, windows: Sequence[tuple[int, int]]) -> dict[int, int]:
        """Return second → open runs that wake in it."""
        return await self._log.due_per_second(windows)

    async def told(
        self, stream_id: bytes, kinds: Sequence[type[DomainEvent]], limit: int
    ) -> list[tuple[int, DomainEvent]]:
        """Return the newest events of these kinds in a stream, in order."""
        return await self._log.told(stream_id, kinds, limit)

    async def last_events(self, stream_ids: Sequence[bytes]) -> dict[bytes, DomainEvent]:
        """Return the last event of each stream that exists."""
        return await self._log.last_events(stream_ids)

    async def events(
        self, job_id: bytes, stream_id: bytes, after: int, limit: int
    ) -> list[DomainEvent]:
        """Return events of a stream of this job."""
        return await self._log.events(job_id, stream_id, after, limit)

    async def latest(self, run_ids: Sequence[bytes], kind: type[Kind]) -> dict[bytes, Kind]:
        """Return the newest event of one kind in each of these runs' streams."""
        return await self._log.latest(run_ids, kind)

    def _offered(self, outcome: _Outcome) -> _Outcome:
        if isinstance(outcome, Accepted) and outcome.position and not outcome.replayed:
            self._hand_off.offer(outcome.runs, outcome.at)
        return outcome
