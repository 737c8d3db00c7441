"""Opaque tokens: a few bytes that a client hands back, and cannot read as a promise or change.

Each is bound by its MAC to what it was issued for (a tenant, a route, a filter): used anywhere else
it is simply not a token.
"""

import base64
from functools import lru_cache
from hashlib import blake2b
from hmac import compare_digest
from typing import Final

MAC_BYTES: Final = 16
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
TOKEN_LENGTH_MAX: Final = 512


def subkey(secret: bytes, use: str) -> bytes:
    """Return a 32-byte key for one use (≤ 16 ASCII characters) of an installation's secret."""
    return blake2b(secret, digest_size=32, person=use.encode("ascii")).digest()


def issue(key: bytes, bound: bytes, body: bytes) -> str:
    """Return a token that holds `body` and is valid only with the same `bound`."""
    raw = base64.b64encode(body + _mac(key, bound, body))
    return raw.translate(_URL_SAFE).rstrip(b"=").decode("ascii")


def read(key: bytes, bound: bytes, token: str) -> bytes | None:
    """Return the body of a token, None for anything that `issue` did not make for `bound`."""
    if not 0 < len(token) <= TOKEN_LENGTH_MAX or not token.isascii():
        return None
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return None
    body, mac = raw[:-MAC_BYTES], raw[-MAC_BYTES:]
    # The last character of base64 can be spelt in several ways; only the one we issue is ours.
    if not compare_digest(mac, _mac(key, bound, body)) or issue(key, bound, body) != token:
        return None
    return body


@lru_cache(64)
def _keyed(key: bytes) -> blake2b:
    """Return the hash under a key, to be copied: half of what one made anew costs a fire."""
    return blake2b(key=key[:64], digest_size=MAC_BYTES, person=b"tocsin token")


def _mac(key: bytes, bound: bytes, body: bytes) -> bytes:
    digest = _keyed(key).copy()
    digest.update(len(bound).to_bytes(4, "big") + bound + body)
    return digest.digest()


class Seal:
    """Tokens of one use under an installation's secret."""

    __slots__ = ("_key",)

    def __init__(self, secret: bytes, use: str) -> None:
        self._key = subkey(secret, use)

    def issue(self, bound: bytes, body: bytes) -> str:
        """Return a token for `body`."""
        return issue(self._key, bound, body)

    def read(self, bound: bytes, token: str) -> bytes | None:
        """Return the body, or None."""
        return read(self._key, bound, token)


POSITION: Final = "position"


def position_token(seal: Seal, tenant_id: bytes, shard: int, position: int) -> str:
    """Return how far a command's effect reaches in the log of its shard; reads can wait for it."""
    body = shard.to_bytes(4, "big") + position.to_bytes(8, "big")
    return seal.issue(tenant_id, body)


def read_position(seal: Seal, tenant_id: bytes, token: str) -> tuple[int, int] | None:
    """Return (shard, position), or None for what was not issued to this tenant."""
    body = seal.read(tenant_id, token)
    if body is None or len(body) != 12:  # noqa: PLR2004 - 4 + 8, as above
        return None
    return int.from_bytes(body[:4], "big"), int.from_bytes(body[4:], "big")


COMPLETION: Final = "completion"


def completion_token(seal: Seal, run_id: bytes, job_id: bytes, fence: int) -> str:
    """Return what lets its bearer end one attempt of one run, and nothing else."""
    return seal.issue(run_id, job_id + fence.to_bytes(4, "big"))


def read_completion(seal: Seal, run_id: bytes, token: str) -> tuple[bytes, int] | None:
    """Return (job, fence), or None for what was not issued for this run."""
    body = seal.read(run_id, token)
    if body is None or len(body) != 20:  # noqa: PLR2004 - 16 + 4, as above
        return None
    return body[:16], int.from_bytes(body[16:], "big")
