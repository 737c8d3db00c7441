"""Standard Webhooks 1.0.0, symmetric scheme `v1`: what a target verifies a call by."""

import base64
import binascii
import hmac
from collections.abc import Iterable, Sequence
from typing import Final

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - the public marker of a secret
SECRET_BYTES_MIN: Final = 24
SECRET_BYTES_MAX: Final = 64


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
    """Return the text form of a key, as it is shown to the tenant once."""
    return SECRET_PREFIX + base64.b64encode(key).decode("ascii")


def signature(keys: Iterable[bytes], message_id: str, timestamp_s: int, body: bytes) -> bytes:
    """Return the value of `webhook-signature`: one signature per key, the newest key first.

    `timestamp_s` are the whole seconds of the attempt, `body` the bytes that are sent. During a
    rotation there are two keys, and a target that knows either is content.
    """
    signed = b"%b.%d.%b" % (message_id.encode("ascii"), timestamp_s, body)
    return b" ".join(
        b"v1," + binascii.b2a_base64(hmac.digest(key, signed, "sha256"), newline=False)
        for key in keys
    )


def webhook_headers(
    keys: Sequence[bytes], message_id: str, timestamp_s: int, body: bytes
) -> list[bytes]:
    """Return the three header lines; a tenant without keys gets no signature."""
    lines = [b"webhook-id: " + message_id.encode("ascii"), b"webhook-timestamp: %d" % timestamp_s]
    if keys:
        lines.append(b"webhook-signature: " + signature(keys, message_id, timestamp_s, body))
    return lines
