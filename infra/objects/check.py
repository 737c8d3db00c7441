"""What `tocsin doctor` looks at: a store by using it, and whether several machines do."""

from typing import Final

from commandside.payload_port import PayloadObject
from domain.payload import ref_of
from infra.ids import new_secret
from infra.objects.store import ObjectPayloadStore
from infra.postgres.connection import connect

NOBODY: Final = bytes(16)
"""Tenant and job of the object that is tried; no tenant has this id."""

# Those of one's own user are shown to any user; a socket has no address.
_MACHINES: Final = """
select count(distinct coalesce(host(client_addr), 'here')) from pg_stat_activity
where application_name like 'tocsin %' and datname = current_database()
    and pid <> pg_backend_pid()
"""


def try_out(url: str, endpoint: str) -> bool:
    """Write, read and delete an object; False if another was read. Raises StoreAway."""
    data = new_secret()
    tried = PayloadObject(NOBODY, NOBODY, ref_of(data))
    store = ObjectPayloadStore(url, endpoint)
    try:
        store.put([(tried, data)])
        found = store.get([tried])
        store.delete([tried])
        return found == [data] and store.get([tried]) == [None]
    finally:
        store.close()


def machines_at(conninfo: str) -> int:
    """Return from how many machines roles are connected now; raises Unavailable."""
    with connect(conninfo, name="doctor") as connection:
        row = connection.execute(_MACHINES).fetchone()
    assert row is not None
    return int(row[0])
