"""Standard Webhooks 1.0.0: what a target verifies a call by.

`v1` is HMAC-SHA256 with a secret that both sides know; `v1a` is Ed25519, of which the receiver
knows the public key alone. During a rotation a call carries a signature of each key in force.
"""

import base64
import binascii
import hmac
from collections.abc import Callable, Iterable
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from commandside.secret_port import V1, V1A

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - the public marker of a secret
PUBLIC_PREFIX: Final = "whpk_"
SECRET_BYTES_MIN: Final = 24
SECRET_BYTES_MAX: Final = 64

Signer = Callable[[bytes], bytes]
"""Signed content → one signature with its scheme."""


def parse_secret(text: str) -> bytes:
    """Return the key of a `whsec_` secret; raise ValueError if it is none."""
    if not text.startswith(SECRET_PREFIX):
        raise ValueError(f"a signing secret begins with {SECRET_PREFIX}")
    try:
        key = base64.b64decode(text.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error as reason:
        # The text is a secret: neither it nor a part of it may reach a message.
        raise ValueError("a signing secret is base64 after its prefix") from reason
    if not SECRET_BYTES_MIN <= len(key) <= SECRET_BYTES_MAX:
        raise ValueError(f"a signing key has {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes")
    return key


def format_secret(key: bytes) -> str:
    """Return the text form of a shared key."""
    return SECRET_PREFIX + base64.b64encode(key).decode("ascii")


def shown(scheme: int, key: bytes) -> str:
    """Return what a receiver verifies with: the shared secret, or the public key."""
    if scheme == V1:
        return format_secret(key)
    public = Ed25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw()
    return PUBLIC_PREFIX + base64.b64encode(public).decode("ascii")


def signer(scheme: int, key: bytes) -> Signer:
    """Return what signs with a key; `v1a` costs a dozen times what `v1` does."""
    if scheme == V1A:
        sign = Ed25519PrivateKey.from_private_bytes(key).sign
        return lambda content: b"v1a," + binascii.b2a_base64(sign(content), newline=False)
    return lambda content: (
        b"v1," + binascii.b2a_base64(hmac.digest(key, content, "sha256"), newline=False)
    )


def signature(signers: Iterable[Signer], message_id: str, timestamp_s: int, body: bytes) -> bytes:
    """Return the value of `webhook-signature`: a signature of each key, the newest key first.

    `timestamp_s` are the whole seconds of the attempt, `body` the bytes that are sent.
    """
    content = b"%b.%d.%b" % (message_id.encode("ascii"), timestamp_s, body)
    return b" ".join([sign(content) for sign in signers])
