"""What an answer means for its run: the result of the attempt, and the decision to append."""

from typing import Final

from commandside.deliverer_port import DEAD_ERRORS, Answer
from domain import chain
from domain.envelope import Decision
from domain.job import state as js
from domain.job.ending import report_among
from domain.payload import ALTERED, MISSING, UNAVAILABLE
from domain.retry import classify, retry_after_ms
from domain.run import events as re
from domain.run import state as rs
from domain.run.accepted import STATUS, accept
from domain.run.decide import ABANDONED, Result, report

KEY_GONE = Answer(0, 0, "key_gone", False, 0)
"""Stands for an attempt that could not be built: the tenant's key has been destroyed."""
SECRET_MISSING = Answer(0, 0, "secret_missing", False, 0)
"""Stands for one whose target names a secret that is not there: retried, as it may be set again."""
WITHOUT_BODY: Final = {
    reason: Answer(0, 0, reason, False, 0) for reason in (MISSING, ALTERED, UNAVAILABLE)
}
"""Stand for attempts whose body is an object of the store that could not be had."""
_DEAD: Final = DEAD_ERRORS | {KEY_GONE.error, MISSING, ALTERED}
"""What no later attempt could mend."""
COMPLETION: Final = "tocsin-completion"
ASYNC: Final = "async"


def result_of(answer: Answer, job: js.JobState, sent_at: int, at: int) -> Result:
    """Return the attempt's result under the job's policy as it is now."""
    if answer.error == "send_deadline":
        return ABANDONED
    if answer.error == UNAVAILABLE:
        return Result(re.ABANDONED, error=UNAVAILABLE)
    if answer.error in _DEAD:
        return Result(
            re.FAILED, "dead", error=answer.error, elapsed_us=answer.elapsed_us, sent_at=sent_at
        )
    if answer.status:
        verdict = classify(answer.status, job.facts.spec.retry)
    else:
        # Without a status the error is a failure that is retried; a broker confirms without one.
        verdict = "retry" if answer.error else "ok"
    wish = retry_after_ms(answer.retry_after, at) if answer.retry_after else 0
    return Result(
        re.OK if verdict == "ok" else re.FAILED,
        verdict,
        answer.status,
        answer.error,
        answer.elapsed_us,
        wish,
        answer.headers,
        answer.body,
        sent_at,
    )


class Flight:
    """An attempt that is leased by this process and not reported yet."""

    __slots__ = (
        "alone",
        "answer",
        "beside",
        "fence",
        "job",
        "run",
        "sent_at",
        "stripe",
        "tries",
    )

    def __init__(self, run: rs.InFlight, job: js.JobState, stripe: int, *, alone: bool) -> None:
        self.run: rs.OpenRun = run
        self.job = job
        self.stripe = stripe
        self.alone = alone
        self.fence = run.facts.fence
        self.answer: Answer | None = None
        """None: never sent."""
        self.sent_at = 0
        self.tries = 0
        self.beside: tuple[rs.OpenRun, ...] | None = None
        """All open runs of the job, once they have been read."""

    @property
    def is_accepted(self) -> bool:
        """The target took the work, and will say by itself when it is done (contract.md §3)."""
        answer = self.answer
        if answer is None or answer.status != STATUS:
            return False
        return dict(answer.headers).get(COMPLETION, "").strip().lower() == ASYNC

    def needs_reading(self, result: Result) -> bool:
        """Tell whether the decision reads more than the run: an answer that pauses the job."""
        return self.beside is None and result.verdict == "pause"

    def decide(self, result: Result, at: int) -> Decision | None:
        """Return what the attempt appends; None where it has nothing to say any more.

        Raises ScheduleBreach where the job must be paused and its runs have not been read.
        """
        if self.is_accepted:
            return accept(self.job.facts.spec, self.run, self.fence, at)
        if self.beside is not None:
            return report_among(self.job, self.run, self.beside, self.fence, result, at)
        return report(self.job, self.run, self.fence, result, at, alone=self.alone)

    def refresh(self, job: js.JobState, runs: tuple[rs.OpenRun, ...]) -> bool:
        """Take the job as it stands now; False if the run is over."""
        mine = next((r for r in runs if r.facts.run_id == self.run.facts.run_id), None)
        if mine is None:
            return False
        self.job, self.run, self.beside = job, mine, runs
        self.alone = chain.is_alone(mine, runs)
        return True

    def result(self, at: int) -> Result:
        """Return how the attempt went, under the job's policy as it is known now."""
        if self.answer is None:
            return ABANDONED
        return result_of(self.answer, self.job, self.sent_at, at)
