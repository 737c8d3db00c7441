"""Envelope encryption of payloads and target headers: AES-256-GCM under a key per tenant.

A tenant's key is in the database, wrapped (`infra.keys`). Ciphertext is
`version (1) | key id (2) | nonce (12) | AES-GCM`, with tenant and job as associated data, so it
opens nowhere else. Destroying a tenant's key is the erasure of everything sealed with it.
"""

import os
from contextlib import suppress
from threading import Lock
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from commandside.ports import KeyGone, Unavailable
from commandside.secret_port import FRESH_S
from domain.opaque import subkey
from infra.clock import mono_us
from infra.keys.port import WrongMaster
from infra.keys.wrapping import WrappingKeys, tenant_context
from infra.postgres.connection import Reconnecting

VERSION: Final = b"\x01"
NONCE_BYTES: Final = 12
HEADER_BYTES: Final = 3
CACHED_TENANTS: Final = 10_000

FRESH_US: Final = FRESH_S * 1_000_000
"""A tenant's key that was destroyed is out of use everywhere within this."""

_KEYS: Final = """
select key_id, wrapping_key, wrapped from tenant_keys where tenant_id = %s order by key_id
"""
COMMIT_MS_MAX: Final = 60_000
"""A key's end is visible to others within this from the instant that it is stamped with."""
_ERASED: Final = "select tenant_id, erased_at from tenants where erased_at > %s"


def pepper(root: bytes) -> bytes:
    """Return what secrets of API keys are hashed with; it tells nothing of the root secret."""
    return subkey(root, "api keys")


class TenantVault:
    """`commandside.ports.Vault` with keys read once per tenant and kept in a bounded cache."""

    def __init__(self, conninfo: str, wrapping: WrappingKeys) -> None:
        """Read keys lazily; sealing and opening never wait on Postgres after the first use.

        Keys that were destroyed meanwhile are left to who uses it: `fetch` where `knows` says no,
        or `forget`. A look at the clock for each payload would cost as much as opening it.
        """
        self._link = Reconnecting(conninfo, "vault")
        self._wrapping = wrapping
        self._keys: dict[bytes, dict[int, AESGCM]] = {}
        self._looked_us = mono_us()
        self._erased_ms = 0
        self._turn = Lock()
        """The connection is one caller's at a time: the API fetches keys in a thread."""

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

    def knows(self, tenant_id: bytes) -> bool:
        """Tell whether a tenant's keys are here, so that nothing is waited for."""
        return tenant_id in self._keys and mono_us() - self._looked_us < FRESH_US

    def fetch(self, tenant_id: bytes) -> None:
        """Fetch a tenant's keys, where there are any, and forget the destroyed ones of all.

        Raises Unavailable.
        """
        if mono_us() - self._looked_us >= FRESH_US:
            self._forget_erased()
        if tenant_id not in self._keys:
            with suppress(KeyGone):
                self._load(tenant_id)

    def forget(self, tenant_id: bytes) -> None:
        """Let a tenant's keys be read again before they are used."""
        self._keys.pop(tenant_id, None)

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def _forget_erased(self) -> None:
        """Forget the keys that were destroyed: one question for all tenants."""
        try:
            if self._keys:
                with self._turn, self._link.use() as connection:
                    asked = (self._erased_ms - COMMIT_MS_MAX,)
                    rows = connection.execute(_ERASED, asked).fetchall()
                for tenant, erased_at in rows:
                    self._keys.pop(tenant.bytes, None)
                    self._erased_ms = max(self._erased_ms, erased_at)
        except Unavailable:
            # What was known last serves on: nothing is leased for long while Postgres is away.
            pass
        self._looked_us = mono_us()

    def _load(self, tenant_id: bytes) -> dict[int, AESGCM]:
        with self._turn, self._link.use() as connection:
            rows = connection.execute(_KEYS, (tenant_id.hex(),)).fetchall()
            keys = {}
            for key_id, number, wrapped in rows:
                context = tenant_context(tenant_id, key_id)
                try:
                    key = self._wrapping.unwrap(connection, number, wrapped, context)
                except WrongMaster as error:
                    raise KeyGone("the wrapping key does not open this tenant's key") from error
                keys[key_id] = AESGCM(key)
        if not keys:
            raise KeyGone("the tenant has no key")
        if len(self._keys) >= CACHED_TENANTS:
            self._keys.clear()
        self._keys[tenant_id] = keys
        return keys
