"""Tenants and their API keys: `sk_<env>_<kid>_<secret>_<crc32>`.

The prefix and the checksum let scanners recognise a leaked key. Stored are the key's id, a keyed
hash of the secret, and what the key may do; never the secret.
"""

import hmac
import re
import zlib
from typing import Final

import msgspec

JOBS_READ: Final = "jobs:read"
JOBS_WRITE: Final = "jobs:write"
RUNS_READ: Final = "runs:read"
ANALYTICS_READ: Final = "analytics:read"
KEYS_ADMIN: Final = "keys:admin"
SCOPES: Final = (JOBS_READ, JOBS_WRITE, RUNS_READ, ANALYTICS_READ, KEYS_ADMIN)

KID_BYTES: Final = 8
SECRET_BYTES: Final = 32
KEY_LENGTH_MAX: Final = 128

_KEY: Final = re.compile(r"sk_([a-z]{2,8})_([0-9a-f]{16})_([0-9a-f]{64})_([0-9a-f]{8})")
_NOBODY: Final = bytes(32)


class ApiKey(msgspec.Struct, frozen=True, gc=False):
    """A key as a client shows it; the checksum was right."""

    env: str
    kid: str
    secret: bytes


class Shown(msgspec.Struct, frozen=True, gc=False):
    """A key as it is compared: what `secret_hash` makes of its secret."""

    kid: str
    secret_hash: bytes


class KeyRecord(msgspec.Struct, frozen=True, gc=False):
    """A key as it is stored. `expires_at` and `revoked_at` are ms, 0 for never."""

    kid: str
    tenant_id: bytes
    secret_hash: bytes
    scopes: tuple[str, ...]
    expires_at: int = 0
    revoked_at: int = 0


class Caller(msgspec.Struct, frozen=True, gc=False):
    """Who asks: everything a request may see or do follows from this."""

    tenant_id: bytes
    kid: str
    scopes: tuple[str, ...]


def mint(env: str, kid: bytes, secret: bytes) -> str:
    """Return the text of a key made of random bytes (KID_BYTES and SECRET_BYTES of them)."""
    assert len(kid) == KID_BYTES, kid
    assert len(secret) == SECRET_BYTES, "the secret of a key has 256 bits"
    stem = f"sk_{env}_{kid.hex()}_{secret.hex()}"
    return f"{stem}_{_checksum(stem)}"


def parse_key(text: str) -> ApiKey | None:
    """Read a key, None for what no `mint` has made."""
    found = _KEY.fullmatch(text) if len(text) <= KEY_LENGTH_MAX else None
    if found is None or _checksum(text.rpartition("_")[0]) != found[4]:
        return None
    return ApiKey(found[1], found[2], bytes.fromhex(found[3]))


def secret_hash(pepper: bytes, secret: bytes) -> bytes:
    """Return what is stored of a secret: HMAC-SHA-256 under the installation's pepper."""
    return hmac.digest(pepper, secret, "sha256")


def shown(key: ApiKey, pepper: bytes) -> Shown:
    """Return what is compared of a key."""
    return Shown(key.kid, secret_hash(pepper, key.secret))


def admit(key: Shown, record: KeyRecord | None, at: int) -> Caller | None:
    """Return who the key stands for at `at`; an unknown key takes as long as a wrong secret."""
    stored = _NOBODY if record is None else record.secret_hash
    same = hmac.compare_digest(stored, key.secret_hash)
    if record is None or not same or record.kid != key.kid:
        return None
    if record.revoked_at or (record.expires_at and record.expires_at <= at):
        return None
    return Caller(record.tenant_id, record.kid, record.scopes)


def _checksum(stem: str) -> str:
    return f"{zlib.crc32(stem.encode('ascii')):08x}"
