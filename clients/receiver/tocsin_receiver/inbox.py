"""Runs one handler at a time for a key, and none once it is done."""

import secrets
import time
from typing import Final

from tocsin_receiver.answer import Answer
from tocsin_receiver.delivery import Delivery
from tocsin_receiver.record import Busy, Claimed, Outcome, Record, State, Terms, finished, judge
from tocsin_receiver.store import Store, StoreBusy
from tocsin_receiver.verifier import Clock

CLAIM_S: Final = 120.0
"""Four times the 30 s that Tocsin waits for an answer by default."""

KEEP_S: Final = 7 * 86_400.0
"""Attempts end after a day; a week leaves time to redrive a dead letter."""

SWAPS_MAX: Final = 16
"""A swap fails only because another call of the same key got through, and those are few."""


class Inbox:
    """De-duplicates deliveries by their key in a store; time is the receiver's own clock."""

    def __init__(
        self,
        store: Store,
        *,
        claim_s: float = CLAIM_S,
        keep_s: float = KEEP_S,
        clock: Clock = time.time,
    ) -> None:
        """Take terms in seconds; raise ValueError where they cannot be right."""
        if not 0 < claim_s <= keep_s:
            raise ValueError(
                f"claim_s is {claim_s:g}: more than 0, and not above keep_s {keep_s:g}"
            )
        self.store = store
        self._terms = Terms(round(claim_s * 1_000), round(keep_s * 1_000))
        self._clock = clock

    def claim(self, delivery: Delivery) -> Outcome:
        """Return what to do with a delivery; after Claimed, call `finish` or `release`."""
        store, key, record = self.store, delivery.key, None
        # A new key is the usual case, and costs one step of the store: so it is tried unread.
        for _ in range(SWAPS_MAX):
            now_ms = self._now_ms()
            new, outcome = judge(record, delivery, now_ms, self._terms, secrets.token_hex(8))
            if new is None or store.swap(key, record, new, self._keep_ms(new, now_ms)):
                return outcome
            record = store.load(key)
        return Busy(1)

    def finish(self, claimed: Claimed, answer: Answer | None) -> bool:
        """Keep the answer of a handler if it is 2xx, else let the next attempt run it again.

        Return False where the claim had expired and another call took it over.
        """
        store, key = self.store, claimed.key
        record: Record | None = claimed.record
        for _ in range(SWAPS_MAX):
            now_ms = self._now_ms()
            new = finished(record or claimed.record, answer, now_ms, self._terms)
            if store.swap(key, record, new, self._keep_ms(new, now_ms)):
                return True
            # A later attempt that was told to wait has raised `seen`; or the store forgot the key.
            record = store.load(key)
            if record and (record.nonce != new.nonce or record.state is not State.CLAIMED):
                return False
        raise StoreBusy(f"{key} changed {SWAPS_MAX} times while its answer was to be kept")

    def release(self, claimed: Claimed) -> bool:
        """Give up a claim whose handler failed."""
        return self.finish(claimed, None)

    def _now_ms(self) -> int:
        return int(self._clock() * 1_000)

    @staticmethod
    def _keep_ms(record: Record, now_ms: int) -> int:
        return max(record.keep_until_ms, record.claimed_until_ms) - now_ms
