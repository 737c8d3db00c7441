"""Dead runs are run again: one by its id, or many by a filter, a job at a time.

A dead run does not change any more; what may change is whether it was redriven. That is read before
the decision and held against the job's version again, as each redrive is an event of its job.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Annotated, Final, Protocol

import msgspec
from msgspec import Meta

from commandside.command_port import LAST_EVENTS_MAX, Accepted, CommandLog
from commandside.commands.asked import body_hash
from commandside.commands.outcomes import accepted_of
from commandside.commands.replies import Instant
from commandside.ports import Standing, Unavailable
from domain.envelope import Command, Decision, Rejected
from domain.ids import JOB, RUN, command_id_of, parse, redrive_id, text
from domain.instant import rfc3339
from domain.job import state as s
from domain.job.command import By, Outcome
from domain.job.events import RedriveRequested
from domain.job.redrive import KEPT_MS, TELLING, TELLING_MAX, Dead, Redriven, redrive, tell
from domain.opaque import Seal, position_token
from domain.problem import Problem
from domain.run.state import OpenRun
from domain.sharding import shard_of
from domain.tenant import Caller
from projections.dead_letters import DeadFilter, DeadPlace
from projections.rows import RunRow

MOVED: Final = "moved"
TRIES: Final = 10
REDRIVES_MAX: Final = 1_000
"""Dead letters that one command redrives."""
REDRIVES: Final = 100
PER_SECOND_MAX: Final = 100
PER_SECOND: Final = 10
PAGE: Final = 1_000
SCANNED_MAX: Final = 10_000
"""Dead letters that one command looks at: those that were redriven stay in the list."""
JOBS_AT_ONCE: Final = 8
REFUSED_SHOWN: Final = 100
_NO_LISTS: Final = "dead letters are listed by the query role, which this process is not"


class DeadLetters(Protocol):
    """The list of dead letters. Plain calls, made in a thread; raises Unavailable."""

    def dead_rows(
        self,
        tenant_id: bytes,
        wanted: DeadFilter,
        edge: DeadPlace | None,
        limit: int,
        *,
        newer: bool = False,
    ) -> list[RunRow]:
        """Return up to `limit` next to `edge`, the last to end first; `newer`: those before it."""


class RedriveReply(msgspec.Struct, kw_only=True):
    """The run that takes the place of a dead one."""

    run_id: str
    redrive_of: Annotated[str, Meta(description="the dead run")]
    job_id: str
    scheduled_for: Annotated[Instant, Meta(description="as of the dead run")]
    position: Annotated[str, Meta(description="opaque; lists wait for it with ?position=")]


class LetterNamed(msgspec.Struct, kw_only=True):
    """A dead letter."""

    run_id: str
    job_id: str
    scheduled_for: Instant
    ended_at: Instant


class JobRefused(msgspec.Struct, kw_only=True):
    """Why dead letters of a job are left as they are."""

    job_id: str
    code: str
    detail: str


class BulkReply(msgspec.Struct, kw_only=True):
    """What a redrive by filter does, oldest dead letter first."""

    found: Annotated[int, Meta(description="dead letters that were not redriven, up to the limit")]
    runs: Annotated[int, Meta(description="of those, that run again")]
    jobs: Annotated[int, Meta(description="whose they are")]
    first: Annotated[LetterNamed | None, Meta(description="of those found")]
    last: LetterNamed | None
    refused: Annotated[list[JobRefused], Meta(description="jobs that take no redrive, up to 100")]
    more: Annotated[bool, Meta(description="the filter may have more: ask again")]
    seconds: Annotated[int, Meta(description="until the last of them is due")]
    dry_run: bool


class OneAsked(msgspec.Struct, frozen=True):
    """A redrive of one run, as a client asked for it."""

    caller: Caller
    run_id: str
    reason: str = ""
    body: bytes = b""
    idempotency_key: str = ""


class ManyAsked(msgspec.Struct, frozen=True):
    """A redrive by filter, as a client asked for it."""

    caller: Caller
    wanted: DeadFilter
    limit: int
    per_second: int
    dry_run: bool
    reason: str = ""
    body: bytes = b""
    idempotency_key: str = ""


class _Known(msgspec.Struct, frozen=True):
    """A job as it was before its redrives were read, and what was read."""

    standing: Standing
    dead: tuple[Dead, ...]
    redriven: Redriven


class _Scan(msgspec.Struct):
    """What a filter has found, oldest first: dead letters, and whether each was redriven.

    `more`: there may be others.
    """

    rows: list[tuple[RunRow, bool]] = []
    more: bool = False


class Redrives:
    """Raises Problem for refusals, Unavailable when an engine cannot be reached."""

    def __init__(
        self,
        log: CommandLog,
        letters: DeadLetters | None,
        *,
        now: Callable[[], int],
        positions: Seal,
        kept_ms: int = KEPT_MS,
    ) -> None:
        """`letters`: None in a process that answers no lists. `now`: ms of the database clock.

        `kept_ms`: for so long after its end a dead run can be redriven.
        """
        self._log = log
        self._letters = letters
        self._now = now
        self._positions = positions
        self._kept_ms = kept_ms

    async def one(self, asked: OneAsked) -> RedriveReply:
        """Redrive one run."""
        raw = parse(RUN, asked.run_id)
        dead = await self._dead(raw) if raw is not None else None
        if raw is None or dead is None or dead.planned.tenant_id != asked.caller.tenant_id:
            raise Problem("absent", "there is no such run")
        command = _command(asked.caller, asked.idempotency_key, b"%b\n%b" % (raw, asked.body))
        by = By(0, asked.caller.kid, asked.reason, command)
        accepted, event = await self._redrive(dead.planned.job_id, (dead,), by)
        place = event.redriven.index(raw)
        facts = accepted.job.facts
        shard = shard_of(facts.job_id, self._log.shards)
        return RedriveReply(
            run_id=text(RUN, event.runs[place]),
            redrive_of=asked.run_id,
            job_id=text(JOB, facts.job_id),
            scheduled_for=rfc3339(dead.planned.nominal),
            position=position_token(self._positions, facts.tenant_id, shard, accepted.position),
        )

    async def many(self, asked: ManyAsked) -> BulkReply:
        """Redrive what a filter finds, a job at a time; a repeat of the command adds nothing."""
        scan = await self._scan(asked)
        done = await self._done(asked, scan)
        found = [
            row
            for row, redriven in scan.rows
            if (row.run_id in done[row.job_id] if row.job_id in done else not redriven)
        ][: asked.limit]
        jobs: dict[bytes, list[RunRow]] = {}
        for row in found:
            if row.job_id not in done:
                jobs.setdefault(row.job_id, []).append(row)
        left = sum(not redriven for _, redriven in scan.rows) - sum(map(len, jobs.values()))
        settled = await self._settle(asked, jobs)
        runs = sum(map(len, done.values()))
        runs += sum(each for each in settled.values() if isinstance(each, int))
        refused = [
            JobRefused(job_id=text(JOB, job_id), code=why.code, detail=why.detail)
            for job_id, why in settled.items()
            if isinstance(why, Problem)
        ]
        return BulkReply(
            found=len(found),
            runs=runs,
            jobs=len({row.job_id for row in found}),
            first=_named(found[0]) if found else None,
            last=_named(found[-1]) if found else None,
            refused=refused[:REFUSED_SHOWN],
            more=scan.more or left > 0 or runs < len(found),
            seconds=max(len(found) - 1, 0) // asked.per_second,
            dry_run=asked.dry_run,
        )

    async def _settle(
        self, asked: ManyAsked, jobs: dict[bytes, list[RunRow]]
    ) -> dict[bytes, int | Problem]:
        """Redrive dead letters by job, a few jobs at a time."""
        gate = asyncio.Semaphore(JOBS_AT_ONCE)

        async def settle(job_id: bytes, rows: list[RunRow], ahead: int) -> int | Problem:
            async with gate:
                try:
                    return await self._of_job(asked, job_id, rows, ahead)
                except Problem as problem:
                    return problem

        ahead = accumulate(map(len, jobs.values()), initial=0)
        waits = [settle(*item, before) for item, before in zip(jobs.items(), ahead, strict=False)]
        return dict(zip(jobs, await asyncio.gather(*waits), strict=True))

    async def _done(self, asked: ManyAsked, scan: _Scan) -> dict[bytes, frozenset[bytes]]:
        """Return what the same command did before, in which jobs: its repeat does no more."""
        command = _command(asked.caller, asked.idempotency_key, asked.body)
        if command is None or asked.dry_run:
            return {}
        found: dict[bytes, frozenset[bytes]] = {}
        never = Rejected("redriven", "by another command")
        for job_id in dict.fromkeys(row.job_id for row, redriven in scan.rows if redriven):
            outcome = await self._log.command(
                job_id, command.command_id, command.body_hash, lambda *_: never
            )
            if isinstance(outcome, Rejected):
                continue
            (event,) = await self._log.events(job_id, job_id, accepted_of(outcome).version - 1, 1)
            assert isinstance(event, RedriveRequested)
            found[job_id] = frozenset(event.redriven)
        return found

    async def _of_job(
        self, asked: ManyAsked, job_id: bytes, rows: Sequence[RunRow], ahead: int
    ) -> int:
        """Redrive dead letters of one job; return how many run."""
        read = [await self._dead(row.run_id) for row in rows]
        dead = tuple(each for each in read if each is not None)
        caller = asked.caller
        if asked.dry_run:
            known = await self._look(job_id, dead)
            by = By(self._now(), caller.kid, asked.reason)
            standing = known.standing
            outcome = self._decide(known, caller.tenant_id, by, standing.job, standing.runs)
            if isinstance(outcome, Rejected):
                raise Problem(outcome.code, outcome.detail)
            assert isinstance(outcome, Decision)
            (event,) = outcome.slices[0].events
            assert isinstance(event, RedriveRequested)
            return len(event.runs)
        command = _command(caller, asked.idempotency_key, asked.body)
        by = By(0, caller.kid, asked.reason, command)
        pace = asked.per_second, ahead
        _, event = await self._redrive(job_id, dead, by, tenant_id=caller.tenant_id, pace=pace)
        return len(event.runs)

    async def _redrive(
        self,
        job_id: bytes,
        dead: tuple[Dead, ...],
        by: By,
        *,
        tenant_id: bytes = b"",
        pace: tuple[int, int] = (0, 0),
    ) -> tuple[Accepted, RedriveRequested]:
        """Append the redrive of runs of one job, under its lock."""
        command = by.command
        identity, digest = (command.command_id, command.body_hash) if command else (b"", b"")
        tenant_id = tenant_id or dead[0].planned.tenant_id
        for _ in range(TRIES):
            known = await self._look(job_id, dead)

            def under_lock(
                job: s.JobState | None,
                runs: tuple[OpenRun, ...],
                at: int,
                known: _Known = known,
            ) -> Outcome:
                return self._decide(
                    known, tenant_id, msgspec.structs.replace(by, at=at), job, runs, pace
                )

            outcome = await self._log.command(job_id, identity, digest, under_lock)
            if isinstance(outcome, Rejected) and outcome.code == MOVED:
                continue
            accepted = accepted_of(outcome)
            (event,) = await self._log.events(job_id, job_id, accepted.version - 1, 1)
            assert isinstance(event, RedriveRequested)
            return accepted, event
        raise Unavailable("the job changes faster than its dead letters can be read")

    def _decide(  # noqa: PLR0913 - a verb, and what is known
        self,
        known: _Known,
        tenant_id: bytes,
        by: By,
        job: s.JobState | None,
        runs: tuple[OpenRun, ...],
        pace: tuple[int, int] = (0, 0),
    ) -> Outcome:
        """Decide on a job that has the version it had; else the refusal MOVED."""
        if job is None or job.facts.tenant_id != tenant_id:
            return Rejected("absent", "there is no such job")
        if job.facts.version != known.standing.job.facts.version:
            return Rejected(MOVED, "the job has moved since its dead letters were read")
        per_second, ahead = pace
        return redrive(
            job,
            runs,
            known.dead,
            known.redriven,
            by,
            per_second=per_second,
            ahead=ahead,
            kept_ms=self._kept_ms,
        )

    async def _dead(self, run_id: bytes) -> Dead | None:
        return tell(run_id, await self._log.told(run_id, TELLING, TELLING_MAX))

    async def _look(self, job_id: bytes, dead: tuple[Dead, ...]) -> _Known:
        """Read which of these runs were redriven; the job first, so that its version tells."""
        standing = await self._log.standing(job_id)
        if standing is None:
            raise Problem("absent", "there is no such job")
        streams = [each.redrive_id for each in dead]
        return _Known(standing, dead, await self._log.last_events(streams))

    async def _scan(self, asked: ManyAsked) -> _Scan:
        """Look for dead letters that were not redriven, the oldest first."""
        if self._letters is None:
            raise Problem("no_route", _NO_LISTS)
        scan, seen, fresh = _Scan(), 0, 0
        wanted = asked.wanted.ended_since(self._now() - self._kept_ms)
        place = DeadPlace(-1, b"\0" * 16)
        while seen < SCANNED_MAX:
            page = await asyncio.to_thread(
                self._letters.dead_rows,
                asked.caller.tenant_id,
                wanted,
                place,
                PAGE,
                newer=True,
            )
            rows = page[::-1]
            streams = {row.run_id: redrive_id(row.job_id, row.nominal, row.run_id) for row in rows}
            assert len(streams) <= LAST_EVENTS_MAX
            redriven = await self._log.last_events(list(streams.values()))
            for row in rows:
                is_redriven = streams[row.run_id] in redriven
                fresh += not is_redriven
                if fresh > asked.limit:
                    scan.more = True
                    return scan
                scan.rows.append((row, is_redriven))
            if len(rows) < PAGE:
                return scan
            seen += len(rows)
            place = DeadPlace(rows[-1].ended_at, rows[-1].run_id)
        scan.more = True
        return scan


def _command(caller: Caller, key: str, body: bytes) -> Command | None:
    if not key:
        return None
    return Command(command_id_of(caller.tenant_id, key), body_hash("redrive", body))


def _named(row: RunRow) -> LetterNamed:
    return LetterNamed(
        run_id=text(RUN, row.run_id),
        job_id=text(JOB, row.job_id),
        scheduled_for=rfc3339(row.nominal),
        ended_at=rfc3339(row.ended_at),
    )
