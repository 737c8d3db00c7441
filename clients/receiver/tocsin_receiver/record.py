"""What is remembered of a key, and what a call of it leads to; pure, so that stores only store.

States of a record::

    (none) --call--> claimed --2xx------------------> done --newer attempt, if async--> claimed
                     claimed --other answer, error--> open --call--> claimed
                     claimed --expired, call--> claimed (by that call)

Invariants: one claim holds at a time; `seen`, the highest fence of the run, never falls; a done
record is not handled again before it is forgotten.
"""

import base64
import json
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from tocsin_receiver.answer import Answer
from tocsin_receiver.delivery import Delivery

_FORMAT: Final = 1


class State(Enum):
    """How far the occurrence of a key has come."""

    CLAIMED = "claimed"
    OPEN = "open"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is remembered of one key."""

    run_id: str
    seen: int
    """The highest fence that a call of this run had."""

    fence: int
    """The fence of the attempt that claimed it last."""

    nonce: str
    """Tells this claim from every other, of the same attempt too."""

    state: State
    claimed_until_ms: int
    keep_until_ms: int
    answer: Answer | None = None

    def holds(self, now_ms: int) -> bool:
        """Tell whether a claim is in force."""
        return self.state is State.CLAIMED and now_ms < self.claimed_until_ms

    def to_text(self) -> str:
        """Return it as JSON on one line, the same for equal records."""
        answer = self.answer and {
            "status": self.answer.status,
            "headers": self.answer.headers,
            "body": base64.b64encode(self.answer.body).decode("ascii"),
        }
        return json.dumps(
            {
                "format": _FORMAT,
                "run_id": self.run_id,
                "seen": self.seen,
                "fence": self.fence,
                "nonce": self.nonce,
                "state": self.state.value,
                "claimed_until_ms": self.claimed_until_ms,
                "keep_until_ms": self.keep_until_ms,
                "answer": answer,
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_text(cls, text: str) -> "Record":
        """Return the record that `to_text` wrote; raise ValueError for any other text."""
        said: dict[str, Any] = json.loads(text)
        if said.pop("format", None) != _FORMAT:
            raise ValueError(f"not a record of format {_FORMAT}: did another program write it?")
        answer = said.pop("answer")
        if answer is not None:
            answer = Answer(
                answer["status"],
                tuple((name, value) for name, value in answer["headers"]),
                base64.b64decode(answer["body"]),
            )
        return cls(**{**said, "state": State(said["state"])}, answer=answer)


@dataclass(frozen=True, slots=True)
class Terms:
    """How long a claim holds, and how long a record is kept."""

    claim_ms: int
    keep_ms: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """The handler is to run; what it answers goes to `Inbox.finish` with this."""

    key: str
    record: Record


@dataclass(frozen=True, slots=True)
class Repeat:
    """The handler has run: this is what it answered."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class Busy:
    """The handler is running, for all we know; in `retry_after_s` the claim is over."""

    retry_after_s: int


@dataclass(frozen=True, slots=True)
class Stale:
    """A later attempt of the run was here: this one is over, and comes late."""

    seen: int


Outcome = Claimed | Repeat | Busy | Stale


def judge(
    record: Record | None, delivery: Delivery, now_ms: int, terms: Terms, nonce: str
) -> tuple[Record | None, Outcome]:
    """Return the record to write (None: as it is) and what the call leads to."""
    claim = Record(
        run_id=delivery.run_id,
        seen=delivery.fence,
        fence=delivery.fence,
        nonce=nonce,
        state=State.CLAIMED,
        claimed_until_ms=now_ms + terms.claim_ms,
        keep_until_ms=now_ms + terms.keep_ms,
    )
    if record is None or (record.keep_until_ms <= now_ms and not record.holds(now_ms)):
        return claim, Claimed(delivery.key, claim)
    # Another run with this key would be another count of fences.
    same_run = record.run_id == delivery.run_id
    if same_run and delivery.fence < record.seen:
        return None, Stale(record.seen)
    newer = same_run and delivery.fence > record.seen
    seen = replace(record, seen=delivery.fence) if newer else None
    if record.holds(now_ms):
        return seen, Busy(max(1, -((now_ms - record.claimed_until_ms) // 1_000)))
    answer = record.answer
    if record.state is State.DONE and answer is not None:
        later_attempt = not same_run or delivery.fence > record.fence
        if not (answer.asynchronous and later_attempt):
            return seen, Repeat(answer)
    return claim, Claimed(delivery.key, claim)


def finished(record: Record, answer: Answer | None, now_ms: int, terms: Terms) -> Record:
    """Return the record after its claim: done where the answer is 2xx, else open to the next."""
    done = answer is not None and answer.succeeded
    return replace(
        record,
        state=State.DONE if done else State.OPEN,
        answer=answer.kept() if done and answer is not None else None,
        claimed_until_ms=0,
        keep_until_ms=now_ms + terms.keep_ms,
    )
