"""Envelope encryption of payloads and target headers: AES-256-GCM under a key per tenant.

A tenant's key is wrapped by the master key, which is a file outside the database. Ciphertext is
`version (1) | key id (2) | nonce (12) | AES-GCM`, with tenant and job as associated data, so it
opens nowhere else. Destroying a tenant's key is the erasure of everything sealed with it.
"""

import os
import stat
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from commandside.ports import KeyGone
from domain.opaque import subkey
from infra.ids import new_secret
from infra.postgres.connection import Reconnecting, connect

VERSION: Final = b"\x01"
NONCE_BYTES: Final = 12
HEADER_BYTES: Final = 3
KEY_BYTES: Final = 32
CACHED_TENANTS: Final = 10_000

_KEYS: Final = "select key_id, wrapped from tenant_keys where tenant_id = %s order by key_id"
_ANY: Final = "select tenant_id, key_id, wrapped from tenant_keys order by tenant_id limit 1"


class MasterKeyError(Exception):
    """The master key's file cannot be used; the text says why and what would be right."""


def master_key(path: Path, *, create: bool) -> bytes:
    """Return the 32 bytes in `path`; with `create`, make an owner-only file where there is none."""
    try:
        if create and not path.exists():
            _create(path)
        mode = path.stat().st_mode
        key = path.read_bytes()
    except OSError as error:
        raise MasterKeyError(
            f"master key {path}: {error.strerror}; keys.master_file says where it is"
        ) from error
    if stat.S_IMODE(mode) & 0o077:
        raise MasterKeyError(f"master key {path} is readable by others; run chmod 600 on it")
    if len(key) != KEY_BYTES:
        raise MasterKeyError(f"master key {path} has {len(key)} bytes; it must have {KEY_BYTES}")
    return key


def _create(path: Path) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(handle, new_secret())
        os.fsync(handle)
    finally:
        os.close(handle)


def pepper(master: bytes) -> bytes:
    """Return what secrets of API keys are hashed with; it tells nothing of the master key."""
    return subkey(master, "api keys")


def wrap_key(master: bytes, tenant_id: bytes, key_id: int, key: bytes) -> bytes:
    """Return a tenant's key under the master key, bound to tenant and key id."""
    nonce = os.urandom(NONCE_BYTES)
    return nonce + AESGCM(master).encrypt(nonce, key, tenant_id + key_id.to_bytes(2, "big"))


def check_master(conninfo: str, master: bytes) -> None:
    """Refuse a master key that this installation's keys are not under; raises MasterKeyError.

    With another one each payload would look erased, and each run would end as dead.
    """
    with connect(conninfo, name="master key") as connection:
        row = connection.execute(_ANY).fetchone()
    if row is None:
        return
    try:
        _unwrap(AESGCM(master), row[0].bytes, row[1], row[2])
    except InvalidTag as error:
        raise MasterKeyError(
            "this master key is not the one that the keys in Postgres are under:"
            " set keys.master_file to the file of this installation, or to its copy"
        ) from error


def _unwrap(master: AESGCM, tenant_id: bytes, key_id: int, wrapped: bytes) -> bytes:
    aad = tenant_id + key_id.to_bytes(2, "big")
    return master.decrypt(wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], aad)


class TenantVault:
    """`commandside.ports.Vault` with keys read once per tenant and kept in a bounded cache."""

    def __init__(self, conninfo: str, master: bytes) -> None:
        """Read keys lazily; sealing and opening never wait on Postgres after the first use."""
        self._link = Reconnecting(conninfo, "vault")
        self._master = master
        self._keys: dict[bytes, dict[int, AESGCM]] = {}

    def seal(self, tenant_id: bytes, job_id: bytes, plain: bytes) -> bytes:
        """Return ciphertext under the tenant's newest key; raises KeyGone, Unavailable."""
        keys = self._keys.get(tenant_id) or self._load(tenant_id)
        key_id = max(keys)
        nonce = os.urandom(NONCE_BYTES)
        sealed = keys[key_id].encrypt(nonce, plain, tenant_id + job_id)
        return b"".join((VERSION, key_id.to_bytes(2, "big"), nonce, sealed))

    def open(self, tenant_id: bytes, job_id: bytes, sealed: bytes) -> bytes:
        """Return the plain bytes; raises KeyGone, Unavailable."""
        keys = self._keys.get(tenant_id) or self._load(tenant_id)
        key_id = int.from_bytes(sealed[1:HEADER_BYTES], "big")
        if key_id not in keys:
            keys = self._load(tenant_id)
        if sealed[:1] != VERSION or key_id not in keys:
            raise KeyGone(f"key {key_id} of this tenant is gone")
        body = HEADER_BYTES + NONCE_BYTES
        try:
            return keys[key_id].decrypt(
                sealed[HEADER_BYTES:body], sealed[body:], tenant_id + job_id
            )
        except InvalidTag as error:
            raise KeyGone("the bytes are not ciphertext of this tenant and job") from error

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def _load(self, tenant_id: bytes) -> dict[int, AESGCM]:
        with self._link.use() as connection:
            rows = connection.execute(_KEYS, (tenant_id.hex(),)).fetchall()
        if not rows:
            raise KeyGone("the tenant has no key")
        master = AESGCM(self._master)
        keys = {}
        for key_id, wrapped in rows:
            try:
                key = _unwrap(master, tenant_id, key_id, wrapped)
            except InvalidTag as error:
                raise KeyGone("the master key does not open this tenant's key") from error
            keys[key_id] = AESGCM(key)
        if len(self._keys) >= CACHED_TENANTS:
            self._keys.clear()
        self._keys[tenant_id] = keys
        return keys
