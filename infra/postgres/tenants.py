"""Tenants and their API keys in Postgres: made here by operators, found by the API."""

from contextlib import closing
from typing import Final

import msgspec
from psycopg.errors import ForeignKeyViolation

from commandside.ports import Unavailable
from commandside.secret_port import V1
from domain.ids import derived
from domain.tenant import KID_BYTES, SCOPES, KeyRecord, mint, secret_hash
from infra.ids import new_secret
from infra.keys.wrapping import Unlocked, tenant_context
from infra.postgres import append
from infra.postgres.async_wire import AsyncWire
from infra.postgres.connection import Reconnecting, parameters
from infra.postgres.secret_store import PostgresSecretStore
from infra.postgres.wire import Broken
from infra.vault import pepper

NAME_MAX: Final = 128
FIRST_KEY: Final = 1
FIRST_SIGNING_KEY: Final = "first"
FOR_EVER: Final = 0
TRIES: Final = 3

_TENANT: Final = """
insert into tenants (tenant_id, name, created_at) values (%s, %s, tocsin_now())
on conflict (name) do update set name = excluded.name
returning tenant_id, erased_at
"""
_KNOWN: Final = "select 1 from tenants where tenant_id = %s"
# Two that make the same tenant at once: the first key stays, since nothing is sealed under another.
_FIRST_KEY: Final = """
insert into tenant_keys (tenant_id, key_id, wrapping_key, wrapped, created_at)
select %(tenant)s, %(key)s, %(wrapping)s, %(wrapped)s, tocsin_now()
where not exists (select from tenant_keys where tenant_id = %(tenant)s)
"""
_ALONE: Final = "select 1 from tenants where tenant_id = %s for update"
_DESTROY: Final = "delete from tenant_keys where tenant_id = %s"
_ERASED: Final = """
update tenants set erased_at = tocsin_now() where tenant_id = %s and erased_at = 0
"""
_API_KEY: Final = """
insert into api_keys (kid, tenant_id, secret_hash, scopes, name, created_at)
values (%s, %s, %s, %s, %s, tocsin_now())
"""
_LIST: Final = """
select k.kid, t.name, k.name, k.scopes, k.created_at, k.expires_at, k.revoked_at
from api_keys k join tenants t using (tenant_id) order by k.created_at
"""
_REVOKE: Final = """
update api_keys set revoked_at = coalesce(revoked_at, tocsin_now()) where kid = %s
"""

FIND: Final = """
select tenant_id, secret_hash, array_to_string(scopes, ' ')::text, coalesce(expires_at, 0),
    coalesce(revoked_at, 0)
from api_keys where kid = convert_from($1::bytea, 'utf8')
"""


class ListedKey(msgspec.Struct, frozen=True):
    """An API key as operators see it; the secret is nowhere."""

    kid: str
    tenant: str
    name: str
    scopes: tuple[str, ...]
    created_at: int
    expires_at: int | None
    revoked_at: int | None


class TenantError(Exception):
    """The name or the scopes cannot be used; the text says what would be right."""


class Tenants:
    """What an operator does with tenants and keys; every call raises Unavailable."""

    def __init__(self, conninfo: str, keys: Unlocked) -> None:
        """`keys` are the installation's."""
        self._conninfo = conninfo
        self._link = Reconnecting(conninfo, "tenants")
        self._keys = keys

    def ensure(self, name: str) -> bytes:
        """Return the id of the tenant of this name; makes it, and its encryption key, if needed."""
        if not name or len(name) > NAME_MAX or not name.isprintable():
            raise TenantError(f"a tenant's name has 1 to {NAME_MAX} printable characters")
        tenant_id = derived("tenant", name.encode())
        for left in reversed(range(TRIES)):
            try:
                self._ensure(name, tenant_id)
                break
            except ForeignKeyViolation as error:
                # The wrapping key was deleted by a rotation meanwhile: there is a newer one.
                if not left:
                    raise Unavailable("the keys of this installation are being changed") from error
        with closing(self.secrets()) as secrets:
            # The same command each time: a tenant's calls are signed from the first, by one key.
            secrets.add_signing_key(tenant_id, V1, FOR_EVER, FIRST_SIGNING_KEY)
        return tenant_id

    def _ensure(self, name: str, tenant_id: bytes) -> None:
        wrapping = self._keys.wrapping
        with self._link.use() as connection, connection.transaction():
            row = connection.execute(_TENANT, (tenant_id.hex(), name)).fetchone()
            assert row is not None
            assert row[0].bytes == tenant_id, "a tenant's id is a function of its name"
            if row[1]:
                raise TenantError(f"the tenant {name!r} was erased: take another name")
            number = wrapping.newest(connection)
            context = tenant_context(tenant_id, FIRST_KEY)
            values = {
                "tenant": tenant_id.hex(),
                "key": FIRST_KEY,
                "wrapped": wrapping.wrap(connection, number, new_secret(), context),
                "wrapping": number,
            }
            connection.execute(_FIRST_KEY, values)

    def erase(self, name: str) -> int:
        """Destroy a tenant's keys; returns how many there were, 0 where it was erased before.

        What was sealed with them cannot be read any more; all else stays. Raises TenantError.
        """
        tenant_id = self.known(name).hex()
        with self._link.use() as connection, connection.transaction():
            connection.execute(_ALONE, (tenant_id,))
            destroyed = connection.execute(_DESTROY, (tenant_id,)).rowcount
            connection.execute(_ERASED, (tenant_id,))
        return destroyed

    def known(self, name: str) -> bytes:
        """Return the id of a tenant; raises TenantError where there is none of this name."""
        tenant_id = derived("tenant", name.encode())
        with self._link.use() as connection:
            found = connection.execute(_KNOWN, (tenant_id.hex(),)).fetchone()
        if found is None:
            raise TenantError(f"there is no tenant {name!r}: `tocsin keys list` names them")
        return tenant_id

    def secrets(self) -> PostgresSecretStore:
        """Return the secrets of all tenants, on a connection of their own."""
        return PostgresSecretStore(self._conninfo, self._keys.wrapping)

    def create_key(
        self, tenant: str, *, name: str = "", scopes: tuple[str, ...] = SCOPES, env: str = "live"
    ) -> str:
        """Return a new API key of this tenant, which is made if needed; it is shown only now."""
        unknown = [scope for scope in scopes if scope not in SCOPES]
        if unknown or not scopes:
            raise TenantError(f"scopes are some of {', '.join(SCOPES)}; not {', '.join(unknown)}")
        tenant_id = self.ensure(tenant)
        secret = new_secret()
        kid = new_secret()[:KID_BYTES]
        stored = secret_hash(pepper(self._keys.root), secret)
        with self._link.use() as connection:
            values = (kid.hex(), tenant_id.hex(), stored, list(scopes), name)
            connection.execute(_API_KEY, values)
        return mint(env, kid, secret)

    def listed(self) -> list[ListedKey]:
        """Return all keys, oldest first."""
        with self._link.use() as connection:
            rows = connection.execute(_LIST).fetchall()
        return [
            ListedKey(kid, tenant, name, tuple(scopes), created_at, expires_at, revoked_at)
            for kid, tenant, name, scopes, created_at, expires_at, revoked_at in rows
        ]

    def revoke(self, kid: str) -> bool:
        """End a key; False where there is none of this id."""
        with self._link.use() as connection:
            return connection.execute(_REVOKE, (kid,)).rowcount == 1

    def close(self) -> None:
        """Close the connection."""
        self._link.close()


class PostgresKeys:
    """`commandside.ports.Keys` on the running loop."""

    def __init__(self, conninfo: str) -> None:
        """Remember where to connect."""
        self._wire = AsyncWire(parameters(conninfo, "keys"), append.SETTINGS, {"find": FIND})

    async def start(self) -> None:
        """Begin to connect."""
        self._wire.start()

    async def close(self) -> None:
        """Close the connection."""
        self._wire.close()

    async def find(self, kid: str) -> KeyRecord | None:
        """Return the key as it is stored; raises Unavailable."""
        outcome = await self._wire.ask(("find", [kid.encode()]))
        if isinstance(outcome, Broken):
            raise Unavailable(f"Postgres: {outcome.detail}")
        if not outcome.row:
            return None
        tenant_id, stored, scopes, expires_at, revoked_at = (value or b"" for value in outcome.row)
        return KeyRecord(
            kid,
            tenant_id,
            stored,
            tuple(scopes.decode().split()),
            int.from_bytes(expires_at, "big"),
            int.from_bytes(revoked_at, "big"),
        )
