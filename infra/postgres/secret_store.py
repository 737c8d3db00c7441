"""`commandside.secret_port.SecretStore` in Postgres, with what calls need kept in memory."""

from collections.abc import Sequence
from typing import Any, Final

from commandside.command_port import BodyDiffers
from commandside.ports import Unavailable
from commandside.secret_port import (
    FRESH_S,
    LIVE_KEYS_MAX,
    SECRETS_MAX,
    Judged,
    NamedSecret,
    SecretMissing,
    SigningKey,
    TooManyKeys,
)
from domain.instant import SECOND
from infra.ids import new_secret
from infra.keys.wrapping import WrappingKeys
from infra.postgres.connection import Reconnecting
from infra.secret_ring import OpenKey, Ring, owner_of_key, owner_of_secret
from infra.signing import shown
from infra.vault import TenantVault

CACHED_TENANTS: Final = 10_000
COMMIT_MS_MAX: Final = 60_000
"""A change is visible to others within this from the instant that it is stamped with."""
_NEVER: Final = -(1 << 40)

_KEYS: Final = """
select key_id, scheme, sealed, created_at, expires_at, command, command_hash
from signing_keys
where tenant_id = %s and (expires_at = 0 or expires_at > tocsin_now())
order by key_id desc
"""
_NAMED: Final = """
select name, version, sealed, changed_at from tenant_secrets
where tenant_id = %s and sealed is not null order by name
"""
_THERE: Final = """
select name, is_pair from tenant_secrets
where tenant_id = %s and name = any(%s) and sealed is not null
"""
_CHANGED: Final = """
select tenant_id from signing_keys where changed_at > %(since)s
union select tenant_id from tenant_secrets where changed_at > %(since)s
union select tenant_id from tenants where erased_at > %(since)s
"""
_ALONE: Final = "select 1 from tenants where tenant_id = %s for update"
_NOW: Final = "select tocsin_now()"
_NEXT: Final = "select coalesce(max(key_id), 0) + 1 from signing_keys where tenant_id = %s"
_REPEATED: Final = """
select key_id, scheme, sealed, created_at, expires_at, command_hash from signing_keys
where tenant_id = %s and command = %s
"""
_RETIRE: Final = """
update signing_keys set expires_at = %(until)s, changed_at = %(at)s
where tenant_id = %(tenant)s and scheme = %(scheme)s
    and (expires_at = 0 or expires_at > %(until)s)
"""
_ADD: Final = """
insert into signing_keys
    (tenant_id, key_id, scheme, sealed, created_at, changed_at, command, command_hash)
values (%(tenant)s, %(key)s, %(scheme)s, %(sealed)s, %(at)s, %(at)s, %(command)s, %(hash)s)
"""
_COUNT: Final = """
select count(*) from tenant_secrets where tenant_id = %s and sealed is not null and name <> %s
"""
_PUT: Final = """
insert into tenant_secrets as s (tenant_id, name, version, sealed, is_pair, changed_at)
values (%(tenant)s, %(name)s, 1, %(sealed)s, %(pair)s, tocsin_now())
on conflict (tenant_id, name) do update set version = s.version + 1, sealed = excluded.sealed,
    is_pair = excluded.is_pair, changed_at = excluded.changed_at
returning version, changed_at
"""
_HAS: Final = """
select 1 from tenant_secrets where tenant_id = %s and name = %s and sealed is not null
"""
_REMOVE: Final = """
update tenant_secrets set sealed = null, changed_at = tocsin_now()
where tenant_id = %s and name = %s and sealed is not null
"""


class PostgresSecretStore:
    """Not for two threads at once: each has its own."""

    def __init__(
        self, conninfo: str, wrapping: WrappingKeys, vault: TenantVault | None = None
    ) -> None:
        """`wrapping` are the installation's wrapping keys.

        A `vault` of the same thread is shared, and so learns with the secrets, which are asked for
        at each call, whose key was destroyed.
        """
        self._link = Reconnecting(conninfo, "secrets")
        self._vault = vault or TenantVault(conninfo, wrapping)
        self._rings: dict[bytes, Ring] = {}
        self._missed: dict[bytes, int] = {}
        """When a tenant's secrets were last looked for because one was missing (s)."""
        self._looked_s = _NEVER
        self._seen_ms = 0

    # ------------------------------------------------------------ for calls

    def sign(self, tenant_id: bytes, key: str, seconds: int, body: bytes) -> bytes:
        """Return the value of `webhook-signature`, empty without signing keys."""
        return self._ring(tenant_id, seconds).sign(key, seconds, body)

    def value(self, tenant_id: bytes, name: str, seconds: int) -> bytes:
        """Return a secret by its name."""
        try:
            return self._ring(tenant_id, seconds).value(name)
        except SecretMissing:
            # It may be new: what is missing is looked for again before it is missed. Once a second
            # for a tenant: its fires that name what is not there must not hold up all others.
            if self._missed.get(tenant_id) == seconds:
                raise
            if len(self._missed) >= CACHED_TENANTS:
                self._missed.clear()
            self._missed[tenant_id] = seconds
            self._rings.pop(tenant_id, None)
            return self._ring(tenant_id, seconds).value(name)

    def _ring(self, tenant_id: bytes, seconds: int) -> Ring:
        if abs(seconds - self._looked_s) >= FRESH_S:
            self._forget_changed(seconds)
        ring = self._rings.get(tenant_id)
        if ring is None:
            ring = self._opened(tenant_id)
            if len(self._rings) >= CACHED_TENANTS:
                self._rings.clear()
            self._rings[tenant_id] = ring
        return ring

    def _forget_changed(self, seconds: int) -> None:
        """Forget the tenants that changed since the last look: one question for all of them."""
        try:
            with self._link.use() as connection:
                (now,) = connection.execute(_NOW).fetchone() or (0,)
                since = self._seen_ms - COMMIT_MS_MAX
                asked = {"since": since}
                # With nothing to forget, the first look would be at every tenant that there is.
                rows = connection.execute(_CHANGED, asked).fetchall() if self._rings else []
        except Unavailable:
            if not self._rings:
                raise
            # What was known last serves on: nothing is leased for long while Postgres is away.
            self._looked_s = seconds
            return
        self._seen_ms, self._looked_s = now, seconds
        for (tenant,) in rows:
            self._rings.pop(tenant.bytes, None)
            self._vault.forget(tenant.bytes)

    def _opened(self, tenant_id: bytes) -> Ring:
        with self._link.use() as connection:
            keys = connection.execute(_KEYS, (tenant_id.hex(),)).fetchall()
            named = connection.execute(_NAMED, (tenant_id.hex(),)).fetchall()
        return Ring(
            [
                OpenKey(
                    key_id,
                    scheme,
                    self._vault.open(tenant_id, owner_of_key(key_id), sealed),
                    -(-expires_at // SECOND),
                )
                for key_id, scheme, sealed, _, expires_at, *_ in keys
            ],
            {
                name: self._vault.open(tenant_id, owner_of_secret(name), sealed)
                for name, _, sealed, _ in named
            },
        )

    # ------------------------------------------------------------ for tenants

    def signing_keys(self, tenant_id: bytes) -> list[SigningKey]:
        """Return the keys that sign, the newest first."""
        with self._link.use() as connection:
            rows = connection.execute(_KEYS, (tenant_id.hex(),)).fetchall()
        return [self._shown(tenant_id, row) for row in rows]

    def _shown(self, tenant_id: bytes, row: Sequence[Any]) -> SigningKey:
        key_id, scheme, sealed, created_at, expires_at = row[:5]
        key = self._vault.open(tenant_id, owner_of_key(key_id), sealed)
        return SigningKey(key_id, scheme, shown(scheme, key), created_at, expires_at)

    def add_signing_key(
        self, tenant_id: bytes, scheme: int, overlap_ms: int, command: str = ""
    ) -> tuple[SigningKey, bool] | BodyDiffers:
        """Make a key; those before it of its scheme sign for `overlap_ms` more."""
        said = b"%d %d" % (scheme, overlap_ms)
        tenant, key = tenant_id.hex(), new_secret()
        with self._link.use() as connection, connection.transaction():
            connection.execute(_ALONE, (tenant,))
            before = connection.execute(_REPEATED, (tenant, command)).fetchone()
            if before is not None:
                same = before[5] == said
                return (self._shown(tenant_id, before), False) if same else BodyDiffers()
            (at,) = connection.execute(_NOW).fetchone() or (0,)
            (key_id,) = connection.execute(_NEXT, (tenant,)).fetchone() or (1,)
            if len(connection.execute(_KEYS, (tenant,)).fetchall()) >= LIVE_KEYS_MAX:
                raise TooManyKeys(f"{LIVE_KEYS_MAX} keys sign already: let one expire first")
            values = {
                "tenant": tenant,
                "key": key_id,
                "scheme": scheme,
                "at": at,
                "until": at + overlap_ms,
                "sealed": self._vault.seal(tenant_id, owner_of_key(key_id), key),
                "command": command or None,
                "hash": said if command else None,
            }
            connection.execute(_RETIRE, values)
            connection.execute(_ADD, values)
        self._rings.pop(tenant_id, None)
        return SigningKey(key_id, scheme, shown(scheme, key), at), True

    def judged(self, tenant_id: bytes, names: Sequence[str]) -> Judged:
        """Return which of these secrets are not there, and which are not `user:password`."""
        with self._link.use() as connection:
            there = dict(connection.execute(_THERE, (tenant_id.hex(), list(names))).fetchall())
        no_pairs = (name for name, is_pair in there.items() if is_pair is False)
        return Judged(frozenset(names) - there.keys(), frozenset(no_pairs))

    def secrets(self, tenant_id: bytes) -> list[NamedSecret]:
        """Return all secrets by name."""
        with self._link.use() as connection:
            rows = connection.execute(_NAMED, (tenant_id.hex(),)).fetchall()
        return [NamedSecret(name, version, changed_at) for name, version, _, changed_at in rows]

    def put_secret(self, tenant_id: bytes, name: str, value: bytes) -> tuple[NamedSecret, bool]:
        """Set a secret; returns it and whether there was none."""
        tenant = tenant_id.hex()
        sealed = self._vault.seal(tenant_id, owner_of_secret(name), value)
        with self._link.use() as connection, connection.transaction():
            connection.execute(_ALONE, (tenant,))
            (count,) = connection.execute(_COUNT, (tenant, name)).fetchone() or (0,)
            if count >= SECRETS_MAX:
                raise TooManyKeys(f"{SECRETS_MAX} secrets are kept already: remove one first")
            new = connection.execute(_HAS, (tenant, name)).fetchone() is None
            values = {"tenant": tenant, "name": name, "sealed": sealed, "pair": b":" in value}
            row = connection.execute(_PUT, values).fetchone()
        assert row is not None
        self._rings.pop(tenant_id, None)
        return NamedSecret(name, row[0], row[1]), new

    def remove_secret(self, tenant_id: bytes, name: str) -> bool:
        """Forget a secret; False where there is none."""
        with self._link.use() as connection:
            removed = connection.execute(_REMOVE, (tenant_id.hex(), name)).rowcount == 1
        self._rings.pop(tenant_id, None)
        return removed

    def close(self) -> None:
        """Close the connections."""
        self._link.close()
        self._vault.close()
