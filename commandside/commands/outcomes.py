"""What became of a command, as its client is told: an effect, or a published problem."""

from commandside.command_port import Accepted, Answer, BodyDiffers
from commandside.ports import KeyGone
from domain.problem import Problem, invalid
from domain.refusal import Refused
from domain.schedule.schedule import ScheduleBreach


def told(error: Exception) -> Exception:
    """Return the published form of an error where it has one."""
    if isinstance(error, KeyGone):
        return Problem("forbidden", "the key that this tenant's data is sealed with is destroyed")
    if isinstance(error, ScheduleBreach):
        return Problem("schedule_error", f"the schedule cannot say what is next: {error}")
    return error


def accepted_of(outcome: Answer) -> Accepted:
    """Return a command's effect; raises Problem for a refusal."""
    if isinstance(outcome, Accepted):
        return outcome
    if isinstance(outcome, BodyDiffers):
        reason = Refused("@Idempotency-Key", "use a new key for a new request")
        raise Problem("body_differs", "this key came with another request before", (reason,))
    if outcome.code == "past_until":
        raise invalid((Refused("/until", outcome.detail),))
    if outcome.code == "past":
        raise invalid((Refused("/run_at", outcome.detail),))
    errors = (Refused("@If-Match", outcome.detail),) if outcome.code == "precondition" else ()
    raise Problem(outcome.code, outcome.detail, errors)
