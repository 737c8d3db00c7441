"""The event log as the write API uses it: definitions in groups, commands decided on what was read.

A command reads the job, decides, and appends under guards on everything that it read (protocol.md
§5): when something moved in between, the append is refused whole and it decides again. So no lock
is held while Python thinks, and commands ride in the same groups as definitions
(`command_writer`). After a commit of unknown outcome the events are compared with what was sent.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Final
from weakref import WeakValueDictionary

from commandside.command_port import (
    LAST_EVENTS_MAX,
    WINDOW_ROWS_MAX,
    Accepted,
    Answer,
    BodyDiffers,
    Decide,
    Kind,
)
from commandside.ports import Standing, Unavailable
from commandside.turns import in_turn
from domain.catalogue import NAMES, DomainEvent
from domain.envelope import Decision, Rejected
from domain.job import state as js
from domain.run import state as rs
from domain.sharding import shard_of, stripe_of
from infra.clock import DatabaseClock
from infra.postgres import append, arrays
from infra.postgres import command_reads as cr
from infra.postgres.async_wire import AsyncWire
from infra.postgres.command_writer import EXPIRES_MS, Pending, Waiting, Writer, error_of, fail
from infra.postgres.connection import parameters
from infra.postgres.wire import Broken, Replied, Statement

DECIDE_TRIES: Final = 10
TURN_S: Final = 10
"""Commands of this process on one job take turns, and wait for theirs no longer than this."""
READ_BACK_TRIES: Final = 20
READ_BACK_PAUSE_S: Final = 0.5
READERS: Final = 2
UNIQUE_VIOLATION: Final = "23505"


class PostgresCommandLog:
    """`commandside.ports.CommandLog` on the loop that `start` is awaited in."""

    def __init__(
        self,
        conninfo: str,
        clock: DatabaseClock,
        *,
        shards: int = 64,
        stripes: int = 4,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Remember where to connect; expiries go by `clock`. `say` hears why a group failed."""
        self.say = say
        self.shards = shards
        self.clock = clock
        self._stripes = stripes
        self._writers = [Writer(self, conninfo, stripe) for stripe in range(stripes)]
        self._readers = [
            AsyncWire(parameters(conninfo, f"reads {n}"), append.SETTINGS, cr.STATEMENTS)
            for n in range(READERS)
        ]
        self._turn = 0
        self._turns: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    async def start(self) -> None:
        """Begin to connect."""
        for wire in (*self._readers, *(writer.wire for writer in self._writers)):
            wire.start()

    async def close(self) -> None:
        """Close the connections; what is outstanding gets Unavailable."""
        self._closing = True
        for writer in self._writers:
            writer.wire.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for reader in self._readers:
            reader.close()

    async def define(self, decision: Decision) -> Answer:
        """Append a definition, grouped with others; Rejected(`exists`) where the job exists."""
        (answer,) = await self.define_all((decision,))
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def define_all(self, decisions: Sequence[Decision]) -> list[Answer | Exception]:
        """Append definitions; an answer or an error for each."""
        outcomes = await self._write(decisions)
        asked = [d for d, position in zip(decisions, outcomes, strict=True) if position == 0]
        # Rare, or the whole of a batch that was sent again: all of them at once.
        told = iter(await asyncio.gather(*map(self._refused, asked), return_exceptions=True))
        answers: list[Answer | Exception] = []
        for decision, outcome in zip(decisions, outcomes, strict=True):
            found = outcome or next(told)
            if isinstance(found, int):
                answers.append(_accepted(decision, None, (), found))
            elif isinstance(found, Exception):
                answers.append(found)
            elif isinstance(found, BaseException):
                raise found
            else:
                answers.append(found)
        return answers

    async def _refused(self, decision: Decision) -> Answer:
        """Say why a definition was refused: it is a repeat, or the job exists."""
        command = decision.command
        if command is not None:
            found = await self._repeat(decision.job_id, command.command_id, command.body_hash)
            if found is not None:
                return found
        return Rejected("exists", "a job with this key exists already")

    async def command(
        self, job_id: bytes, command_id: bytes, body_hash: bytes, decide: Decide
    ) -> Answer:
        """Decide on what is read, append under guards on it, and decide again if it has moved.

        In turn with others on the job: side by side only one of them would hold at a time.
        """
        turn = self._turns.setdefault(job_id, asyncio.Lock())
        crowded = Unavailable("too many commands wait for this job")
        async with in_turn(turn, TURN_S, crowded):
            return await self._command(job_id, command_id, body_hash, decide)

    async def _command(
        self, job_id: bytes, command_id: bytes, body_hash: bytes, decide: Decide
    ) -> Answer:
        for _ in range(DECIDE_TRIES):
            if command_id:
                repeat = await self._repeat(job_id, command_id, body_hash)
                if repeat is not None:
                    return repeat
            at, standing = await self._standing(job_id)
            job, runs = (standing.job, standing.runs) if standing else (None, ())
            decided = decide(job, runs, at)
            if isinstance(decided, Rejected):
                return decided
            if decided is None:
                assert job is not None, "nothing to do for a job that does not exist"
                if command_id and not await self._remember(job, command_id, body_hash, at):
                    continue
                return Accepted(job, runs, job.facts.version, 0, at)
            (outcome,) = await self._write((decided,))
            if isinstance(outcome, Exception):
                raise outcome
            if outcome:
                return _accepted(decided, job, runs, outcome)
        raise Unavailable("the job changes faster than this command can be decided")

    async def standing(self, job_id: bytes) -> Standing | None:
        """Return the job as it stands, withheld runs included."""
        return (await self._standing(job_id))[1]

    async def events(
        self, job_id: bytes, stream_id: bytes, after: int, limit: int
    ) -> list[DomainEvent]:
        """Return events of a stream of this job from version `after` + 1, none for another's."""
        values = [stream_id, arrays.int4(after), arrays.int4(limit)]
        return cr.page(await self._ask(("page", values)), job_id, stream_id)

    async def due_per_second(self, windows: Sequence[tuple[int, int]]) -> dict[int, int]:
        """Return second → open runs of all shards that wake in it."""
        values = [
            arrays.int8s([low for low, _ in windows]),
            arrays.int8s([high for _, high in windows]),
            arrays.int4s(list(range(self.shards))),
            arrays.int4(WINDOW_ROWS_MAX),
        ]
        seconds, counts = await self._ask(("seconds", values))
        return dict(zip(arrays.read_int8s(seconds), arrays.read_int8s(counts), strict=True))

    async def told(
        self, stream_id: bytes, kinds: Sequence[type[DomainEvent]], limit: int
    ) -> list[tuple[int, DomainEvent]]:
        """Return the newest events of these kinds in a stream, in order."""
        names = arrays.texts([NAMES[kind].encode() for kind in kinds])
        return cr.numbered(await self._ask(("told", [stream_id, names, arrays.int4(limit)])))

    async def last_events(self, stream_ids: Sequence[bytes]) -> dict[bytes, DomainEvent]:
        """Return the last event of each stream that exists."""
        assert len(stream_ids) <= LAST_EVENTS_MAX
        found = cr.numbered(await self._ask(("last", [arrays.uuids(stream_ids)])))
        return {stream_ids[n - 1]: event for n, event in found}

    async def latest(self, run_ids: Sequence[bytes], kind: type[Kind]) -> dict[bytes, Kind]:
        """Return the newest event of one kind in each of these runs' streams."""
        values = [arrays.uuids(run_ids), NAMES[kind].encode("ascii")]
        found = cr.numbered(await self._ask(("latest", values)))
        return {run_ids[n - 1]: event for n, event in found if isinstance(event, kind)}

    def read_back(self, batch: Sequence[Pending], expires_at: int) -> None:
        """Find out what became of a batch whose commit has an unknown outcome."""
        if self._closing:
            fail(batch, Unavailable("this process ends; the command may have been committed"))
            return
        self._spawn(self._read_back(batch, expires_at))

    async def _read_back(self, batch: Sequence[Pending], expires_at: int) -> None:
        try:
            await self._settle(batch, expires_at)
        finally:
            # Whatever ended this, nobody is left without an answer.
            fail(batch, Unavailable("the outcome of the commit could not be read"))

    async def _settle(self, batch: Sequence[Pending], expires_at: int) -> None:
        decisions = [pending.decision for pending in batch]
        lock = append.lock_parameters(append.shards_of(decisions, self.shards))
        values = cr.happened_parameters(decisions)
        for _ in range(READ_BACK_TRIES):
            try:
                now, positions = await self._ask(("lock", lock), ("happened", values))
            except Unavailable:
                await asyncio.sleep(READ_BACK_PAUSE_S)
                continue
            found = arrays.read_int8s(positions)
            # One commit: all that no guard refused are there. Before the expiry none may mean "not
            # yet"; refused ones were refused by what other commits did, and are read as that.
            if any(found):
                for pending, position in zip(batch, found, strict=True):
                    pending.settle(position)
                return
            if cr.number(now) > expires_at:
                # Nothing of it is there, and no guard said why: nobody was refused anything.
                fail(batch, Unavailable("Postgres lost the commit; it did not happen"))
                return
            await asyncio.sleep(min(EXPIRES_MS, expires_at - cr.number(now) + 1) / 1_000)
        fail(batch, Unavailable("Postgres went away in a commit and has not come back"))

    async def _write(self, decisions: Sequence[Decision]) -> list[int | Exception]:
        """Append decisions; return for each the position of its last event, 0 where refused."""
        waiting = Waiting(len(decisions))
        used = set()
        for n, decision in enumerate(decisions):
            stripe = stripe_of(shard_of(decision.job_id, self.shards), self._stripes)
            self._writers[stripe].add(Pending(decision, waiting, n))
            used.add(stripe)
        for stripe in used:
            self._writers[stripe].kick()
        if used:
            await waiting.future
        return [outcome for outcome in waiting.outcomes if outcome is not None]

    async def _repeat(
        self, job_id: bytes, command_id: bytes, body_hash: bytes
    ) -> Accepted | BodyDiffers | None:
        """Return what this command id stands for already, None where it is new."""
        effect = cr.effect(await self._ask(("command", [job_id, command_id])))
        if effect is None:
            return None
        if effect.body_hash != body_hash:
            return BodyDiffers()
        standing = await self.standing(job_id)
        assert standing is not None, "a command of a job is kept as long as the job"
        return Accepted(
            standing.job, standing.runs, effect.version, effect.position, effect.at, replayed=True
        )

    async def _standing(self, job_id: bytes) -> tuple[int, Standing | None]:
        row = await self._ask(("read", [arrays.uuids([job_id])]))
        at = cr.number(row[0])
        standing = cr.standing(row, job_id)
        if standing is None:
            return at, None
        missing = cr.without_row(standing.job, standing.runs)
        if not missing:
            return at, standing
        found = cr.withheld(await self._ask(("streams", [arrays.uuids(missing)])), missing)
        return at, Standing(standing.job, (*standing.runs, *found))

    async def _remember(
        self, job: js.JobState, command_id: bytes, body_hash: bytes, at: int
    ) -> bool:
        """Record a command without an effect; False where the job or the command came first."""
        shard = shard_of(job.facts.job_id, self.shards)
        values = [
            arrays.int4(shard),
            job.facts.job_id,
            command_id,
            body_hash,
            arrays.int4(job.facts.version),
            arrays.int8(at),
        ]
        outcome = await self._reader().ask(
            ("lock", append.lock_parameters([shard])), ("remember", values)
        )
        if isinstance(outcome, Replied):
            return bool(outcome.row)
        if outcome.sqlstate == UNIQUE_VIOLATION:
            return False
        raise error_of(outcome)

    async def _ask(self, *statements: Statement) -> tuple[bytes | None, ...]:
        outcome = await self._reader().ask(*statements)
        if isinstance(outcome, Broken):
            raise Unavailable(f"Postgres: {outcome.detail}")
        return outcome.row

    def _reader(self) -> AsyncWire:
        self._turn = (self._turn + 1) % READERS
        return self._readers[self._turn]

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _accepted(
    decision: Decision, job: js.JobState | None, runs: Sequence[rs.OpenRun], position: int
) -> Accepted:
    """Return what a committed decision led to, over the job and the runs that it was made on."""
    at = decision.slices[0].events[-1].at
    now = {run.facts.run_id: run for run in runs}
    for piece in decision.slices:
        after = piece.after
        if piece.stream_id == decision.job_id:
            assert not isinstance(after, rs.Ended | rs.OpenRun)
            job, at = after, piece.events[-1].at
        elif isinstance(after, rs.OpenRun):
            now[piece.stream_id] = after
        else:
            now.pop(piece.stream_id, None)
    assert job is not None, "only a definition is made on no job"
    return Accepted(job, tuple(now.values()), job.facts.version, position, at)
