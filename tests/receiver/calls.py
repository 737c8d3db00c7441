"""Signed calls, as Tocsin sends them."""

from typing import Final

import msgspec

from commandside.secret_port import V1, V1A
from infra import signing
from tocsin_receiver import Delivery, Verifier

KEY: Final = bytes(range(24))
SECRET: Final = signing.format_secret(KEY)
OTHER_KEY: Final = bytes(range(100, 132))
OTHER_SECRET: Final = signing.format_secret(OTHER_KEY)

PRIVATE_KEY: Final = bytes(range(32))
PUBLIC: Final = signing.shown(V1A, PRIVATE_KEY)

NOW_S: Final = 1_790_000_000
"""The time of tests that have a clock of their own."""


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self, at_s: float = NOW_S) -> None:
        self.at_s = at_s

    def __call__(self) -> float:
        return self.at_s


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """What varies between calls of one occurrence."""

    job: str = "jb_" + "0a" * 16
    run: str = "rn_" + "0b" * 16
    slot: str = "1789999980000"
    attempt: int = 1
    fence: int = 3
    sent_s: int = NOW_S
    body: bytes = b'{"report":"hourly"}'
    keys: tuple[bytes, ...] = (KEY,)

    @property
    def key(self) -> str:
        return f"job-{self.job}-run-{self.slot}"

    def headers(self) -> dict[str, str]:
        """Return the headers, signed by our own signer."""
        signers = [signing.signer(V1, key) for key in self.keys]
        signature = signing.signature(signers, self.key, self.sent_s, self.body)
        return {
            "Content-Type": "application/json",
            "Idempotency-Key": self.key,
            "webhook-id": self.key,
            "webhook-timestamp": str(self.sent_s),
            "webhook-signature": signature.decode("ascii"),
            "Tocsin-Job-Id": self.job,
            "Tocsin-Run-Id": self.run,
            "Tocsin-Scheduled-For": "2026-09-21T14:13:00.250Z",
            "Tocsin-Attempt": str(self.attempt),
            "Tocsin-Fence": str(self.fence),
            "traceparent": f"00-{'0b' * 16}-{'0b' * 8}-01",
        }

    def delivery(self) -> Delivery:
        """Return what the kit reads out of it."""
        verifier = Verifier(SECRET, clock=lambda: self.sent_s)
        return verifier.verify(self.headers(), self.body)


def ed25519_signature(key: str, sent_s: int, body: bytes) -> str:
    """Return a `v1a` signature."""
    signers = [signing.signer(V1A, PRIVATE_KEY)]
    return signing.signature(signers, key, sent_s, body).decode("ascii")
