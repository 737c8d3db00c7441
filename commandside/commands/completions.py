"""What handlers say of attempts that they took to end by themselves (contract.md §3, Delivery).

Who says it shows the token of one attempt, which names the job and the fence. A job command decides
over fresh state, and so do these: the same decision as a dispatcher's report, under the same
guards, so that neither a lapse nor a cancel committed meanwhile is overwritten.
"""

from collections.abc import Callable
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from commandside.command_port import Accepted, CommandLog
from commandside.commands.replies import Instant
from domain import ids
from domain.envelope import Decision, Rejected
from domain.instant import rfc3339
from domain.job import state as js
from domain.job.ending import report_among
from domain.opaque import Seal, read_completion
from domain.problem import Problem
from domain.run import accepted
from domain.run import events as e
from domain.run import state as s
from domain.run.report import Result

RESULT_BYTES: Final = 1_024
"""Kept of what a handler says at its end, as of an answer's body; the rest is cut."""

_STATUS: Final = {e.RETRY: "waiting"}
_SUPERSEDED: Final = Rejected("superseded", "a later attempt has taken this one's place")
_LAPSED: Final = Rejected("superseded", "the attempt was given up, and its retry is planned")
_OVER: Final = Rejected("ended", "the run has ended")
_Outcome = Decision | Rejected | None


class RunReply(msgspec.Struct, kw_only=True):
    """What a handler's word made of its run."""

    run_id: str
    status: Annotated[
        str, Meta(description="running, succeeded, waiting, dead, withdrawn or cancelled")
    ]
    lease_until: Annotated[
        Instant | None, Meta(description="without another heartbeat the attempt is lost then")
    ]
    next_attempt_at: Instant | None


class Attempt(msgspec.Struct, frozen=True):
    """The attempt that a token was issued for."""

    run_id: bytes
    job_id: bytes
    fence: int


class Completions:
    """Heartbeats and ends. Raises Problem for refusals, Unavailable when the log is away."""

    def __init__(self, log: CommandLog, tokens: Seal) -> None:
        self._log = log
        self._tokens = tokens

    def attempt(self, run_id: str, token: str) -> Attempt:
        """Return the attempt that a token is for; raises Problem, the same for any other run."""
        raw = ids.parse(ids.RUN, run_id)
        found = read_completion(self._tokens, raw, token) if raw is not None else None
        if raw is None or found is None:
            raise _absent()
        return Attempt(raw, *found)

    async def heartbeat(
        self, attempt: Attempt, progress: accepted.Progress | None = None
    ) -> RunReply:
        """Keep an attempt its handler's for another time-out."""

        def beat(job: js.JobState, run: s.OpenRun, _: tuple[s.OpenRun, ...], at: int) -> _Outcome:
            return accepted.extend(job, run, attempt.fence, at, progress)

        answer = await self._ask(attempt, beat)
        if isinstance(answer, RunReply):
            return answer
        if answer is not _OVER:
            raise Problem(answer.code, answer.detail)
        last = await self._last(attempt)
        if last is None or (last.fence == attempt.fence and last.then == e.CANCELLED):
            raise Problem("gone", "the run was cancelled: stop")
        raise self._refusal(attempt, last)

    async def complete(self, attempt: Attempt, body: bytes = b"") -> RunReply:
        """End an attempt as done; `body` is JSON."""

        def result(run: s.OpenRun, at: int) -> Result:
            return accepted.succeeded(run, at, body[:RESULT_BYTES])

        return await self._end(attempt, result, lambda last: last.outcome == e.OK)

    async def fail(self, attempt: Attempt, reason: str, *, retry: bool) -> RunReply:
        """Give an attempt up, with or without another one."""

        def result(run: s.OpenRun, at: int) -> Result:
            return accepted.failed(run, at, reason, retry=retry)

        return await self._end(attempt, result, lambda last: last.error == accepted.BY_HANDLER)

    async def _end(
        self,
        attempt: Attempt,
        result: Callable[[s.OpenRun, int], Result],
        is_same: Callable[[e.Fired], bool],
    ) -> RunReply:
        """Report an attempt, once: the same end again is answered alike, another is refused."""

        def end(job: js.JobState, run: s.OpenRun, runs: tuple[s.OpenRun, ...], at: int) -> _Outcome:
            if run.facts.fence != attempt.fence:
                return _SUPERSEDED
            decision = report_among(job, run, runs, attempt.fence, result(run, at), at)
            return _LAPSED if decision is None else decision

        answer = await self._ask(attempt, end)
        if isinstance(answer, RunReply):
            return answer
        last = await self._last(attempt)
        if last is not None and last.fence == attempt.fence and is_same(last):
            return await self._repeated(attempt, last)
        if answer is _OVER:
            raise self._refusal(attempt, last)
        raise Problem(answer.code, answer.detail)

    async def _ask(
        self,
        attempt: Attempt,
        decide: Callable[[js.JobState, s.OpenRun, tuple[s.OpenRun, ...], int], _Outcome],
    ) -> RunReply | Rejected:
        """Decide over a run that is open; `_OVER` for one that has ended."""
        made: Decision | None = None

        def under_lock(job: js.JobState | None, runs: tuple[s.OpenRun, ...], at: int) -> _Outcome:
            nonlocal made
            made = None
            run = _mine(runs, attempt)
            if job is None or run is None:
                return _OVER
            decided = decide(job, run, runs, at)
            if isinstance(decided, Decision):
                made = decided
            return decided

        outcome = await self._log.command(attempt.job_id, b"", b"", under_lock)
        if isinstance(outcome, Rejected):
            return outcome
        assert isinstance(outcome, Accepted), "a command without an id has no other body"
        run = _mine(outcome.runs, attempt)
        if run is not None:
            return _reply(attempt, run)
        assert made is not None, "what nobody appended to is open still"
        after = next(own.after for own in made.slices if own.stream_id == attempt.run_id)
        assert isinstance(after, s.Ended)
        return _ended(attempt, after.verdict)

    async def _last(self, attempt: Attempt) -> e.Fired | None:
        found = await self._log.latest([attempt.run_id], e.Fired)
        return found.get(attempt.run_id)

    async def _repeated(self, attempt: Attempt, last: e.Fired) -> RunReply:
        """Answer an end that is in the log already."""
        standing = await self._log.standing(attempt.job_id)
        run = _mine(standing.runs, attempt) if standing else None
        if run is not None:
            return _reply(attempt, run)
        return _ended(attempt, _STATUS.get(last.then, last.then))

    def _refusal(self, attempt: Attempt, last: e.Fired | None) -> Problem:
        """Say why a run that has ended is not ended again."""
        if last is not None and last.fence > attempt.fence:
            return Problem(_SUPERSEDED.code, _SUPERSEDED.detail)
        if last is None or last.fence < attempt.fence:
            return Problem("ended", "the run was cancelled")
        return Problem("ended", f"the run has ended: its attempt is {last.outcome}, {last.then}")


def _mine(runs: tuple[s.OpenRun, ...], attempt: Attempt) -> s.OpenRun | None:
    return next((run for run in runs if run.facts.run_id == attempt.run_id), None)


def _reply(attempt: Attempt, run: s.OpenRun) -> RunReply:
    flying = isinstance(run, s.InFlight | s.Awaiting)
    until: int | None = None
    # A repeat can find the next attempt in flight, whose lease is none of its business.
    if isinstance(run, s.InFlight | s.Awaiting) and run.facts.fence == attempt.fence:
        until = run.until
    waiting = isinstance(run, s.Ready)
    return RunReply(
        run_id=ids.text(ids.RUN, attempt.run_id),
        status="running" if flying else "waiting" if waiting else "withdrawn",
        lease_until=None if until is None else rfc3339(until),
        next_attempt_at=rfc3339(run.facts.due_at) if waiting else None,
    )


def _ended(attempt: Attempt, status: str) -> RunReply:
    name = ids.text(ids.RUN, attempt.run_id)
    return RunReply(run_id=name, status=status, lease_until=None, next_attempt_at=None)


def _absent() -> Problem:
    return Problem("absent", "there is no such run, or the token is not for it")
