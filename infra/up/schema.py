"""What is done to Postgres before the roles start: the schema, the installation, a tenant's key."""

from domain.tenant import parse_key
from infra.ids import new_id
from infra.postgres import migrate
from infra.postgres.tenants import Tenants
from infra.settings import Settings
from infra.vault import check_master, master_key


def bring_forward(settings: Settings) -> list[str]:
    """Migrate and fix what is fixed at installation; returns the files applied now.

    Raises MigrationError, DurabilityError, Unavailable.
    """
    migrate.check_durability(settings.postgres.url)
    applied = migrate.migrate(settings.postgres.url)
    migrate.install(settings.postgres.url, new_id(), settings.log.shards, settings.log.partitions)
    return applied


def create_key(settings: Settings, tenant: str, scopes: tuple[str, ...], name: str = "") -> str:
    """Make a key for a tenant, who is made if there is none of that name; returns its text.

    Raises MasterKeyError, TenantError, Unavailable.
    """
    master = master_key(settings.master_file, create=True)
    check_master(settings.postgres.url, master)
    tenants = Tenants(settings.postgres.url, master)
    try:
        return tenants.create_key(tenant, name=name, scopes=scopes)
    finally:
        tenants.close()


def knows_key(settings: Settings, text: str) -> bool:
    """Tell whether this is a key of this Postgres that was not revoked; raises Unavailable."""
    key = parse_key(text)
    tenants = Tenants(settings.postgres.url, master_key(settings.master_file, create=True))
    try:
        return key is not None and any(
            found.kid == key.kid and not found.revoked_at for found in tenants.listed()
        )
    finally:
        tenants.close()
