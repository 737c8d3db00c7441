"""Wrapping keys: kept in the database under a master key, opened once by each process.

More than one is there only while a rotation is under way: what is older than the newest is emptied,
then deleted, which a foreign key allows only when nothing is under it any more.
"""

from typing import Any, Final

import msgspec
import psycopg
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from commandside.ports import Unavailable
from infra.ids import new_secret
from infra.keys.local import LocalMaster, unwrap, wrap
from infra.keys.masters import MasterMissing, Masters
from infra.keys.port import MasterKey, MasterKeyError, WrongMaster
from infra.postgres.connection import connect

FIRST: Final = 1
_ROOT: Final = b"root"

_LOCK: Final = "lock table wrapping_keys in share row exclusive mode"
_ALL: Final = "select number, master, wrapped from wrapping_keys order by number"
_ONE: Final = "select number, master, wrapped from wrapping_keys where number = %s"
_NEWEST: Final = "select max(number) from wrapping_keys"
_ADD: Final = """
insert into wrapping_keys (number, master, wrapped, created_at) values (%s, %s, %s, tocsin_now())
"""
_ROOT_ROW: Final = "select wrapping_key, wrapped from root_secret"
_PUT_ROOT: Final = """
insert into root_secret (wrapping_key, wrapped) values (%s, %s)
on conflict (only_row) do update
    set wrapping_key = excluded.wrapping_key, wrapped = excluded.wrapped
"""
_BEFORE: Final = "select tenant_id, key_id, wrapped from tenant_keys where wrapping_key is null"
_UNDER: Final = """
update tenant_keys set wrapping_key = %s, wrapped = %s where tenant_id = %s and key_id = %s
"""
_ANY_API_KEY: Final = "select 1 from api_keys limit 1"
_OTHER: Final = (
    "this master key is not the one that the keys in Postgres are under: set keys.master_file"
    " (or keys.master_key, keys.master_kms) to that of this installation, or to its copy"
)


def tenant_context(tenant_id: bytes, key_id: int) -> bytes:
    """Return what a tenant's key is bound to."""
    return tenant_id + key_id.to_bytes(2, "big")


class WrappingKeys:
    """The wrapping keys of an installation, opened when they are needed and kept."""

    def __init__(self, masters: Masters) -> None:
        self._masters = masters
        self._ciphers: dict[int, AESGCM] = {}

    def newest(self, connection: psycopg.Connection) -> int:
        """Return the number of the one in force; raises Unavailable."""
        row = connection.execute(_NEWEST).fetchone()
        assert row is not None
        if row[0] is None:
            raise Unavailable("this installation has no wrapping key yet")
        return int(row[0])

    def wrap(
        self, connection: psycopg.Connection, number: int, key: bytes, context: bytes
    ) -> bytes:
        """Return a key under a wrapping key; raises Unavailable."""
        return wrap(self._cipher(connection, number), key, context)

    def unwrap(
        self, connection: psycopg.Connection, number: int, wrapped: bytes, context: bytes
    ) -> bytes:
        """Return it again; raises WrongMaster, Unavailable."""
        return unwrap(self._cipher(connection, number), wrapped, context)

    def add(self, connection: psycopg.Connection, number: int, master: MasterKey) -> None:
        """Make a wrapping key under a master key."""
        key = new_secret()
        wrapped = master.wrap(key, _context(number))
        connection.execute(_ADD, (number, master.name, wrapped))
        self._ciphers[number] = AESGCM(key)

    def root(self, connection: psycopg.Connection) -> bytes:
        """Return the root secret; raises WrongMaster, Unavailable."""
        row = connection.execute(_ROOT_ROW).fetchone()
        assert row is not None, "it is made with the first wrapping key"
        return self.unwrap(connection, row[0], row[1], _ROOT)

    def put_root(self, connection: psycopg.Connection, number: int, root: bytes) -> None:
        """Keep the root secret under a wrapping key."""
        wrapped = self.wrap(connection, number, root, _ROOT)
        connection.execute(_PUT_ROOT, (number, wrapped))

    def open_all(self, connection: psycopg.Connection) -> None:
        """Open every one there is; raises WrongMaster, MasterKeyError, Unavailable."""
        for row in connection.execute(_ALL).fetchall():
            self._opened(row)

    def _cipher(self, connection: psycopg.Connection, number: int) -> AESGCM:
        cipher = self._ciphers.get(number)
        if cipher is None:
            row = connection.execute(_ONE, (number,)).fetchone()
            if row is None:
                raise Unavailable(f"the wrapping key {number} is not there any more")
            try:
                cipher = self._opened(row)
            except MasterKeyError as error:
                # At a start it ends the process; one that runs serves on with what it has.
                raise Unavailable(str(error)) from error
        return cipher

    def _opened(self, row: tuple[Any, ...]) -> AESGCM:
        number, master, wrapped = row
        key = self._masters.named(master).unwrap(wrapped, _context(number))
        cipher = self._ciphers[number] = AESGCM(key)
        return cipher


def _context(number: int) -> bytes:
    return b"wrapping key %d" % number


class Unlocked(msgspec.Struct, frozen=True):
    """An installation whose keys are open: `root` is what every other secret is derived from."""

    root: bytes
    wrapping: WrappingKeys

    def __repr__(self) -> str:
        """Say nothing: it may come into the text of an error."""
        return "Unlocked(…)"


def unlock(conninfo: str, masters: Masters) -> Unlocked:
    """Open an installation's keys, and make them where there are none yet.

    Raises MasterKeyError where they are under a master key that is not given, Unavailable.
    """
    wrapping = WrappingKeys(masters)
    try:
        with connect(conninfo, name="master key") as connection:
            if not connection.execute(_ALL).fetchall():
                with connection.transaction():
                    connection.execute(_LOCK)
                    if not connection.execute(_ALL).fetchall():
                        _found(connection, wrapping, masters.current)
            wrapping.open_all(connection)
            return Unlocked(wrapping.root(connection), wrapping)
    except MasterMissing as error:
        raise MasterKeyError(f"{error}, but keys in Postgres are under it. {_OTHER}") from error
    except WrongMaster as error:
        raise MasterKeyError(_OTHER) from error


def _found(connection: psycopg.Connection, wrapping: WrappingKeys, master: MasterKey) -> None:
    """Make the first wrapping key, and put under it what was under the master key itself."""
    before = connection.execute(_BEFORE).fetchall()
    used = bool(before) or connection.execute(_ANY_API_KEY).fetchone() is not None
    if used and not isinstance(master, LocalMaster):
        raise MasterKeyError(
            "the keys in Postgres are under a master key in a file: set keys.master_file, start"
            " once, then change over with keys.next_kms and `tocsin keys rotate`"
        )
    plain = [
        (tenant, key_id, master.unwrap(wrapped, tenant_context(tenant.bytes, key_id)))
        for tenant, key_id, wrapped in before
    ]
    wrapping.add(connection, FIRST, master)
    # What was derived from the master key before goes on to be: keys of the API, and tokens.
    root = master.key if used and isinstance(master, LocalMaster) else new_secret()
    wrapping.put_root(connection, FIRST, root)
    for tenant, key_id, key in plain:
        wrapped = wrapping.wrap(connection, FIRST, key, tenant_context(tenant.bytes, key_id))
        connection.execute(_UNDER, (FIRST, wrapped, tenant, key_id))
