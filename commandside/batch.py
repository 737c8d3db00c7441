"""Definitions by the thousand: a line of JSON in, a line of JSON out, in the same order.

Lines are decided side by side, so that the log can group them, within two bounds: LINES_MAX of them
and BYTES_MAX of their text. A line that is refused costs its neighbours nothing.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from commandside.jobs import Jobs
from commandside.ports import Unavailable
from commandside.reading import BODY_BYTES_MAX, read_job, too_large
from commandside.replies import JobReply
from domain.problem import Problem
from domain.tenant import Caller

LINES_MAX: Final = 1_024
"""Lines decided at a time: a few full groups of every stripe of the log."""
BYTES_MAX: Final = 8 * 1024 * 1024

Answer = asyncio.Future[bytes]

Report = Callable[[BaseException], None]
"""Takes an exception that is a bug, for a person to look at."""


class LineReply(msgspec.Struct):
    """The answer to one line. `code` is the HTTP status that the line alone would have had."""

    line: int
    code: int
    job: JobReply | UnsetType = UNSET
    problem: dict[str, Any] | UnsetType = UNSET


_ENCODE: Final = msgspec.json.Encoder().encode


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


class Batch:
    """One request's stream of definitions."""

    def __init__(self, jobs: Jobs, caller: Caller, idempotency_key: str, report: Report) -> None:
        self._jobs = jobs
        self._caller = caller
        self._key = idempotency_key
        self._report = report
        self._named: dict[str, Answer] = {}
        self._bytes = 0
        self._room = asyncio.Event()
        self._answers: deque[Answer] = deque()
        self._news = asyncio.Event()

    async def replies(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Return the answers to the lines of `chunks`, as many at a time as are ready."""
        reading = asyncio.create_task(self._read(chunks))
        reading.add_done_callback(lambda _: self._news.set())
        answers = self._answers
        try:
            while answers or not reading.done():
                if not answers:
                    self._news.clear()
                    await self._news.wait()
                    continue
                ready = [await answers[0]]
                answers.popleft()
                while answers and answers[0].done():
                    ready.append(answers.popleft().result())
                self._room.set()
                yield b"".join(ready)
            await reading
        finally:
            reading.cancel()
            for answer in answers:
                answer.cancel()

    async def _read(self, chunks: AsyncIterator[bytes]) -> None:
        lines = Lines()
        try:
            async for chunk in chunks:
                for number, line in lines.push(chunk):
                    await self._start(number, line)
            for number, line in lines.end():
                await self._start(number, line)
        except Problem as problem:
            self._answer(_known(_refused(0, problem)))

    async def _start(self, number: int, line: bytes | None) -> None:
        if line is None:
            self._answer(_known(_refused(number, too_large())))
            return
        while self._bytes > BYTES_MAX or len(self._answers) >= LINES_MAX:
            self._room.clear()
            await self._room.wait()
        self._bytes += len(line)
        self._answer(asyncio.create_task(self._line(number, line)))

    def _answer(self, answer: Answer) -> None:
        self._answers.append(answer)
        self._news.set()

    async def _line(self, number: int, line: bytes) -> bytes:
        try:
            body, payload = read_job(line)
            name = body.get("key")
            if not isinstance(name, str):
                return await self._define(number, body, payload, line)
            return await self._in_turn(name, self._define(number, body, payload, line))
        except Problem as problem:
            return _refused(number, problem)
        except Unavailable:
            return _refused(number, Problem("unavailable", "the log cannot be reached; try again"))
        except Exception as error:  # noqa: BLE001 - reported; the other lines have their answers
            self._report(error)
            return _refused(number, Problem("internal", "this line was not understood by us"))
        finally:
            self._bytes -= len(line)
            self._room.set()

    async def _in_turn(self, name: str, define: Coroutine[Any, Any, bytes]) -> bytes:
        """Await `define` after the line before that names the same job."""
        mine = asyncio.current_task()
        assert mine is not None
        before = self._named.get(name)
        self._named[name] = mine
        if before is not None:
            await asyncio.wait((before,))
        try:
            return await define
        finally:
            if self._named.get(name) is mine:
                del self._named[name]

    async def _define(
        self, number: int, body: dict[str, Any], payload: bytes | None, line: bytes
    ) -> bytes:
        key = f"{self._key}/{number}" if self._key else ""
        done = await self._jobs.define(self._caller, body, payload, line, key, brief=True)
        return _ENCODE(LineReply(number, 201 if done.created else 200, done.reply)) + b"\n"


def _refused(number: int, problem: Problem) -> bytes:
    return _ENCODE(LineReply(number, problem.status, problem=problem.body())) + b"\n"


def _known(reply: bytes) -> Answer:
    answer: Answer = asyncio.get_running_loop().create_future()
    answer.set_result(reply)
    return answer
