"""Signed calls, as Tocsin sends them."""

import base64
from typing import Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from infra.targets import sign
from tocsin_receiver import Delivery, Verifier

KEY: Final = bytes(range(24))
SECRET: Final = sign.format_secret(KEY)
OTHER_KEY: Final = bytes(range(100, 132))
OTHER_SECRET: Final = sign.format_secret(OTHER_KEY)

PRIVATE: Final = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC: Final = "whpk_" + base64.b64encode(
    PRIVATE.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
).decode("ascii")

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
        signature = sign.signature(self.keys, self.key, self.sent_s, self.body)
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
    signed = f"{key}.{sent_s}.".encode() + body
    return "v1a," + base64.b64encode(PRIVATE.sign(signed)).decode("ascii")
