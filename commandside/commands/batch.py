"""Definitions by the thousand: a line of JSON in, a line of JSON out, in the same order.

Lines are decided in groups: one step of Python, one append, one piece of the answer. A group is
what has come, at most GROUP_MAX lines, and several are on their way at a time, within two bounds:
LINES_MAX lines and BYTES_MAX of their text. A line that is refused costs its neighbours nothing.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from commandside.commands.asked import Done, Sent
from commandside.commands.jobs import Jobs
from commandside.commands.replies import JobReply
from commandside.definitions.reading import BODY_BYTES_MAX, read_job, too_large
from commandside.payload_port import StoreAway
from commandside.ports import Unavailable
from domain.problem import Problem
from domain.tenant import Caller

GROUP_MAX: Final = 125
"""Lines decided in one step: of four clients they fill the log's groups, and a step is short."""
LINES_MAX: Final = 500
"""Lines on their way, or answered and not yet taken by the client."""
BYTES_MAX: Final = 8 * 1024 * 1024

Report = Callable[[BaseException], None]
"""Takes an exception that is a bug, for a person to look at."""


class LineReply(msgspec.Struct):
    """The answer to one line. `code` is the HTTP status that the line alone would have had."""

    line: int
    code: int
    job: JobReply | UnsetType = UNSET
    problem: dict[str, Any] | UnsetType = UNSET


_ENCODER: Final = msgspec.json.Encoder()


class Lines:
    """Cuts a stream of bytes at its line feeds, numbering from 1; blank lines are only counted."""

    def __init__(self) -> None:
        self._rest = b""
        self._number = 0
        self._skipping = False

    def push(self, chunk: bytes) -> Iterator[tuple[int, bytes | None]]:
        """Return the lines that `chunk` completes; None stands for one that is too long."""
        *whole, rest = (self._rest + chunk).split(b"\n")
        for line in whole:
            yield from self._line(line)
        if len(rest) > BODY_BYTES_MAX and not self._skipping:
            self._skipping = True
            yield self._number + 1, None
        self._rest = b"" if self._skipping else rest

    def end(self) -> Iterator[tuple[int, bytes | None]]:
        """Return the last line, which needs no line feed."""
        yield from self._line(self._rest)

    def _line(self, line: bytes) -> Iterator[tuple[int, bytes | None]]:
        self._number += 1
        if self._skipping:
            self._skipping = False
        elif len(line) > BODY_BYTES_MAX:
            yield self._number, None
        elif stripped := line.strip(b" \t\r"):
            yield self._number, stripped


class _Group(msgspec.Struct):
    """Lines decided together; no two name the same job. `refused`: those that cannot be read."""

    lines: list[tuple[int, Sent]] = []
    refused: list[LineReply] = []
    names: set[str] = set()
    size: int = 0
    answer: asyncio.Future[bytes] | None = None

    @property
    def count(self) -> int:
        """How many lines it has."""
        return len(self.lines) + len(self.refused)


class Batch:
    """One request's stream of definitions."""

    def __init__(self, jobs: Jobs, caller: Caller, idempotency_key: str, report: Report) -> None:
        self._jobs = jobs
        self._caller = caller
        self._key = idempotency_key
        self._report = report
        self._next = _Group()
        self._groups: deque[_Group] = deque()
        self._lines = 0
        self._bytes = 0
        self._room = asyncio.Event()
        self._news = asyncio.Event()

    async def replies(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Return the answers to the lines of `chunks`, as many at a time as are ready."""
        reading = asyncio.create_task(self._read(chunks))
        reading.add_done_callback(lambda _: self._news.set())
        groups = self._groups
        try:
            while groups or not reading.done():
                if not groups:
                    self._news.clear()
                    await self._news.wait()
                    continue
                group = groups[0]
                assert group.answer is not None, "a group on its way will be answered"
                yield await group.answer
                groups.popleft()
                self._lines -= group.count
                self._bytes -= group.size
                self._room.set()
            await reading
        finally:
            reading.cancel()
            for group in groups:
                assert group.answer is not None
                group.answer.cancel()

    async def _read(self, chunks: AsyncIterator[bytes]) -> None:
        lines = Lines()
        try:
            async for chunk in chunks:
                for number, line in lines.push(chunk):
                    await self._add(number, line)
                # Nobody waits for a group to fill: what has come is decided.
                await self._start()
            for number, line in lines.end():
                await self._add(number, line)
        except Problem as problem:
            self._next.refused.append(_refused(0, problem))
        await self._start()

    async def _add(self, number: int, line: bytes | None) -> None:
        """Put a line into the group that comes next."""
        while self._bytes > BYTES_MAX or self._lines >= LINES_MAX:
            await self._start()
            self._room.clear()
            await self._room.wait()
        self._lines += 1
        size = 0 if line is None else len(line)
        self._bytes += size
        key = f"{self._key}/{number}" if self._key else ""
        try:
            if line is None:
                raise too_large()
            sent = Sent(*read_job(line), line, key)
        except Problem as problem:
            self._next.refused.append(_refused(number, problem))
        else:
            name = sent.body.get("key")
            if isinstance(name, str):
                if name in self._next.names:
                    await self._start()
                self._next.names.add(name)
            self._next.lines.append((number, sent))
        self._next.size += size
        if self._next.count >= GROUP_MAX:
            await self._start()

    async def _start(self) -> None:
        """Decide the next group, and let others have the loop first."""
        if not self._next.count:
            return
        group, self._next = self._next, _Group()
        named = [other for other in self._groups if other.names & group.names]
        group.answer = asyncio.create_task(self._decide(group, named))
        self._groups.append(group)
        self._news.set()
        await asyncio.sleep(0)

    async def _decide(self, group: _Group, before: list[_Group]) -> bytes:
        """Return the answers to a group, after the groups `before` it that name the same jobs."""
        waits = [other.answer for other in before if other.answer is not None]
        if waits:
            await asyncio.wait(waits)
        definitions = [sent for _, sent in group.lines]
        try:
            done = await self._jobs.define_all(self._caller, definitions)
        except Exception as error:  # noqa: BLE001 - reported; the other groups have their answers
            done = [error] * len(definitions)
        replies = [
            self._reply(number, one) for (number, _), one in zip(group.lines, done, strict=True)
        ]
        if group.refused:
            replies = sorted(replies + group.refused, key=lambda reply: reply.line)
        return _ENCODER.encode_lines(replies)

    def _reply(self, number: int, done: Done | BaseException) -> LineReply:
        if isinstance(done, Done):
            return LineReply(number, 201 if done.created else 200, done.reply)
        if isinstance(done, Problem):
            return _refused(number, done)
        if isinstance(done, StoreAway):
            return _refused(number, Problem("unavailable", str(done)))
        if isinstance(done, Unavailable):
            return _refused(number, Problem("unavailable", "the log cannot be reached; try again"))
        self._report(done)
        return _refused(number, Problem("internal", "this line was not understood by us"))


def _refused(number: int, problem: Problem) -> LineReply:
    return LineReply(number, problem.status, problem=problem.body())
