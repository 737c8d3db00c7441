"""A new wrapping key under a new master key, and everything wrapped again under it.

From its first step on both are in force: new tenants come under the new one, and what is under the
old one can be read. It may be cut off anywhere and be started again: what is under the new one is
left alone. At its end the old wrapping key is deleted, and with it the last use of its master key.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import psycopg

from commandside.ports import Unavailable
from infra.keys.local import from_file
from infra.keys.masters import following_file, masters_of, where
from infra.keys.port import MasterKey, MasterKeyError
from infra.keys.wrapping import Unlocked, WrappingKeys, tenant_context, unlock
from infra.postgres.connection import connect
from infra.settings import Settings

BATCH: Final = 100
TRIES: Final = 10
"""A tenant that was made meanwhile can be under the old one still: then it is looked again."""

_TURN: Final = "select pg_try_advisory_lock(7003, 1)"
_LOCK: Final = "lock table wrapping_keys in share row exclusive mode"
_STANDING: Final = "select number, master from wrapping_keys order by number desc"
_BEHIND: Final = """
select tenant_id, key_id, wrapping_key, wrapped from tenant_keys
where wrapping_key < %(newest)s order by tenant_id, key_id limit %(limit)s
"""
# A key that was erased or wrapped again meanwhile is not the row that was read.
_AGAIN: Final = """
update tenant_keys set wrapping_key = %(newest)s, wrapped = %(again)s
where tenant_id = %(tenant)s and key_id = %(key)s and wrapped = %(before)s
"""
_DELETE: Final = "delete from wrapping_keys where number < %s"

Say = Callable[[str], None]


def rotate_master(settings: Settings, say: Say) -> None:
    """Change over to the next master key, or to a new one; says what is done and what is to do.

    Raises MasterKeyError, Unavailable.
    """
    masters = masters_of(settings)
    mine = settings.has_master_file and not settings.has_next_master
    if mine and masters.following is None:
        from_file(following_file(settings), create=True)
        masters.read_again()
    new = masters.following or masters.current
    with _alone(settings.postgres.url):
        opened = unlock(settings.postgres.url, masters)
        anew = masters.following is None
        wrapped = rotate(settings.postgres.url, opened, new, anew=anew)
        kept = _take_place(settings) if mine else ""
    say(f"{wrapped} keys are wrapped anew, under the master key {new.name}")
    if kept:
        say(f"{settings.master_file} is that key now: keep a copy elsewhere")
        say(f"{kept} is the one before: destroy it when no backup of the database needs it")
    elif masters.following is not None:
        say(f"now give every process as current what is next; {where(settings)} opens nothing more")


def rotate(conninfo: str, opened: Unlocked, new: MasterKey, *, anew: bool = False) -> int:
    """Wrap everything under `new`; returns how many keys were wrapped again by this call.

    `anew`: with another wrapping key, even where the newest is under `new` already.
    """
    wrapping = opened.wrapping
    with connect(conninfo, name="key rotation") as connection:
        newest = _begin(connection, opened, new, anew=anew)
        done = 0
        for _ in range(TRIES):
            done += _wrap_all(connection, wrapping, newest)
            with suppress(psycopg.errors.ForeignKeyViolation):
                connection.execute(_DELETE, (newest,))
                return done
    raise Unavailable("tenants are made faster than their keys are wrapped; start it again")


@contextmanager
def _alone(conninfo: str) -> Iterator[None]:
    """Hold off another rotation of this installation; raises MasterKeyError where there is one."""
    with connect(conninfo, name="key rotation alone") as connection:
        row = connection.execute(_TURN).fetchone()
        if row is None or not row[0]:
            raise MasterKeyError("another rotation of this installation's keys is under way")
        yield


def _begin(connection: psycopg.Connection, opened: Unlocked, new: MasterKey, *, anew: bool) -> int:
    """Return the number of the new wrapping key: that of a rotation that was cut off, or the next.

    The root secret comes under it in the same transaction.
    """
    wrapping = opened.wrapping
    with connection.transaction():
        connection.execute(_LOCK)
        standing = connection.execute(_STANDING).fetchall()
        number, master = standing[0]
        if master == new.name and (len(standing) > 1 or not anew):
            return int(number)
        wrapping.add(connection, number + 1, new)
        wrapping.put_root(connection, number + 1, opened.root)
        return int(number + 1)


def _wrap_all(connection: psycopg.Connection, wrapping: WrappingKeys, newest: int) -> int:
    done = 0
    while True:
        asked = {"newest": newest, "limit": BATCH}
        rows = connection.execute(_BEHIND, asked).fetchall()
        if not rows:
            return done
        with connection.transaction():
            for tenant, key_id, number, wrapped in rows:
                context = tenant_context(tenant.bytes, key_id)
                key = wrapping.unwrap(connection, number, wrapped, context)
                values = {
                    "newest": newest,
                    "again": wrapping.wrap(connection, newest, key, context),
                    "tenant": tenant,
                    "key": key_id,
                    "before": wrapped,
                }
                done += connection.execute(_AGAIN, values).rowcount


def _take_place(settings: Settings) -> str:
    """Let the next master key's file be the current one; returns where the one before is now."""
    file = settings.master_file
    old = from_file(file)
    kept = file.with_name(f"{file.name}.was-{old.name.partition(':')[2]}")
    try:
        with suppress(FileExistsError):
            kept.hardlink_to(file)
        following_file(settings).replace(file)
    except OSError as error:
        raise MasterKeyError(
            f"{error.strerror}: move {following_file(settings)} to {file} by hand; all is under it"
        ) from error
    return str(kept)
