"""Verifies and de-duplicates calls, and answers those that need no handler."""

import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

from tocsin_receiver.answer import REPEATED_MARK, Answer, problem
from tocsin_receiver.delivery import Delivery
from tocsin_receiver.headers import Headers
from tocsin_receiver.inbox import CLAIM_S, KEEP_S, Inbox
from tocsin_receiver.record import Busy, Claimed, Repeat, Stale
from tocsin_receiver.refused import Refused
from tocsin_receiver.store import Store, StoreBusy
from tocsin_receiver.verifier import TOLERANCE_S, Clock, Verifier

BODY_BYTES_MAX: Final = 1024 * 1024
"""Tocsin's own limit of a payload."""

STORE_BUSY_RETRY_S: Final = 5

_LOG: Final = logging.getLogger("tocsin_receiver")


class Receiver:
    """One per service; threads may share it.

    Wrap an application in `AsgiReceiver(app, receiver)` or `WsgiReceiver(app, receiver)`, or call
    `handle`.
    """

    def __init__(  # noqa: PLR0913 - each is one setting of a service, named at the call
        self,
        secrets: str | Iterable[str],
        store: Store,
        *,
        tolerance_s: float = TOLERANCE_S,
        claim_s: float = CLAIM_S,
        keep_s: float = KEEP_S,
        clock: Clock = time.time,
    ) -> None:
        """Take the tenant's secrets, old and new during a rotation, and where keys are kept.

        `claim_s` is to be above the longest time that the handler takes.
        """
        self._verifier = Verifier(secrets, tolerance_s=tolerance_s, clock=clock)
        self._inbox = Inbox(store, claim_s=claim_s, keep_s=keep_s, clock=clock)
        self.blocks = store.blocks

    def verify(self, headers: Headers, body: bytes) -> Delivery:
        """Return what a request says; raise Refused where it is not to be trusted."""
        return self._verifier.verify(headers, body)

    def begin(self, delivery: Delivery) -> Claimed | Answer:
        """Return a claim, for which the handler is to run; or what to answer without it."""
        try:
            outcome = self._inbox.claim(delivery)
        except StoreBusy as reason:
            _LOG.warning("no claim: %s", reason)
            return problem(503, "store_busy", str(reason), STORE_BUSY_RETRY_S)
        match outcome:
            case Claimed():
                return outcome
            case Repeat(answer):
                return Answer(answer.status, (*answer.headers, REPEATED_MARK), answer.body)
            case Busy(seconds):
                detail = "another call of this key is being handled, or was cut off"
                return problem(409, "in_progress", detail, seconds)
            case Stale(seen):
                # Retried by Tocsin, if it still cares: with a higher fence, by then the current.
                detail = f"fence {delivery.fence} comes after {seen}: a later attempt was here"
                return problem(409, "stale_fence", detail)

    def end(self, claimed: Claimed, answer: Answer) -> Answer:
        """Keep the handler's answer, and return what to send."""
        if self._inbox.finish(claimed, answer):
            return answer
        detail = "the handler took longer than its claim, and another call took over"
        _LOG.warning("%s: %s", claimed.key, detail)
        return problem(409, "superseded", detail)

    def fail(self, claimed: Claimed) -> None:
        """Give up a claim whose handler raised, so that the next attempt runs it at once."""
        self._inbox.release(claimed)

    def handle(
        self, headers: Headers, body: bytes, handler: Callable[[Delivery], Answer]
    ) -> Answer:
        """Return the answer to a request; the handler's errors go through."""
        try:
            delivery = self.verify(headers, body)
        except Refused as refused:
            return refusal(refused)
        begun = self.begin(delivery)
        if isinstance(begun, Answer):
            return begun
        try:
            answer = handler(delivery)
        except Exception:
            self.fail(begun)
            raise
        return self.end(begun, answer)


def refusal(refused: Refused) -> Answer:
    """Return the answer to a request that is refused, and log the reason."""
    _LOG.warning("refused: %s", refused)
    return problem(refused.status, refused.reason, refused.detail)


def guarded(path: str, prefix: str) -> bool:
    """Tell whether a path is the prefix or below it."""
    return path == prefix or path.startswith(prefix.rstrip("/") + "/")
