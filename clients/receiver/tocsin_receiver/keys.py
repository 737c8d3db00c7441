"""Keys that signatures are verified with: shared secrets (`whsec_`) and public keys (`whpk_`)."""

import base64
import binascii
import hmac
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

SECRET_BYTES_MIN: Final = 24
SECRET_BYTES_MAX: Final = 64
PUBLIC_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64


class Key(Protocol):
    """Verifies signatures of one scheme."""

    scheme: str

    def verifies(self, signed: bytes, signature: str) -> bool:
        """Tell whether `signature`, base64 as it came, is one of `signed`."""


class HmacKey:
    """A shared secret, scheme `v1`: HMAC-SHA256."""

    scheme = "v1"

    def __init__(self, key: bytes) -> None:
        self._key = key

    def verifies(self, signed: bytes, signature: str) -> bool:
        """Compare the texts: base64 has several spellings of one value, and only ours is taken."""
        right = base64.b64encode(hmac.digest(self._key, signed, "sha256"))
        return hmac.compare_digest(right, signature.encode("utf-8", "replace"))


class Ed25519Key:
    """A public key, scheme `v1a`: it verifies, and cannot sign."""

    scheme = "v1a"

    def __init__(self, key: bytes) -> None:
        """Raise ImportError where `cryptography` is not installed."""
        self._key = _public_key(key)

    def verifies(self, signed: bytes, signature: str) -> bool:
        """Take the one right base64 spelling of 64 bytes only."""
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - an optional extra

        try:
            raw = base64.b64decode(signature, validate=True)
        except ValueError:
            return False
        if len(raw) != SIGNATURE_BYTES or base64.b64encode(raw).decode("ascii") != signature:
            return False
        try:
            self._key.verify(raw, signed)
        except InvalidSignature:
            return False
        return True


def parse_keys(secrets: str | Iterable[str]) -> tuple[Key, ...]:
    """Return the keys of one secret or several; raise ValueError where one of them is none."""
    texts = (secrets,) if isinstance(secrets, str) else tuple(secrets)
    if not texts:
        raise ValueError("at least one secret is needed: whsec_... or whpk_...")
    return tuple(parse_key(text) for text in texts)


def parse_key(text: str) -> Key:
    """Return the key of `whsec_...` or `whpk_...`; no message holds any of the text."""
    prefix, separator, encoded = text.partition("_")
    if not separator or prefix not in {"whsec", "whpk"}:
        if prefix == "whsk":
            raise ValueError("whsk_ is the private key, for signing only: give the whpk_ one")
        raise ValueError("a secret begins with whsec_, a public key with whpk_")
    try:
        raw = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        # Not chained: the text is a secret, and an error of the decoder may show it.
        raise ValueError(f"what follows {prefix}_ is not base64") from None
    if prefix == "whpk":
        if len(raw) != PUBLIC_BYTES:
            raise ValueError(f"a public key has {PUBLIC_BYTES} bytes, this one {len(raw)}")
        return Ed25519Key(raw)
    if not SECRET_BYTES_MIN <= len(raw) <= SECRET_BYTES_MAX:
        raise ValueError(
            f"a secret has {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes, this one {len(raw)}"
        )
    return HmacKey(raw)


def _public_key(raw: bytes) -> "Ed25519PublicKey":
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415 - optional
    except ImportError as reason:
        raise ImportError(
            "a whpk_ key needs the package 'cryptography': install tocsin-receiver[ed25519],"
            " or give the whsec_ secret"
        ) from reason
    return ed25519.Ed25519PublicKey.from_public_bytes(raw)
