"""What is done to Postgres before the roles start: the schema, the installation, a tenant's key."""

from collections.abc import Iterator
from contextlib import closing
from typing import Final

from commandside.command_port import BodyDiffers
from commandside.secret_port import SCHEMES, TooManyKeys
from domain.instant import rfc3339
from domain.tenant import parse_key
from infra.ids import new_id
from infra.keys.masters import masters_of
from infra.keys.wrapping import unlock
from infra.postgres import migrate
from infra.postgres.tenants import TenantError, Tenants
from infra.settings import Settings

PARTITIONS: Final = 16
"""Of an installation whose settings do not say: as many dispatchers can share the work."""


def bring_forward(settings: Settings) -> list[str]:
    """Migrate and fix what is fixed at installation; returns the files applied now.

    Raises MigrationError, DurabilityError, Unavailable.
    """
    migrate.check_durability(settings.postgres.url)
    applied = migrate.migrate(settings.postgres.url)
    partitions = settings.log.partitions or PARTITIONS
    migrate.install(settings.postgres.url, new_id(), settings.log.shards, partitions)
    return applied


def create_key(settings: Settings, tenant: str, scopes: tuple[str, ...], name: str = "") -> str:
    """Make a key for a tenant, who is made if there is none of that name; returns its text.

    Raises MasterKeyError, TenantError, Unavailable.
    """
    with closing(_tenants(settings)) as tenants:
        return tenants.create_key(tenant, name=name, scopes=scopes)


def list_keys(settings: Settings) -> Iterator[str]:
    """Yield a line for each key, oldest first; raises MasterKeyError, Unavailable."""
    with closing(_tenants(settings)) as tenants:
        for key in tenants.listed():
            state = f"revoked {rfc3339(key.revoked_at)}" if key.revoked_at else "valid"
            made = rfc3339(key.created_at)
            yield f"{key.kid}  {key.tenant}  made {made}  {state}  {','.join(key.scopes)}"


def revoke_key(settings: Settings, kid: str) -> None:
    """End a key; raises TenantError where there is none of this id."""
    with closing(_tenants(settings)) as tenants:
        if not tenants.revoke(kid):
            raise TenantError(f"there is no key {kid!r}: `tocsin keys list` shows their ids")


def knows_key(settings: Settings, text: str) -> bool:
    """Tell whether this is a key of this Postgres that was not revoked; raises Unavailable."""
    key = parse_key(text)
    with closing(_tenants(settings)) as tenants:
        return key is not None and any(
            found.kid == key.kid and not found.revoked_at for found in tenants.listed()
        )


def erase_tenant(settings: Settings, tenant: str) -> int:
    """Destroy a tenant's keys; returns how many there were. Raises TenantError and as above."""
    with closing(_tenants(settings)) as tenants:
        return tenants.erase(tenant)


def list_signing_keys(settings: Settings, tenant: str) -> Iterator[str]:
    """Yield a line for each key that signs a tenant's calls, the newest first.

    Raises MasterKeyError, TenantError, Unavailable.
    """
    with closing(_tenants(settings)) as tenants, closing(tenants.secrets()) as secrets:
        for key in secrets.signing_keys(tenants.known(tenant)):
            until = f"until {rfc3339(key.expires_at)}" if key.expires_at else "in force"
            scheme = next(name for name, number in SCHEMES.items() if number == key.scheme)
            yield f"{key.key_id}  {scheme}  {key.text}  made {rfc3339(key.created_at)}  {until}"


def rotate_signing_key(settings: Settings, tenant: str, scheme: str, overlap_ms: int) -> str:
    """Make a key that signs a tenant's calls; returns what verifies them.

    Raises MasterKeyError, TenantError, Unavailable.
    """
    with closing(_tenants(settings)) as tenants, closing(tenants.secrets()) as secrets:
        try:
            made = secrets.add_signing_key(tenants.known(tenant), SCHEMES[scheme], overlap_ms)
        except TooManyKeys as error:
            raise TenantError(str(error)) from error
        assert not isinstance(made, BodyDiffers), "it is no command that could be repeated"
        return made[0].text


def _tenants(settings: Settings) -> Tenants:
    keys = unlock(settings.postgres.url, masters_of(settings, create=True))
    return Tenants(settings.postgres.url, keys)
