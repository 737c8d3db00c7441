"""What commands on jobs answer, the first time and when they are repeated."""

from collections.abc import Sequence

from commandside.command_port import Accepted, CommandLog
from commandside.commands import past
from commandside.commands.asked import Done
from commandside.commands.replies import JobReply, backfilled, reply, said_of
from commandside.definitions import policies
from domain.catalogue import DomainEvent
from domain.chain import Link
from domain.ids import RUN, text
from domain.job import events as e
from domain.job import state as s
from domain.opaque import Seal, position_token
from domain.sharding import shard_of


class Answers:
    """Describes jobs as of the commands that led to them. Raises Unavailable."""

    def __init__(self, log: CommandLog, positions: Seal) -> None:
        """`positions` makes position tokens."""
        self._log = log
        self._positions = positions

    def reply(
        self,
        job: s.JobState,
        accepted: Accepted,
        *,
        runs: bool = True,
        link: Link | None = None,
    ) -> JobReply:
        """Describe a job as of a command, with the position that lists wait for."""
        answer = reply(job, accepted.version, accepted.at, runs=runs, link=link)
        facts = job.facts
        shard = shard_of(facts.job_id, self._log.shards)
        answer.position = position_token(self._positions, facts.tenant_id, shard, accepted.position)
        return answer

    def defined(  # noqa: PLR0913 - an answer is what was done, and how it is told
        self,
        job: s.JobState,
        accepted: Accepted,
        *,
        created: bool = True,
        brief: bool = False,
        link: Link | None = None,
        more: Sequence[str] = (),
    ) -> Done:
        """Answer a definition or a change, with what may surprise in it."""
        answer = self.reply(job, accepted, runs=not brief, link=link)
        spec = job.facts.spec
        answer.warnings = [*said_of(spec.schedule, accepted.at), *policies.warnings(spec), *more]
        return Done(answer, created)

    async def backfilled(self, job: s.JobState, accepted: Accepted, event: DomainEvent) -> Done:
        """Answer a backfill."""
        assert isinstance(event, e.BackfillRequested)
        answer = self.reply(await past.one_time_then(self._log, job, accepted.at), accepted)
        answer.backfill = backfilled(event)
        return Done(answer)

    async def replay(self, accepted: Accepted) -> Done:
        """Answer a repeated command as the first time: from the stream up to its version."""
        job_id = accepted.job.facts.job_id
        if accepted.version == accepted.job.facts.version == 1:
            # Most repeats are of a batch that was cut off: the job is as it was defined.
            return self.defined(accepted.job, accepted)
        job, last = await past.as_of(self._log, job_id, accepted.version)
        match last:
            case e.Defined():
                return self.defined(job, accepted)
            case e.Paused():
                answer = self.reply(job, accepted)
                answer.in_flight = await past.in_flight_then(self._log, job_id, last)
                return Done(answer)
            case e.RunRequested():
                answer = self.reply(await past.one_time_then(self._log, job, accepted.at), accepted)
                answer.run_id = text(RUN, last.run_id)
                return Done(answer)
            case e.BackfillRequested():
                return await self.backfilled(job, accepted, last)
            case e.Revised():
                return self.defined(job, accepted, created=False)
            case _:
                return Done(self.reply(job, accepted))
